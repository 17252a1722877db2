//! The same programs, cold and warm.

use crate::common::{by_template, command, grow_old, in_own_process, prepared, warm};
use forkless::{Command, Resource, Stdio};
use forkless_core::sys::{self, uapi};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Programs with arguments and standard input. Whatever is not installed is skipped.
const PROGRAMS: &[(&str, &[&str], &str)] = &[
    ("/bin/true", &[], ""),
    ("/bin/false", &[], ""),
    ("/bin/echo", &["a", "", "b c"], ""),
    ("/bin/cat", &[], "text\n"),
    ("/bin/cat", &["/no/such/file"], ""),
    ("/bin/ls", &["/"], ""),
    ("/bin/ls", &["-ld", "/", "/usr"], ""),
    ("/bin/sed", &["-n", "2p"], "one\ntwo\n"),
    ("/bin/grep", &["-c", "o"], "one\ntwo\nthree\n"),
    ("/bin/grep", &["absent"], "one\n"),
    ("/bin/dash", &["-c", "echo $0 $# $1; exit 3", "name", "1"], ""),
    ("/bin/dash", &["-c", "kill -SEGV $$"], ""),
    ("/bin/dash", &["-c", "kill -TERM $$"], ""),
    ("/bin/dash", &["-c", "trap 'echo trapped' USR1; kill -USR1 $$; echo after"], ""),
    ("/bin/dash", &["-c", "umask; pwd; ulimit -n; ulimit -s; ulimit -c"], ""),
    ("/bin/dash", &["-c", "(sleep 0 & wait; echo done) | cat"], ""),
    ("/bin/bash", &["-c", "echo ${BASH_VERSINFO[0]} $0; printf '%s\\n' a{1..3}; exit 5"], ""),
    ("/usr/bin/perl", &["-e", "print join(',', @ARGV, $0), qq(\\n); print qx(echo sub)", "x", "y"], ""),
    ("/usr/bin/perl", &["-e", "$0 = 'other'; open F, '/proc/self/cmdline'; print <F>"], ""),
    ("/usr/bin/perl", &["-e", "abort() if 0; kill 'ABRT', $$"], ""),
    ("/usr/bin/python3", &["-c", "import sys, os; print(sys.argv, os.getcwd())", "x"], ""),
    (
        "/usr/bin/python3",
        &["-c", "import threading as t; x = t.Thread(target=print, args=(1,)); x.start(); x.join()"],
        "",
    ),
    ("/usr/bin/git", &["--version"], ""),
    ("/usr/bin/jq", &["-c", ".a"], "{\"a\": [1, 2]}"),
    ("/usr/bin/mawk", &["{ print $2 }"], "a b\nc d\n"),
    ("/usr/bin/gawk", &["{ print $2 }"], "a b\nc d\n"),
    ("/usr/bin/find", &["/etc/apt", "-maxdepth", "1", "-name", "a*"], ""),
    ("/usr/bin/sort", &["-r"], "a\nc\nb\n"),
    ("/usr/bin/uniq", &["-c"], "a\na\nb\n"),
    ("/usr/bin/head", &["-n1"], "a\nb\n"),
    ("/usr/bin/tail", &["-n1"], "a\nb\n"),
    ("/usr/bin/tr", &["a-z", "A-Z"], "text\n"),
    ("/usr/bin/cut", &["-c2"], "abc\n"),
    ("/usr/bin/wc", &[], "a b\nc\n"),
    ("/usr/bin/expr", &["2", "*", "3"], ""),
    ("/usr/bin/printf", &["%05d\\n", "42"], ""),
    ("/usr/bin/seq", &["3"], ""),
    ("/usr/bin/env", &["-i", "A=1", "/usr/bin/env"], ""),
    ("/usr/bin/id", &[], ""),
    ("/bin/uname", &["-a"], ""),
    ("/usr/bin/stat", &["-c", "%n %s %a", "/etc/passwd"], ""),
    ("/usr/bin/xargs", &["-n1", "echo"], "1 2 3"),
    ("/bin/tar", &["-cf", "-", "-C", "/etc", "hostname"], ""),
    ("/bin/gzip", &["-nc"], "text\n"),
    ("/usr/bin/xz", &["-c"], "text\n"),
    ("/usr/bin/md5sum", &[], "text\n"),
    ("/usr/bin/sha256sum", &[], "text\n"),
    ("/usr/bin/od", &["-c"], "text\n"),
    ("/usr/bin/nproc", &[], ""),
    ("/bin/date", &["-u", "-d", "@0"], ""),
    ("/usr/bin/diff", &["/etc/passwd", "/etc/group"], ""),
    ("/usr/bin/make", &["-f", "-", "all"], "all:\n\t@echo made\n"),
    ("/usr/bin/m4", &[], "define(`a', `b')a\n"),
    ("/usr/bin/bc", &[], "2 ^ 70\n"),
    ("/usr/bin/openssl", &["version"], ""),
    ("/usr/bin/file", &["-b", "/etc/passwd"], ""),
    ("/usr/bin/base64", &[], "text\n"),
    ("/usr/bin/basename", &["/a/b.c", ".c"], ""),
    ("/usr/bin/cksum", &[], "text\n"),
    ("/usr/bin/cmp", &["/etc/passwd", "/etc/group"], ""),
    ("/usr/bin/comm", &["/etc/passwd", "/etc/passwd"], ""),
    ("/usr/bin/dirname", &["/a/b"], ""),
    ("/usr/bin/expand", &[], "a\tb\n"),
    ("/usr/bin/factor", &["1001"], ""),
    ("/usr/bin/fmt", &["-w5"], "a b c d\n"),
    ("/usr/bin/fold", &["-w2"], "abcde\n"),
    ("/usr/bin/getconf", &["PAGESIZE"], ""),
    ("/usr/bin/getent", &["passwd", "root"], ""),
    ("/usr/bin/join", &["/etc/group", "/etc/group"], ""),
    ("/usr/bin/locale", &[], ""),
    ("/usr/bin/nl", &[], "a\nb\n"),
    ("/usr/bin/numfmt", &["--to=iec", "2048"], ""),
    ("/usr/bin/paste", &["-s"], "a\nb\n"),
    ("/bin/readlink", &["-f", "/bin"], ""),
    ("/usr/bin/realpath", &["/bin"], ""),
    ("/usr/bin/sha1sum", &[], "text\n"),
    ("/bin/sleep", &["0"], ""),
    ("/usr/bin/tac", &[], "a\nb\n"),
    ("/usr/bin/tee", &[], "a\n"),
    ("/usr/bin/test", &["-e", "/no/such"], ""),
    ("/usr/bin/tsort", &[], "a b\nb c\n"),
    ("/usr/bin/unexpand", &["-a"], "a        b\n"),
    ("/usr/bin/lua5.4", &["-e", "print(#arg, arg[0])"], ""),
    ("/usr/bin/sqlite3", &[":memory:", "select 1 + 1;"], ""),
    ("/usr/bin/ssh", &["-V"], ""),
    ("/usr/bin/vim.basic", &["--version"], ""),
    ("/bin/ps", &["-o", "comm=,args=", "-p", "1"], ""),
];

