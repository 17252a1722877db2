//! Launches that must be cold, and why.

use crate::common::{
    SCENARIO, by_template, command, grow_old, in_own_process, is_cold_with_filter, is_warm, library, prepared, until,
    warm,
};
use forkless::{Command, Resource};
use forkless_core::sys::{self, uapi};
use std::fs;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The reason why the second launch is cold.
fn reason(command: &mut Command) -> String {
    by_template(&warm(), &prepared(command)).expect_err("a cold launch")
}

#[test]
fn settings_that_exec_interprets_are_cold() {
    let of = || command("/bin/true", &[]);
    let checked = "a setting that exec may interpret";
    assert!(reason(of().rlimit(Resource::Stack, 1 << 20, 1 << 20)).contains(checked));
    assert!(reason(of().no_new_privs(true)).contains(checked));
    assert!(reason(of().parent_death_signal(9)).contains("parent-death signal"));
    assert!(reason(of().inherit_all(true)).contains("inherit_all"));
    assert!(reason(of().env("LD_BIND_NOW", "1")).contains("dynamic loader"));
    assert!(reason(of().env("GLIBC_TUNABLES", "x")).contains("dynamic loader"));
    assert!(reason(of().arg("x".repeat(101 * 1024))).contains("100 KiB"));
}

#[test]
fn programs_that_cannot_have_a_template_are_cold_and_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    fs::write(path("script"), "#!/bin/sh\necho script\n").expect("a file");
    fs::set_permissions(path("script"), PermissionsExt::from_mode(0o755)).expect("a file");
    fs::copy("/bin/true", path("setuid")).expect("a file");
    fs::set_permissions(path("setuid"), PermissionsExt::from_mode(0o4755)).expect("a file");
    grow_old(path("setuid").as_ref());
    assert_eq!(reason(&mut command(&path("script"), &[])), "the program is a script");
    assert_eq!(reason(&mut command(&path("setuid"), &[])), "the program gains privileges when it is executed");
}

/// A program whose constructor does what is different in each launch. `$CC` is not needed elsewhere, so a machine without
/// a compiler skips this.
#[test]
fn a_library_that_looks_around_while_it_is_loaded_is_cold() {
    let directory = tempfile::tempdir().expect("a directory");
    let constructors = [
        ("pid", "getpid();", "makes system call"),
        ("open", "open(\"/proc/self/status\", 0);", "reads /proc/self/status"),
        ("write", "write(1, \"x\", 1);", "makes system call"),
        ("random", "char b[32]; syscall(318, b, 32, 0);", "makes system call"),
        ("stream", "struct stat s; fstat(0, &s);", "makes system call"),
        ("name", "char n[16]; prctl(PR_GET_NAME, n);", "makes system call"),
        ("fork", "pthread_atfork(0, 0, hook);", "handlers for fork"),
    ];
    // As libcap does it.
    let known = ("capabilities", "for (int n = 0; prctl(PR_CAPBSET_READ, n) >= 0; n++);", "");
    for (name, code, _) in constructors.into_iter().chain([known]) {
        let (library, program) = (directory.path().join(format!("lib{name}.so")), directory.path().join(name));
        let source = format!(
            "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <pthread.h>\n#include <sys/prctl.h>\n#include <sys/stat.h>\n#include <sys/syscall.h>\n\
             #include <unistd.h>\nvoid hook(void) {{}}\n__attribute__((constructor)) static void at_start(void) {{ {code} }}\n"
        );
        fs::write(directory.path().join("library.c"), source).expect("a file");
        fs::write(directory.path().join("program.c"), "void hook(void); int main(void) { hook(); return 7; }\n")
            .expect("a file");
        let cc = |args: &[&std::ffi::OsStr]| {
            let status = std::process::Command::new("cc").arg("-w").args(args).current_dir(&directory).status();
            status.is_ok_and(|status| status.success())
        };
        let made = cc(&["-shared".as_ref(), "-fPIC".as_ref(), "-o".as_ref(), library.as_ref(), "library.c".as_ref()])
            && cc(&["-o".as_ref(), program.as_ref(), "program.c".as_ref(), library.as_ref()]);
        if !made {
            println!("skipped: there is no C compiler");
            return;
        }
    }
    grow_old(&directory.path().join(known.0));
    let program = directory.path().join(known.0);
    let output = by_template(&warm(), &prepared(&mut command(program.to_str().expect("UTF-8"), &[])));
    assert_eq!(output.expect("warm").status.code(), Some(7));
    for (name, _, why) in constructors {
        let program = directory.path().join(name);
        let program = program.to_str().expect("UTF-8");
        let found = reason(&mut command(program, &[]));
        assert!(found.contains(why), "{name}: {found}");
        assert_eq!(command(program, &[]).status().expect("a child").code(), Some(7));
    }
}

