//! Sandboxes that JavaScript has prepared. Its objects name them by numbers, because settings are JSON.

use forkless::{Network, PreparedSandbox, Sandbox};
use napi_derive::napi;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A sandbox, and the variables that it keeps beside those of every sandbox.
#[derive(Clone)]
pub(crate) struct NodeSandbox {
    pub(crate) sandbox: PreparedSandbox,
    pub(crate) keep_env: Vec<std::ffi::OsString>,
    /// It is one of namespaces.
    pub(crate) has_init: bool,
}

/// Of all threads: a worker may get one with its number.
static PREPARED: Mutex<(u32, BTreeMap<u32, NodeSandbox>)> = Mutex::new((0, BTreeMap::new()));

/// Prepares a sandbox and returns its number. `lib/sandbox.js` has checked the options.
#[napi]
pub fn prepare_sandbox(options: Map<String, Value>) -> napi::Result<u32, String> {
    let texts = |name: &str| {
        let list = options.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    let has_init = text("mode") == Some("namespaces");
    let mut sandbox = if has_init { Sandbox::new() } else { Sandbox::landlock() };
    texts("read").into_iter().for_each(|path| _ = sandbox.read(path));
    texts("write").into_iter().for_each(|path| _ = sandbox.write(path));
    texts("project").into_iter().for_each(|path| _ = sandbox.writable_project(path));
    texts("hide").into_iter().for_each(|path| _ = sandbox.hide(path));
    let keep_env = texts("keepEnv");
    keep_env.iter().for_each(|name| _ = sandbox.keep_env(name));
    match text("network") {
        Some("none") => _ = sandbox.network(Network::None),
        Some("refused") => _ = sandbox.network(Network::Refused),
        Some("host") => _ = sandbox.network(Network::Host),
        _ => {}
    }
    if let Some(linger) = options.get("linger").and_then(Value::as_f64) {
        sandbox.linger(Duration::try_from_secs_f64(linger / 1e3).unwrap_or(Duration::MAX));
    }
    for (name, value) in options.get("limits").and_then(Value::as_object).into_iter().flatten() {
        let set = amount(value).map(|value| sandbox.limit(name, value));
        set.map_err(|why| napi::Error::new("EINVAL".to_owned(), format!("{name}: {why}")))?;
    }
    let is = |name: &str| options.get(name) == Some(&Value::Bool(true));
    sandbox.change_attributes(is("changeAttributes")).strict(is("strict")).init(is("init"));
    let sandbox = sandbox.prepare().map_err(|error| napi::Error::new(code(&error), error.to_string()))?;
    let keep_env = keep_env.into_iter().map(Into::into).collect();
    let mut all = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    all.0 += 1;
    let number = all.0;
    all.1.insert(number, NodeSandbox { sandbox, keep_env, has_init });
    Ok(number)
}

/// A limit: a number, or text.
pub(crate) fn amount(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if text == "unlimited" => Ok("max".to_owned()),
        Value::String(text) => Ok(text.clone()),
        // JavaScript has no type for integers.
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 => Ok(format!("{whole:.0}")),
            _ => Ok(number.to_string()),
        },
        _ => Err(format!("{value} is neither a number nor a string")),
    }
}

/// Whether it works here.
#[napi]
pub fn check_sandbox(number: u32) -> napi::Result<(), String> {
    let found = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).1.get(&number).cloned();
    let checked = found.map_or(Ok(()), |kept| kept.sandbox.check());
    checked.map_err(|error| napi::Error::new(code(&error), error.to_string()))
}

/// Its object is gone.
#[napi]
pub fn release_sandbox(number: u32) {
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&number);
}

/// The sandbox of a request, and whether its program inherits the variables of the caller.
pub(crate) fn of(settings: Option<&Map<String, Value>>) -> Result<Option<(NodeSandbox, bool)>, String> {
    let Some(value) = settings.and_then(|settings| settings.get("sandbox")) else { return Ok(None) };
    let number = value.get("prepared").and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let all = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = number.and_then(|number| all.1.get(&number)).cloned();
    let inherits = value.get("inherits") != Some(&Value::Bool(false));
    found.map(|kept| Some((kept, inherits))).ok_or("sandbox: not a Sandbox, nor options of one".to_owned())
}

/// The error's code, as Node names it.
pub(crate) fn code(error: &io::Error) -> String {
    let name = match (forkless::internal::errno(error), error.kind()) {
        (_, io::ErrorKind::Unsupported) => "EOPNOTSUPP",
        (_, io::ErrorKind::NotFound) => "ENOENT",
        (_, io::ErrorKind::PermissionDenied) => "EACCES",
        (Some(libc::ELOOP), _) => "ELOOP",
        (Some(libc::EMFILE), _) => "EMFILE",
        (_, io::ErrorKind::ResourceBusy) => "EBUSY",
        (_, io::ErrorKind::InvalidInput) => "EINVAL",
        _ => "EIO",
    };
    name.to_owned()
}
