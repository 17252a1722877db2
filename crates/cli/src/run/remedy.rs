//! What to do about a launch that failed, as far as this command line and this machine show it.

use std::{
    ffi::OsStr,
    fs,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::ExitStatus,
};

use forkless::{Error, Step};
use forkless_core::sys::{getrlimit, uapi};
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use signal_hook::low_level::signal_name;

use crate::{
    near::{did_you_mean, near},
    usage::option_before_program,
};

use super::{failure::Failure, filter, options::RunOptions};

/// A message of this length leaves no room for a remedy on its line.
const LONG: usize = 160;

/// The message of a failure with the remedy.
pub(crate) fn describe(failure: &Failure, options: &RunOptions) -> String {
    let remedy = failure.launch.as_ref().map(|error| of(error, options)).unwrap_or_default();
    // A long PATH would hide the remedy.
    match remedy.strip_prefix("; ") {
        Some(alone) if failure.message.len() > LONG => format!("{}\nforkless: {alone}", failure.message),
        _ => format!("{}{remedy}", failure.message),
    }
}

/// Explains the program's death by a tight --as or a seccomp filter. The kernel reports the refused call only in its log.
pub(crate) fn of_death(program: &OsStr, status: ExitStatus, options: &RunOptions) -> Option<String> {
    /// The exit code of dynamic loaders that cannot load a library.
    const NOT_LOADED: i32 = 127;
    let crashes = [libc::SIGSYS, libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGILL, libc::SIGTRAP];
    let signal = status.signal().filter(|signal| crashes.contains(signal));
    if signal.is_none() && status.code() != Some(NOT_LOADED) {
        return None;
    }
    if let (Some(libc::SIGSEGV), Some(bytes)) = (status.signal(), options.limits.is_tight()) {
        return Some(format!("{program:?} was killed by SIGSEGV; it does not fit into the {bytes} bytes of --as"));
    }
    let (flag, filter) = options.seccomp_filter()?;
    let refused = filter::refused_at_start(&filter);
    let died = match signal.map(|signal| (signal, signal_name(signal))) {
        Some((libc::SIGSYS, _)) => "was killed by SIGSYS, the signal of a seccomp filter".to_owned(),
        Some((_, Some(name))) => format!("was killed by {name} under a seccomp filter"),
        _ => "could not load its libraries under a seccomp filter".to_owned(),
    };
    let why = match (&refused[..], signal) {
        ([], Some(libc::SIGSYS)) => {
            "the kernel log may name the call (journalctl -k -g SECCOMP), and strace(1) shows it".to_owned()
        }
        ([], _) => return None,
        (calls, _) => format!("{flag} refuses {}, which most programs need to start; allow them", calls.join(", ")),
    };
    Some(format!("{program:?} {died}; {why}"))
}

/// As [`of`], for a program that another subcommand has started without any settings.
pub(crate) fn of_program(error: &std::io::Error) -> String {
    Error::of(error).map_or_else(String::new, |error| of(error, &RunOptions::default()))
}

/// The end of the message for a failed launch: `; ` and the remedy, or nothing.
pub(crate) fn of(error: &Error, options: &RunOptions) -> String {
    if options.limits.has_memory_limit() {
        // If forkless was to become the program, it has this limit by now: a search for a remedy could abort it.
        return String::new();
    }
    let errno = error.errno().unwrap_or(0);
    let remedy = match error.step() {
        Step::Exec => execution(error, errno, options),
        Step::Check => check(error),
        _ => setting(error, errno, options).or_else(|| privilege(error, errno, options)),
    };
    remedy.map_or_else(String::new, |words| join(&words))
}

/// An unknown user or group, or a setting that the launcher does not support.
fn check(error: &Error) -> Option<String> {
    let text = error.to_string();
    if text.contains("Launcher::") {
        return Some("leave out --launcher".to_owned());
    }
    let unknown = |what: &str| text.split_once(what).and_then(|(_, rest)| rest.split('"').nth(1).map(str::to_owned));
    let (word, file) = match unknown("there is no user ") {
        Some(word) => (word, "/etc/passwd"),
        None => (unknown("there is no group ")?, "/etc/group"),
    };
    if word.is_empty() {
        return Some("the name is empty".to_owned());
    }
    if word.parse::<u64>().is_ok() {
        return Some(format!("an ID is at most {}", u32::MAX - 1));
    }
    Some(did_you_mean(&word, super::options::names(file))).filter(|words| !words.is_empty())
}

