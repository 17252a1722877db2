//! What `subprocess` has no keyword for: each name is that of a setting of `forkless::Command`.

use crate::convert::{Text, amount, each, named, owned, pairs, seconds};
use crate::error::{in_python, of_setting};
use crate::{mounts, pty, request, sandbox, warm};
use forkless::{
    BpfInstruction, Capability, CapabilitySet, Command, IoClass, Launcher, Namespace, Resource, Scheduler, Step,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// Applies a setting; its value is not None.
pub(crate) fn apply(command: &mut Command, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    match set(command, name, value) {
        Ok(true) => Ok(()),
        Ok(false) => Err(PyTypeError::new_err(format!("got an unexpected keyword argument '{name}'"))),
        Err(error) => Err(of_setting(name, value, error)),
    }
}

/// False: no setting has the name.
fn set(command: &mut Command, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "fds" => request::place_fds(command, value)?,
        "executable_fd" => _ = command.program_fd(owned(value)?),
        "retry_busy" => _ = command.retry_busy(seconds(value)?),
        "scripts_by_shell" => _ = command.scripts_by_shell(value.is_truthy()?),
        "default_signals" => signals(command, value, Command::signal_default)?,
        "ignore_signals" => signals(command, value, Command::signal_ignore)?,
        "block_signals" => {
            // Those alone, in place of the caller's mask.
            command.inherit_signal_mask(false);
            signals(command, value, Command::signal_block)?;
        }
        "pty" => pty::apply(command, value)?,
        "sandbox" => sandbox::apply(command, value)?,
        "warm" => warm::apply(command, value)?,
        "launcher" => _ = command.launcher(named(value, LAUNCHERS)?),
        "best_effort" => {
            for words in each::<String>(value)? {
                command.best_effort(step(&words)?);
            }
        }
        _ => return resource(command, name, value),
    }
    Ok(true)
}

/// Converts a Python value to the type in the library's table of settings.
macro_rules! value {
    (flag $value:ident) => {
        $value.is_truthy()?
    };
    (fd $value:ident) => {
        owned($value)?
    };
    (file $value:ident) => {
        owned($value)?
    };
    (path $value:ident) => {
        $value.extract::<Text<'_>>()?
    };
    (text $value:ident) => {
        $value.extract::<Text<'_>>()?
    };
    (capabilities $value:ident) => {
        capabilities($value)?
    };
    (amount $value:ident) => {
        amount($value)?
    };
    (word $value:ident) => {
        $value.extract::<String>()?.parse().map_err(|why: String| PyValueError::new_err(in_python(&why)))?
    };
    ($number:ident $value:ident) => {
        $value.extract()?
    };
}

/// The settings of the table.
macro_rules! simple {
    (
        played { $($(#[$doc:meta])* $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) $row:tt)* }
        passed { $($pname:ident($parg:ident: $pkind:ident) { line $line:literal python $python:ident })* }
    ) => {
        fn simple(command: &mut Command, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
            $(simple!(yes $name $kind command name value);)*
            $(simple!($python $pname $pkind command name value);)*
            Ok(false)
        }
    };
    (yes $setting:ident $kind:ident $command:ident $name:ident $value:ident) => {
        if $name == stringify!($setting) {
            $command.$setting(value!($kind $value));
            return Ok(true);
        }
    };
    (no $setting:ident $($rest:tt)*) => {};
}

forkless::settings!(simple);

fn resource(command: &mut Command, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "rlimits" => {
            // By the numbers of `resource.RLIMIT_*`.
            let resources = Resource::ALL.map(|one| (one.name(), one as i64, one));
            for (resource, limits) in pairs(value)? {
                let (soft, hard) = match limits.extract::<(Limit, Limit)>() {
                    Ok((soft, hard)) => (soft.0, hard.0),
                    Err(_) => limits.extract::<Limit>().map(|both| (both.0, both.0))?,
                };
                command.rlimit(named(&resource, &resources)?, soft, hard);
            }
        }
        "scheduler" => {
            let (policy, priority): (Bound<'_, PyAny>, u32) = value.extract()?;
            command.scheduler(named(&policy, SCHEDULERS)?, priority);
        }
        "cpu_affinity" => _ = command.cpu_affinity(each::<usize>(value)?),
        "io_priority" => {
            let (class, level): (Bound<'_, PyAny>, u32) = value.extract()?;
            command.io_priority(named(&class, IO_CLASSES)?, level);
        }
        _ => return sandbox(command, name, value),
    }
    Ok(true)
}

fn sandbox(command: &mut Command, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "unshare" => {
            for namespace in each::<Bound<'_, PyAny>>(value)? {
                command.unshare(named(&namespace, NAMESPACES)?);
            }
        }
        "join" => {
            for (namespace, what) in pairs(value)? {
                command.join(named(&namespace, NAMESPACES)?, owned(&what)?);
            }
        }
        "uid_map" => {
            for (inside, outside, count) in each(value)? {
                command.map_uid(inside, outside, count);
            }
        }
        "gid_map" => {
            for (inside, outside, count) in each(value)? {
                command.map_gid(inside, outside, count);
            }
        }
        "mounts" => mounts::apply(command, value)?,
        "seccomp" => _ = command.seccomp(filter(value.extract()?)?),
        _ => return simple(command, name, value),
    }
    Ok(true)
}

fn signals(
    command: &mut Command,
    value: &Bound<'_, PyAny>,
    set: fn(&mut Command, i32) -> &mut Command,
) -> PyResult<()> {
    for signal in each(value)? {
        set(command, signal);
    }
    Ok(())
}

/// A limit as the module `resource` has them: RLIM_INFINITY is -1 there.
struct Limit(u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Limit {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match value.extract::<i64>() {
            Ok(-1) => Ok(Self(forkless::RLIM_INFINITY)),
            Ok(limit) => u64::try_from(limit).map(Self).map_err(|_| PyOverflowError::new_err(())),
            Err(_) => value.extract().map(Self),
        }
    }
}

/// Names, with or without `CAP_`; or the bits of `capabilities(7)`.
fn capabilities(value: &Bound<'_, PyAny>) -> PyResult<CapabilitySet> {
    if let Ok(bits) = value.extract() {
        return Ok(CapabilitySet::from_bits(bits));
    }
    if value.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("capabilities: a set of names, or an int of bits, is expected"));
    }
    let of_name = |name: String| name.parse::<Capability>().map_err(|why| PyValueError::new_err(in_python(&why)));
    each::<String>(value)?.into_iter().map(of_name).collect()
}