/// Another environment is another template, but for a few variables.
#[test]
fn the_environment_is_compared() {
    let warm = warm();
    let of = |value: &str| prepared(command("/usr/bin/env", &[]).env("WHICH", value));
    for value in ["one", "two"] {
        let output = by_template(&warm, &of(value)).expect("warm");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("WHICH={value}\n")));
    }
    assert_eq!(warm.stats().starts, 2);
    let directories = |value: &str| prepared(command("/usr/bin/env", &[]).env("WHICH", "one").env("PWD", value));
    for value in ["/a", "/b"] {
        let output = by_template(&warm, &directories(value)).expect("warm");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("PWD={value}\n")));
    }
    assert_eq!(warm.stats().starts, 2);
}

/// A caller that has changed gets what it would get by exec.
#[test]
fn the_caller_is_compared() {
    in_own_process("conditions::the_caller_is_compared", || {
        let warm = warm();
        let prepared = prepared(&mut command("/bin/cat", &["/proc/self/personality"]));
        by_template(&warm, &prepared).expect("warm");
        // ADDR_NO_RANDOMIZE, which exec reads.
        let child = std::thread::scope(|scope| {
            let changed = || {
                rustix_personality(0x0004_0000);
                let child = warm.spawn(&prepared).expect("a child");
                let is_warm = is_warm(&child);
                (is_warm, child.wait_with_output().expect("its output"))
            };
            scope.spawn(changed).join().expect("a thread")
        });
        assert!(!child.0, "a child with another personality was warm");
        assert_eq!(String::from_utf8_lossy(&child.1.stdout), "00040000\n");
        by_template(&warm, &prepared).expect("warm again");
        assert_eq!(warm.stats().starts, 1, "a thread with other attributes ends the template of others");
        // Not if it is alone: after a number of cold launches it has a template of its own.
        rustix_personality(0x0004_0000);
        until("a changed caller stays cold", || {
            let child = warm.spawn(&prepared).expect("a child");
            let is_warm = is_warm(&child);
            assert_eq!(String::from_utf8_lossy(&child.wait_with_output().expect("output").stdout), "00040000\n");
            is_warm
        });
        assert_eq!(warm.stats().starts, 2);
    });
}