/// The object of an error of a clone into namespaces.
pub(super) const INTO_NAMESPACES: &str = "into namespaces";

/// Remedies for steps other than exec, by step and errno.
fn setting(error: &Error, errno: i32, options: &RunOptions) -> Option<String> {
    let own_user = options.namespaces.is_in_user_namespace();
    Some(match (error.step(), errno) {
        (Step::Clone, libc::EPERM) if options.control_group.has_any() => return None,
        (Step::Clone, _) if options.sandbox.sandbox.is_some() && error.object() == Some(INTO_NAMESPACES) => {
            super::sandbox::refused_namespace(options, errno)?
        }
        (Step::Clone | Step::Namespace, libc::EPERM | libc::ENOSPC | libc::EUSERS) if own_user => {
            "this system forbids user namespaces: see user.max_user_namespaces, kernel.unprivileged_userns_clone and \
             kernel.apparmor_restrict_unprivileged_userns in sysctl(8)"
                .to_owned()
        }
        (Step::Clone | Step::Namespace, libc::EPERM) if options.sandbox.sandbox.is_none() => {
            "run as root, or add --map-root-user".to_owned()
        }
        (Step::SetGroups | Step::SetGid | Step::SetUid, libc::EINVAL) if own_user => {
            "an ID is not mapped into the user namespace; map it with --map-users and --map-groups=IN:OUT:COUNT"
                .to_owned()
        }
        (Step::SetGroups, libc::EPERM) if own_user => {
            "a user namespace of an ordinary user refuses groups; use --keep-groups".to_owned()
        }
        (Step::IdMaps, libc::ENOENT) => "it needs a /proc of this PID namespace".to_owned(),
        (Step::IdMaps, libc::EPERM) => "run as root, or use --map-root-user or --map-current-user".to_owned(),
        (Step::Mount, libc::ENOENT) => missing_path(error, options)?,
        (Step::Mount, libc::ENOTDIR) => "SRC and DST must both be directories, or both be files".to_owned(),
        (Step::Mount, libc::ENODEV) => {
            "the kernel has no such file system; /proc/filesystems lists those it has".to_owned()
        }
        (Step::Mount, libc::EINVAL) if error.to_string().contains("parameter") => {
            "mount(8) lists the options of this file system".to_owned()
        }
        (Step::Mount, libc::EPERM) if error.to_string().contains("\"proc\"") => {
            "a new procfs needs --unshare-pid".to_owned()
        }
        (Step::MakeDir, libc::ENOENT) => "its parent does not exist; create that before with --dir".to_owned(),
        (Step::MakeDir | Step::Symlink, libc::EACCES | libc::EROFS) => {
            "its parent cannot be written to; mount one that can before, such as with --tmpfs".to_owned()
        }
        (Step::PivotRoot, libc::EINVAL | libc::EBUSY) => {
            "the new root must be a mount point: add --bind DIR DIR before it".to_owned()
        }
        (Step::JoinNamespace, libc::EINVAL) => {
            "the file of --join must be a namespace of the given kind: /proc/PID/ns/KIND".to_owned()
        }
        (Step::Terminal | Step::Foreground, libc::ENOTTY) => {
            "standard input is no terminal: start it from one, or use --pty".to_owned()
        }
        (Step::SetPgid, libc::EPERM | libc::ESRCH) => {
            "no such process group in this session; without =PGID, --process-group creates one".to_owned()
        }
        (Step::Landlock, libc::EBADFD) => "the descriptor of --landlock is no Landlock ruleset".to_owned(),
        (Step::Landlock, libc::EPERM) | (Step::Seccomp, libc::EACCES) => "add --no-new-privs".to_owned(),
        (Step::Seccomp, libc::EINVAL) => "the kernel takes it for no valid BPF program: see seccomp(2)".to_owned(),
        (Step::Affinity, libc::EINVAL) => online("CPUs", "/sys/devices/system/cpu/online")?,
        (_, libc::EINVAL) if error.to_string().contains("memory policy") => {
            online("nodes", "/sys/devices/system/node/online")?
        }
        (Step::PassFd, libc::EBADF) => descriptor(error),
        (Step::Chdir, libc::ENOENT) if options.has_root() && options.chdir.is_some() => {
            "it must exist inside the new root".to_owned()
        }
        (Step::Chdir, libc::ENOENT) if error.to_string().contains("after the mounts") => {
            "a mount hides the working directory; add --chdir=DIR".to_owned()
        }
        (Step::Open, libc::ENOENT) => "it must exist in the root and working directory of the program".to_owned(),
        (Step::Chdir | Step::Chroot, libc::ENOENT | libc::ENOTDIR) => "it must be a directory that exists".to_owned(),
        (Step::Chdir | Step::Open, libc::EACCES) => format!("user {} lacks the permission", user(options)),
        _ => return None,
    })
}

