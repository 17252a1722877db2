//! Sandboxes that are prepared for any number of commands.

use crate::boundary::to_status;
use crate::command::{self, Settable};
use crate::error::{Error, Failure, bad};
use crate::handle::{NULL, free, give, list, out, shared};
use forkless::{Command, Network, PreparedSandbox, Sandbox};
use libc::{c_char, c_int, size_t};
use std::time::Duration;

/// `forkless_sandbox_options`. Later versions append members; `size` says which of them the caller has.
#[repr(C)]
pub(crate) struct SandboxOptions {
    size: size_t,
    flags: c_int,
    read: *const *const c_char,
    write: *const *const c_char,
    keep_env: *const *const c_char,
    project: *const *const c_char,
    linger_ms: i64,
    limits: *const *const c_char,
    hide: *const *const c_char,
}

const NETWORK: c_int = 1;
const CHANGE_ATTRIBUTES: c_int = 2;
const NETWORK_REFUSED: c_int = 4;
const STRICT: c_int = 8;
const NO_INIT: c_int = 16;

impl SandboxOptions {
    /// # Safety
    /// The lists are null, or end in a null pointer.
    unsafe fn prepare(&self, mut sandbox: Sandbox) -> Result<PreparedSandbox, Failure> {
        let known = NETWORK | CHANGE_ATTRIBUTES | NETWORK_REFUSED | STRICT | NO_INIT;
        if self.size != size_of::<Self>() || self.flags & !known != 0 {
            return Err(bad("the options have an unknown size or unknown flags"));
        }
        let texts = |texts: *const *const c_char| {
            // SAFETY: the caller's contract.
            if texts.is_null() { Ok(Vec::new()) } else { unsafe { list(texts) } }
        };
        for path in texts(self.read)? {
            sandbox.read(path);
        }
        for path in texts(self.write)? {
            sandbox.write(path);
        }
        for path in texts(self.project)? {
            sandbox.writable_project(path);
        }
        for path in texts(self.hide)? {
            sandbox.hide(path);
        }
        for name in texts(self.keep_env)? {
            sandbox.keep_env(name);
        }
        if let Ok(limit) = u64::try_from(self.linger_ms) {
            sandbox.linger(Duration::from_millis(limit));
        }
        for pair in texts(self.limits)?.chunks(2) {
            let text = |at: usize| {
                pair.get(at).and_then(|text| text.to_str()).ok_or(bad("limits are pairs of a name and a value"))
            };
            if !sandbox.limit(text(0)?, text(1)?.to_owned()) {
                return Err(bad("unknown limit"));
            }
        }
        let is = |flag: c_int| self.flags & flag != 0;
        sandbox.change_attributes(is(CHANGE_ATTRIBUTES)).strict(is(STRICT)).init(!is(NO_INIT));
        match self.flags & (NETWORK | NETWORK_REFUSED) {
            0 => {}
            NETWORK => _ = sandbox.network(Network::Host),
            NETWORK_REFUSED => _ = sandbox.network(Network::Refused),
            _ => return Err(bad("NETWORK and NETWORK_REFUSED exclude each other")),
        }
        Ok(sandbox.prepare()?)
    }
}
/// # Safety
/// `options` is null or initialized; `sandbox` and `error` are null or writable.
unsafe fn prepare(
    of: fn() -> Sandbox,
    options: *const SandboxOptions,
    sandbox: *mut *mut PreparedSandbox,
    error: *mut Error,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { to_status(error, || give(sandbox, || Ok(out(shared(options)?.prepare(of())?)))) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_sandbox_namespaces(
    options: *const SandboxOptions,
    sandbox: *mut *mut PreparedSandbox,
    error: *mut Error,
) -> c_int {
    // SAFETY: `options` is null or initialized; `sandbox` and `error` are null or writable (forkless.h).
    unsafe { prepare(Sandbox::new, options, sandbox, error) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_sandbox_landlock(
    options: *const SandboxOptions,
    sandbox: *mut *mut PreparedSandbox,
    error: *mut Error,
) -> c_int {
    // SAFETY: `options` is null or initialized; `sandbox` and `error` are null or writable (forkless.h).
    unsafe { prepare(Sandbox::landlock, options, sandbox, error) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_sandbox_check(sandbox: *const PreparedSandbox, error: *mut Error) -> c_int {
    // SAFETY: `sandbox` is null or a live handle; `error` is null or writable (forkless.h).
    unsafe { to_status(error, || Ok(shared(sandbox)?.check().map(|()| 0)?)) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_sandbox_free(sandbox: *mut PreparedSandbox) {
    // SAFETY: `sandbox` is null or a live handle, and is not used afterwards (forkless.h).
    unsafe { free(sandbox) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_command_sandbox(command: *mut Settable, sandbox: *const PreparedSandbox) -> c_int {
    let set = |command: &mut Command| {
        // SAFETY: `sandbox` is null or a live handle (forkless.h).
        command.sandbox(unsafe { shared(sandbox) }?);
        Ok(0)
    };
    // SAFETY: `command` is null or a live handle (forkless.h).
    unsafe { to_status(NULL, || command::set(command, set)) }
}
