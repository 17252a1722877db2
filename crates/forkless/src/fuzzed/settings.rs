//! Makes a command of arbitrary bytes: any setting in any order, often with values at the limits of what is allowed.

use crate::request::command::posix::FileAction;
use crate::{
    BpfInstruction, CallArg, CapabilitySet, Command, IoClass, Launcher, Namespace, Resource, Scheduler, Stdio, Step,
};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes, read from the front. Zeroes after the end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::from(self.byte()) % list.len()]
    }

    /// Mostly small numbers, and numbers at the limits of their types.
    fn number(&mut self) -> i64 {
        const EDGES: [i64; 14] = [
            0,
            -1,
            1,
            63,
            64,
            65,
            1023,
            1024,
            65535,
            65536,
            i32::MAX as i64,
            i32::MIN as i64,
            u32::MAX as i64,
            i64::MIN,
        ];
        match self.byte() {
            byte @ 0..200 => i64::from(byte % 70) - 3,
            byte => EDGES[usize::from(byte) % EDGES.len()],
        }
    }

    fn int(&mut self) -> i32 {
        self.number() as i32
    }

    fn word(&mut self) -> u32 {
        self.number() as u32
    }

    /// A text of the input's bytes, sometimes a long one.
    fn text(&mut self) -> OsString {
        let length = usize::from(self.byte());
        if length >= 250 {
            return "long".repeat((length - 249) * 200).into();
        }
        let (text, rest) = self.0.split_at((length % 24).min(self.0.len()));
        self.0 = rest;
        OsStr::from_bytes(text).to_owned()
    }

    fn path(&mut self) -> PathBuf {
        match self.byte() % 8 {
            0 => "/".into(),
            1 => "/tmp".into(),
            2 => "relative/../x".into(),
            3 => Path::new("/new/root").join(self.text()),
            _ => self.text().into(),
        }
    }

    fn plain(&mut self) -> String {
        self.text().to_string_lossy().into_owned()
    }

    fn c_string(&mut self) -> CString {
        CString::new(self.text().as_bytes()).unwrap_or_default()
    }

    fn file(&mut self) -> File {
        File::open("/dev/null").expect("/dev/null")
    }

    fn stdio(&mut self) -> Stdio {
        match self.byte() % 8 {
            0 => Stdio::inherit(),
            1 => Stdio::null(),
            2 => Stdio::piped(),
            3 => Stdio::socketpair(),
            // SAFETY: nothing is launched.
            4 => unsafe { Stdio::fd(self.int()) },
            5 => Stdio::dup_of(self.int()),
            6 => Stdio::from(self.file()),
            _ => Stdio::open(self.text(), self.int(), self.word()),
        }
    }

    fn namespace(&mut self) -> Namespace {
        use Namespace::{Cgroup, Ipc, Mount, Network, Pid, Time, User, Uts};
        self.pick(&[User, Mount, Pid, Network, Uts, Ipc, Cgroup, Time])
    }

    fn action(&mut self) -> FileAction {
        match self.byte() % 7 {
            0 => FileAction::Close(self.int()),
            1 => FileAction::CloseRange(self.int(), self.int()),
            2 => FileAction::Dup2 { from: self.int(), to: self.int() },
            3 => FileAction::Open { to: self.int(), path: self.c_string(), flags: self.int(), mode: self.word() },
            4 => FileAction::Chdir(self.c_string()),
            5 => FileAction::Fchdir(self.int()),
            _ => FileAction::Foreground(self.int()),
        }
    }
}

/// The command that these bytes stand for.
pub(super) fn command(bytes: &[u8]) -> Command {
    let mut bytes = Bytes(bytes);
    let mut command = match bytes.byte() % 4 {
        0 => Command::new("/bin/true"),
        1 => Command::new("sh"),
        2 => Command::new(""),
        _ => Command::new(bytes.text()),
    };
    let mut left = 64;
    while !bytes.0.is_empty() && left > 0 {
        match bytes.byte() % 4 {
            0 => set_arguments(&mut command, &mut bytes),
            1 => files(&mut command, &mut bytes),
            2 => process(&mut command, &mut bytes),
            _ => surroundings(&mut command, &mut bytes),
        }
        left -= 1;
    }
    command
}

