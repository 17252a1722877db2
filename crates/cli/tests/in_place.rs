//! `forkless run` in place, as the program itself, and as the program's parent: both give the program the same state.

testing::usual_surroundings!();

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, Output, Stdio},
};

mod callers;

use callers::skipped;
use libc::{SYS_close_range, SYS_execve, SYS_prctl, SYS_rt_sigaction, SYS_rt_sigprocmask};

/// How glibc polls.
#[cfg(target_arch = "x86_64")]
const POLL: i64 = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
const POLL: i64 = libc::SYS_ppoll;

fn forkless(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkless"));
    command.arg("run").args(words);
    command
}

fn output(words: &[&str]) -> Output {
    forkless(words).output().expect("forkless starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Does forkless become the program?
fn is_in_place(options: &[&str]) -> bool {
    let explained = output(&[&["--explain"], options, &["true"]].concat());
    assert!(explained.status.success(), "{options:?}: {explained:?}");
    text(&explained.stdout).starts_with("in place: ")
}

// ---- the decision ----

#[test]
fn nothing_is_cloned_where_nothing_needs_a_parent() {
    for options in [&[][..], &["--nice=1", "--umask=077", "--chdir=/", "--nofile=50", "--no-new-privs", "-i"]] {
        let mut child = forkless(&[options, &["/bin/sh", "-c", "echo $$ $PPID; read -r line"]].concat());
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("forkless starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, format!("{} {}\n", child.id(), std::process::id()), "{options:?}");
        drop(child.stdin.take());
        child.wait().expect("ends");
    }
}

/// The system calls from the start of `main` to the exec of the program. No timing changes them.
#[test]
fn system_calls_in_place_are_few() {
    let name = "system_calls_in_place_are_few";
    let before = [
        // Closed streams; whether SIGPIPE and SIGCHLD are ignored; SIGPIPE is ignored from here on.
        POLL,
        SYS_rt_sigaction,
        SYS_rt_sigaction,
        SYS_rt_sigaction,
        // The library: whether SIGPIPE is ignored, and the mask. Then descriptors are closed.
        SYS_rt_sigaction,
        SYS_rt_sigprocmask,
        SYS_close_range,
    ];
    let cases = [
        (&[][..], [&before[..], &[SYS_rt_sigaction, SYS_execve]].concat()),
        (&["--no-new-privs"], [&before[..], &[SYS_prctl, SYS_rt_sigaction, SYS_execve]].concat()),
    ];
    for (options, expected) in cases {
        let Some(calls) = calls_of_main(options) else { return skipped(name, "tracing is refused") };
        assert_eq!(calls, expected, "{options:?}");
    }
}

/// Traces `forkless run` with these options and returns the numbers of its calls, without those of the allocator and those by
/// which debug builds check descriptors.
fn calls_of_main(options: &[&str]) -> Option<Vec<i64>> {
    let mut command = forkless(&[options, &["/bin/true"]].concat());
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let pid = command.spawn().ok()?.id() as i32;
    let (mut calls, mut status) = (Vec::new(), 0);
    let wait = |status: &mut i32| {
        // SAFETY: the kernel writes the status.
        assert_eq!(unsafe { libc::waitpid(pid, status, 0) }, pid);
    };
    wait(&mut status);
    // SAFETY: the traced process is stopped.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL) };
    loop {
        // SAFETY: as above.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0) };
        wait(&mut status);
        if libc::WIFEXITED(status) {
            assert_eq!(libc::WEXITSTATUS(status), 0);
            break;
        }
        assert!(libc::WIFSTOPPED(status), "{status:#x}");
        if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
            // SAFETY: as above; zeros are a value of this structure, and the kernel writes at most its size.
            let info = unsafe {
                let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
                libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size_of_val(&info), &raw mut info);
                info
            };
            if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                // SAFETY: the member that the kernel has written for an entry.
                calls.push(unsafe { info.u.entry.nr } as i64);
            }
        }
    }
    let from = calls.iter().position(|call| *call == POLL).expect("main looks for closed streams first");
    let end = calls[from..].iter().position(|call| *call == SYS_execve).expect("an exec");
    let of_allocator = [libc::SYS_brk, libc::SYS_getrandom, libc::SYS_fcntl];
    Some(calls[from..=from + end].iter().copied().filter(|call| !of_allocator.contains(call)).collect())
}