/// A caller that can open no descriptor launches cold, and its template serves again afterwards.
#[test]
fn a_caller_out_of_descriptors_is_cold_for_that_time() {
    use forkless_core::sys::{getrlimit, setrlimit, uapi};
    in_own_process("conditions::a_caller_out_of_descriptors_is_cold_for_that_time", || {
        let warm = warm();
        // The limit would be that of the children too.
        let of = |program: &str| {
            let mut command = command(program, &[]);
            command.pidfd(false).rlimit(Resource::Files, 64, 64).prepare().expect("a plan")
        };
        let (one, other) = (of("/bin/true"), of("/bin/false"));
        by_template(&warm, &one).expect("warm");
        let template = warm.templates();
        let usual = getrlimit(uapi::RLIMIT_NOFILE).expect("a limit");
        setrlimit(uapi::RLIMIT_NOFILE, &[3, usual[1]]).expect("a limit");
        let reason = |plan: &forkless::Prepared| {
            let mut child = warm.spawn(plan).expect("a child");
            let why = child.cold_reason().map(str::to_owned);
            (why.unwrap_or_default(), child.wait().expect("its end").code())
        };
        let (mut seen, refused) = (Vec::new(), warm.start(&other).expect_err("no descriptor for it"));
        seen.push(reason(&one));
        seen.push(reason(&other));
        // A thread that has no file of /proc yet.
        seen.push(std::thread::scope(|scope| scope.spawn(|| reason(&one)).join().expect("a thread")));
        setrlimit(uapi::RLIMIT_NOFILE, &usual).expect("a limit");
        let whys: Vec<_> = seen.iter().map(|(why, _)| why.as_str()).collect();
        assert_eq!(seen.iter().map(|(_, code)| *code).collect::<Vec<_>>(), [Some(0), Some(1), Some(0)]);
        assert_eq!(whys[0], "the caller is short of descriptors or memory");
        assert_eq!(whys[2], "/proc cannot be read");
        assert_eq!(warm.stats().refusals, 0, "{refused}: what passes is remembered");
        assert_eq!(warm.templates(), template, "a template was blamed for its caller");
        by_template(&warm, &one).expect("warm again");
        by_template(&warm, &other).expect("warm");
        assert_eq!((warm.stats().starts, warm.stats().refusals), (2, 0));
    });
}

/// Executes this program again, with a filter by which a call returns `errno`. Then all threads have it, as in a container.
fn executed_with_filter(call: u32, errno: u16) {
    use std::os::unix::process::CommandExt;
    const DONE: &str = "FORKLESS_WARM_FILTERED";
    if std::env::var_os(DONE).is_none() {
        filter(call, errno);
        let mut again = std::process::Command::new("/proc/self/exe");
        panic!("{}", again.args(std::env::args_os().skip(1)).env(DONE, "1").exec());
    }
}

/// A filter of the calling thread by which a call returns `errno`.
fn filter(call: u32, errno: u16) {
    let filter: [[u16; 4]; 4] =
        [[0x20, 0, 0, 0], [0x15, 0x0100, call as u16, 0], [0x06, 0, errno, 5], [0x06, 0, 0, 0x7fff]];
    #[repr(C)]
    struct Program(u16, *const [u16; 4]);
    let program = Program(4, filter.as_ptr());
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    const SET_MODE_FILTER: usize = 1;
    let args = [SET_MODE_FILTER, 0, &raw const program as usize, 0, 0, 0];
    // SAFETY: both calls change only this thread, and read the filter.
    unsafe {
        sys::syscall(uapi::__NR_prctl, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]).expect("no_new_privs");
        sys::syscall(uapi::__NR_seccomp, args).expect("a filter");
    }
}

/// The template has one filter, and the calling thread has one: another.
#[test]
fn equally_many_filters_of_two_threads_are_not_taken_for_the_same() {
    if is_cold_with_filter() {
        return;
    }
    let test = "conditions::equally_many_filters_of_two_threads_are_not_taken_for_the_same";
    in_own_process(test, || {
        // The harness has a thread of its own, which is the first one.
        in_a_copy(|| {
            let warm = warm();
            let prepared = prepared(&mut command("/bin/uname", &[]));
            let is_allowed = &|| warm.output(&prepared).expect("a child").status.success();
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                // It exists before the first thread's filter, so it does not have that.
                let thread = scope.spawn(move || {
                    receiver.recv().expect("a template");
                    filter(uapi::__NR_uname, 1);
                    is_allowed()
                });
                filter(uapi::__NR_membarrier, 38);
                warm.start(&prepared).expect("a template");
                assert!(is_allowed());
                sender.send(()).expect("a thread");
                assert!(!thread.join().expect("a thread"), "the child does not have the filter of its caller");
            });
        });
    });
}