/// Names the path of a mount that does not exist.
fn missing_path(error: &Error, options: &RunOptions) -> Option<String> {
    let object = error.object().unwrap_or_default().trim_end_matches(", inside the sandbox");
    let paths = quoted_paths(object);
    let missing = |path: &&PathBuf| path.is_absolute() && !path.exists();
    let Some(path) = paths.iter().find(missing) else {
        return options.mounts.layers().find(missing).map(|path| format!("{path:?} does not exist"));
    };
    let is_target = object.ends_with(&format!(" at {path:?}")) && !object.contains("umount");
    let how = if is_target { "; create it before with --dir" } else { "" };
    Some(format!("{path:?} does not exist{how}"))
}

/// A descriptor that is not open, or whose number is too high.
fn descriptor(error: &Error) -> String {
    let last = error.object().and_then(|text| text.split(' ').next_back()?.parse::<u64>().ok());
    let limit = getrlimit(uapi::RLIMIT_NOFILE);
    match (last, limit) {
        (Some(number), Ok([limit, _])) if number >= limit => {
            format!("a descriptor number must be below {limit}, or use --nofile")
        }
        _ => {
            let source = error.object().and_then(|text| text.split(' ').next()).unwrap_or("N");
            format!("open it for forkless, as the shell does with {source}<FILE")
        }
    }
}

/// A step that root may do.
fn privilege(error: &Error, errno: i32, options: &RunOptions) -> Option<String> {
    if !matches!(errno, libc::EPERM | libc::EACCES) || rustix::process::geteuid().is_root() {
        return None;
    }
    let in_namespace = matches!(
        error.step(),
        Step::Chroot | Step::Capabilities | Step::Securebits | Step::Hostname | Step::Mount | Step::PivotRoot
    );
    match error.step() {
        _ if options.sandbox.sandbox.is_some() => None,
        _ if in_namespace && !options.namespaces.is_in_user_namespace() => {
            Some("run as root, or add --map-root-user".to_owned())
        }
        Step::Open | Step::MakeDir | Step::Symlink | Step::Seccomp | Step::Landlock => None,
        step if step.code() < 100 => Some("run as root".to_owned()),
        _ => None,
    }
}

fn online(what: &str, file: &str) -> Option<String> {
    let list = fs::read_to_string(file).ok()?;
    Some(format!("this machine has the {what} {}", list.trim()))
}

fn user(options: &RunOptions) -> String {
    options.identity.name().map_or_else(|| rustix::process::geteuid().as_raw().to_string(), |name| format!("{name:?}"))
}

/// The strings in quotes.
fn quoted_paths(text: &str) -> Vec<PathBuf> {
    text.split('"').skip(1).step_by(2).map(PathBuf::from).collect()
}

// ---- exec ----

