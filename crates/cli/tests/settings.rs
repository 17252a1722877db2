//! Settings of `forkless run`: identity, limits, scheduling, session, how the program is executed, and `--explain`.
//! Namespaces, mounts and privileges are in `sandbox.rs`, cgroups in `cgroup.rs`.

testing::usual_surroundings!();

mod callers;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    process::Stdio,
};

use callers::{Caller, binary, directory, field, skipped};

const CAP_SETUID: u32 = 7;
const CAP_SYS_NICE: u32 = 23;

fn numbers(text: &str) -> Vec<i64> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

// ---- identity ----

#[test]
fn user_and_group_options_set_ids_and_groups() {
    let Some(root) = Caller::root_with("user_and_group_options_set_ids_and_groups", CAP_SETUID) else { return };
    let ids = "id -u; id -g; id -G";
    let run = |options: &[&str]| numbers(&root.stdout(&[options, &["sh", "-c", ids]].concat()));
    // User daemon is 1 with group 1 on every Linux. A user name sets its groups, as with --init-groups.
    for options in [&["--reuid", "daemon"][..], &["--user=1"], &["--reuid", "daemon", "--init-groups"]] {
        assert_eq!(run(options), [1, 1, 1], "{options:?}");
    }
    assert_eq!(run(&["--reuid=12345", "--regid=54321", "--clear-groups"]), [12345, 54321, 54321]);
    assert_eq!(run(&["--reuid=12345", "--group", "daemon", "--groups=daemon,77"]), [12345, 1, 1, 77]);
    assert_eq!(run(&["--clear-groups"]), [0, 0, 0]);
    assert_eq!(root.status(&["--reuid=12345:12345"], "Uid"), "12345\t12345\t12345\t12345");
    assert_eq!(root.status(&["--regid=12345", "--clear-groups"], "Gid"), "12345\t12345\t12345\t12345");
}

#[test]
fn error_names_the_missing_capability() {
    let privileged = [
        (&["--reuid=0"][..], "CAP_SETGID"),
        (&["--regid=0", "--keep-groups"], "CAP_SETGID"),
        (&["--chroot=/"], "CAP_SYS_CHROOT"),
        (&["--nice=-5"], "CAP_SYS_NICE"),
        (&["--scheduler=rr"], "CAP_SYS_NICE"),
        (&["--oom-score-adj=-1000"], "CAP_SYS_RESOURCE"),
        (&["--bounding-set=-all"], "CAP_SETPCAP"),
        (&["--unshare-net"], "a user namespace"),
    ];
    for (options, missing) in privileged {
        let words = Caller::Ordinary.failure(&[options, &["true"]].concat());
        assert!(words.contains(missing), "{options:?}: {words}");
    }
}

#[test]
fn umask_is_octal() {
    for caller in Caller::all("umask_is_octal") {
        assert_eq!(caller.stdout(&["--umask", "027", "sh", "-c", "umask"]).trim_start_matches('0'), "27\n");
    }
}

// ---- limits ----

/// A line of /proc/self/limits: soft and hard.
fn limit(limits: &str, name: &str) -> (String, String) {
    let line = limits.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}"));
    let mut words = line[name.len()..].split_whitespace().map(str::to_owned);
    (words.next().expect("soft"), words.next().expect("hard"))
}