#[test]
fn programs_write_and_end_alike() {
    let warm = warm();
    let (mut alike, mut cold) = (0, Vec::new());
    for &(program, args, text) in PROGRAMS {
        if !Path::new(program).exists() {
            continue;
        }
        let of = || command(program, args);
        let expected = {
            let mut command = of();
            rewound(&mut command, text);
            prepared(&mut command).spawn().expect("a child").wait_with_output().expect("its output")
        };
        let mut answer = Err(String::new());
        // Each has its own input.
        for is_first in [true, false] {
            let mut command = of();
            if !is_first {
                let _ = warm.start(&prepared(&mut command));
            }
            rewound(&mut command, text);
            let child = warm.spawn(&prepared(&mut command)).expect("a child");
            let why = child.cold_reason().map(str::to_owned);
            let output = child.wait_with_output().expect("its output");
            assert_eq!(output, expected, "{program} {args:?}: {why:?}");
            answer = why.map_or(Ok(()), Err);
        }
        match answer {
            Ok(()) => alike += 1,
            Err(why) => cold.push(format!("{program}: {why}")),
        }
    }
    println!("{alike} cases were warm; cold: {cold:#?}");
    assert!(alike >= 20, "only {alike} cases were warm: {cold:#?}");
    for program in ["/bin/true", "/bin/dash", "/bin/ls", "/bin/sed"] {
        assert!(!cold.iter().any(|line| line.starts_with(&format!("{program}:"))), "{cold:#?}");
    }
}