/// A child that was made and then killed, because it can have no pidfd, may have done something: it is no reason to launch
/// again.
#[test]
fn a_child_that_was_made_is_not_made_again() {
    if is_cold_with_filter() {
        return;
    }
    in_own_process("conditions::a_child_that_was_made_is_not_made_again", || {
        // A cold launch has its pidfd of clone3(2).
        executed_with_filter(uapi::__NR_pidfd_open, 24);
        let warm = warm();
        let of = |pidfd: bool| command("/bin/true", &[]).pidfd(pidfd).prepare().expect("a plan");
        by_template(&warm, &of(false)).expect("warm");
        let error = warm.spawn(&of(true)).expect_err("no pidfd");
        assert!(error.to_string().contains("for the pidfd"), "{error}");
        by_template(&warm, &of(false)).expect("warm");
        assert_eq!(warm.stats().starts, 1);
    });
}

/// A program that cannot be loaded at the moment is not refused for ever.
#[test]
fn a_missing_library_is_a_passing_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("UTF-8").to_owned();
    fs::write(path("l.c"), "int f(void) { return 6; }\n").expect("a file");
    fs::write(path("p.c"), "int f(void); int main(void) { return f(); }\n").expect("a file");
    let cc = |args: &[&str]| std::process::Command::new("cc").args(args).current_dir(&directory).status();
    let made = cc(&["-shared", "-fPIC", "-o", "libl.so", "l.c"]).is_ok_and(|status| status.success())
        && cc(&["-o", "program", "p.c", &path("libl.so")]).is_ok_and(|status| status.success());
    if !made {
        return println!("skipped: there is no C compiler");
    }
    fs::rename(path("libl.so"), path("away")).expect("a file");
    grow_old(path("away").as_ref());
    let warm = warm();
    let prepared = prepared(&mut command(&path("program"), &[]));
    let why = warm.start(&prepared).expect_err("no library");
    assert_eq!(why.to_string(), "the dynamic loader cannot load it");
    let output = warm.output(&prepared).expect("a child");
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    fs::rename(path("away"), path("libl.so")).expect("a file");
    grow_old(path("libl.so").as_ref());
    assert_eq!(by_template(&warm, &prepared).expect("warm").status.code(), Some(6));
}

/// A caller that had no controlling terminal gets one: exec keeps it, but the template does not have it.
#[test]
fn a_new_terminal_of_the_caller_is_noticed() {
    in_own_process("conditions::a_new_terminal_of_the_caller_is_noticed", || {
        let call = |number: u32, args: [usize; 6]| {
            // SAFETY: each call takes numbers, or a word of this function.
            unsafe { sys::syscall(number, args) }
        };
        rustix::process::setsid().expect("a session");
        let warm = warm();
        let prepared = prepared(&mut command("/bin/cat", &["/proc/self/stat"]));
        let terminal = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            text.rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(5).map(str::to_owned)).expect("a terminal")
        };
        assert_eq!(terminal(&by_template(&warm, &prepared).expect("warm").stdout), "0");
        let manager = fs::File::options().read(true).write(true).open("/dev/ptmx").expect("a pty");
        // Never closed: that would end this process by SIGHUP.
        let (manager, unlocked) = (manager.into_raw_fd() as usize, 0u32);
        const TIOCSPTLCK: usize = 0x4004_5431;
        const TIOCGPTPEER: usize = 0x5441;
        const TIOCSCTTY: usize = 0x540e;
        call(uapi::__NR_ioctl, [manager, TIOCSPTLCK, &raw const unlocked as usize, 0, 0, 0]).expect("unlocked");
        let flags = (uapi::O_RDWR | uapi::O_NOCTTY) as usize;
        let terminal_fd = call(uapi::__NR_ioctl, [manager, TIOCGPTPEER, flags, 0, 0, 0]).expect("a terminal");
        call(uapi::__NR_ioctl, [terminal_fd, TIOCSCTTY, 0, 0, 0, 0]).expect("a controlling terminal");
        let child = warm.spawn(&prepared).expect("a child");
        assert!(!is_warm(&child), "a child without the caller's terminal");
        assert_ne!(terminal(&child.wait_with_output().expect("its output").stdout), "0");
        assert_ne!(terminal(&by_template(&warm, &prepared).expect("warm again").stdout), "0");
    });
}

