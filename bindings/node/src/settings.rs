//! What `child_process` has no option for: each name a setting of `forkless::Command`. `lib/settings.js` has converted the values to
//! JSON: a file or socket is its descriptor, bytes are a list of numbers, a large integer is a string of digits.

use forkless::warm::Warm;
use forkless::{
    BpfInstruction, Capability, CapabilitySet, Command, IoClass, Launcher, Namespace, Resource, Scheduler, Stdio, Step,
};
use rustix::fs::{Mode, OFlags, open};
use serde_json::{Map, Value};
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

type Done<T = ()> = Result<T, String>;

/// Applies a setting.
pub(crate) fn apply(command: &mut Command, name: &str, value: &Value) -> Done {
    match set(command, name, value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("there is no option {name}")),
        Err(why) => Err(format!("{name}: {why}")),
    }
}

/// False: no setting has the name.
fn set(command: &mut Command, name: &str, value: &Value) -> Done<bool> {
    match name {
        "inherit_all" => _ = command.inherit_all(flag(value)?),
        "process_group" => _ = command.process_group(int(value)?),
        "retry_busy" => _ = command.retry_busy(Duration::from_millis(int(value)?)),
        "ignore_signals" => each(value)?.try_for_each(|one| Ok::<_, String>(_ = command.signal_ignore(int(one)?)))?,
        "block_signals" => each(value)?.try_for_each(|one| Ok::<_, String>(_ = command.signal_block(int(one)?)))?,
        "warm" => {
            if flag(value)? {
                let warm = Warm::of_process().map_err(|error| error.to_string())?;
                command.warm(&warm);
            }
        }
        // Part of the request: it also decides on the environment.
        "sandbox" => {}
        "pty" => crate::pty::apply(command, value)?,
        // Standard error goes where standard output goes.
        "merged" => {
            if flag(value)? {
                command.fd(Stdio::dup_of(1), 2);
            }
        }
        "launcher" => _ = command.launcher(named(value, LAUNCHERS)?),
        "best_effort" => {
            for words in each(value)? {
                command.best_effort(step(text(words)?)?);
            }
        }
        "rlimits" => rlimits(command, value)?,
        "scheduler" => {
            let (policy, priority) = pair(value)?;
            command.scheduler(named(policy, SCHEDULERS)?, int(priority)?);
        }
        "cpu_affinity" => _ = command.cpu_affinity(each(value)?.map(int).collect::<Done<Vec<usize>>>()?),
        "io_priority" => {
            let (class, level) = pair(value)?;
            command.io_priority(named(class, IO_CLASSES)?, int(level)?);
        }
        _ => return sandbox(command, name, value),
    }
    Ok(true)
}

fn sandbox(command: &mut Command, name: &str, value: &Value) -> Done<bool> {
    match name {
        "unshare" => {
            for namespace in each(value)? {
                command.unshare(named(namespace, NAMESPACES)?);
            }
        }
        "join" => {
            for (namespace, file) in pairs(value)? {
                command.join(named(&Value::from(namespace.as_str()), NAMESPACES)?, owned(file)?);
            }
        }
        "uid_map" => maps(command, value, Command::map_uid)?,
        "gid_map" => maps(command, value, Command::map_gid)?,
        "mounts" => {
            for one in each(value)? {
                mount(command, &each(one)?.collect::<Vec<_>>())?;
            }
        }
        "seccomp" => _ = command.seccomp(filter(value)?),
        _ => return simple(command, name, value),
    }
    Ok(true)
}

/// Converts a JSON value to the type in the library's table of settings.
macro_rules! value {
    (flag $value:ident) => {
        flag($value)?
    };
    (fd $value:ident) => {
        owned($value)?
    };
    (file $value:ident) => {
        owned($value)?
    };
    (path $value:ident) => {
        text($value)?
    };
    (text $value:ident) => {
        text($value)?
    };
    (capabilities $value:ident) => {
        capabilities($value)?
    };
    (amount $value:ident) => {
        crate::sandbox::amount($value)?
    };
    (word $value:ident) => {
        text($value)?.parse()?
    };
    ($number:ident $value:ident) => {
        int($value)?
    };
}