/// A standard input at the start of a new file.
fn rewound(command: &mut Command, text: &str) {
    use std::io::Seek;
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(text.as_bytes()).expect("room");
    file.rewind().expect("a file");
    command.stdin(Stdio::from(OwnedFd::from(file)));
}

/// A setting with its name.
type Setting = (&'static str, fn(&mut Command));

/// The files of `/proc/self` that a program reads of itself, and what `dash` knows of itself.
const ATTRIBUTES: &[(&str, &[&str])] = &[
    ("/bin/cat", &["/proc/self/cmdline"]),
    ("/bin/cat", &["/proc/self/comm"]),
    ("/bin/cat", &["/proc/self/environ"]),
    ("/bin/cat", &["/proc/self/limits"]),
    (
        "/bin/cat",
        &["/proc/self/cgroup", "/proc/self/oom_score_adj", "/proc/self/coredump_filter", "/proc/self/timerslack_ns"],
    ),
    (
        "/bin/grep",
        &[
            "-E",
            "^(Name|Umask|TracerPid|Uid|Gid|Groups|Threads|Sig[PBIC]|Shd|Cap|NoNew|Seccomp|Specul|Cpus|Mems)",
            "/proc/self/status",
        ],
    ),
    ("/bin/ls", &["-l", "--time-style=+", "/proc/self/exe", "/proc/self/cwd", "/proc/self/root"]),
    ("/bin/dash", &["-c", "for n in /proc/self/fd/*; do echo $n; done"]),
    ("/bin/dash", &["-c", "read a < /proc/self/stat; set -- ${a##*)}; echo $3 $4 $5 ${16} ${17} ${38}"]),
    ("/usr/bin/env", &[]),
];

#[test]
fn attributes_are_alike() {
    in_own_process("equivalence::attributes_are_alike", || {
        let warm = warm();
        let settings: &[Setting] = &[
            ("none", |_| {}),
            ("directory", |command| {
                command.current_dir("/usr");
            }),
            ("umask", |command| {
                command.umask(0o77);
            }),
            ("limits", |command| {
                command.rlimit(Resource::Files, 77, 88).rlimit(Resource::Core, 0, 0);
            }),
            ("nice", |command| {
                command.nice(5);
            }),
            ("descriptor", |command| {
                command.fd(std::io::stderr().as_fd().try_clone_to_owned().expect("a copy"), 9);
            }),
            ("descriptor 3", |command| {
                command.fd(std::fs::File::open("/dev/null").expect("a file"), 3);
            }),
            ("null input", |command| {
                command.stdin(Stdio::null());
            }),
            ("signals", |command| {
                command.signal_ignore(15).signal_block(10);
            }),
            ("mask", |command| {
                command.inherit_signal_mask(true);
            }),
            ("session", |command| {
                command.setsid(true);
            }),
            ("group", |command| {
                command.process_group(0);
            }),
            ("environment", |command| {
                command.env_clear().env("ONLY", "this");
            }),
            ("name", |command| {
                command.arg0("another-name");
            }),
        ];
        for &(program, args) in ATTRIBUTES {
            for (name, set) in settings {
                // Sessions and groups have the number of their leader.
                if matches!(*name, "session" | "group") && args.get(1).is_some_and(|text| text.contains("stat;")) {
                    continue;
                }
                let mut command = command(program, args);
                set(&mut command);
                let prepared = prepared(&mut command);
                let cold = prepared.spawn().expect("a child").wait_with_output().expect("its output");
                let warm = by_template(&warm, &prepared).unwrap_or_else(|why| panic!("{program}, {name}: cold: {why}"));
                let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                assert_eq!(show(&warm.stdout), show(&cold.stdout), "{program} {args:?}, {name}");
                assert_eq!((warm.stderr, warm.status), (cold.stderr, cold.status), "{program} {args:?}, {name}");
            }
        }
    });
}

/// A caller whose children do not inherit all of its scheduling: SCHED_RESET_ON_FORK.
#[test]
fn a_scheduler_that_children_do_not_inherit_is_alike() {
    const NORMAL: usize = 0;
    const FIFO: usize = 1;
    const BATCH: usize = 3;
    const RESET: usize = 0x4000_0000;
    in_own_process("equivalence::a_scheduler_that_children_do_not_inherit_is_alike", || {
        let warm = warm();
        let programs: &[(&str, &[&str])] = &[
            // Priority, nice value, real-time priority and policy: proc_pid_stat(5).
            ("/bin/dash", &["-c", "read a < /proc/self/stat; set -- ${a##*)}; echo ${16} ${17} ${38} ${39}"]),
            // The flag. Without the PID, which the first line has.
            ("/bin/sh", &["-c", "chrt -p 0 2>&1 | sed 's/.*current//'"]),
        ];
        let plans: Vec<_> = programs.iter().map(|(program, args)| prepared(&mut command(program, args))).collect();
        for plan in &plans {
            by_template(&warm, plan).expect("warm");
        }
        for (policy, priority, nice) in [(BATCH | RESET, 0i32, 0isize), (NORMAL | RESET, 0, -5), (FIFO | RESET, 1, 0)] {
            let launches = || {
                let parameters = &raw const priority as usize;
                // SAFETY: of this thread. The kernel reads one number.
                let set = unsafe {
                    sys::syscall(uapi::__NR_setpriority, [0, 0, nice as usize, 0, 0, 0])
                        .and_then(|_| sys::syscall(uapi::__NR_sched_setscheduler, [0, policy, parameters, 0, 0, 0]))
                };
                if let Err(errno) = set {
                    return println!("skipped: policy {policy:x}, nice value {nice}: errno {errno}");
                }
                for plan in &plans {
                    let cold = plan.spawn().expect("a child").wait_with_output().expect("its output");
                    let warm = by_template(&warm, plan).expect("warm");
                    let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    assert_eq!(show(&warm.stdout), show(&cold.stdout), "policy {policy:x}, nice value {nice}");
                }
            };
            std::thread::scope(|scope| scope.spawn(launches).join().expect("a thread"));
        }
    });
}

/// A launch with a closed or close-on-exec stream gives the program none.
#[test]
fn a_closed_stream_is_closed() {
    in_own_process("equivalence::a_closed_stream_is_closed", || {
        let warm = warm();
        let flags = rustix::io::FdFlags::CLOEXEC;
        rustix::io::fcntl_setfd(std::io::stdin(), flags).expect("a stream");
        assert_eq!(std::io::stdin().as_raw_fd(), 0);
        // The shell itself would open a directory at number 0.
        let look = "for n in 0 1 2 3; do [ -e /proc/self/fd/$n ] && echo $n; done; exit 0";
        let prepared = prepared(&mut command("/bin/dash", &["-c", look]));
        let cold = prepared.spawn().expect("a child").wait_with_output().expect("its output");
        let warm = by_template(&warm, &prepared).expect("warm");
        assert_eq!(String::from_utf8_lossy(&warm.stdout), String::from_utf8_lossy(&cold.stdout));
        assert_eq!(String::from_utf8_lossy(&cold.stdout), "1\n2\n");
    });
}

/// A step that fails has the same error, cold and warm.
#[test]
fn a_failed_step_is_the_same_error() {
    let warm = warm();
    let plain = command("/bin/true", &[]).prepare().expect("a plan");
    by_template(&warm, &plain).expect("warm");
    let prepared = command("/bin/true", &[]).current_dir("/no/such/directory").prepare().expect("a plan");
    let (cold, by_warm) =
        (prepared.spawn().expect_err("no directory"), warm.spawn(&prepared).expect_err("no directory"));
    assert_eq!(by_warm.to_string(), cold.to_string());
    // It was no reason to give the template up.
    by_template(&warm, &plain).expect("warm");
    assert_eq!(warm.stats().starts, 1);
}

/// The standard library of Rust reads the arguments in a constructor of the program, before `main`.
#[test]
fn a_rust_program_sees_its_own_arguments() {
    let program = std::env::current_exe().expect("a program");
    grow_old(&program);
    let program = program.to_str().expect("UTF-8");
    let warm = warm();
    for args in [&["--list", "templates::"][..], &["--list", "no such test"], &["--bad-option"]] {
        let prepared = prepared(&mut command(program, args));
        let cold = prepared.spawn().expect("a child").wait_with_output().expect("its output");
        assert_eq!(by_template(&warm, &prepared).expect("warm"), cold, "{args:?}");
    }
    assert_eq!(warm.stats().starts, 1);
}

/// Functions that are bound lazily are the loader's choice: the first definition in its order, and the version that the
/// program was linked with.
#[test]
fn functions_are_those_that_the_loader_finds() {
    let directory = tempfile::tempdir().expect("a directory");
    let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("a file");
    put("one.c", "int twice(void) { return 1; }\n");
    put("two.c", "int twice(void) { return 2; }\nint call(void) { return twice(); }\nint only(void) { return 3; }\n");
    put(
        "versions.c",
        "int old(void) { return 10; }\nint new(void) { return 20; }\n\
         __asm__(\".symver old, f@V1\"); __asm__(\".symver new, f@@V2\");\n",
    );
    put("versions.map", "V1 { local: old; new; };\nV2 { } V1;\n");
    put(
        "program.c",
        "#include <stdio.h>\nint twice(void), call(void), only(void), f(void), f_old(void);\n\
         __asm__(\".symver f_old, f@V1\");\n\
         int main(void) { return printf(\"%d %d %d %d %d\\n\", twice(), call(), only(), f(), f_old()) < 0; }\n",
    );
    let cc = |args: &[&str]| {
        let mut command = std::process::Command::new("cc");
        command.args(["-w", "-Wl,-z,lazy"]).args(args).current_dir(&directory);
        command.status().is_ok_and(|status| status.success())
    };
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    let (one, two, versions) = (path("libone.so"), path("libtwo.so"), path("libversions.so"));
    // A library that another one has opened for itself: the program does not see its functions.
    let (hidden, opener) = (path("libhidden.so"), path("libopener.so"));
    put("hidden.c", "int hidden(void) { return 4; }\n");
    put(
        "opener.c",
        &format!(
            "#include <dlfcn.h>\nint any(void) {{ return 5; }}\n__attribute__((constructor)) static void at_start(void) \
             {{ dlopen(\"{hidden}\", RTLD_NOW | RTLD_LOCAL); }}\n"
        ),
    );
    put("unresolved.c", "int any(void), hidden(void);\nint main(void) { return any() + hidden(); }\n");
    let made = cc(&["-shared", "-fPIC", "-o", &hidden, "hidden.c"])
        // The program is linked with a library that has both functions, and runs with another one.
        && cc(&["-shared", "-fPIC", "-o", &opener, "opener.c", "hidden.c"])
        && cc(&["-o", "unresolved", "unresolved.c", &opener])
        && cc(&["-shared", "-fPIC", "-o", &opener, "opener.c"])
        && cc(&["-shared", "-fPIC", "-o", &one, "one.c"])
        && cc(&["-shared", "-fPIC", "-o", &two, "two.c"])
        && cc(&["-shared", "-fPIC", "-Wl,--version-script=versions.map", "-o", &versions, "versions.c"])
        && cc(&["-o", "program", "program.c", &one, &two, &versions])
        && cc(&["-no-pie", "-o", "fixed", "program.c", &one, &two, &versions]);
    if !made {
        println!("skipped: there is no C compiler");
        return;
    }
    grow_old(&directory.path().join("fixed"));
    let warm = warm();
    for name in ["program", "fixed"] {
        let output = by_template(&warm, &prepared(&mut command(&path(name), &[]))).expect("warm");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1 1 3 20 10\n", "{name}");
    }
    let prepared = prepared(&mut command(&path("unresolved"), &[]));
    let cold = prepared.spawn().expect("a child").wait_with_output().expect("its output");
    assert_eq!(cold.status.code(), Some(127), "{cold:?}");
    assert_eq!(by_template(&warm, &prepared).expect("warm"), cold);
}
