//! The settings of a case, and their conversion to calls of `Command`.

use super::parent::{Place, cgroup_directory, cgroup_mount, pty, refusals_of};
use super::{signal, syscall};
use crate::filter;
use forkless::{BpfInstruction, CallArg, CapabilitySet, Command, IoClass, Namespace, Resource, Scheduler, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a kind of value of the table of settings is in a case, and in a command.
macro_rules! kind {
    (flag) => {
        bool
    };
    (word) => {
        String
    };
    ($number:ident) => {
        $number
    };
    (word $value:expr) => {
        $value.parse().expect("a word that the library knows")
    };
    ($plain:ident $value:expr) => {
        $value
    };
}

/// `Command`'s words for what the child is and may do: those of the table of settings, and the others.
macro_rules! settings {
    (
        played { $($(#[$doc:meta])* $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) $row:tt)* }
        passed $passed:tt
    ) => {
        /// `Command`'s words for what the child is and may do.
        #[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[expect(missing_docs, reason = "Command's own names")]
        pub struct Settings {
            $(pub $name: Option<kind!($kind)>,)*
            /// A directory, opened here.
            pub current_dir_fd: Option<String>,
            pub chroot: Option<String>,
            pub uid: Option<u32>,
            pub gid: Option<u32>,
            pub groups: Option<Vec<u32>>,
            pub user: Option<String>,
            pub group: Option<String>,
            pub umask: Option<u32>,
            /// Name to soft and hard; -1: none.
            pub rlimit: BTreeMap<String, [i64; 2]>,
            pub scheduler: Option<(String, u32)>,
            pub affinity: Option<Vec<usize>>,
            pub io_priority: Option<(String, u32)>,
            pub terminal: Option<i32>,
            pub foreground: Option<i32>,
            /// The parent's.
            pub pty: bool,
            pub no_new_privs: bool,
            pub parent_death_signal: Option<String>,
            pub thread_death_signal: Option<String>,
            pub call: Vec<RawCall>,
            pub hand_back: Vec<u32>,
            pub best_effort: Vec<String>,
            pub unshare: Vec<String>,
            pub map_uid: Vec<[u32; 3]>,
            pub map_gid: Vec<[u32; 3]>,
            /// Kind and file, opened here.
            pub join: Vec<[String; 2]>,
            pub hostname: Option<String>,
            /// See `mount`.
            pub mount: Vec<String>,
            pub pivot_root: Option<String>,
            /// A directory, opened here; `new`: the one of this process; `gone`: one that has been removed; `mounted`: the uppermost.
            pub cgroup: Option<String>,
            pub bounding: Option<Vec<String>>,
            pub permitted: Option<Vec<String>>,
            pub effective: Option<Vec<String>>,
            pub inheritable: Option<Vec<String>>,
            pub ambient: Option<Vec<String>>,
            pub securebits: Option<u32>,
            /// What is forbidden: `write` (but in the case's directory), `execute`; `file`: not a ruleset at all.
            pub landlock: Option<String>,
            /// As for a route; `nonsense`: not a filter.
            pub seccomp: Option<String>,
            /// A program, opened here.
            pub program_fd: Option<String>,
        }

        fn simple(settings: &Settings, command: &mut Command) {
            $(if let Some(value) = settings.$name.clone() {
                command.$name(kind!($kind value));
            })*
        }
    };
}

forkless::settings!(settings);

/// A system call by name, with its arguments: numbers, `$N` for a variable, else text.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawCall {
    /// Its name.
    pub name: String,
    /// The arguments.
    pub args: Vec<String>,
    /// The variable for the result.
    pub result: Option<u32>,
}

/// Adds the settings to a command.
pub fn apply(settings: &Settings, command: &mut Command, place: &Place) -> io::Result<()> {
    identity(settings, command, place)?;
    simple(settings, command);
    resources(settings, command);
    surroundings(settings, command, place)?;
    privileges(settings, command, place)?;
    for call in &settings.call {
        let args = call.args.iter().map(|arg| match (arg.strip_prefix('$'), arg.parse::<i64>()) {
            (Some(variable), _) => CallArg::Variable(variable.parse().expect("$N")),
            (_, Ok(number)) => CallArg::Number(number as u64),
            _ => CallArg::from(place.text(arg).as_str()),
        });
        // SAFETY: the cases' calls change nothing that belongs to the memory.
        unsafe { command.call(syscall(&call.name) as u32, args, call.result) };
    }
    for &variable in &settings.hand_back {
        command.hand_back(variable);
    }
    for name in &settings.best_effort {
        command.best_effort(step(name));
    }
    Ok(())
}

/// A step by its name.
pub fn step(name: &str) -> Step {
    let mut steps = (0..200).filter_map(Step::of_code);
    steps.find(|step| format!("{step:?}") == name).unwrap_or_else(|| panic!("{name} is no step"))
}

fn identity(settings: &Settings, command: &mut Command, place: &Place) -> io::Result<()> {
    if let Some(path) = &settings.current_dir_fd {
        command.current_dir_fd(opened(path, place)?);
    }
    if let Some(root) = &settings.chroot {
        command.chroot(place.bytes(root));
    }
    if let Some(uid) = settings.uid {
        command.uid(uid);
    }
    if let Some(gid) = settings.gid {
        command.gid(gid);
    }
    if let Some(groups) = &settings.groups {
        command.groups(groups);
    }
    if let Some(user) = &settings.user {
        command.user(place.bytes(user));
    }
    if let Some(group) = &settings.group {
        command.group_name(place.bytes(group));
    }
    if let Some(mask) = settings.umask {
        command.umask(mask);
    }
    if let Some(number) = settings.terminal {
        command.controlling_terminal(number);
    }
    if let Some(number) = settings.foreground {
        command.foreground(number);
    }
    if settings.pty {
        command.pty(pty());
    }
    if settings.no_new_privs {
        command.no_new_privs(true);
    }
    if let Some(name) = &settings.parent_death_signal {
        command.parent_death_signal(signal(name));
    }
    if let Some(name) = &settings.thread_death_signal {
        command.thread_death_signal(signal(name));
    }
    if let Some(program) = &settings.program_fd {
        command.program_fd(opened(program, place)?);
    }
    Ok(())
}

fn resources(settings: &Settings, command: &mut Command) {
    for (name, [soft, hard]) in &settings.rlimit {
        let known = Resource::ALL.into_iter().find(|known| known.name() == name);
        // -1 is RLIM_INFINITY.
        command.rlimit(known.unwrap_or_else(|| panic!("{name} is no limit")), *soft as u64, *hard as u64);
    }
    if let Some((policy, priority)) = &settings.scheduler {
        let policies = [Scheduler::Other, Scheduler::Fifo, Scheduler::RoundRobin, Scheduler::Batch, Scheduler::Idle];
        command.scheduler(named(&policies, policy), *priority);
    }
    if let Some(cpus) = &settings.affinity {
        command.cpu_affinity(cpus.iter().copied());
    }
    if let Some((class, level)) = &settings.io_priority {
        command.io_priority(named(&[IoClass::Realtime, IoClass::BestEffort, IoClass::Idle], class), *level);
    }
}

fn surroundings(settings: &Settings, command: &mut Command, place: &Place) -> io::Result<()> {
    for kind in &settings.unshare {
        command.unshare(namespace(kind));
    }
    for &[inside, outside, count] in &settings.map_uid {
        // SAFETY: reads a number.
        command.map_uid(inside, own(outside, unsafe { libc::geteuid() }), count);
    }
    for &[inside, outside, count] in &settings.map_gid {
        // SAFETY: reads a number.
        command.map_gid(inside, own(outside, unsafe { libc::getegid() }), count);
    }
    for [kind, path] in &settings.join {
        command.join(namespace(kind), opened(path, place)?);
    }
    if let Some(name) = &settings.hostname {
        command.hostname(place.bytes(name));
    }
    for words in &settings.mount {
        mount(words, command, place)?;
    }
    if let Some(root) = &settings.pivot_root {
        command.pivot_root(place.bytes(root));
    }
    match settings.cgroup.as_deref() {
        Some("new") => _ = command.cgroup(File::open(cgroup_directory()?)?),
        Some("gone") => {
            let path = cgroup_directory()?.join("gone");
            fs::create_dir(&path)?;
            let directory = File::open(&path)?;
            fs::remove_dir(&path)?;
            command.cgroup(directory);
        }
        Some("mounted") => _ = command.cgroup(File::open(cgroup_mount()?)?),
        Some(path) => _ = command.cgroup(opened(path, place)?),
        None => {}
    }
    Ok(())
}

/// 65534 is what root becomes as an ordinary user; who is one already keeps its id.
fn own(id: u32, mine: u32) -> u32 {
    if id == 65534 && mine != 0 { mine } else { id }
}

/// One of: `bind SOURCE TARGET`, `bind_read_only SOURCE TARGET`, `read_only TARGET`, `attributes TARGET SET CLEAR`,
/// `tmpfs TARGET OPTIONS`, `proc TARGET`, `mount SOURCE TARGET KIND`, `overlay TARGET LOWER[:LOWER]… [UPPER WORK]`,
/// `file_system KIND TARGET ATTRIBUTES [KEY=VALUE|FLAG]…`, `attach_tree SOURCE TARGET` (a copy of what is mounted there,
/// made here), `attach_file FILE TARGET`, `unmount TARGET`, `make_dir PATH MODE`, `make_symlink TO PATH`, `devices TARGET`.
fn mount(words: &str, command: &mut Command, place: &Place) -> io::Result<()> {
    let words: Vec<_> = words.split(' ').map(|word| place.bytes(word)).collect();
    let [kind, rest @ ..] = words.as_slice() else { panic!("an empty mount") };
    let number =
        |text: &OsString, radix| u64::from_str_radix(text.to_str().expect("a number"), radix).expect("a number");
    match (kind.to_str(), rest) {
        (Some("bind"), [source, target]) => command.bind(source, target),
        (Some("bind_read_only"), [source, target]) => command.bind_read_only(source, target),
        (Some("read_only"), [target]) => command.read_only(target),
        (Some("attributes"), [target, set, clear]) => {
            command.mount_attributes(target, number(set, 16), number(clear, 16))
        }
        (Some("tmpfs"), [target, options]) => command.tmpfs(target, &options.to_string_lossy()),
        (Some("proc"), [target]) => command.proc(target),
        (Some("mount"), [source, target, kind]) => command.mount(Some(source), target, kind.to_str(), 0, None),
        (Some("overlay"), [target, lower, upper @ ..]) => {
            let lower: Vec<&str> = lower.to_str().expect("a path").split(':').collect();
            let upper = if let [upper, work] = upper { Some((Path::new(upper), Path::new(work))) } else { None };
            command.overlay(&lower, upper, target)
        }
        (Some("file_system"), [kind, target, attributes, parameters @ ..]) => {
            let parameter = |text: &'_ OsString| text.to_str().expect("a parameter").to_owned();
            let parameters: Vec<String> = parameters.iter().map(parameter).collect();
            let parameters = parameters.iter().map(|text| match text.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (text.as_str(), None),
            });
            command.file_system(kind.to_str().expect("a kind"), parameters, number(attributes, 16), target)
        }
        (Some("attach_tree"), [source, target]) => command.attach_mount(tree(Path::new(source))?, target),
        (Some("attach_file"), [file, target]) => command.attach_mount(File::open(file)?, target),
        (Some("unmount"), [target]) => command.unmount(target),
        (Some("make_dir"), [path, mode]) => command.make_dir(path, number(mode, 8) as u32),
        (Some("make_symlink"), [to, path]) => command.make_symlink(to, path),
        (Some("devices"), [target]) => command.devices(target),
        _ => panic!("{words:?} is no mount"),
    };
    Ok(())
}

/// A copy of the mount at `source`, attached nowhere: `open_tree(2)`.
fn tree(source: &Path) -> io::Result<OwnedFd> {
    const OPEN_TREE_CLONE: i32 = 1;
    let source = CString::new(source.as_os_str().as_bytes())?;
    // SAFETY: a NUL-terminated path; the descriptor is new.
    unsafe {
        match libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), OPEN_TREE_CLONE | libc::O_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as i32)),
        }
    }
}

