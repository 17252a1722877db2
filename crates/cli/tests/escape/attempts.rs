//! The attempts. Each one is `Ok` with what it got, or `Err` with why it was refused.
//!
//! They run in a copy of the test program, before its `main`: see `escape.rs`.

use std::os::linux::net::SocketAddrExt;
use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{self, Read},
    net::TcpStream,
    os::{
        fd::AsRawFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileTypeExt, OpenOptionsExt, PermissionsExt},
            net::{SocketAddr, UnixStream},
        },
    },
    path::Path,
    process::Command,
};

pub(crate) type Answer = Result<String, String>;

/// How the same attempt is made without the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// As it is.
    Plain,
    /// In new user and mount namespaces, so that it does not change the machine.
    Namespaces,
    /// On a pseudo-terminal, as the attempt itself.
    Terminal,
    /// Not at all.
    None(&'static str),
}

pub(crate) struct Attempt {
    pub(crate) name: &'static str,
    pub(crate) control: Control,
    pub(crate) run: fn(&World) -> Answer,
}

/// What the attempts aim at, outside of the sandbox.
#[derive(Debug, Default)]
pub(crate) struct World(Vec<(String, String)>);

impl World {
    pub(crate) fn read(words: &[String]) -> Self {
        let pair = |word: &String| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Self(words.iter().filter_map(pair).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(name, _)| name == key).map_or("", |(_, value)| value)
    }

    fn number(&self, key: &str) -> i64 {
        self.get(key).parse().unwrap_or(-1)
    }
}