#[test]
fn every_resource_limit_can_be_lowered() {
    // The option, the name in /proc/self/limits, and a value that no machine's limit is below.
    let limits = [
        ("as", "Max address space", 2u64 << 30),
        ("core", "Max core file size", 0),
        ("cpu", "Max cpu time", 1000),
        ("data", "Max data size", 1 << 30),
        ("fsize", "Max file size", 1 << 20),
        ("locks", "Max file locks", 5),
        ("memlock", "Max locked memory", 4096),
        ("msgqueue", "Max msgqueue size", 1000),
        ("nofile", "Max open files", 50),
        ("nproc", "Max processes", 1000),
        ("rlimit-nice", "Max nice priority", 0),
        ("rss", "Max resident set", 1 << 30),
        ("rtprio", "Max realtime priority", 0),
        ("rttime", "Max realtime timeout", 1_000_000),
        ("sigpending", "Max pending signals", 50),
        ("stack", "Max stack size", 4 << 20),
    ];
    for caller in Caller::all("every_resource_limit_can_be_lowered") {
        let mut words: Vec<String> = limits.iter().map(|(flag, _, value)| format!("--{flag}={value}")).collect();
        words.extend(["cat".to_owned(), "/proc/self/limits".to_owned()]);
        let seen = caller.stdout(&words.iter().map(String::as_str).collect::<Vec<_>>());
        for (flag, name, value) in limits {
            assert_eq!(limit(&seen, name), (value.to_string(), value.to_string()), "--{flag} as {caller:?}");
        }
    }
}

#[test]
fn soft_limit_can_be_set_alone() {
    for caller in Caller::all("soft_limit_can_be_set_alone") {
        let before = limit(&caller.stdout(&["cat", "/proc/self/limits"]), "Max open files");
        let look = |option: &str| limit(&caller.stdout(&[option, "cat", "/proc/self/limits"]), "Max open files");
        assert_eq!(look("--nofile=20:"), ("20".to_owned(), before.1));
        assert_eq!(look("--nofile=20:30"), ("20".to_owned(), "30".to_owned()));
        assert!(caller.failure(&["--nofile=30:20", "true"]).contains("--nofile"));
        assert!(caller.failure(&["--nofile=many", "true"]).contains("--nofile"));
        // The shell prints KiB.
        assert_eq!(caller.stdout(&["--as=512M", "sh", "-c", "ulimit -v"]), "524288\n");
    }
}

// ---- the table of settings ----

#[test]
fn every_setting_of_the_table_has_its_flag() {
    let help = Caller::Ordinary.stdout(&["--help"]);
    let mut flags = 0;
    for row in forkless::settings::TABLE {
        let Some((flag, _)) = row.run else { continue };
        assert!(help.contains(&format!("--{flag} ")) || help.contains(&format!("--{flag}\n")), "no --{flag}");
        flags += 1;
    }
    assert!(flags >= 2, "{flags}");
}

// ---- scheduling ----

/// The fields of /proc/self/stat after the name; field n of proc(5) is number n - 3.
fn stat(caller: Caller, options: &[&str]) -> Vec<i64> {
    let text = caller.stdout(&[options, &["cat", "/proc/self/stat"]].concat());
    let rest = text.rsplit(')').next().expect("fields");
    rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect()
}

#[test]
fn nice_is_added_to_the_current_value() {
    const NICE: usize = 19 - 3;
    for caller in Caller::all("nice_is_added_to_the_current_value") {
        let ours = stat(caller, &[])[NICE];
        assert_eq!(stat(caller, &["--nice", "3"])[NICE], (ours + 3).min(19));
        assert_eq!(stat(caller, &["--adjustment=100"])[NICE], 19);
    }
    if let Some(root) = Caller::root_with("nice_is_added_to_the_current_value, downwards", CAP_SYS_NICE) {
        let ours = stat(root, &[])[NICE];
        assert_eq!(stat(root, &["--nice", "-5"])[NICE], (ours - 5).max(-20));
    }
}

#[test]
fn cpu_list_sets_the_affinity() {
    for caller in Caller::all("cpu_list_sets_the_affinity") {
        let ours = caller.status(&[], "Cpus_allowed_list");
        let last = ours.rsplit([',', '-']).next().expect("a CPU").to_owned();
        assert_eq!(caller.status(&["--cpu-list", &last], "Cpus_allowed_list"), last);
        assert_eq!(caller.status(&["--cpus", &ours], "Cpus_allowed_list"), ours);
        assert!(caller.failure(&["--cpus=1-0", "true"]).contains("--cpu-list"));
    }
}