/// Calls `work` in a forked copy of this process, in its first thread.
fn in_a_copy(work: impl FnOnce() + std::panic::UnwindSafe) {
    // SAFETY: the copy has one thread, and ends below.
    let copy = unsafe { sys::syscall(uapi::__NR_clone, [17, 0, 0, 0, 0, 0]) }.expect("a copy");
    if copy == 0 {
        let answer = std::panic::catch_unwind(work);
        std::process::exit(if answer.is_ok() { 0 } else { 1 });
    }
    let pid = rustix::process::Pid::from_raw(copy as i32).expect("a PID");
    let end = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).expect("its end");
    assert_eq!(end.and_then(|(_, status)| status.exit_status()), Some(0));
}

/// A forked copy has the memory of this library, with the open files of the process that it was forked from.
#[test]
fn a_forked_copy_compares_itself() {
    in_own_process("conditions::a_forked_copy_compares_itself", || {
        let wanted = prepared(&mut command("/bin/grep", &["NoNewPrivs", "/proc/self/status"]));
        by_template(&warm(), &wanted).expect("warm");
        in_a_copy(|| {
            let warm = warm();
            assert_eq!(by_template(&warm, &wanted).expect("warm").stdout, b"NoNewPrivs:\t0\n");
            const PR_SET_NO_NEW_PRIVS: usize = 38;
            // SAFETY: of this process alone.
            unsafe { sys::syscall(uapi::__NR_prctl, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]) }.expect("no_new_privs");
            let child = warm.spawn(&wanted).expect("a child");
            assert!(!is_warm(&child), "what another process has was compared");
            assert_eq!(child.wait_with_output().expect("its output").stdout, b"NoNewPrivs:\t1\n");
        });
    });
}

/// A caller that has entered another namespace has its children there. Only privileged callers can.
#[test]
fn another_namespace_of_the_caller_is_noticed() {
    in_own_process("conditions::another_namespace_of_the_caller_is_noticed", || {
        let warm = warm();
        let prepared = prepared(&mut command("/bin/ls", &["-l", "--time-style=+", "/proc/self/ns/uts"]));
        let before = by_template(&warm, &prepared).expect("warm").stdout;
        const CLONE_NEWUTS: usize = 0x0400_0000;
        // SAFETY: of this thread alone.
        if unsafe { sys::syscall(uapi::__NR_unshare, [CLONE_NEWUTS, 0, 0, 0, 0, 0]) }.is_err() {
            return println!("skipped: not privileged");
        }
        let child = warm.spawn(&prepared).expect("a child");
        assert!(!is_warm(&child), "a child in the old namespace");
        let after = child.wait_with_output().expect("its output").stdout;
        let name = |line: &[u8]| String::from_utf8_lossy(line).rsplit_once("uts:").expect("a name").1.to_owned();
        assert_ne!(name(&before), name(&after));
    });
}

/// A caller that has put itself under Landlock has no child outside of its domain.
#[test]
fn landlock_of_the_caller_is_noticed() {
    in_own_process("conditions::landlock_of_the_caller_is_noticed", || {
        const MAKE_DIR: u64 = 1 << 7;
        const PR_SET_NO_NEW_PRIVS: usize = 38;
        let call = |number: u32, args: [usize; 6]| {
            // SAFETY: each call takes numbers, or a word of this function.
            unsafe { sys::syscall(number, args) }
        };
        call(uapi::__NR_prctl, [PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0]).expect("no_new_privs");
        let place = tempfile::tempdir().expect("a directory");
        let target = place.path().join("new");
        let warm = warm();
        by_template(&warm, &prepared(&mut command("/bin/mkdir", &["-p", "/"]))).expect("warm");
        let handled = [MAKE_DIR];
        let rules = call(uapi::__NR_landlock_create_ruleset, [handled.as_ptr() as usize, 8, 0, 0, 0, 0]);
        let Ok(rules) = rules else { return println!("skipped: no Landlock") };
        call(uapi::__NR_landlock_restrict_self, [rules, 0, 0, 0, 0, 0]).expect("a domain");
        assert!(fs::create_dir(&target).is_err(), "the domain is in force");
        let child =
            warm.spawn(&prepared(&mut command("/bin/mkdir", &[target.to_str().expect("UTF-8")]))).expect("a child");
        assert!(!is_warm(&child), "a child outside of the domain");
        assert!(!child.wait_with_output().expect("its output").status.success());
        assert!(!target.exists());
    });
}