fn execution(error: &Error, errno: i32, options: &RunOptions) -> Option<String> {
    if let Some(words) = filtered(error, errno, options) {
        return Some(words);
    }
    let program = error.program();
    // With another root, mounts or working directory, the program's paths may not be those of forkless.
    let sees_the_same = !options.has_root() && !options.mounts.has_any() && options.chdir.is_none();
    let tried = quoted_paths(error.object().unwrap_or_default()).into_iter().next();
    let path = options.child.fexec().cloned().or(tried).unwrap_or_else(|| PathBuf::from(program));
    match errno {
        libc::ENOENT | libc::ENOTDIR => not_found(program, &path, options, sees_the_same),
        libc::EACCES if options.filters.has_denied_files() => Some(
            "here --landlock-access denies it; allow the program and its libraries, such as with \
             --landlock-rule=path-beneath:execute,read-file:/usr"
                .to_owned(),
        ),
        libc::EACCES if sees_the_same && !program.as_bytes().contains(&b'/') && fs::metadata(&path).is_err() => {
            let near = not_in_path(program.to_str()?, options);
            let closed = path.parent().unwrap_or(&path);
            Some(format!("user {} may not search {closed:?}, which is in PATH{}", user(options), join(&near)))
        }
        libc::EACCES if sees_the_same => denied(&path, options),
        libc::ENOEXEC if sees_the_same => no_format(&path),
        libc::ETXTBSY => {
            Some("a process has it open for writing; wait for that, such as with --retry-busy=5s".to_owned())
        }
        libc::E2BIG => Some(
            "one argument may have at most 128 KiB; pass long data in a file, or split the arguments with xargs(1)"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The program cannot be executed because a filter refuses the system call.
fn filtered(error: &Error, errno: i32, options: &RunOptions) -> Option<String> {
    let (flag, program) = options.seccomp_filter()?;
    let call = filter::refused_execution(&program)?;
    let is_it = error.signal() == Some(libc::SIGSYS)
        || matches!(errno, libc::EPERM | libc::EACCES | libc::ENOSYS)
        || errno == 0;
    is_it.then(|| format!("here {flag} refuses {call}, which starts the program; allow {call}"))
}

fn not_found(program: &OsStr, path: &Path, options: &RunOptions, sees_the_same: bool) -> Option<String> {
    let text = program.to_str()?;
    if text.is_empty() {
        return Some("write the name of a program after the options".to_owned());
    }
    if let Some(option) = option_before_program(RunOptions::definition()) {
        return Some(format!("{option} takes its value after =, as in {option}={text}"));
    }
    if text.starts_with('-') {
        let place = if options.has_assignments() { "NAME=VALUE" } else { "--" };
        return Some(format!("the options of forkless are written before {place}"));
    }
    if !sees_the_same {
        return Some("it must exist in the root and working directory of the program".to_owned());
    }
    if text.contains(char::is_whitespace) && !text.contains('/') {
        return Some("the name contains spaces; write each argument as a word of its own, or use --shell".to_owned());
    }
    if !text.contains('/') {
        let path = options.path().unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|directory| directory.join(text));
        return match found.find(|path| access(path, Access::EXEC_OK).is_ok() && path.is_file()) {
            Some(found) => interpreter(&found).map(|words| format!("{found:?} is there; {words}")),
            None => Some(not_in_path(text, options)).filter(|words| !words.is_empty()),
        };
    }
    if let Some(file) = path.ancestors().skip(1).find(|above| above.is_file()) {
        return Some(format!("{file:?} is a file and not a directory"));
    }
    if path.exists() {
        return interpreter(path);
    }
    let Ok(here) = std::env::current_dir() else {
        return Some("the working directory was removed; change to another".to_owned());
    };
    if text.starts_with("~/") {
        return Some("only a shell replaces ~, and not in quotes; write $HOME".to_owned());
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty())?;
    if !directory.exists() {
        return Some(format!("{directory:?} does not exist"));
    }
    let near = did_you_mean(path.file_name()?.to_str()?, executables(directory));
    let relative = path.is_relative().then(|| format!("the working directory is {here:?}"));
    if near.is_empty() { relative } else { Some(near) }
}

/// The words as the continuation of a message.
fn join(words: &str) -> String {
    if words.is_empty() || words.starts_with("; ") { words.to_owned() } else { format!("; {words}") }
}

/// Commands that only a shell has.
const BUILTINS: [&str; 16] = [
    "alias", "bg", "cd", "command", "eval", "exec", "export", "fg", "jobs", "read", "set", "shift", "source", "ulimit",
    "umask", "unset",
];

fn not_in_path(text: &str, options: &RunOptions) -> String {
    if BUILTINS.contains(&text) {
        return "a shell has it as a builtin; use --shell".to_owned();
    }
    if Path::new(text).is_file() {
        return format!("the working directory is not searched; write ./{text}");
    }
    let path = options.path().unwrap_or_default();
    // Names of two letters are near to too many.
    let longer = |name: &String| text.len() > 2 || name.len() > 2 || near(text, [name]).is_some();
    let all = std::env::split_paths(&path).flat_map(|directory| executables(&directory)).filter(longer);
    did_you_mean(text, all)
}

/// The names of the programs in a directory.
fn executables(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let runs =
        |path: PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    let mut names: Vec<String> =
        entries.filter(|entry| runs(entry.path())).filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The file exists, so its interpreter is missing: names that.
fn interpreter(path: &Path) -> Option<String> {
    let start = beginning(path)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?;
        let name = String::from_utf8_lossy(line);
        if name.ends_with('\r') {
            return Some(format!(
                "its lines end in CR LF, so its interpreter is {:?}; convert it: sed -i 's/\\r$//' {}",
                name.trim_start(),
                path.display()
            ));
        }
        let interpreter = name.split_whitespace().next().unwrap_or_default();
        return Some(format!(
            "its first line names the interpreter {interpreter:?}, which does not exist; correct that line"
        ));
    }
    let loader = loader(&start)?;
    Some(format!("its dynamic loader {loader:?} does not exist; install the C library that it was built for"))
}

/// The first bytes of a file.
fn beginning(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(4096).read_to_end(&mut start).ok()?;
    Some(start)
}

/// The dynamic loader that an ELF file names: linkers put its name near the beginning.
fn loader(start: &[u8]) -> Option<String> {
    let name = start.strip_prefix(b"\x7fELF")?;
    let at = name.windows(4).position(|some| some == b"/ld-" || some == b"/ld." || some == b"ld64")?;
    let from = name[..at].iter().rposition(|byte| *byte == 0)? + 1;
    let end = at + name[at..].iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&name[from..end]).into_owned())
}