#[test]
fn scheduler_sets_policy_and_priority() {
    const PRIORITY: usize = 40 - 3;
    const POLICY: usize = 41 - 3;
    for caller in Caller::all("scheduler_sets_policy_and_priority") {
        assert_eq!(stat(caller, &["--scheduler=other"])[POLICY], 0);
        assert_eq!(stat(caller, &["--scheduler=batch"])[POLICY], 3);
        assert_eq!(stat(caller, &["--scheduler=idle"])[POLICY], 5);
    }
    let Some(root) = Caller::root_with("scheduler_sets_policy_and_priority in real time", CAP_SYS_NICE) else { return };
    for (word, policy, priority) in [("fifo:7", 1, 7), ("rr", 2, 1)] {
        let option = format!("--scheduler={word}");
        if root.output(&[&option, "true"]).status.success() {
            let seen = stat(root, &[&option]);
            assert_eq!((seen[POLICY], seen[PRIORITY]), (policy, priority), "{word}");
        } else {
            skipped(word, "this cgroup has no real-time CPU time");
        }
    }
}

#[test]
fn ionice_sets_the_io_priority() {
    for caller in Caller::all("ionice_sets_the_io_priority") {
        // The kernel reports it only by ioprio_get(2).
        if caller.shell("ionice").output().is_err() {
            return skipped("ionice_sets_the_io_priority", "ionice(1) is not installed");
        }
        let look = |class: &str| caller.stdout(&["--ionice", class, "ionice"]);
        assert_eq!(look("idle"), "idle\n");
        assert_eq!(look("best-effort:7"), "best-effort: prio 7\n");
        assert_eq!(look("best-effort"), "best-effort: prio 4\n");
    }
}

#[test]
fn timer_slack_oom_score_and_personality_are_set() {
    for caller in Caller::all("timer_slack_oom_score_and_personality_are_set") {
        let look = |option: &str, file: &str| caller.stdout(&[option, "cat", &format!("/proc/self/{file}")]);
        assert_eq!(look("--timer-slack=123456", "timerslack_ns"), "123456\n");
        assert_eq!(look("--oom-score-adj=567", "oom_score_adj"), "567\n");
        assert_eq!(look("--no-aslr", "personality"), "00040000\n");
        assert_eq!(look("--personality=0x0040000", "personality"), "00040000\n");
        // Without randomization, two runs have the same stack address.
        let stack = || {
            let maps = look("--no-aslr", "maps");
            maps.lines().find(|line| line.ends_with("[stack]")).expect("a stack").to_owned()
        };
        assert_eq!(stack(), stack());
    }
}

// ---- session and parent ----

/// A pseudo-terminal: both sides.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: openpty writes two integers; the null pointers select defaults.
    let answer = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
    assert_eq!(answer, 0, "a terminal");
    // SAFETY: openpty has just returned both descriptors, so nothing else owns them.
    unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

#[test]
fn ctty_and_foreground_take_the_terminal() {
    const GROUP: usize = 5 - 3;
    const SESSION: usize = 6 - 3;
    const TERMINAL: usize = 7 - 3;
    const FOREGROUND: usize = 8 - 3;
    for caller in Caller::all("ctty_and_foreground_take_the_terminal") {
        for options in [&["--ctty"][..], &["--setsid", "--ctty", "--foreground"]] {
            let (_ours, theirs) = terminal();
            let mut command = caller.forkless(&[options, &["cat", "/proc/self/stat"]].concat());
            let output = command.stdin(theirs).output().expect("forkless starts");
            assert!(output.status.success(), "{caller:?} {options:?}: {output:?}");
            let text = String::from_utf8(output.stdout).expect("text");
            let pid = numbers(&text)[0];
            let rest = text.rsplit(')').next().expect("fields");
            let fields: Vec<i64> = rest.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
            assert_eq!((fields[GROUP], fields[SESSION]), (pid, pid), "{text}");
            assert_ne!(fields[TERMINAL], 0, "{text}");
            assert_eq!(fields[FOREGROUND], pid, "{text}");
        }
        assert!(caller.failure(&["--ctty", "--stdin=null", "true"]).contains("take the terminal"));
        assert!(caller.failure(&["--foreground", "--stdin=null", "true"]).contains("take the foreground"));
    }
}