fn privileges(settings: &Settings, command: &mut Command, place: &Place) -> io::Result<()> {
    if let Some(names) = &settings.bounding {
        command.bounding_set(capabilities(names));
    }
    if let Some(names) = &settings.permitted {
        command.permitted(capabilities(names));
    }
    if let Some(names) = &settings.effective {
        command.effective(capabilities(names));
    }
    if let Some(names) = &settings.inheritable {
        command.inheritable(capabilities(names));
    }
    if let Some(names) = &settings.ambient {
        command.ambient(capabilities(names));
    }
    if let Some(bits) = settings.securebits {
        command.securebits(bits);
    }
    match settings.landlock.as_deref() {
        Some("file") => _ = command.landlock(File::open("/dev/null")?),
        Some(forbidden) => _ = command.landlock(ruleset(forbidden, place)?),
        None => {}
    }
    match settings.seccomp.as_deref() {
        Some("empty") => _ = command.seccomp([]),
        Some("nonsense") => _ = command.seccomp([BpfInstruction { code: 0xffff, jt: 0, jf: 0, k: 0 }]),
        Some(refusals) => {
            let programs = filter::programs(&refusals_of(refusals)).map_err(io::Error::other)?;
            let [program] = programs.as_slice() else { panic!("{refusals:?} takes more than one filter") };
            let instruction =
                |one: &seccompiler::sock_filter| BpfInstruction { code: one.code, jt: one.jt, jf: one.jf, k: one.k };
            command.seccomp(program.iter().map(instruction));
        }
        None => {}
    }
    Ok(())
}