/// `struct sock_filter` after `struct sock_filter`, as libseccomp's `export_bpf_mem` and other compilers make them.
fn filter(bytes: &[u8]) -> PyResult<Vec<BpfInstruction>> {
    let instructions = bytes.chunks_exact(8);
    if bytes.is_empty() || !instructions.remainder().is_empty() {
        return Err(PyValueError::new_err("seccomp: a filter is one or more instructions of 8 bytes"));
    }
    let one = |bytes: &[u8]| match *bytes {
        [a, b, jt, jf, k, l, m, n] => {
            let (code, k) = (u16::from_ne_bytes([a, b]), u32::from_ne_bytes([k, l, m, n]));
            BpfInstruction { code, jt, jf, k }
        }
        _ => unreachable!("chunks of 8 have 8"),
    };
    Ok(instructions.map(one).collect())
}

/// A step by its words, as `OSError.step` has them.
fn step(words: &str) -> PyResult<Step> {
    (0..1000)
        .filter_map(Step::of_code)
        .find(|step| step.describe() == words)
        .ok_or_else(|| PyValueError::new_err(format!("there is no step '{words}'")))
}

const LAUNCHERS: &[(&str, i64, Launcher)] =
    &[("clone", 0, Launcher::Clone), ("fork", 1, Launcher::Fork), ("posix_spawn", 2, Launcher::PosixSpawn)];

/// By the numbers of `os.SCHED_*`.
const SCHEDULERS: &[(&str, i64, Scheduler)] = &[
    ("other", 0, Scheduler::Other),
    ("fifo", 1, Scheduler::Fifo),
    ("rr", 2, Scheduler::RoundRobin),
    ("batch", 3, Scheduler::Batch),
    ("idle", 5, Scheduler::Idle),
];

const IO_CLASSES: &[(&str, i64, IoClass)] =
    &[("realtime", 1, IoClass::Realtime), ("best-effort", 2, IoClass::BestEffort), ("idle", 3, IoClass::Idle)];

/// By the numbers of `os.CLONE_NEW*` (Python 3.12).
const NAMESPACES: &[(&str, i64, Namespace)] = &[
    ("time", Namespace::Time as i64, Namespace::Time),
    ("mount", Namespace::Mount as i64, Namespace::Mount),
    ("cgroup", Namespace::Cgroup as i64, Namespace::Cgroup),
    ("uts", Namespace::Uts as i64, Namespace::Uts),
    ("ipc", Namespace::Ipc as i64, Namespace::Ipc),
    ("user", Namespace::User as i64, Namespace::User),
    ("pid", Namespace::Pid as i64, Namespace::Pid),
    ("net", Namespace::Network as i64, Namespace::Network),
];