/// Before Linux 5.16 a caller with a seccomp filter is non-dumpable until its child has executed its program, and waits for
/// that. A program under watch cannot execute anything while its caller waits.
#[test]
fn a_filter_of_the_caller_before_linux_5_16_is_a_reason() {
    in_own_process("conditions::a_filter_of_the_caller_before_linux_5_16_is_a_reason", || {
        const PR_GET_DUMPABLE: usize = 3;
        const PR_SET_SECCOMP: usize = 22;
        const PR_SET_NO_NEW_PRIVS: usize = 38;
        let prctl = |args: [usize; 3]| {
            // SAFETY: each call takes numbers, or the filter below.
            unsafe { sys::syscall(uapi::__NR_prctl, [args[0], args[1], args[2], 0, 0, 0]) }.expect("prctl")
        };
        forkless::internal::assume_old_kernel();
        let plan = prepared(&mut command("/bin/echo", &["text"]));
        // In a container it may have one from the start.
        if !forkless_core::signals::has_filter() {
            by_template(&warm(), &plan).expect("warm without a filter");
        }
        // One instruction: all calls are allowed.
        let filter = [0x0006u16, 0, 0x0000, 0x7fff];
        let program = (1usize, filter.as_ptr());
        prctl([PR_SET_NO_NEW_PRIVS, 1, 0]);
        prctl([PR_SET_SECCOMP, 2, &raw const program as usize]);
        let warm = warm();
        let why = warm.start(&plan).expect_err("a reason").to_string();
        assert_eq!(why, "the caller has a seccomp filter, and Linux is older than 5.16");
        assert_eq!(prctl([PR_GET_DUMPABLE, 0, 0]), 1);
        let child = warm.spawn(&plan).expect("a child");
        assert_eq!(child.cold_reason(), Some(&*why));
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
        assert_eq!((warm.stats().refusals, warm.templates()), (0, vec![]));
    });
}

/// `personality(2)` of the calling thread.
fn rustix_personality(value: usize) {
    // SAFETY: changes a number of the calling thread.
    unsafe { sys::syscall(uapi::__NR_personality, [value, 0, 0, 0, 0, 0]) }.expect("personality");
}

/// A program that cannot be warm is examined once, and again when its file has changed.
#[test]
fn a_refusal_is_remembered() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("program");
    let program = path.to_str().expect("UTF-8");
    fs::write(&path, "#!/bin/sh\nexit 3\n").expect("a file");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("a file");
    let warm = warm();
    let prepared = prepared(&mut command(program, &[]));
    for _ in 0..20 {
        let _ = warm.start(&prepared);
        let child = warm.spawn(&prepared).expect("a child");
        assert_eq!(child.cold_reason(), Some("the program is a script"));
        assert_eq!(child.wait_with_output().expect("its output").status.code(), Some(3));
    }
    assert_eq!(warm.stats().refusals, 1);
    fs::copy("/bin/true", directory.path().join("new")).expect("a file");
    fs::rename(directory.path().join("new"), &path).expect("a file");
    grow_old(&path);
    assert!(by_template(&warm, &prepared).expect("warm").status.success());
}