/// In a new PID namespace, the program's group and session have no number unless it makes its own. So it is after
/// `unshare --pid --fork` and in containers.
#[test]
fn group_and_session_may_be_outside_of_the_pid_namespace() {
    let outer = ["--unshare-user", "--map-root-user", "--unshare-pid"];
    let look = "read -r _ _ _ _ group session _ < /proc/self/stat; echo $group $session";
    let inner = |options: &[&str]| {
        output(&[&outer[..], &[env!("CARGO_BIN_EXE_forkless"), "run"], options, &["sh", "-c", "exit 3"]].concat())
    };
    if !output(&[&outer[..], &["true"]].concat()).status.success() {
        skipped("group_and_session_may_be_outside_of_the_pid_namespace", "there are no user namespaces");
        return;
    }
    let seen = output(&[&outer[..], &["--unshare-mount", "--proc", "/proc", "sh", "-c", look]].concat());
    assert_eq!(text(&seen.stdout), "0 0\n", "{seen:?}");
    let options = ["", "--supervise", "--process-group=0", "--setsid", "--timeout=60", "--pty", "--usage"];
    for option in options {
        let option = if option.is_empty() { vec![] } else { vec![option] };
        let output = inner(&option);
        assert_eq!(output.status.code(), Some(3), "{option:?}: {output:?}");
    }
}

#[test]
fn supervise_starts_a_child() {
    let output = output(&["--supervise", "--route", "/bin/sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with("forkless: route: clone"), "{output:?}");
    let output = forkless(&["--route", "/bin/sh", "-c", "exit 3"]).output().expect("forkless starts");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(3), "forkless: route: in place\n".into()));
}

/// Each option that needs a parent, with the words of `--explain`.
#[test]
fn explain_names_each_reason_for_a_parent() {
    let reasons: &[(&[&str], &str)] = &[
        (&["--supervise"], "--supervise: "),
        (&["--timeout=5"], "--timeout: "),
        (&["--capture"], "--capture: "),
        (&["--pty=24x80"], "--pty: "),
        (&["--usage"], "--usage: "),
        (&["--foreground"], "--foreground: "),
        (&["--new-cgroup"], "new cgroup: "),
        (&["--memory-max=1G"], "new cgroup: "),
        (&["--best-effort=nice"], "--best-effort: "),
        (&["--system-call-filter=read,write"], "--system-call-filter: "),
        (&["--system-call-filter=~ptrace,write"], "--system-call-filter: "),
        (&["--syscall=39"], "--syscall: "),
        (&["--launcher=clone"], "--launcher: "),
        (&["--launcher=fork"], "--launcher: "),
        (&["--pdeathsig=TERM"], "--pdeathsig: "),
        (&["--no-new-privs", "--pidfd-autokill"], "--pidfd-autokill: "),
        (&["--unshare-pid"], "PID namespace: "),
        (&["--unshare-all"], "PID namespace: "),
        (&["--unshare-time"], "time namespace: "),
        (&["--unshare-user"], "user namespace: "),
        (&["--map-users=0:0:1"], "user namespace: "),
    ];
    for (options, reason) in reasons {
        let explained = output(&[&["--explain"], *options, &["true"]].concat());
        let lines = text(&explained.stdout);
        assert!(lines.starts_with(&format!("supervised: {reason}")), "{options:?}: {explained:?}");
        assert!(!lines.contains("in place"), "{lines}");
    }
    assert!(text(&output(&["--explain", "--shell", "ls"]).stdout).starts_with("supervised: --shell: "));
    let both = text(&output(&["--explain", "--timeout=5", "--usage", "true"]).stdout);
    let heads: Vec<_> = both.lines().take(3).map(|line| line.split(": ").take(2).collect::<Vec<_>>()).collect();
    assert_eq!(heads[..2], [["supervised", "--timeout"], ["supervised", "--usage"]], "{both}");
}

#[test]
fn options_without_a_reason_run_in_place() {
    let plain: &[&[&str]] = &[
        &[],
        &["--timeout=0"],
        &["--no-new-privs", "--system-call-filter=~ptrace,mount"],
        &["--route"],
        &["--retry-busy=1s"],
        &["--memory-deny-write-execute"],
        &["--unshare-net", "--tmpfs=/tmp"],
        &["--landlock-access=fs:make-sock"],
        &["--process-group"],
        &["--as=1G", "--fsize=1M"],
    ];
    for options in plain {
        assert!(is_in_place(options), "{options:?}");
    }
}