/// Capabilities by name; `ALL`.
pub fn capabilities(names: &[String]) -> CapabilitySet {
    if names.iter().any(|name| name == "ALL") {
        return CapabilitySet::ALL;
    }
    names.iter().map(|name| name.parse::<forkless::Capability>().expect("a capability")).collect()
}

fn namespace(kind: &str) -> Namespace {
    use Namespace::{Cgroup, Ipc, Mount, Network, Pid, Time, User, Uts};
    named(&[Time, Mount, Cgroup, Uts, Ipc, User, Pid, Network], kind)
}

fn named<T: std::fmt::Debug + Copy>(all: &[T], name: &str) -> T {
    *all.iter().find(|one| format!("{one:?}") == name).unwrap_or_else(|| panic!("{name} is none of {all:?}"))
}

fn opened(path: &str, place: &Place) -> io::Result<File> {
    File::open(place.file(path))
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: i32,
}

/// A Landlock ruleset: `landlock(7)`.
fn ruleset(forbidden: &str, place: &Place) -> io::Result<OwnedFd> {
    const EXECUTE: u64 = 1;
    const WRITE_FILE: u64 = 2;
    const MAKE_REG: u64 = 1 << 8;
    let handled = match forbidden {
        "write" => WRITE_FILE | MAKE_REG,
        "execute" => EXECUTE,
        _ => panic!("{forbidden} cannot be forbidden"),
    };
    // SAFETY: the kernel reads a ruleset of one word, and then a rule.
    unsafe {
        let fd = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let ruleset = OwnedFd::from_raw_fd(fd as i32);
        let directory = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&place.dir)?;
        let rule = Beneath { allowed: handled, parent: directory.as_raw_fd() };
        match libc::syscall(libc::SYS_landlock_add_rule, fd, 1, &raw const rule, 0) {
            0 => Ok(ruleset),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