/// In a mount namespace of its own, whose /etc has the administrator's file.
#[test]
fn the_administrator_can_forbid_it() {
    use std::os::unix::process::ExitStatusExt;
    let test = "conditions::the_administrator_can_forbid_it";
    library();
    if std::env::var_os(SCENARIO).is_some_and(|name| name == test) {
        let why = reason(&mut command("/bin/echo", &[]));
        println!("the reason is {why:?}");
        return;
    }
    let etc = tempfile::tempdir().expect("a directory");
    fs::create_dir(etc.path().join("forkless")).expect("a directory");
    for (text, is_forbidden) in [("off\n", true), ("on\n", false)] {
        fs::write(etc.path().join("forkless/warm"), text).expect("a file");
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(SCENARIO, test);
        command.unshare(forkless::Namespace::Mount).bind(etc.path(), "/etc");
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        assert_eq!(output.status.signal(), None);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text.contains("/etc/forkless/warm"), is_forbidden, "{text}");
        assert_eq!(output.status.success(), is_forbidden, "only a launch that is not forbidden is warm\n{text}");
    }
}

/// The setting of a command, with all methods that start it.
#[test]
fn a_command_is_launched_warm() {
    let warm = warm();
    let of = || {
        let mut command = command("/bin/echo", &["text"]);
        command.stdout(forkless::Stdio::piped()).warm(&warm);
        command
    };
    warm.start(&of().prepare().expect("a plan")).expect("a template");
    for child in [of().spawn(), of().launch(), of().prepare().expect("a plan").spawn()] {
        let mut child = child.expect("a child");
        assert!(is_warm(&child));
        child.wait_exec().expect("started");
        assert_eq!(child.wait_with_output().expect("its output").stdout, b"text\n");
    }
    assert_eq!(of().output().expect("output").stdout, b"text\n");
    assert!(of().stdout(forkless::Stdio::null()).status().expect("a status").success());
    assert!(of().capture(&forkless::Capture::new()).expect("a capture").status.success());
    assert_eq!((warm.stats().warm, warm.stats().starts), (6, 1));
    let child = of().current_dir("/no/such/directory").launch().and_then(|mut child| child.wait());
    assert_eq!(forkless::Error::of(&child.expect_err("an error")).expect("ours").step(), forkless::Step::Chdir);
}

#[test]
fn a_replaced_deleted_or_forbidden_program_is_not_warm() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("program");
    let program = path.to_str().expect("UTF-8");
    let warm = warm();
    fs::copy("/bin/true", &path).expect("a file");
    let prepared = prepared(&mut command(program, &[]));
    let young = warm.start(&prepared).expect_err("a template of a file that may still change");
    assert_eq!(young.to_string(), "the program or a library has changed a moment ago");
    assert!(!is_warm(&warm.spawn(&prepared).expect("a child")));
    grow_old(&path);
    assert!(by_template(&warm, &prepared).expect("warm").status.success());

    // Another program of the same name: the file itself is busy.
    fs::copy("/bin/false", directory.path().join("new")).expect("a file");
    fs::rename(directory.path().join("new"), &path).expect("a file");
    let child = warm.spawn(&prepared).expect("a child");
    assert_eq!(child.cold_reason(), Some("the program's file has changed"));
    assert_eq!(child.wait_with_output().expect("its output").status.code(), Some(1));

    grow_old(&path);
    assert_eq!(by_template(&warm, &prepared).expect("warm").status.code(), Some(1));
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("a file");
    let error = warm.spawn(&prepared).expect_err("not executable");
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    fs::remove_file(&path).expect("a file");
    assert_eq!(warm.spawn(&prepared).expect_err("deleted").kind(), std::io::ErrorKind::NotFound);
}

/// Releases that are hard links of each other, behind a link that is swapped: the program finds its own directory by `/proc/self/exe`.
#[test]
fn a_path_that_leads_to_another_link_of_the_program_is_noticed() {
    in_own_process("conditions::a_path_that_leads_to_another_link_of_the_program_is_noticed", || {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let top = directory.path().canonicalize().expect("a path");
        for release in ["one", "two"] {
            std::fs::create_dir(top.join(release)).expect("a directory");
        }
        std::fs::copy("/usr/bin/readlink", top.join("one/program")).expect("a copy");
        std::fs::hard_link(top.join("one/program"), top.join("two/program")).expect("a link");
        std::os::unix::fs::symlink("one", top.join("current")).expect("a link");
        grow_old(&top.join("one/program"));
        let path = top.join("current/program");
        let warm = warm();
        let plan = prepared(&mut command(path.to_str().expect("UTF-8"), &["/proc/self/exe"]));
        let shown = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert_eq!(shown(by_template(&warm, &plan).expect("warm")), top.join("one/program").to_str().expect("UTF-8"));
        std::fs::remove_file(top.join("current")).expect("the link");
        std::os::unix::fs::symlink("two", top.join("current")).expect("a link");
        let child = warm.spawn(&plan).expect("a child");
        assert!(!is_warm(&child), "the template is in the other release");
        let output = child.wait_with_output().expect("its output");
        assert_eq!(shown(output), top.join("two/program").to_str().expect("UTF-8"));
    });
}