fn set_arguments(command: &mut Command, bytes: &mut Bytes<'_>) {
    match bytes.byte() % 12 {
        0 | 1 => drop(command.arg(bytes.text())),
        2 => drop(command.args((0..bytes.byte()).map(|n| n.to_string()))),
        3 => drop(command.arg0(bytes.text())),
        4 => drop(command.env(bytes.text(), bytes.text())),
        5 => drop(command.env_remove(bytes.text())),
        6 => drop(command.env_clear()),
        7 => drop(command.or_else(bytes.text())),
        8 => drop(command.scripts_by_shell(bytes.flag())),
        9 => drop(command.try_all(bytes.flag())),
        10 => {
            let texts = |bytes: &mut Bytes<'_>| (0..bytes.byte() % 5).map(|_| bytes.c_string()).collect::<Vec<_>>();
            let (paths, args, env) = (texts(bytes), texts(bytes), texts(bytes));
            let own =
                |list: Vec<CString>| list.iter().map(|text| OsStr::from_bytes(text.as_bytes()).to_owned()).collect();
            command.exactly(own(paths), own(args), env.iter().map(CString::as_c_str));
        }
        _ => drop(command.program_fd(bytes.file())),
    }
}

fn files(command: &mut Command, bytes: &mut Bytes<'_>) {
    match bytes.byte() % 10 {
        0..4 => drop(command.fd(bytes.stdio(), bytes.int())),
        4 => drop(command.stdin(bytes.stdio())),
        5 => drop(command.stdout(bytes.stdio()).stderr(bytes.stdio())),
        6 => drop(command.inherit_all(bytes.flag())),
        7 => drop(command.file_actions((0..bytes.byte() % 9).map(|_| bytes.action()).collect())),
        8 => drop(command.current_dir_fd(bytes.file())),
        _ => drop(command.current_dir(bytes.path())),
    }
}

fn process(command: &mut Command, bytes: &mut Bytes<'_>) {
    match bytes.byte() % 30 {
        0 => drop(command.setsid(bytes.flag())),
        1 => drop(command.process_group(bytes.int())),
        2 => drop(command.signal_default(bytes.int())),
        3 => drop(command.signal_ignore(bytes.int())),
        4 => drop(command.signal_block(bytes.int())),
        5 => drop(command.inherit_signal_mask(bytes.flag()).signal_inherit(bytes.int())),
        6 => drop(command.uid(bytes.word())),
        7 => drop(command.gid(bytes.word())),
        8 => drop(command.groups(&(0..bytes.byte() % 40).map(u32::from).collect::<Vec<_>>())),
        9 => drop(command.umask(bytes.word())),
        10 => {
            let resource = bytes.pick(&Resource::ALL);
            command.rlimit(resource, bytes.number() as u64, bytes.number() as u64);
        }
        11 | 16..=18 => simple(command, bytes),
        12 => {
            use Scheduler::{Batch, Fifo, Idle, Other, RoundRobin};
            let policy = bytes.pick(&[Batch, Fifo, Idle, Other, RoundRobin]);
            command.scheduler(policy, bytes.word());
        }
        13 => drop(command.scheduler_as_given(bytes.flag().then(|| bytes.int()), bytes.int())),
        14 => {
            let most = usize::from(bytes.byte() % 5);
            let cpus: Vec<usize> = (0..most).map(|_| bytes.number() as usize).collect();
            command.cpu_affinity(cpus);
        }
        15 => drop(
            command.io_priority(bytes.pick(&[IoClass::Realtime, IoClass::BestEffort, IoClass::Idle]), bytes.word()),
        ),
        19 => drop(command.controlling_terminal(bytes.int())),
        20 => drop(command.foreground(bytes.int())),
        21 => drop(command.no_new_privs(bytes.flag())),
        22 => drop(command.parent_death_signal(bytes.int())),
        23 => drop(command.thread_death_signal(bytes.int())),
        24 => {
            let args: Vec<CallArg> = (0..bytes.byte() % 9)
                .map(|_| match bytes.byte() % 3 {
                    0 => CallArg::Number(bytes.number() as u64),
                    1 => CallArg::Bytes(bytes.text().as_bytes().to_vec()),
                    _ => CallArg::Variable(bytes.word()),
                })
                .collect();
            let result = bytes.flag().then(|| bytes.word());
            // SAFETY: nothing is launched.
            unsafe { command.call(bytes.word(), args, result) };
        }
        25 => drop(command.hand_back(bytes.word())),
        26 => drop(command.best_effort(Step::of_code(u32::from(bytes.byte())).unwrap_or(Step::Mount))),
        27 => drop(command.pidfd(bytes.flag())),
        28 => drop(command.launcher(bytes.pick(&[Launcher::Clone, Launcher::Fork, Launcher::PosixSpawn]))),
        _ => drop(command.kill_on_drop(bytes.flag())),
    }
}