fn refused(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn call(number: libc::c_long, args: [i64; 6]) -> io::Result<i64> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the attempts pass numbers, null, or addresses of objects that outlive the call.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// The call succeeds.
fn works(number: libc::c_long, args: [i64; 6]) -> Answer {
    call(number, args).map(|answer| answer.to_string()).map_err(refused)
}

/// The call gets to the kernel's code, which may refuse the arguments: these are chosen to do no harm.
fn reaches(number: libc::c_long, args: [i64; 6]) -> Answer {
    match call(number, args) {
        Ok(answer) => Ok(answer.to_string()),
        Err(error) if [libc::EPERM, libc::ENOSYS, libc::EACCES].contains(&error.raw_os_error().unwrap_or(0)) => {
            Err(refused(error))
        }
        Err(error) => Ok(error.to_string()),
    }
}

fn text(word: &str) -> CString {
    CString::new(word).expect("no NUL")
}

fn address(word: &CString) -> i64 {
    word.as_ptr() as i64
}

fn reads(path: impl AsRef<Path>) -> Answer {
    let mut byte = [0];
    let mut file = fs::File::open(path).map_err(refused)?;
    match file.read(&mut byte).map_err(refused)? {
        0 => Err("empty".to_owned()),
        _ => Ok("read".to_owned()),
    }
}

fn opens(path: impl AsRef<Path>, write: bool) -> Answer {
    let file = OpenOptions::new().read(!write).write(write).custom_flags(libc::O_NONBLOCK).open(path);
    file.map(|file| format!("fd {}", file.as_raw_fd())).map_err(refused)
}

/// A device, which must be one: a file that was made by chance is none.
fn device(path: &str) -> Answer {
    let kind = fs::metadata(path).map_err(refused)?.file_type();
    if !kind.is_char_device() && !kind.is_block_device() {
        return Err("no device".to_owned());
    }
    opens(path, false).or_else(|_| opens(path, true))
}

fn lists(path: &str) -> Answer {
    let names = fs::read_dir(path).map_err(refused)?.flatten().count();
    if names == 0 { Err("empty".to_owned()) } else { Ok(format!("{names} names")) }
}

fn mount(source: &str, target: &str, kind: &str, flags: u64) -> Answer {
    let (source, target, kind) = (text(source), text(target), text(kind));
    works(libc::SYS_mount, [address(&source), address(&target), address(&kind), flags as i64, 0, 0])
}

fn unmount(target: &str) -> Answer {
    let target = text(target);
    works(libc::SYS_umount2, [address(&target), libc::MNT_DETACH.into(), 0, 0, 0, 0])
}

/// More of them than a sandbox may have.
fn takes(most: usize, mut one: impl FnMut() -> io::Result<i64>) -> Answer {
    let (mut count, mut last) = (0, String::new());
    while count < 900 {
        match one() {
            Ok(_) => count += 1,
            Err(error) => {
                last = error.to_string();
                break;
            }
        }
    }
    if count > most { Ok(format!("{count}, then {last}")) } else { Err(format!("{count}, then {last}")) }
}

/// More than 8192 watches, on files of procfs, of which each process has some.
fn takes_watches(_: &World) -> Answer {
    let fd = call(libc::SYS_inotify_init1, NULL).map_err(refused)?;
    let place = std::env::temp_dir().join(format!("forkless-watches-{}", std::process::id()));
    fs::create_dir(&place).map_err(refused)?;
    let watch = |number: usize| {
        let file = place.join(number.to_string());
        fs::write(&file, "")?;
        let path = CString::new(file.as_os_str().as_bytes()).expect("no NUL");
        call(libc::SYS_inotify_add_watch, [fd, address(&path), 2, 0, 0, 0])
    };
    let count = (0..8300).take_while(|number| watch(*number).is_ok()).count();
    let _ = fs::remove_dir_all(&place);
    if count > 8192 { Ok(count.to_string()) } else { Err(count.to_string()) }
}

fn netlink(protocol: i64) -> Answer {
    works(libc::SYS_socket, [libc::AF_NETLINK.into(), libc::SOCK_DGRAM.into(), protocol, 0, 0, 0])
}

/// By each call that sets a mode.
fn leaves_setuid(_: &World) -> Answer {
    let here = i64::from(libc::AT_FDCWD);
    let mut failures = Vec::new();
    for number in 0..11 {
        let place = std::env::temp_dir().join(format!("forkless-setuid-{}", std::process::id()));
        let path = CString::new(place.as_os_str().as_bytes()).expect("no NUL");
        let at = address(&path);
        let file = (number < 4).then(|| fs::File::create(&place)).transpose().map_err(refused)?;
        let fd = file.as_ref().map_or(-1, |file| i64::from(file.as_raw_fd()));
        let created = i64::from(libc::O_CREAT | libc::O_WRONLY);
        let how = [u64::from(libc::O_CREAT.unsigned_abs() | libc::O_WRONLY.unsigned_abs()), 0o4755, 0];
        let tried = match number {
            0 => works(libc::SYS_fchmod, [fd, 0o4755, 0, 0, 0, 0]),
            1 => works(libc::SYS_fchmodat, [here, at, 0o4755, 0, 0, 0]),
            2 => works(452, [here, at, 0o4755, 0, 0, 0]),
            3 => chmod(at),
            4 => works(libc::SYS_openat, [here, at, created, 0o4755, 0, 0]),
            5 => works(libc::SYS_openat2, [here, at, how.as_ptr() as i64, 24, 0, 0]),
            6 => works(libc::SYS_mknodat, [here, at, 0o104_755, 0, 0, 0]),
            7 => older(0, at),
            8 => older(1, at),
            9 => older(2, at),
            _ => works(libc::SYS_openat, [here, at, created, (7 << 32) | 0o4755, 0, 0]),
        };
        let mode = fs::metadata(&place).map(|data| data.permissions().mode());
        let _ = fs::remove_file(&place);
        if mode.is_ok_and(|mode| mode & 0o4000 != 0) {
            return Ok(format!("by way {number}"));
        }
        failures.push(format!("{tried:?}"));
    }
    Err(failures.join(" "))
}

#[cfg(target_arch = "x86_64")]
fn chmod(path: i64) -> Answer {
    works(libc::SYS_chmod, [path, 0o4755, 0, 0, 0, 0])
}

#[cfg(target_arch = "x86_64")]
fn older(number: usize, path: i64) -> Answer {
    match number {
        0 => works(libc::SYS_open, [path, i64::from(libc::O_CREAT | libc::O_WRONLY), 0o4755, 0, 0, 0]),
        1 => works(libc::SYS_creat, [path, 0o4755, 0, 0, 0, 0]),
        _ => works(libc::SYS_mknod, [path, 0o104_755, 0, 0, 0, 0]),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn chmod(_: i64) -> Answer {
    Err("no such call".to_owned())
}

#[cfg(not(target_arch = "x86_64"))]
fn older(_: usize, _: i64) -> Answer {
    Err("no such call".to_owned())
}

/// A child in a new namespace: what it does counts, so it must also exist.
fn cloned(flags: i64) -> Answer {
    match call(libc::SYS_clone, [flags | i64::from(libc::SIGCHLD), 0, 0, 0, 0, 0]).map_err(refused)? {
        // SAFETY: ends the copy, which does nothing else.
        0 => unsafe { libc::_exit(0) },
        pid => Ok(format!("process {pid}")),
    }
}

fn cloned_by_clone3(flags: u64) -> Answer {
    let mut args = [0_u64; 11];
    args[0] = flags;
    args[4] = libc::SIGCHLD as u64;
    match call(libc::SYS_clone3, [args.as_ptr() as i64, 88, 0, 0, 0, 0]).map_err(refused)? {
        // SAFETY: ends the copy, which does nothing else.
        0 => unsafe { libc::_exit(0) },
        pid => Ok(format!("process {pid}")),
    }
}

/// A system call by the entry of 32-bit programs.
#[cfg(target_arch = "x86_64")]
fn call32(number: u32, argument: u32) -> Answer {
    let answer: i32;
    // SAFETY: `int 0x80` changes only rax, and r8 to r11 on older kernels; rbx is restored, as the compiler needs it.
    unsafe {
        std::arch::asm!("xchg rbx, {argument}", "int 0x80", "xchg rbx, {argument}", argument = inout(reg) u64::from(argument) => _,
            inlateout("eax") number => answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    if answer < 0 { Err(refused(io::Error::from_raw_os_error(-answer))) } else { Ok(answer.to_string()) }
}

#[cfg(not(target_arch = "x86_64"))]
fn call32(_: u32, _: u32) -> Answer {
    Err("only on x86-64".to_owned())
}

fn push_input(fd: i32, request: u64) -> Answer {
    let letter = [b'x'];
    works(libc::SYS_ioctl, [fd.into(), request as i64, letter.as_ptr() as i64, 0, 0, 0])
}

const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

fn paste(request: u64) -> Answer {
    let code = [3_u8];
    reaches(libc::SYS_ioctl, [0, request as i64, code.as_ptr() as i64, 0, 0, 0])
}

fn connects_abstract(world: &World) -> Answer {
    let name = SocketAddr::from_abstract_name(world.get("abstract")).map_err(refused)?;
    UnixStream::connect_addr(&name).map(|_| "connected".to_owned()).map_err(refused)
}

fn socket(family: i64) -> Answer {
    works(libc::SYS_socket, [family, libc::SOCK_STREAM.into(), 0, 0, 0, 0])
        .or_else(|_| works(libc::SYS_socket, [family, libc::SOCK_RAW.into(), 0, 0, 0, 0]))
        .or_else(|_| works(libc::SYS_socket, [family, libc::SOCK_SEQPACKET.into(), 0, 0, 0, 0]))
}

/// Executes another copy of the test program, which tells what it has got.
fn gains(program: &str, attempt: &str) -> Answer {
    let output = Command::new(program).args(["--escape", attempt]).output().map_err(refused)?;
    let words = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(words) } else { Err(words) }
}

fn is_root(_: &World) -> Answer {
    // SAFETY: returns a number.
    match unsafe { libc::geteuid() } {
        0 => Ok("root".to_owned()),
        uid => Err(format!("uid {uid}")),
    }
}

fn has_capabilities(_: &World) -> Answer {
    let status = fs::read_to_string("/proc/self/status").map_err(refused)?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).unwrap_or("0").trim().to_owned();
    if u64::from_str_radix(&set, 16) == Ok(0) { Err("none".to_owned()) } else { Ok(set) }
}

/// Makes all capabilities effective, permitted and inheritable that there are to have.
fn takes_capability(bit: u32) -> Answer {
    let header = [0x2008_0522_u32, 0];
    let mut sets = [0_u32; 6];
    works(libc::SYS_capget, [header.as_ptr() as i64, sets.as_mut_ptr() as i64, 0, 0, 0, 0])?;
    for set in &mut sets[..3] {
        *set |= 1 << bit;
    }
    works(libc::SYS_capset, [header.as_ptr() as i64, sets.as_ptr() as i64, 0, 0, 0, 0])
}

fn raises_ambient(_: &World) -> Answer {
    const NET_RAW: u32 = 13;
    let _ = takes_capability(NET_RAW);
    works(libc::SYS_prctl, [libc::PR_CAP_AMBIENT.into(), libc::PR_CAP_AMBIENT_RAISE.into(), NET_RAW.into(), 0, 0, 0])
}

fn opens_by_handle(_: &World) -> Answer {
    #[repr(C)]
    struct Handle(u32, i32, [u8; 128]);
    let (mut handle, mut mount) = (Handle(128, 0, [0; 128]), 0_i32);
    let path = text("/etc/passwd");
    let at = i64::from(libc::AT_FDCWD);
    let handle = &raw mut handle as i64;
    works(libc::SYS_name_to_handle_at, [at, address(&path), handle, &raw mut mount as i64, 0, 0])?;
    let root = fs::File::open("/etc").map_err(refused)?;
    works(libc::SYS_open_by_handle_at, [root.as_raw_fd().into(), handle, 0, 0, 0, 0])
}

fn makes_device(_: &World) -> Answer {
    let path = format!("/tmp/forkless-escape-{}", std::process::id());
    let name = text(&path);
    let device = libc::makedev(1, 5) as i64;
    let at = i64::from(libc::AT_FDCWD);
    let made = works(libc::SYS_mknodat, [at, address(&name), i64::from(libc::S_IFCHR | 0o666), device, 0, 0]);
    let _ = fs::remove_file(path);
    made
}

fn reopens(path: &str) -> Answer {
    let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(refused)?;
    opens(format!("/proc/self/fd/{}", held.as_raw_fd()), true)
}

fn has_descriptors(_: &World) -> Answer {
    let names = fs::read_dir("/proc/self/fd").map_err(refused)?.flatten();
    let numbers = names.filter_map(|name| name.file_name().to_str()?.parse::<i32>().ok());
    // The listing itself has one of the first numbers.
    let others: Vec<_> = numbers.filter(|number| *number > 10).collect();
    if others.is_empty() { Err("none".to_owned()) } else { Ok(format!("{others:?}")) }
}

fn starts_many(_: &World) -> Answer {
    const MANY: usize = 2200;
    for number in 0..MANY {
        let thread = std::thread::Builder::new().stack_size(16 << 10);
        if let Err(error) = thread.spawn(|| {
            loop {
                std::thread::park()
            }
        }) {
            return Err(format!("{error} after {number}"));
        }
    }
    Ok(format!("{MANY} threads"))
}

fn sees_processes(_: &World) -> Answer {
    let names = fs::read_dir("/proc").map_err(refused)?.flatten();
    let count = names.filter(|name| name.file_name().as_bytes()[0].is_ascii_digit()).count();
    if count > 3 { Ok(count.to_string()) } else { Err(format!("{count} of its own")) }
}

fn sees_devices(_: &World) -> Answer {
    let table = fs::read_to_string("/proc/net/dev").map_err(refused)?;
    let names = table.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim);
    let others: Vec<_> = names.filter(|name| *name != "lo").collect();
    if others.is_empty() { Err("only lo".to_owned()) } else { Ok(format!("{others:?}")) }
}

/// Init has survived if this process is still here.
fn kills_init(_: &World) -> Answer {
    for signal in [libc::SIGTERM, libc::SIGSEGV, libc::SIGSTOP, libc::SIGKILL] {
        // SAFETY: sends a signal.
        unsafe { libc::kill(1, signal) };
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    Err("init lives".to_owned())
}

fn queue(name: &str) -> Answer {
    let name = text(name);
    works(libc::SYS_mq_open, [address(&name), libc::O_RDWR.into(), 0, 0, 0, 0])
}

/// In a cgroup file system of either version.
fn cgroup(name: &str) -> Answer {
    let mut found = Err("no such file".to_owned());
    for directory in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory"] {
        found = found.or_else(|_| opens(format!("{directory}/{name}"), true));
    }
    found
}

fn writes(path: &str) -> Answer {
    let file = format!("{path}/written-{}", std::process::id());
    let made = fs::write(&file, "x").map(|()| "written".to_owned()).map_err(refused);
    let _ = fs::remove_file(file);
    made
}

/// Puts another file with the same content in the place of this one.
fn replaces(path: &str) -> Answer {
    let other = format!("{path}-{}", std::process::id());
    fs::write(&other, "secret").map_err(refused)?;
    let _ = fs::set_permissions(&other, fs::Permissions::from_mode(0o666));
    let moved = fs::rename(&other, path).map(|()| "replaced".to_owned()).map_err(refused);
    let _ = fs::remove_file(other);
    moved
}

fn raises_limit(_: &World) -> Answer {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes the limit, which outlives the call.
    unsafe { libc::getrlimit(libc::RLIMIT_CORE, &mut limit) };
    if limit.rlim_max == libc::RLIM_INFINITY {
        return Ok("has no limit".to_owned());
    }
    limit.rlim_max += 1;
    works(libc::SYS_setrlimit, [libc::RLIMIT_CORE.into(), &raw const limit as i64, 0, 0, 0, 0])
}

const NULL: [i64; 6] = [0; 6];
/// An invalid number, file or address.
const BAD: [i64; 6] = [-1; 6];

macro_rules! attempts {
    ($($name:ident $control:ident $(($why:literal))? => $run:expr;)*) => {
        &[$(Attempt { name: stringify!($name), control: Control::$control $(($why))?, run: $run },)*]
    };
}

pub(crate) const ALL: &[Attempt] = attempts! {
    // other processes
    signal_host_process Plain => |world| works(libc::SYS_kill, [world.number("victim"), 0, 0, 0, 0, 0]);
    signal_by_pidfd Plain => |world| {
        let pidfd = call(libc::SYS_pidfd_open, [world.number("victim"), 0, 0, 0, 0, 0]).map_err(refused)?;
        works(libc::SYS_pidfd_send_signal, [pidfd, 0, 0, 0, 0, 0])
    };
    trace_host_process Plain => |world| works(libc::SYS_ptrace, [0x4206, world.number("victim"), 0, 0, 0, 0]);
    read_memory_of_host_process Plain => |world| {
        // Without vectors: only the right to do it is checked.
        works(libc::SYS_process_vm_readv, [world.number("victim"), 0, 0, 0, 0, 0]).and_then(|_| reads(format!("/proc/{}/mem", world.number("victim"))).or_else(|why| if why.contains("Input/output") { Ok(why) } else { Err(why) }))
    };
    steal_descriptor_of_host_process Plain => |world| {
        let pidfd = call(libc::SYS_pidfd_open, [world.number("victim"), 0, 0, 0, 0, 0]).map_err(refused)?;
        works(libc::SYS_pidfd_getfd, [pidfd, 0, 0, 0, 0, 0])
    };
    environment_of_host_process Plain => |world| reads(format!("/proc/{}/environ", world.number("victim")));
    root_of_host_process Plain => |world| reads(format!("/proc/{}/root/etc/passwd", world.number("victim")));
    see_host_processes Plain => sees_processes;
    limit_host_process Plain => |world| {
        let limit = [0_u64, 0];
        works(libc::SYS_prlimit64, [world.number("victim"), libc::RLIMIT_CORE.into(), limit.as_ptr() as i64, 0, 0, 0])
    };
    priority_of_host_process Plain => |world| works(libc::SYS_setpriority, [0, world.number("victim"), 19, 0, 0, 0]);
    io_priority_of_host_process Plain => |world| works(libc::SYS_ioprio_set, [1, world.number("victim"), 3 << 13, 0, 0, 0]);
    cpus_of_host_process Plain => |world| {
        let cpus = [u64::MAX; 16];
        works(libc::SYS_sched_setaffinity, [world.number("victim"), 128, cpus.as_ptr() as i64, 0, 0, 0])
    };
    scheduler_of_host_process Plain => |world| {
        const SCHED_BATCH: i64 = 3;
        let priority = [0_i32];
        works(libc::SYS_sched_setscheduler, [world.number("victim"), SCHED_BATCH, priority.as_ptr() as i64, 0, 0, 0])
    };
    compare_processes Plain => |_| works(libc::SYS_kcmp, [std::process::id().into(), std::process::id().into(), 0, 0, 0, 0]);
    advise_other_process Plain => |_| reaches(libc::SYS_process_madvise, BAD);
    // init
    root_of_init Plain => |_| lists("/proc/1/root/");
    directory_of_init Plain => |_| fs::read_link("/proc/1/cwd").map(|path| format!("{path:?}")).map_err(refused);
    environment_of_init Plain => |_| reads("/proc/1/environ");
    memory_of_init Plain => |_| opens("/proc/1/mem", false);
    maps_of_init Plain => |_| reads("/proc/1/maps");
    descriptors_of_init Plain => |_| lists("/proc/1/fd");
    program_of_init Plain => |_| opens("/proc/1/exe", false);
    trace_init None("would trace the machine's init") => |_| works(libc::SYS_ptrace, [0x4206, 1, 0, 0, 0, 0]);
    kill_init None("would stop the machine") => kills_init;
    // devices
    make_device Plain => makes_device;
    device_loop Plain => |_| device("/dev/loop0");
    device_loop_control Plain => |_| device("/dev/loop-control");
    device_fuse Plain => |_| device("/dev/fuse");
    device_tun Plain => |_| device("/dev/net/tun");
    device_memory Plain => |_| device("/dev/mem");
    device_kernel_log Plain => |_| device("/dev/kmsg");
    device_disk Plain => |world| device(world.get("disk"));
    device_kvm Plain => |_| device("/dev/kvm");
    device_console Plain => |_| device("/dev/console");
    device_terminal_0 Plain => |_| device("/dev/tty0");
    device_autofs Plain => |_| device("/dev/autofs");
    // mounts
    remount_root_writable Namespaces => |_| mount("", "/", "", libc::MS_REMOUNT | libc::MS_BIND);
    remount_bind_writable Namespaces => |_| mount("", "/proc", "", libc::MS_REMOUNT | libc::MS_BIND);
    unmount_proc Namespaces => |_| unmount("/proc").or_else(|_| mount("none", "/proc", "tmpfs", 0));
    unmount_tmp Namespaces => |_| mount("none", "/tmp", "tmpfs", 0).and_then(|_| unmount("/tmp"));
    mount_tmpfs Namespaces => |_| mount("none", "/tmp", "tmpfs", 0);
    mount_proc None("needs a PID namespace") => |_| mount("none", "/tmp", "proc", 0);
    mount_sysfs None("needs a network namespace") => |_| mount("none", "/tmp", "sysfs", 0);
    mount_cgroup None("needs a cgroup namespace") => |_| mount("none", "/tmp", "cgroup2", 0);
    bind_root Namespaces => |_| mount("/", "/tmp", "", libc::MS_BIND | libc::MS_REC);
    move_mount_old Namespaces => |_| mount("none", "/tmp", "tmpfs", 0).and_then(|_| mount("/tmp", "/etc", "", libc::MS_MOVE));
    make_shared Namespaces => |_| mount("none", "/", "", libc::MS_REC | libc::MS_SHARED);
    new_file_system Namespaces => |_| { let kind = text("tmpfs"); works(libc::SYS_fsopen, [address(&kind), 0, 0, 0, 0, 0]) };
    clone_tree Namespaces => |_| { let path = text("/"); works(libc::SYS_open_tree, [libc::AT_FDCWD.into(), address(&path), 0x8001, 0, 0, 0]) };
    attach_tree Namespaces => |_| reaches(libc::SYS_move_mount, BAD);
    mount_attributes Namespaces => |_| {
        let (path, change) = (text("/tmp"), [0_u64, 0, 0, 0]);
        works(libc::SYS_mount_setattr, [libc::AT_FDCWD.into(), address(&path), 0, change.as_ptr() as i64, 32, 0])
    };
    pivot_root Namespaces => |_| { let path = text("/proc"); reaches(libc::SYS_pivot_root, [address(&path), address(&path), 0, 0, 0, 0]) };
    chroot_out Namespaces => |_| { let path = text("/tmp"); works(libc::SYS_chroot, [address(&path), 0, 0, 0, 0, 0]) };
    // namespaces
    unshare_user Plain => |_| works(libc::SYS_unshare, [libc::CLONE_NEWUSER.into(), 0, 0, 0, 0, 0]);
    unshare_mount Plain => |_| works(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER | libc::CLONE_NEWNS), 0, 0, 0, 0, 0]);
    unshare_network Plain => |_| works(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER | libc::CLONE_NEWNET), 0, 0, 0, 0, 0]);
    unshare_time Plain => |_| works(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER) | 0x80, 0, 0, 0, 0, 0]);
    clone_user Plain => |_| cloned(libc::CLONE_NEWUSER.into());
    clone_user_with_upper_bits Plain => |_| cloned(1 << 40 | i64::from(libc::CLONE_NEWUSER));
    clone_mount Plain => |_| cloned((libc::CLONE_NEWUSER | libc::CLONE_NEWNS).into());
    clone3_user Plain => |_| cloned_by_clone3(libc::CLONE_NEWUSER as u64);
    join_own_namespace Plain => |_| {
        let own = fs::File::open("/proc/self/ns/uts").map_err(refused)?;
        works(libc::SYS_setns, [own.as_raw_fd().into(), 0, 0, 0, 0, 0])
    };
    i386_unshare Plain => |_| call32(310, libc::CLONE_NEWUSER as u32);
    i386_getpid Plain => |_| call32(20, 0);
    x32_getpid Plain => |_| works(0x4000_0000 | libc::SYS_getpid, NULL);
    x32_ptrace None("the kernel's x32 ABI is rarely enabled") => |_| works(0x4000_0000 | 521, NULL);
    // descriptors
    inherited_directory Plain => |_| { let path = text("etc/passwd"); works(libc::SYS_openat, [50, address(&path), 0, 0, 0, 0]) };
    inherited_descriptors Plain => has_descriptors;
    // terminals
    type_into_terminal Terminal => |_| push_input(0, TIOCSTI);
    type_into_terminal_with_upper_bits Terminal => |_| push_input(0, TIOCSTI | 1 << 32);
    type_into_controlling_terminal Terminal => |_| {
        let terminal = fs::File::open("/dev/tty").map_err(refused)?;
        push_input(terminal.as_raw_fd(), TIOCSTI)
    };
    paste_into_console Terminal => |_| paste(TIOCLINUX);
    paste_into_console_with_upper_bits Terminal => |_| paste(TIOCLINUX | 1 << 40);
    change_line_discipline Terminal => |_| { let number = [0_i32]; works(libc::SYS_ioctl, [0, 0x5423, number.as_ptr() as i64, 0, 0, 0]) };
    // privileges
    setuid_program Plain => |world| gains(&format!("{}/setuid", world.get("here")), "am_root");
    program_with_capabilities Plain => |world| gains(&format!("{}/capable", world.get("here")), "have_capabilities");
    am_root Plain => is_root;
    have_capabilities Plain => has_capabilities;
    become_root Plain => |_| works(libc::SYS_setresuid, NULL);
    become_root_group Plain => |_| works(libc::SYS_setresgid, NULL);
    drop_groups Plain => |_| works(libc::SYS_setgroups, NULL);
    take_capability Plain => |_| takes_capability(21);
    raise_ambient_capability Plain => raises_ambient;
    change_securebits Plain => |_| works(libc::SYS_prctl, [libc::PR_SET_SECUREBITS.into(), 0, 0, 0, 0, 0]);
    weaken_memory_layout Plain => |_| works(libc::SYS_personality, [0x4_0000, 0, 0, 0, 0, 0]);
    lower_nice_value Plain => |_| works(libc::SYS_setpriority, [0, 0, -5, 0, 0, 0]);
    raise_limit Plain => raises_limit;
    start_too_many Plain => starts_many;
    // files
    read_shadow Plain => |_| reads("/etc/shadow");
    read_home_of_root Plain => |_| lists("/root");
    list_homes Plain => |_| lists("/home");
    list_run Plain => |_| lists("/run");
    read_hidden_file Plain => |world| reads(world.get("secret"));
    write_read_only_bind Plain => |world| writes(world.get("here"));
    write_through_o_path Plain => |world| reopens(&format!("{}/file", world.get("here")));
    write_read_only_bind_below_tmp Plain => |world| writes(world.get("below"));
    write_file_below_tmp Plain => |world| opens(world.get("file"), true);
    write_file_below_tmp_through_o_path Plain => |world| reopens(world.get("file"));
    truncate_file_below_tmp Plain => |world| { let path = text(world.get("file")); works(libc::SYS_truncate, [address(&path), 6, 0, 0, 0, 0]) };
    make_file_below_tmp_writable Plain => |world| fs::set_permissions(world.get("file"), fs::Permissions::from_mode(0o666)).map(|()| "chmod".to_owned()).map_err(refused);
    date_file_below_tmp Plain => |world| { let path = text(world.get("file")); works(libc::SYS_utimensat, [libc::AT_FDCWD.into(), address(&path), 0, 0, 0, 0]) };
    replace_file_below_tmp Plain => |world| replaces(world.get("file"));
    write_etc Plain => |_| writes("/etc");
    write_usr Plain => |_| writes("/usr");
    write_top Plain => |_| writes("/");
    open_by_handle Plain => opens_by_handle;
    environment_of_caller Plain => |_| std::env::var("FORKLESS_SECRET").map_err(refused);
    // sysfs, sysctls, cgroups
    write_core_pattern Plain => |_| opens("/proc/sys/kernel/core_pattern", true);
    write_modprobe_path Plain => |_| opens("/proc/sys/kernel/modprobe", true);
    write_hostname_sysctl Plain => |_| opens("/proc/sys/kernel/hostname", true);
    write_overcommit Plain => |_| opens("/proc/sys/vm/overcommit_memory", true);
    write_sysrq Plain => |_| opens("/proc/sysrq-trigger", true);
    write_own_uid_map Plain => |_| opens("/proc/self/uid_map", true);
    write_irq Plain => |_| opens("/proc/irq/default_smp_affinity", true);
    read_kernel_memory Plain => |_| reads("/proc/kcore");
    read_timers Plain => |_| reads("/proc/timer_list");
    read_keys Plain => |_| reads("/proc/key-users");
    write_sysfs Plain => |_| opens("/sys/kernel/mm/transparent_hugepage/enabled", true);
    write_uevent_helper Plain => |_| opens("/sys/kernel/uevent_helper", true);
    write_cgroup_processes Plain => |_| cgroup("cgroup.procs");
    write_release_agent Plain => |_| cgroup("release_agent");
    // networks and inter-process communication
    connect_abstract_socket Plain => connects_abstract;
    connect_named_socket Plain => |world| UnixStream::connect(world.get("socket")).map(|_| "connected".to_owned()).map_err(refused);
    connect_loopback Plain => |world| TcpStream::connect(("127.0.0.1", world.number("port") as u16)).map(|_| "connected".to_owned()).map_err(refused);
    see_network_devices Plain => sees_devices;
    socket_vsock Plain => |_| socket(libc::AF_VSOCK.into());
    socket_packet Plain => |_| socket(libc::AF_PACKET.into());
    socket_alg Plain => |_| socket(libc::AF_ALG.into());
    shared_memory_of_host Plain => |world| works(libc::SYS_shmat, [world.number("shm"), 0, libc::SHM_RDONLY.into(), 0, 0, 0]);
    message_queue_of_host Plain => |world| queue(world.get("queue"));
    posix_shared_memory_of_host Plain => |world| reads(format!("/dev/shm/{}", world.get("memory")));
    host_name Plain => |world| {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").map_err(refused)?;
        if name.trim() == world.get("host") { Ok(name) } else { Err(name) }
    };
    // what is counted for a user or for the machine
    take_inotify_instances Plain => |_| takes(16, || call(libc::SYS_inotify_init1, NULL));
    take_inotify_watches Plain => takes_watches;
    take_terminals Plain => |_| {
        let path = text("/dev/ptmx");
        takes(64, || call(libc::SYS_openat, [libc::AT_FDCWD.into(), address(&path), libc::O_RDWR.into(), 0, 0, 0]))
    };
    take_message_queues Plain => |_| {
        let mut number = 0;
        takes(3, || {
            let name = text(&format!("forkless-{}-{number}", std::process::id()));
            number += 1;
            let opened = call(libc::SYS_mq_open, [address(&name), i64::from(libc::O_CREAT | libc::O_RDWR), 0o600, 0, 0, 0]);
            let _ = call(libc::SYS_mq_unlink, [address(&name), 0, 0, 0, 0, 0]);
            opened
        })
    };
    take_asynchronous_io Plain => |_| { let context = [0_u64]; works(libc::SYS_io_setup, [128, context.as_ptr() as i64, 0, 0, 0, 0]) };
    take_huge_pages Plain => |_| reaches(libc::SYS_mmap, [0, 2 << 20, 3, i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB), -1, 0]);
    take_huge_files Plain => |_| { let name = text("x"); reaches(libc::SYS_memfd_create, [address(&name), 4, 0, 0, 0, 0]) };
    take_huge_segments None("needs privileges") => |_| reaches(libc::SYS_shmget, [0, 2 << 20, 0o5600, 0, 0, 0]);
    see_forks_of_host Plain => |_| netlink(11);
    see_sockets_by_netlink Plain => |_| netlink(4);
    // what stays behind
    leave_setuid_program Plain => leaves_setuid;
    leave_setgid_directory Plain => |_| {
        let place = std::env::temp_dir().join(format!("forkless-setgid-{}", std::process::id()));
        fs::create_dir(&place).map_err(refused)?;
        let changed = fs::set_permissions(&place, fs::Permissions::from_mode(0o2755));
        let _ = fs::remove_dir(&place);
        changed.map(|()| "chmod".to_owned()).map_err(refused)
    };
    // keys
    add_key Plain => |_| reaches(libc::SYS_add_key, NULL);
    request_key Plain => |_| reaches(libc::SYS_request_key, NULL);
    session_keyring Plain => |_| works(libc::SYS_keyctl, [0, -3, 0, 0, 0, 0]);
    // parts of the kernel
    bpf Plain => |_| reaches(libc::SYS_bpf, BAD);
    perf_event_open Plain => |_| reaches(libc::SYS_perf_event_open, NULL);
    io_uring Plain => |_| reaches(libc::SYS_io_uring_setup, NULL);
    userfaultfd Plain => |_| works(libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0]);
    fanotify Plain => |_| reaches(libc::SYS_fanotify_init, BAD);
    memory_policy Plain => |_| works(libc::SYS_set_mempolicy, NULL);
    move_pages Plain => |_| reaches(libc::SYS_move_pages, NULL);
    secret_memory Plain => |_| reaches(libc::SYS_memfd_secret, BAD);
    // the machine
    load_kernel Plain => |_| reaches(libc::SYS_kexec_load, BAD);
    load_module Plain => |_| reaches(libc::SYS_init_module, NULL);
    load_module_file Plain => |_| reaches(libc::SYS_finit_module, BAD);
    remove_module Plain => |_| { let name = text("forkless-none"); reaches(libc::SYS_delete_module, [address(&name), 0x800, 0, 0, 0, 0]) };
    reboot Plain => |_| reaches(libc::SYS_reboot, NULL);
    swap_on Plain => |_| { let path = text("/none"); reaches(libc::SYS_swapon, [address(&path), 0, 0, 0, 0, 0]) };
    swap_off Plain => |_| { let path = text("/none"); reaches(libc::SYS_swapoff, [address(&path), 0, 0, 0, 0, 0]) };
    accounting Plain => |_| { let path = text("/none/none"); reaches(libc::SYS_acct, [address(&path), 0, 0, 0, 0, 0]) };
    quotas Plain => |_| reaches(libc::SYS_quotactl, BAD);
    kernel_log Plain => |_| works(libc::SYS_syslog, [10, 0, 0, 0, 0, 0]);
    set_clock Plain => |_| { let time = [0_i64, -1]; reaches(libc::SYS_clock_settime, [0, time.as_ptr() as i64, 0, 0, 0, 0]) };
    set_time_of_day Plain => |_| { let time = [0_i64, -1]; reaches(libc::SYS_settimeofday, [time.as_ptr() as i64, 0, 0, 0, 0, 0]) };
    adjust_clock Plain => |_| reaches(libc::SYS_adjtimex, NULL);
    set_host_name Plain => |_| reaches(libc::SYS_sethostname, [0, -1, 0, 0, 0, 0]);
    set_domain_name Plain => |_| reaches(libc::SYS_setdomainname, [0, -1, 0, 0, 0, 0]);
    hang_up None("would hang up the terminal") => |_| works(libc::SYS_vhangup, NULL);
    call_newer_than_the_list None("does not exist") => |_| works(4000, NULL);
};