/// The settings of the table.
macro_rules! simple {
    (
        played { $($(#[$doc:meta])* $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) $row:tt)* }
        passed { $($pname:ident($parg:ident: $pkind:ident) { line $line:literal python $python:ident })* }
    ) => {
        fn simple(command: &mut Command, name: &str, value: &Value) -> Done<bool> {
            $(simple!(one $name $kind command name value);)*
            $(simple!(one $pname $pkind command name value);)*
            Ok(false)
        }
    };
    (one $setting:ident $kind:ident $command:ident $name:ident $value:ident) => {
        if $name == stringify!($setting) {
            $command.$setting(value!($kind $value));
            return Ok(true);
        }
    };
}

forkless::settings!(simple);

/// `{ nofile: [soft, hard], core: 0 }`.
fn rlimits(command: &mut Command, value: &Value) -> Done {
    let resources = Resource::ALL.map(|one| (one.name(), one));
    for (resource, limits) in pairs(value)? {
        let (soft, hard) = match limits {
            Value::Array(_) => pair(limits).and_then(|(soft, hard)| Ok((limit(soft)?, limit(hard)?)))?,
            both => limit(both).map(|both| (both, both))?,
        };
        command.rlimit(named(&Value::from(resource.as_str()), &resources)?, soft, hard);
    }
    Ok(())
}

fn limit(value: &Value) -> Done<u64> {
    if value.as_str() == Some("unlimited") { Ok(forkless::RLIM_INFINITY) } else { int(value) }
}

fn maps(command: &mut Command, value: &Value, map: fn(&mut Command, u32, u32, u32) -> &mut Command) -> Done {
    for one in each(value)? {
        let numbers = each(one)?.map(int).collect::<Done<Vec<u32>>>()?;
        let [inside, outside, count] = numbers[..] else { return Err("expected [inside, outside, count]".to_owned()) };
        map(command, inside, outside, count);
    }
    Ok(())
}

/// The name of an operation, and its operands.
fn mount(command: &mut Command, words: &[&Value]) -> Done {
    let [kind, rest @ ..] = words else { return Err("a list without the name of an operation".to_owned()) };
    match (text(kind)?, rest) {
        ("bind", [source, target]) => _ = command.bind(text(source)?, text(target)?),
        ("bind_read_only", [source, target]) => _ = command.bind_read_only(text(source)?, text(target)?),
        ("read_only", [target]) => _ = command.read_only(text(target)?),
        ("tmpfs", [target, options]) => _ = command.tmpfs(text(target)?, text(options)?),
        ("proc", [target]) => _ = command.proc(text(target)?),
        ("devices", [target]) => _ = command.devices(text(target)?),
        ("unmount", [target]) => _ = command.unmount(text(target)?),
        ("dir", [path, mode]) => _ = command.make_dir(text(path)?, int(mode)?),
        ("symlink", [to, path]) => _ = command.make_symlink(text(to)?, text(path)?),
        ("attributes", [target, set, clear]) => {
            command.mount_attributes(text(target)?, int(set)?, int(clear)?);
        }
        ("attach", [tree, target]) => _ = command.attach_mount(owned(tree)?, text(target)?),
        ("mount", [source, target, kind, flags, data]) => {
            let (source, data) = (maybe(source)?, maybe(data)?);
            command.mount(source.map(OsStr::new), text(target)?, maybe(kind)?, int(flags)?, data.map(OsStr::new));
        }
        ("overlay", [lower, upper, target]) => {
            let lower = each(lower)?.map(|one| text(one).map(Path::new)).collect::<Done<Vec<_>>>()?;
            let upper = match upper {
                Value::Null => None,
                both => {
                    pair(both).and_then(|(upper, work)| Ok(Some((Path::new(text(upper)?), Path::new(text(work)?)))))?
                }
            };
            command.overlay(&lower, upper, text(target)?);
        }
        ("file_system", [kind, parameters, attributes, target]) => {
            let parameters = pairs(parameters)?
                .iter()
                .map(|(key, value)| Ok((key.as_str(), maybe(value)?.map(OsStr::new))))
                .collect::<Done<Vec<_>>>()?;
            command.file_system(text(kind)?, parameters, int(attributes)?, text(target)?);
        }
        (other, _) => return Err(format!("no mount operation '{other}' with {} operands", rest.len())),
    }
    Ok(())
}

fn flag(value: &Value) -> Done<bool> {
    value.as_bool().ok_or_else(|| format!("{value} is not a boolean"))
}

fn text(value: &Value) -> Done<&str> {
    value.as_str().ok_or_else(|| format!("{value} is not a string"))
}

fn maybe(value: &Value) -> Done<Option<&str>> {
    if value.is_null() { Ok(None) } else { text(value).map(Some) }
}

/// An integer in the range of its type. A large one is a string of digits; JavaScript's numbers have no type for integers.
fn int<T: TryFrom<i128>>(value: &Value) -> Done<T> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |number: f64| number.fract() == 0.0 && number.abs() <= EXACT;
    let wide = match value {
        Value::String(digits) => digits.parse().ok(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Some(i128::from(number)),
            (None, Some(number)) if whole(number) => Some(number as i128),
            _ => None,
        },
        _ => None,
    };
    wide.and_then(|wide| T::try_from(wide).ok()).ok_or_else(|| format!("{value} is not an integer in range"))
}

fn each(value: &Value) -> Done<impl Iterator<Item = &Value>> {
    value.as_array().map(|list| list.iter()).ok_or_else(|| format!("{value} is not a list"))
}

fn pairs(value: &Value) -> Done<&Map<String, Value>> {
    value.as_object().ok_or_else(|| format!("{value} is not an object"))
}

fn pair(value: &Value) -> Done<(&Value, &Value)> {
    match value.as_array().map(Vec::as_slice) {
        Some([first, second]) => Ok((first, second)),
        _ => Err(format!("{value} is not a list of two")),
    }
}

/// A copy of a descriptor, or the file of this path.
fn owned(value: &Value) -> Done<OwnedFd> {
    let made = match value.as_str() {
        Some(path) => open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()),
        None => {
            let fd: RawFd = int(value)?;
            if fd < 0 {
                return Err(format!("{fd} is not a descriptor"));
            }
            // SAFETY: not -1, and used for a single call, in which the kernel checks whether it is open.
            rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(fd) }, 3)
        }
    };
    made.map_err(|errno| format!("{value}: {}", std::io::Error::from(errno)))
}

