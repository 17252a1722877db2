//! `forkless run --sandbox` under attack: a program in it tries to reach what is outside. Each attempt is also made without
//! the sandbox, where it must work as far as the machine and the caller allow it: an attempt that never works shows nothing.
//! Run as root and as an ordinary user.

testing::usual_surroundings!();

mod callers;
#[path = "escape/attempts.rs"]
mod attempts;

use std::{
    fs::{self, File},
    net::TcpListener,
    os::{
        fd::AsRawFd,
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixListener},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use attempts::{ALL, Attempt, Control, World};
use callers::{Caller, directory, skipped};

/// The exit code of an attempt that was refused.
const REFUSED: i32 = 1;

/// Runs an attempt instead of the tests if the program was started for one. The C runtime calls this before `main`, with
/// the arguments.
// SAFETY: the C runtime calls functions in this section once, with argc and argv.
#[used]
#[unsafe(link_section = ".init_array")]
static ATTEMPT: extern "C" fn(i32, *const *const libc::c_char) = {
    extern "C" fn attempt(count: i32, words: *const *const libc::c_char) {
        // SAFETY: argv has this many strings.
        let word = |number: i32| unsafe { std::ffi::CStr::from_ptr(*words.offset(number as isize)) };
        let words: Vec<String> = (1..count).map(|number| word(number).to_string_lossy().into_owned()).collect();
        match words.first().map(String::as_str) {
            Some("--escape") => {}
            Some("--value") => std::process::exit(in_value(&words[1..])),
            _ => return,
        }
        let wanted = words.get(1).map(String::as_str).unwrap_or_default();
        let world = World::read(&words[2..]);
        let code = match ALL.iter().find(|attempt| attempt.name == wanted).map(|attempt| (attempt.run)(&world)) {
            Some(Ok(found)) => {
                println!("{found}");
                0
            }
            Some(Err(why)) => {
                println!("{why}");
                REFUSED
            }
            None => 3,
        };
        std::process::exit(code);
    }
    attempt
};

/// Starts the program in a sandbox of the library. The first words are the mode, and a directory that it may read.
fn in_value(words: &[String]) -> i32 {
    let [mode, here, program, words @ ..] = words else { return 4 };
    let mut sandbox = match mode.as_str() {
        "landlock" => forkless::Sandbox::landlock(),
        _ => forkless::Sandbox::new(),
    };
    if mode == "refused" {
        sandbox.network(forkless::Network::Refused);
    }
    sandbox.read(here);
    let status = sandbox.prepare().and_then(|sandbox| {
        let mut command = forkless::Command::new(program);
        command.args(words).stdin(forkless::Stdio::inherit()).current_dir("/").sandbox(&sandbox).status()
    });
    match status {
        Ok(status) => status.code().unwrap_or(5),
        Err(error) => {
            eprintln!("{error}");
            6
        }
    }
}

/// What Landlock and a filter of system calls cannot refuse in the namespaces of the caller: docs/sandbox.md says so.
const BEYOND_LANDLOCK: [&str; 5] =
    ["see_host_processes", "start_too_many", "read_keys", "see_network_devices", "host_name"];

/// What the attempts aim at. Dropping it ends the victim and removes the rest.
struct Targets {
    caller: Caller,
    directory: tempfile::TempDir,
    victim: Child,
    words: Vec<String>,
    _listeners: (TcpListener, UnixListener, UnixListener),
    shm: i32,
    memory: PathBuf,
    queue: std::ffi::CString,
    root: File,
}

impl Targets {
    fn new(caller: Caller) -> Self {
        let directory = directory();
        let path = |name: &str| directory.path().join(name);
        fs::copy(std::env::current_exe().expect("a path"), path("program")).expect("a copy");
        fs::copy(path("program"), path("setuid")).expect("a copy");
        fs::copy(path("program"), path("capable")).expect("a copy");
        for name in ["program", "setuid", "capable"] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).expect("chmod");
        }
        if rustix::process::geteuid().is_root() {
            chown(path("setuid"), Some(0), Some(0)).expect("chown");
            fs::set_permissions(path("setuid"), fs::Permissions::from_mode(0o4755)).expect("chmod");
            grant(&path("capable"));
        }
        for name in ["file", "secret"] {
            fs::write(path(name), "secret").expect("write");
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o666)).expect("chmod");
        }
        fs::create_dir(path("shown")).expect("a directory");
        fs::set_permissions(path("shown"), fs::Permissions::from_mode(0o777)).expect("chmod");
        for name in ["program", "setuid", "capable", "file"] {
            fs::hard_link(path(name), path("shown").join(name)).expect("a link");
        }
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let id = std::process::id();
        let name = format!("forkless-escape-{id}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("a socket");
        let named = UnixListener::bind(path("socket")).expect("a socket");
        fs::set_permissions(path("socket"), fs::Permissions::from_mode(0o777)).expect("chmod");
        // SAFETY: makes a segment, which `drop` removes.
        let shm = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o666) };
        let memory = Path::new("/dev/shm").join(&name);
        fs::write(&memory, "secret").expect("/dev/shm");
        let queue = std::ffi::CString::new(name.clone()).expect("no NUL");
        // SAFETY: mq_open(2) with a name and no attributes; the descriptor stays open until the process ends.
        unsafe { libc::syscall(libc::SYS_mq_open, queue.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o666, 0) };
        let victim = caller.shell("sleep").arg("600").stdin(Stdio::null()).spawn().expect("a victim");
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let disks = fs::read_to_string("/proc/partitions").unwrap_or_default();
        let disk = disks.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3)).next().unwrap_or("sda");
        let words = vec![
            format!("victim={}", victim.id()),
            format!("abstract={name}"),
            format!("port={}", tcp.local_addr().expect("an address").port()),
            format!("socket={}", path("socket").display()),
            format!("secret={}", path("secret").display()),
            format!("shm={shm}"),
            format!("queue={name}"),
            format!("memory={name}"),
            format!("host={}", host.trim()),
            format!("disk=/dev/{disk}"),
        ];
        let root = File::open("/").expect("the root");
        Self { caller, directory, victim, words, _listeners: (tcp, listener, named), shm, memory, queue, root }
    }

    /// Runs an attempt by way of these options of `forkless run`; `here` is the path of the program's directory. `below` is the
    /// same directory, and `file` a file of it, for the sandbox at places where the program may write.
    fn run(&self, attempt: &Attempt, options: &[&str], here: &str, below: &str, file: &str) -> Output {
        let program = format!("{here}/program");
        let aims = [format!("here={here}"), format!("below={below}"), format!("file={file}")];
        let mut command = match options {
            [] => self.caller.shell(&program),
            _ => {
                let mut command = self.caller.forkless(options);
                command.arg(&program);
                command
            }
        };
        command.args(["--escape", attempt.name]).args(aims).args(&self.words).env("FORKLESS_SECRET", "secret");
        self.start(command)
    }

    fn start(&self, mut command: Command) -> Output {
        let root = self.root.as_raw_fd();
        let pass = move || {
            // SAFETY: changes the descriptors of the new process alone.
            if unsafe { libc::dup2(root, 50) } < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        };
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(pass) };
        command.stdin(Stdio::null()).output().expect("it starts")
    }

    /// In a sandbox of the library.
    fn in_value(&self, mode: &str, attempt: &Attempt) -> Output {
        let here = self.directory.path().join("shown");
        let here = here.to_str().expect("text");
        let program = format!("{here}/program");
        let words = [mode, here, &program, "--escape", attempt.name].map(str::to_owned);
        let aims = [format!("here={here}"), format!("below={here}"), format!("file={here}/file")];
        // Another language: escape/by_python.py, escape/by_node.js.
        let launcher = std::env::var("FORKLESS_TEST_ESCAPE_BY").unwrap_or_else(|_| format!("{program} --value"));
        let mut launcher = launcher.split(' ');
        let first = launcher.next().expect("a program");
        let mut command = match attempt.control {
            Control::Terminal => {
                let mut command = self.caller.forkless(&["--pty"]);
                command.arg(first);
                command
            }
            _ => self.caller.shell(first),
        };
        command.args(launcher).args(words).args(aims).args(&self.words).env("FORKLESS_SECRET", "secret");
        self.start(command)
    }

    fn control(&self, attempt: &Attempt) -> Option<Output> {
        let here = self.directory.path().to_str().expect("text");
        let run = |options: &[&str]| Some(self.run(attempt, options, here, here, &format!("{here}/file")));
        match attempt.control {
            Control::Plain => run(&[]),
            Control::Namespaces => run(&["--unshare-user", "--unshare-mount", "--map-root-user"]),
            Control::Terminal => run(&["--pty"]),
            Control::None(_) => None,
        }
    }

    fn sandboxed(&self, attempt: &Attempt, profile: &str) -> Output {
        let here = self.directory.path().to_str().expect("text");
        let terminal: &[&str] = if attempt.control == Control::Terminal { &["--pty"] } else { &[] };
        let (below, file, source) = ("/tmp/a/below", "/tmp/b/file", format!("{here}/file"));
        let binds = [profile, "--ro-bind", here, "/escape", "--ro-bind", here, below, "--ro-bind", &source, file];
        self.run(attempt, &[&binds, terminal].concat(), "/escape", below, file)
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = fs::remove_file(&self.memory);
        // SAFETY: removes what `new` has made.
        unsafe {
            libc::shmctl(self.shm, libc::IPC_RMID, std::ptr::null_mut());
            libc::syscall(libc::SYS_mq_unlink, self.queue.as_ptr());
        }
    }
}