/// setsid(2) is refused to the leader of a process group, and setpgid(2) to the leader of a session.
#[test]
fn leaders_get_a_child_for_a_session_or_a_group() {
    let group = |words: &[&str]| {
        let mut command = forkless(words);
        command.process_group(0).output().expect("forkless starts")
    };
    assert!(text(&group(&["--explain", "--setsid", "true"]).stdout).starts_with("supervised: --setsid: "));
    assert!(is_in_place(&["--setsid"]));
    let ids = |output: Output| -> Vec<String> { text(&output.stdout).split_whitespace().map(str::to_owned).collect() };
    let script = "echo $$; cut -d' ' -f5,6 /proc/$$/stat";
    for [pid, pgrp, session] in
        [ids(group(&["--setsid", "sh", "-c", script])), ids(output(&["--setsid", "sh", "-c", script]))]
            .map(|ids| <[String; 3]>::try_from(ids).expect("three numbers"))
    {
        assert_eq!((&pid, &pid), (&pgrp, &session));
    }
    // In a session of its own, forkless cannot leave its group.
    let explained =
        output(&["--setsid", env!("CARGO_BIN_EXE_forkless"), "run", "--explain", "--process-group", "true"]);
    assert!(text(&explained.stdout).starts_with("supervised: --process-group: "), "{explained:?}");
    let nested = ["--setsid", env!("CARGO_BIN_EXE_forkless"), "run", "--process-group", "sh", "-c", script];
    let [pid, pgrp, session] = <[String; 3]>::try_from(ids(output(&nested))).expect("three numbers");
    assert!(pid == pgrp && pid != session, "{pid} {pgrp} {session}");
}

// ---- what the program sees ----

/// Prints what a program can see of its state, without what differs from process to process. The signals are those of grep: dash
/// 0.5.12 blocks them while it waits.
const LOOK: &str = r#"
    echo "args $0 $*"; pwd; umask; id
    env | grep -v '^_=' | sort
    ls /proc/self/fd 2>/dev/null | tr '\n' ' '; echo
    grep -E '^(Sig|Shd|Cap|NoNewPrivs|Seccomp|Groups|Uid|Gid|Cpus_allowed:)' /proc/self/status | grep -v -E '^(SigQ|Seccomp_filters)'
    cat /proc/$$/limits /proc/$$/oom_score_adj /proc/$$/personality 2>/dev/null
    cut -d' ' -f18,19,40,41 /proc/$$/stat
    for kind in net mnt uts ipc cgroup user; do [ $(readlink /proc/$$/ns/$kind) = $(readlink /proc/$PPID/ns/$kind) ] && echo "$kind as the parent"; done
    hostname
    cat <&5 2>/dev/null
    echo to standard error >&2
    exit 7
"#;

fn compared(options: &[&str]) {
    assert!(is_in_place(options), "{options:?}");
    let directory = tempfile::tempdir().expect("temporary directory");
    fs::write(directory.path().join("input"), "from a file\n").expect("write");
    let look = |supervise: &[&str]| {
        let mut command = forkless(&[supervise, options, &["A=1", "/bin/sh", "-c", LOOK, "look", "a b"]].concat());
        command.current_dir(directory.path()).env("UNSET", "1").env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
        // SAFETY: both calls are async-signal-safe, and change only the child.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGUSR1, libc::SIG_IGN);
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGUSR2);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                Ok(())
            })
        };
        let output = command.stdin(Stdio::null()).output().expect("forkless starts");
        let names = ["out", "nine", "six"].map(|name| directory.path().join(name));
        let files = names.map(|name| {
            let content = fs::read_to_string(&name).ok();
            let _ = fs::remove_file(name);
            content
        });
        (output.status, text(&output.stdout), text(&output.stderr), files)
    };
    let (ours, theirs) = (look(&[]), look(&["--supervise"]));
    assert_eq!(ours, theirs, "{options:?}");
    assert_eq!(ours.0.code(), Some(7), "{options:?}: {}", ours.2);
}

#[test]
fn program_sees_the_same_state_in_place_and_supervised() {
    let rows: &[&[&str]] = &[
        &[],
        &["-i", "--env=B=2", "PATH=/usr/bin:/bin"],
        &["--unset=UNSET", "--argv0=name"],
        &["--chdir=/", "--umask=027"],
        &["--stdout=out", "--stderr=stdout"],
        &["--stdin=input", "--stdout=append:out", "--stderr=null"],
        &["--fd=5=r:input", "--fd=9=w:nine", "--fd=7=null"],
        &["--open=5=r:input", "--open=6=w:six"],
        &["--inherit-all"],
        &["--ignore-signal=TERM,INT", "--block-signal=HUP"],
        &["--default-signal", "--empty-signal-mask"],
        &["--inherit-signal=PIPE"],
        &["--nice=3", "--ionice=idle", "--scheduler=batch", "--cpu-list=0"],
        &["--personality=0x0040000"],
        &["--no-aslr"],
        &["--nofile=60:70", "--core=0", "--stack=8M", "--nproc=10000"],
        &["--oom-score-adj=500"],
        &["--no-new-privs"],
        &["--setsid"],
        &["--process-group"],
        &["--no-new-privs", "--system-call-filter=~ptrace,mount"],
        &["--timeout=0"],
    ];
    rows.iter().for_each(|options| compared(options));
}