fn denied(path: &Path, options: &RunOptions) -> Option<String> {
    let Ok(file) = fs::metadata(path) else {
        let closed =
            path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).find(|above| above.exists());
        return closed.map(|above| format!("here user {} may not search {above:?}", user(options)));
    };
    if file.is_dir() {
        return Some("here it is a directory; write a program in it".to_owned());
    }
    if statvfs(path).is_ok_and(|at| at.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        return Some("here its file system is mounted noexec; copy it to another, or name its interpreter".to_owned());
    }
    if file.permissions().mode() & 0o111 == 0 {
        return Some(format!("here it has no execute permission; set it with chmod +x {}", path.display()));
    }
    let start = beginning(path).unwrap_or_default();
    let line = start.strip_prefix(b"#!").and_then(|line| line.split(|byte| *byte == b'\n').next());
    let interpreter = line.map(|line| String::from_utf8_lossy(line).into_owned());
    if let Some(name) = interpreter.as_deref().and_then(|line| line.split_whitespace().next()) {
        if access(name, Access::EXEC_OK).is_err() || Path::new(name).is_dir() {
            return Some(format!("here its interpreter {name:?} cannot be executed; correct its first line"));
        }
    }
    Some(format!("here user {} may not execute it (mode {:o})", user(options), file.permissions().mode() & 0o7777))
}

fn no_format(path: &Path) -> Option<String> {
    let start = beginning(path)?;
    let Some(rest) = start.strip_prefix(b"\x7fELF") else {
        return Some("here it is neither an ELF file nor a text file".to_owned());
    };
    let machine = match rest.get(14..16).map(|two| u16::from_le_bytes([two[0], two[1]])) {
        Some(3) => "x86",
        Some(40) => "arm",
        Some(62) => "x86_64",
        Some(183) => "aarch64",
        Some(243) => "riscv64",
        Some(_) => "another machine",
        None => return Some("here it is an ELF file that was cut short".to_owned()),
    };
    let ours = std::env::consts::ARCH;
    if machine == ours {
        return Some("here it is a damaged ELF file, or no program".to_owned());
    }
    Some(format!("here it is a program for {machine}, and this machine is {ours}"))
}