/// Gives a program CAP_NET_RAW by its file.
fn grant(path: &Path) {
    const REVISION_2_AND_EFFECTIVE: u32 = 0x0200_0001;
    let words = [REVISION_2_AND_EFFECTIVE, 1 << 13, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let _ = rustix::fs::setxattr(path, "security.capability", &bytes, rustix::fs::XattrFlags::empty());
}

fn describe(output: &Output) -> String {
    format!(
        "{:?}: {} {}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).trim(),
        String::from_utf8_lossy(&output.stderr).trim()
    )
}

fn all_are_refused(profile: &str) {
    for caller in Caller::with_user_namespaces("attempts to escape") {
        let targets = Targets::new(caller);
        let (mut controlled, mut escaped) = (0, Vec::new());
        for attempt in ALL {
            let control = targets.control(attempt);
            let sandboxed = targets.sandboxed(attempt, profile);
            match &control {
                Some(output) if output.status.success() => controlled += 1,
                Some(output) => skipped(&format!("control of {} as {caller:?}", attempt.name), &describe(output)),
                None => {
                    skipped(&format!("control of {} as {caller:?}", attempt.name), &format!("{:?}", attempt.control))
                }
            }
            if std::env::var_os("FORKLESS_TEST_SHOW").is_some() {
                eprintln!("{caller:?} {}: {}", attempt.name, describe(&sandboxed));
            }
            if sandboxed.status.code() != Some(REFUSED) {
                escaped.push(format!("{}: {}", attempt.name, describe(&sandboxed)));
            }
        }
        eprintln!(
            "{caller:?}: {} attempts to escape from {profile}, {} refused, {controlled} work outside",
            ALL.len(),
            ALL.len() - escaped.len()
        );
        assert!(escaped.is_empty(), "{caller:?}: {}", escaped.join("\n"));
        assert!(ALL.len() >= 60 && controlled >= 40, "{caller:?}: only {controlled} of {} work outside", ALL.len());
    }
}

#[test]
fn attempts_to_escape_are_refused() {
    all_are_refused("--sandbox");
}

#[test]
fn landlock_alone_refuses_what_it_promises() {
    if let Err(error) = forkless::Sandbox::landlock().prepare() {
        return skipped("landlock_alone_refuses_what_it_promises", &error.to_string());
    }
    Caller::all("attempts to escape")
        .into_iter()
        .for_each(|caller| all_are_refused_in(caller, "landlock", &BEYOND_LANDLOCK));
}

#[test]
fn namespaces_of_the_library_refuse_what_those_of_the_command_refuse() {
    for caller in Caller::with_user_namespaces("attempts to escape") {
        all_are_refused_in(caller, "namespaces", &[]);
        all_are_refused_in(caller, "refused", &["see_network_devices"]);
    }
}

/// All but these attempts.
fn all_are_refused_in(caller: Caller, mode: &str, beyond: &[&str]) {
    let targets = Targets::new(caller);
    let mut escaped = Vec::new();
    for attempt in ALL {
        let output = targets.in_value(mode, attempt);
        let wanted = if beyond.contains(&attempt.name) { 0 } else { REFUSED };
        if output.status.code() != Some(wanted) {
            escaped.push(format!("{}: {}", attempt.name, describe(&output)));
        }
    }
    assert!(escaped.is_empty(), "{mode}, {caller:?}: {}", escaped.join("\n"));
}