#[test]
fn program_of_root_sees_the_same_state_in_place_and_supervised() {
    if !is_root() {
        eprintln!("SKIPPED: program_of_root_sees_the_same_state_in_place_and_supervised: needs root");
        return;
    }
    let rows: &[&[&str]] = &[
        &["--reuid=1", "--regid=1", "--clear-groups"],
        &["--bounding-set=-all", "--no-new-privs"],
        &["--inh-caps=+kill", "--ambient-caps=+kill", "--securebits=+noroot"],
        &["--unshare-net", "--unshare-ipc"],
        &["--unshare-uts", "--hostname=inside"],
        &["--tmpfs=/mnt", "--remount-ro=/"],
        &["--chroot=/"],
    ];
    rows.iter().for_each(|options| compared(options));
}

// ---- failures ----

#[test]
fn failures_are_reported_alike_in_place_and_supervised() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let plain = directory.path().join("plain");
    fs::write(&plain, "no program").expect("write");
    let plain = plain.to_str().expect("text");
    let rows: &[(&[&str], i32)] = &[
        (&["no-such-program-anywhere"], 127),
        (&["/no/such/program"], 127),
        (&[""], 127),
        (&[plain], 126),
        (&["/"], 126),
        (&["--or-else=no-other", "no-such-program-anywhere"], 127),
        (&["--chdir=/no/such/directory", "true"], 125),
        (&["--fd=9=8", "true"], 125),
        (&["--open=9=r:/no/such/file", "true"], 125),
        (&["--stdout=null", "no-such-program-anywhere"], 127),
        (&["--stderr=null", "no-such-program-anywhere"], 127),
        (&["--stderr=null", "--fd=3=null", "--fd=4=null", "no-such-program-anywhere"], 127),
        (&["--ignore-signal", "--block-signal", "no-such-program-anywhere"], 127),
        (&["--as=1", "no-such-program-anywhere"], 127),
        (&["--data=1", "--stack=1", "--nofile=0", "no-such-program-anywhere"], 127),
        (&["--no-new-privs", "--system-call-filter=~ptrace", "no-such-program-anywhere"], 127),
        (&["--no-new-privs", "--system-call-filter=read", "no-such-program-anywhere"], 127),
        (&["--chdir=/", "--umask=777", "--setsid", "--nice=3", "no-such-program-anywhere"], 127),
    ];
    for (words, code) in rows {
        let (ours, theirs) = (output(words), output(&[&["--supervise"], *words].concat()));
        assert_eq!((text(&ours.stderr), text(&ours.stdout)), (text(&theirs.stderr), text(&theirs.stdout)), "{words:?}");
        assert_eq!((ours.status.code(), theirs.status.code()), (Some(*code), Some(*code)), "{words:?}: {ours:?}");
        assert!(text(&ours.stderr).starts_with("forkless: "), "{words:?}: {ours:?}");
    }
}

/// A limit of file sizes must not keep a message from a file.
#[test]
fn failure_is_reported_to_a_file_beyond_the_limit() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let path = directory.path().join("messages");
    let mut file = File::create(&path).expect("create");
    file.write_all(b"before\n").expect("write");
    let mut command = forkless(&["--fsize=0", "no-such-program-anywhere"]);
    let status = command.stderr(file).status().expect("forkless starts");
    assert_eq!((status.code(), status.signal()), (Some(127), None));
    assert!(fs::read_to_string(&path).expect("read").contains("no-such-program-anywhere"), "{path:?}");
}

/// The copy of standard error that is kept for the message is not the program's.
#[test]
fn kept_standard_error_is_closed_by_exec() {
    let files = text(&output(&["--stderr=null", "--inherit-all", "ls", "/proc/self/fd"]).stdout);
    let theirs = text(&output(&["--supervise", "--stderr=null", "--inherit-all", "ls", "/proc/self/fd"]).stdout);
    assert_eq!(files, theirs);
    assert!(Path::new("/proc/self/fd").exists());
}