/// `$ORIGIN`: each release has its own library. Releases are hard links otherwise.
#[test]
fn a_program_that_finds_its_libraries_by_its_own_place_is_warm() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let top = directory.path().canonicalize().expect("a path");
    let path = |name: &str| top.join(name).to_str().expect("UTF-8").to_owned();
    fs::write(path("p.c"), "int f(void); int main(void) { return f(); }\n").expect("a file");
    let cc =
        |args: &[&str]| std::process::Command::new("cc").args(args).current_dir(&top).status().expect("cc").success();
    for (release, value) in [("one", 1), ("two", 2)] {
        fs::create_dir_all(path(release)).expect("a directory");
        fs::write(path("l.c"), format!("int f(void) {{ return {value}; }}\n")).expect("a file");
        assert!(cc(&["-shared", "-fPIC", "-o", &path(&format!("{release}/libl.so")), "l.c"]));
    }
    assert!(cc(&["-Wl,-rpath,$ORIGIN", "-o", &path("one/program"), "p.c", "-Lone", "-ll"]));
    fs::hard_link(path("one/program"), path("two/program")).expect("a link");
    for name in ["one/program", "one/libl.so", "two/libl.so"] {
        grow_old(path(name).as_ref());
    }
    let warm = warm();
    for (release, value) in [("one", 1), ("two", 2)] {
        let _ = fs::remove_file(path("current"));
        std::os::unix::fs::symlink(release, path("current")).expect("a link");
        let plan = prepared(&mut command(&path("current/program"), &[]));
        if value == 2 {
            let mut child = warm.spawn(&plan).expect("a child");
            assert!(!is_warm(&child) && child.wait().expect("its end").code() == Some(2), "{:?}", child.cold_reason());
        }
        assert_eq!(by_template(&warm, &plan).expect("warm").status.code(), Some(value));
    }
}

/// A program that closes what it does not know, as closefrom(3) does, and opens files at the same numbers: nobody closes those.
#[test]
fn descriptors_of_the_caller_at_the_same_numbers_stay_open() {
    in_own_process("conditions::descriptors_of_the_caller_at_the_same_numbers_stay_open", || {
        let warm = warm();
        let prepared = prepared(&mut command("/bin/true", &[]));
        let file = fs::metadata("/dev/zero").expect("a device").rdev();
        std::thread::scope(|scope| {
            scope.spawn(|| by_template(&warm, &prepared).expect("warm")).join().expect("a thread");
            let ends = scope.spawn(|| {
                by_template(&warm, &prepared).expect("warm");
                for number in 3..200 {
                    // SAFETY: this is what is tested. No other code of the process runs now.
                    let _ = unsafe { sys::syscall(uapi::__NR_close, [number, 0, 0, 0, 0, 0]) };
                }
                while fs::File::open("/dev/zero").expect("a device").into_raw_fd() < 199 {}
            });
            ends.join().expect("a thread");
        });
        let templates = warm.templates();
        drop(warm);
        until("a template outlives its set", || {
            templates.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
        // Only this thread is left: the guards have ended.
        until("a guard stays", || fs::read_dir("/proc/self/task").expect("/proc").count() <= 2);
        for number in 3..200 {
            let found = fs::metadata(format!("/proc/self/fd/{number}")).map(|found| found.rdev());
            assert!(found.as_ref().is_ok_and(|&found| found == file), "{number}: {found:?}");
        }
    });
}