/// Names, with or without `CAP_`; or the bits of `capabilities(7)`.
fn capabilities(value: &Value) -> Done<CapabilitySet> {
    match value.as_array() {
        Some(names) => names.iter().map(|name| text(name)?.parse::<Capability>()).collect(),
        None => int(value).map(CapabilitySet::from_bits),
    }
}

/// The bytes of `struct sock_filter` after `struct sock_filter`, as libseccomp's `export_bpf_mem` and other compilers make them.
fn filter(value: &Value) -> Done<Vec<BpfInstruction>> {
    let bytes = each(value)?.map(int).collect::<Done<Vec<u8>>>()?;
    if bytes.is_empty() || bytes.len() % 8 != 0 {
        return Err("a filter is one or more instructions of 8 bytes".to_owned());
    }
    let one = |bytes: &[u8]| match *bytes {
        [a, b, jt, jf, k, l, m, n] => {
            let (code, k) = (u16::from_ne_bytes([a, b]), u32::from_ne_bytes([k, l, m, n]));
            BpfInstruction { code, jt, jf, k }
        }
        _ => unreachable!("chunks of 8 have 8"),
    };
    Ok(bytes.chunks_exact(8).map(one).collect())
}

/// A step by its words, as errors have them.
fn step(words: &str) -> Done<Step> {
    let mut all = (0..1000).filter_map(Step::of_code);
    all.find(|step| step.describe() == words).ok_or_else(|| format!("there is no step '{words}'"))
}

/// The value of a name, in any case.
fn named<T: Copy>(value: &Value, names: &[(&str, T)]) -> Done<T> {
    let name = text(value)?;
    let found = names.iter().find(|(one, _)| one.eq_ignore_ascii_case(name));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        format!("'{name}' is none of {}", all.join(", "))
    })
}

const LAUNCHERS: &[(&str, Launcher)] =
    &[("clone", Launcher::Clone), ("fork", Launcher::Fork), ("posix_spawn", Launcher::PosixSpawn)];

const SCHEDULERS: &[(&str, Scheduler)] = &[
    ("other", Scheduler::Other),
    ("fifo", Scheduler::Fifo),
    ("rr", Scheduler::RoundRobin),
    ("batch", Scheduler::Batch),
    ("idle", Scheduler::Idle),
];

const IO_CLASSES: &[(&str, IoClass)] =
    &[("realtime", IoClass::Realtime), ("best-effort", IoClass::BestEffort), ("idle", IoClass::Idle)];

const NAMESPACES: &[(&str, Namespace)] = &[
    ("time", Namespace::Time),
    ("mount", Namespace::Mount),
    ("cgroup", Namespace::Cgroup),
    ("uts", Namespace::Uts),
    ("ipc", Namespace::Ipc),
    ("user", Namespace::User),
    ("pid", Namespace::Pid),
    ("net", Namespace::Network),
];