/// A value of a kind in the table of settings.
macro_rules! value {
    (u64 $bytes:ident) => {
        Some($bytes.number() as u64)
    };
    (u32 $bytes:ident) => {
        Some($bytes.word())
    };
    (i32 $bytes:ident) => {
        Some($bytes.int())
    };
    (flag $bytes:ident) => {
        Some($bytes.flag())
    };
    (word $bytes:ident) => {
        $bytes.plain().parse().ok()
    };
}

macro_rules! simple {
    (
        played { $($(#[$doc:meta])* $name:ident($arg:ident: $kind:ident $(($($more:tt)*))?) $row:tt)* }
        passed $passed:tt
    ) => {
        fn simple(command: &mut Command, bytes: &mut Bytes<'_>) {
            let all: &[fn(&mut Command, &mut Bytes<'_>)] = &[$(|command, bytes| {
                if let Some(value) = value!($kind bytes) {
                    command.$name(value);
                }
            }),*];
            bytes.pick(all)(command, bytes);
        }
    };
}

crate::settings!(simple);

fn surroundings(command: &mut Command, bytes: &mut Bytes<'_>) {
    // Most of these settings need new namespaces.
    if !bytes.byte().is_multiple_of(4) {
        command.unshare(Namespace::User).unshare(Namespace::Mount);
    }
    match bytes.byte() % 26 {
        0 => drop(command.unshare(bytes.namespace())),
        1 => drop(command.map_uid(bytes.word(), bytes.word(), bytes.word())),
        2 => drop(command.map_gid(bytes.word(), bytes.word(), bytes.word())),
        3 => drop(command.join(bytes.namespace(), bytes.file())),
        4 => drop(command.hostname(bytes.text())),
        5 => {
            let (source, kind, data) = (bytes.text(), bytes.plain(), bytes.text());
            let kind = bytes.flag().then_some(&*kind);
            command.mount(Some(&source), bytes.path(), kind, bytes.number() as u64, Some(&data));
        }
        6 => drop(command.bind(bytes.path(), bytes.path())),
        7 => drop(command.bind_read_only(bytes.path(), bytes.path())),
        8 => drop(command.mount_attributes(bytes.path(), bytes.number() as u64, bytes.number() as u64)),
        9 => {
            let (kind, key, value) = (bytes.plain(), bytes.plain(), bytes.flag().then(|| bytes.text()));
            command.file_system(&kind, [(&*key, value)], bytes.number() as u64, bytes.path());
        }
        10 => drop(command.attach_mount(bytes.file(), bytes.path())),
        11 => {
            let lower: Vec<PathBuf> = (0..bytes.byte() % 4).map(|_| bytes.path()).collect();
            let (upper, work) = (bytes.path(), bytes.path());
            command.overlay(&lower, bytes.flag().then_some((&*upper, &*work)), bytes.path());
        }
        12 => drop(command.unmount(bytes.path())),
        13 => drop(command.make_dir(bytes.path(), bytes.word())),
        14 => drop(command.make_symlink(bytes.path(), bytes.path())),
        15 => drop(command.devices(bytes.path())),
        16 => drop(command.tmpfs(bytes.path(), &bytes.plain())),
        17 => drop(command.proc(bytes.path())),
        18 => drop(command.pivot_root(bytes.path())),
        19 => drop(command.chroot(bytes.path())),
        20 => drop(command.cgroup(bytes.file())),
        21 => drop(command.bounding_set(CapabilitySet::from_bits(bytes.number() as u64))),
        22 => drop(command.permitted(CapabilitySet::from_bits(bytes.number() as u64)).ambient(CapabilitySet::ALL)),
        23 => drop(command.securebits(bytes.word())),
        24 => drop(command.landlock(bytes.file())),
        _ => {
            let most = usize::from(bytes.byte()) * 20;
            command.seccomp((0..most).map(|k| BpfInstruction { code: 6, jt: 0, jf: 0, k: k as u32 }));
        }
    }
}