/// What the program still writes after forkless has been killed.
fn last_words(caller: Caller, options: &[&str]) -> String {
    // The shell waits in `read`. It prints "late" only if it is still alive when its input ends.
    let script = "echo ready; read -r line; echo late";
    let mut command = caller.forkless(&[options, &["sh", "-c", script]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("forkless starts");
    let input = child.stdin.take().expect("a pipe");
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    child.kill().expect("alive");
    child.wait().expect("ends");
    drop(input);
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the rest");
    rest
}

#[test]
fn pdeathsig_kills_the_program_when_forkless_dies() {
    for caller in Caller::all("pdeathsig_kills_the_program_when_forkless_dies") {
        assert_eq!(last_words(caller, &["--pdeathsig=KILL"]), "");
        // The default where forkless is the parent.
        assert_eq!(last_words(caller, &["--supervise"]), "");
        assert_eq!(last_words(caller, &["--supervise", "--pdeathsig=none"]), "late\n");
        assert_eq!(last_words(caller, &["--supervise", "--pdeathsig=WINCH"]), "late\n");
    }
}

#[test]
fn pidfd_autokill_kills_the_program_or_names_the_missing_flag() {
    let options = &["--no-new-privs", "--pidfd-autokill"];
    for caller in Caller::all("pidfd_autokill_kills_the_program_or_names_the_missing_flag") {
        if caller.output(&[&options[..], &["true"]].concat()).status.success() {
            assert_eq!(last_words(caller, options), "");
        } else {
            skipped("pidfd_autokill", "this kernel has no CLONE_PIDFD_AUTOKILL");
            let words = caller.failure(&[&options[..], &["true"]].concat());
            assert!(words.contains("CLONE_PIDFD_AUTOKILL") && words.contains("Linux 7.1"), "{words}");
        }
        assert!(caller.failure(&["--pidfd-autokill", "--launcher=fork", "true"]).contains("pidfd_autokill"));
    }
}

// ---- the program ----

#[test]
fn exec_fd_and_fexec_execute_a_descriptor() {
    let directory = directory();
    let script = directory.path().join("script");
    fs::write(&script, "#!/bin/sh\necho from \"$@\"\n").expect("write");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("chmod");
    let script = script.to_str().expect("text");
    for caller in Caller::all("exec_fd_and_fexec_execute_a_descriptor") {
        assert_eq!(caller.stdout(&["--fexec", "/bin/echo", "name", "hi"]), "hi\n");
        assert_eq!(caller.stdout(&["--fexec", script, "name", "a", "b"]), "from a b\n");
        let line = "exec 7</bin/echo; exec \"$0\" run --exec-fd 7 name seven";
        let output = caller.shell("sh").args(["-c", line, binary()]).output().expect("sh");
        assert_eq!(output.stdout, b"seven\n", "{output:?}");
        assert!(caller.failure(&["--exec-fd=99", "true"]).contains("--exec-fd"));
        assert!(caller.failure(&["--fexec=/no/such/file", "true"]).contains("--fexec"));
    }
}

#[test]
fn chdir_fd_changes_to_an_inherited_directory() {
    for caller in Caller::all("chdir_fd_changes_to_an_inherited_directory") {
        let line = "exec 7</usr; exec \"$0\" run --chdir-fd 7 --chdir lib pwd";
        let output = caller.shell("sh").args(["-c", line, binary()]).output().expect("sh");
        assert_eq!(output.stdout, b"/usr/lib\n", "{output:?}");
    }
}

#[test]
fn syscall_makes_a_system_call_by_number() {
    for caller in Caller::all("syscall_makes_a_system_call_by_number") {
        // prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        let option = format!("--syscall={}:38:1:0:0:0", libc::SYS_prctl);
        assert_eq!(caller.status(&[&option], "NoNewPrivs"), "1");
        assert!(caller.failure(&["--syscall=9999", "true"]).contains("system call 9999"));
    }
}

#[test]
fn open_uses_user_umask_and_working_directory_of_the_program() {
    let directory = directory();
    let path = directory.path().join("made");
    let path = path.to_str().expect("text");
    for caller in Caller::all("open_uses_user_umask_and_working_directory_of_the_program") {
        let open = format!("--open=1=a:{path}");
        // With the umask and the working directory of the program.
        caller.stdout(&["--umask=077", &open, "echo", "one"]);
        caller.stdout(&["--chdir", directory.path().to_str().expect("text"), "--open=1=a:made", "echo", "two"]);
        assert_eq!(fs::read_to_string(path).expect("a file"), "one\ntwo\n");
        assert_eq!(fs::metadata(path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(caller.stdout(&[&format!("--open=0=rw:{path}"), "head", "-n1"]), "one\n");
        caller.stdout(&[&format!("--open=5=w:{path}"), "sh", "-c", "echo three >&5"]);
        assert_eq!(caller.stdout(&[&format!("--open=7=r:{path}"), "sh", "-c", "cat <&7"]), "three\n");
        let shown = caller.stdout(&["--explain", &format!("--open=5=w:{path}"), "true"]);
        assert!(shown.contains(&format!("open \"{path}\" as fd 5")), "{shown}");
        assert_eq!(fs::read_to_string(path).expect("a file"), "three\n", "--explain must not change the file");
        fs::remove_file(path).expect("a file");
        let refused = caller.failure(&["--open=0=r:/no/such/file", "true"]);
        assert!(refused.contains("open \"/no/such/file\" as fd 0"), "{refused}");
    }
    // Opened as the user of the program, who may not read a file of root.
    let Some(root) =
        Caller::root_with("open_uses_user_umask_and_working_directory_of_the_program, as its user", CAP_SETUID)
    else {
        return;
    };
    fs::write(path, "kept").expect("write");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("chmod");
    assert!(root.failure(&["--reuid=12345:12345", &format!("--open=0=r:{path}"), "cat"]).contains("Permission denied"));
    assert_eq!(root.stdout(&["--reuid=12345:12345", &format!("--fd=0=r:{path}"), "cat"]), "kept", "--fd opens as root");
}

#[test]
fn help_lists_the_best_effort_steps() {
    let help = Caller::Ordinary.stdout(&["--help"]);
    let (_, list) = help.split_once("Continue if one of these steps fails").expect("the option");
    let list = list.split("\n\n").next().expect("a paragraph").split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, names) = list.split_once(": ").expect("a list");
    let names: Vec<&str> = names.split(", ").collect();
    assert!(names.contains(&"nice") && names.contains(&"set-groups") && !names.contains(&"exec"), "{names:?}");
    Caller::Ordinary.stdout(&[&format!("--best-effort={}", names.join(",")), "true"]);
}

#[test]
fn best_effort_continues_and_reports_the_skipped_step() {
    for caller in Caller::all("best_effort_continues_and_reports_the_skipped_step") {
        let output = caller.output(&["--best-effort=call,nice", "--syscall=9999", "echo", "on"]);
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"on\n"[..]));
        let words = String::from_utf8(output.stderr).expect("text");
        assert!(words.starts_with("forkless: skipped: system call 9999: "), "{words}");
        assert!(caller.failure(&["--best-effort=nonsense", "true"]).contains("io-priority"));
        assert!(caller.failure(&["--best-effort=exec", "true"]).contains("best effort"));
    }
}

// ---- contradictions ----

#[test]
fn conflicting_options_are_named() {
    let contradictions = [
        (&["--setsid", "--process-group"][..], "--process-group"),
        (&["--ctty", "--process-group"], "--process-group"),
        (&["--chroot=/", "--pivot-root=/"], "--chroot"),
        (&["--hostname=x"], "--unshare-uts"),
        (&["--groups=1", "--clear-groups"], "--clear-groups"),
        (&["--init-groups"], "--reuid"),
        (&["--map-root-user", "--map-current-user"], "--map-current-user"),
        (&["--exec-fd=1", "--fexec=/bin/true"], "--fexec"),
        (&["--umask=8"], "--umask"),
        (&["--oom-score-adj=1001"], "--oom-score-adj"),
        (&["--scheduler=rr:100"], "--scheduler"),
        (&["--ionice=idle:1"], "--ionice"),
        (&["--groups=no-such-group"], "--groups"),
        (&["--reuid=no-such-user"], "no-such-user"),
        (&["--bounding-set=all"], "--bounding-set"),
        (&["--securebits=+nonsense"], "--securebits"),
        (&["--join=time=/proc/self/ns/time"], "--join"),
        (&["--join=pid=/proc/self/ns/pid", "--unshare-pid"], "--join pid"),
        (&["--size=1M", "--proc=/proc"], "--size"),
        (&["--perms=7", "--bind", "/a", "/b"], "--perms"),
        (&["--perms=8", "--tmpfs=/a"], "--perms"),
        (&["--overlay-src=/a"], "--overlay-src"),
        (&["--remount", "nonsense", "/tmp"], "--remount"),
        (&["--attach-mount", "99", "/tmp"], "--attach-mount"),
        (&["--join=net=/no/such/file"], "--join"),
        (&["--join=net=/proc/self/ns/net", "--unshare-net"], "--join net"),
        (&["--join=mnt=/proc/self/ns/mnt", "--tmpfs=/tmp"], "which options that mount create"),
        (&["--map-users=0:0"], "--map-users"),
        (&["--seccomp=/no/such/file"], "--seccomp"),
        (&["--seccomp=/dev/null"], "--seccomp"),
        (&["--landlock=99"], "--landlock"),
        (&["--permitted-caps=all"], "--permitted-caps"),
        (&["--effective-caps=+nonsense"], "--effective-caps"),
        (&["--inherit-signal=NONSENSE"], "--inherit-signal"),
        (&["--retry-busy=soon"], "--retry-busy"),
        (&["--open=0=null"], "--open"),
        (&["--or-else=sh", "--fexec=/bin/sh"], "--or-else"),
        (&["--cgroup=/no/such/group"], "--cgroup"),
        (&["--cgroup=/", "--memory-max=1G"], "--memory-max"),
        (&["--cgroup=/", "--new-cgroup"], "--new-cgroup"),
        (&["--memory-high=much"], "--memory-high"),
        (&["--tasks-max=-1"], "--tasks-max"),
        (&["--cpu-quota=150"], "--cpu-quota"),
        (&["--cpu-weight=0"], "--cpu-weight"),
        (&["--io-weight=10001"], "--io-weight"),
        (&["--pdeathsig=NONSENSE"], "--pdeathsig"),
        (&["--syscall=getpid"], "--syscall"),
    ];
    for (options, flag) in contradictions {
        let words = Caller::Ordinary.failure(&[options, &["true"]].concat());
        assert!(words.contains(flag), "{options:?}: {words}");
    }
}

// ---- launchers ----

#[test]
fn launcher_selects_how_the_child_is_created() {
    for caller in Caller::all("launcher_selects_how_the_child_is_created") {
        for (launcher, said) in
            [("clone", "clone"), ("fork", "fork, in a copy"), ("posix_spawn", "posix_spawn of the C")]
        {
            let flag = format!("--launcher={launcher}");
            let output = caller.forkless(&[&flag, "--route", "/bin/sh", "-c", "ls /proc/self/fd; exit 5"]).output();
            let output = output.expect("forkless starts");
            assert_eq!(output.status.code(), Some(5), "{launcher}");
            // 3 is the directory that ls opens.
            assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n1\n2\n3\n", "{launcher}");
            let route = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(route.starts_with(&format!("forkless: route: {said}")), "{route}");
            let explained = caller.stdout(&[&flag, "--explain", "true"]);
            assert!(explained.lines().any(|line| line.starts_with(&format!("{launcher} a child"))), "{explained}");
            assert_eq!(explained.contains("close other fds"), launcher != "clone", "{explained}");
        }
        let refused = caller.failure(&["--launcher=posix_spawn", "--umask=077", "true"]);
        assert!(refused.contains("posix_spawn does not support umask: Launcher::Clone and "), "{refused}");
        caller.failure(&["--launcher=pool", "true"]);
    }
}

// ---- explain ----

#[test]
fn explain_prints_the_steps_and_runs_nothing() {
    let directory = directory();
    let kept = directory.path().join("kept");
    fs::write(&kept, "kept").expect("write");
    let kept = kept.to_str().expect("text");
    let made = directory.path().join("made");
    let made = made.to_str().expect("text");
    for caller in Caller::all("explain_prints_the_steps_and_runs_nothing") {
        let text = caller.stdout(&[
            "--explain",
            "--unshare-net",
            "--tmpfs=/tmp",
            "--map-users=0:1000:1",
            "--map-groups=5:1000:10",
            "--umask=077",
            "--nofile=10:20",
            "--reuid=0",
            "--no-new-privs",
            "--chdir=/usr",
            "--stdout",
            kept,
            "/usr/bin/touch",
            made,
        ]);
        let (why, text) = text.split_once('\n').expect("lines");
        assert!(why.starts_with("supervised: user namespace: "), "{why}");
        let (first, steps) = text.split_once('\n').expect("lines");
        assert!(first.starts_with("clone "), "{first}");
        for part in
            ["user, mount, net", "user 0 inside is 1000 outside", "group 5 to 14 inside is 1000 to 1009 outside"]
        {
            assert!(first.contains(part), "{part}: {first}");
        }
        let wanted = [
            "wait until the caller has written the id maps",
            "mount \"tmpfs\" (tmpfs) at \"/tmp\"",
            "set the limit nofile to 10:20",
            "setuid 0",
            "chdir \"/usr\"",
            "umask 077",
            "set no_new_privs",
            "exec /usr/bin/touch",
        ];
        let searched = caller.forkless(&["--explain", "sh"]).env("PATH", "/no/where:/bin:/no/place").output();
        let searched = String::from_utf8(searched.expect("forkless starts").stdout).expect("text");
        assert!(searched.ends_with("exec /bin/sh, or 2 others along PATH\n"), "{searched}");
        let mut rest = steps.lines().zip(1..).map(|(line, number)| {
            let words = line.trim_start().strip_prefix(&format!("{number}. "));
            words.unwrap_or_else(|| panic!("{line:?} is not step {number}")).to_owned()
        });
        for words in wanted {
            assert!(rest.any(|line| line == words), "{words}, in its place: {steps}");
        }
        assert_eq!(rest.next(), None, "exec must be the last step");
        assert!(!std::path::Path::new(made).exists());
        assert_eq!(fs::read_to_string(kept).expect("kept"), "kept");
        assert!(caller.failure(&["--explain", "--best-effort=exec", "true"]).contains("best effort"));
    }
}

/// Every row of the table of settings names existing options, or says why there is none.
#[test]
fn settings_table_names_only_existing_options() {
    let help = Caller::Ordinary.stdout(&["--help"]);
    let flags = |text: &str| -> Vec<String> {
        let parts = text.split("--").skip(1).map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '-'));
        parts
            .filter_map(|mut words| words.next())
            .filter(|name| !name.is_empty())
            .map(|name| format!("--{name}"))
            .collect()
    };
    let known = flags(&help);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let table = fs::read_to_string(path).expect("the table");
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let mut seen = 0;
    for row in rows {
        let column = row.split('|').nth(2).expect("a column").trim();
        let named = flags(column);
        assert!(!named.is_empty() || column.starts_with("none: "), "no flag, and no reason for none: {row}");
        for flag in named {
            assert!(known.contains(&flag), "forkless run has no {flag}: {row}");
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

#[test]
fn help_has_all_headings() {
    let text = Caller::Ordinary.stdout(&["--help"]);
    for part in [
        "Identity:",
        "Resource limits",
        "Namespaces",
        "Privileges",
        "Root and mounts",
        "Scheduling:",
        "Files:",
        "Signals",
        "Cgroup",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(field(&text, "Usage").as_deref(), Some("forkless run [OPTIONS] [NAME=VALUE]... PROGRAM [ARGS]..."));
}
