//! Captures: the bytes are right, and no descriptor, child or zombie is leaked.

use crate::observe::{self, eventually, scaled};
use forkless::{Capture, Captured, Command, Error, Stdio, Step};
use forkless_tests::state::State;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Runs the closure, and fails if the process's state has changed.
pub(crate) fn leaving_nothing<T>(act: impl FnOnce() -> T) -> T {
    let before = State::now();
    let answer = act();
    State::assert_unchanged(&before);
    assert!(observe::is_childless(), "children are left: {:?}", observe::children());
    answer
}

pub(crate) fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// This program, as a child of some kind: see [`child`].
fn me(what: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["capture::child", what]);
    command
}

pub(crate) fn run(command: &mut Command, how: &Capture) -> Captured {
    leaving_nothing(|| command.capture(how).expect("a capture"))
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

scenario!(input_is_written_to_the_program);
/// Input of programs.
pub fn input_is_written_to_the_program(_: &[String]) {
    let data = pattern(MIB);
    let fed = Capture::new().input(&data);
    let never = run(&mut sh("exit 3"), &fed);
    assert_eq!(never.status.code(), Some(3));
    assert!(never.input_left >= MIB - 256 * 1024, "{}", never.input_left);
    let closes = run(&mut sh("exec <&-; sleep 0.05; echo done"), &fed);
    assert_eq!(&closes.stdout[..], b"done\n");
    assert!(closes.input_left >= MIB - 256 * 1024, "{}", closes.input_left);
    let half = run(&mut sh("head -c 524288"), &fed);
    assert_eq!(&half.stdout[..], &data[..MIB / 2]);
    assert!(half.input_left > 0 && half.input_left <= MIB / 2, "{}", half.input_left);
    let all = run(&mut sh("cat"), &fed);
    assert_eq!((&all.stdout[..], all.input_left), (&data[..], 0));
    let empty = run(&mut sh("wc -c"), &Capture::new().input(""));
    assert_eq!((empty.text().trim(), empty.input_left), ("0", 0));
    let other = run(sh("cat").stdin(Stdio::null()), &fed);
    assert_eq!((&other.stdout[..], other.input_left), (&b""[..], MIB));
    let unfed = run(sh("cat").stdin(Stdio::piped()), &Capture::new());
    assert_eq!(&unfed.stdout[..], b"");
    // A socket that the caller does not take gives no input either.
    let socket = run(sh("cat <&5; echo end").fd(Stdio::socketpair(), 5), &Capture::new());
    assert_eq!(&socket.stdout[..], b"end\n");
    // The program's end also ends the writing of input, even if another process holds the pipe and never reads.
    let how = fed.clone().linger(Duration::ZERO);
    let held = run(&mut sh("exec 3<&0; sleep 5 >/dev/null 2>&1 & exit 0"), &how);
    assert!(held.input_left >= MIB - 256 * 1024);
}

scenario!(all_streams_are_read_and_written_concurrently);
/// Both outputs and the input at the same time, each many times the capacity of a pipe.
pub fn all_streams_are_read_and_written_concurrently(_: &[String]) {
    // Output that arrives in pieces is read completely.
    let pieces = run(&mut sh("for n in 1 2 3; do echo $n; sleep 0.02; done"), &Capture::new());
    assert_eq!(&pieces.stdout[..], b"1\n2\n3\n");
    let data = pattern(6 * MIB);
    for how in [Capture::new(), Capture::new().timeout(LONG), Capture::new().memory_file(true)] {
        let both = run(&mut me("tee"), &how.input(&data));
        assert!(both.status.success());
        assert!(both.stdout[..] == data[..], "{} bytes", both.stdout.len());
        assert!(both.stderr[..] == data[..], "{} bytes", both.stderr.len());
        assert_eq!((both.stdout_cut, both.stderr_cut, both.input_left), (0, 0, 0));
    }
}

scenario!(writing_all_input_before_reading_deadlocks);
/// Negative control: writing all input before reading anything never returns.
/// Negative control: writing all input before reading does not return, and what it leaves behind is detected.
pub fn writing_all_input_before_reading_deadlocks(_: &[String]) {
    let mut child = sh("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
    let mut stdin = child.stdin.take().expect("a pipe");
    let feeder = thread::spawn(move || stdin.write_all(&pattern(MIB)));
    thread::sleep(Duration::from_millis(300));
    assert!(!feeder.is_finished(), "two pipes do not hold a mebibyte");
    let mut back = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut back).expect("read");
    feeder.join().expect("feeder").expect("written");
    assert_eq!(back, pattern(MIB));
    child.wait().expect("wait");
    // And a child that is left is seen.
    let left = std::panic::catch_unwind(|| leaving_nothing(|| std::mem::forget(sh("sleep 0.1").spawn()))).is_err();
    assert!(left);
}

scenario!(limit_keeps_the_beginning_of_each_stream);
/// How much is kept.
pub fn limit_keeps_the_beginning_of_each_stream(_: &[String]) {
    for (limit, total) in [(0, 100_000), (10, 100_000), (8192, 8193), (65536, 65536), (65537, MIB), (MIB, MIB)] {
        let how = Capture::new().limit(limit);
        let both = run(&mut sh(&format!("head -c {total} /dev/zero; head -c {total} /dev/zero >&2")), &how);
        let cut = total.saturating_sub(limit) as u64;
        assert_eq!((both.stdout.len(), both.stdout_cut), (limit.min(total), cut), "{limit} of {total}");
        assert_eq!((both.stderr.len(), both.stderr_cut), (limit.min(total), cut), "{limit} of {total}");
        let killed = run(&mut sh(&format!("head -c {total} /dev/zero")), &how.kill_at_limit(true));
        assert_eq!(killed.stdout.len(), limit.min(total));
        assert!(cut > 0 || killed.status.success(), "no more than the limit, and killed");
    }
    // It is not waited for.
    let how = Capture::new().limit(10).kill_at_limit(true);
    let killed = run(&mut sh("echo more than ten bytes; exec sleep 10"), &how);
    assert_eq!((killed.status.signal(), killed.stdout.len()), (Some(9), 10));
    for limit in [0, 100, MIB] {
        let how = Capture::new().limit(limit).kill_at_limit(true);
        for script in ["exec yes", "exec yes >&2"] {
            let endless = run(&mut sh(script), &how);
            assert_eq!(endless.status.signal(), Some(9));
            assert_eq!(endless.stdout.len() + endless.stderr.len(), limit);
            assert!(endless.stdout_cut + endless.stderr_cut > 0 && !endless.timed_out);
        }
    }
    // The group goes too, be it that its leader has ended.
    for script in ["yes & wait", "yes & exit 0"] {
        let how = Capture::new().limit(MIB).kill_at_limit(true);
        let group = run(sh(&format!("echo $$; {script}")).process_group(0), &how);
        assert_eq!(group.stdout.len(), MIB);
        let leader: i32 =
            String::from_utf8_lossy(&group.stdout[..10]).lines().next().expect("a line").parse().expect("a number");
        eventually("the group is gone", || !is_group_running(leader));
    }
    // By default the output of other processes after the program's end is read too.
    for how in
        [Capture::new(), Capture::new().kill_at_limit(true), Capture::new().timeout(LONG), Capture::new().linger(LONG)]
    {
        let late = run(&mut sh("(sleep 0.05; head -c 20000000 /dev/zero) & exit 0"), &how);
        assert_eq!((late.stdout.len(), late.held_open), (20_000_000, false));
    }
}

/// Is anybody of a process group alive?
fn is_group_running(group: i32) -> bool {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok()).any(|stat| {
        let fields: Vec<&str> = stat.rsplit_once(") ").map_or(vec![], |(_, rest)| rest.split(' ').collect());
        fields.get(2) == Some(&group.to_string().as_str()) && fields.first() != Some(&"Z")
    })
}

/// A capture whose time finds the program after its first line: with a longer time if it had not come so far. What is said at once
/// and lost every time is still missing in the last answer.
pub(crate) fn in_time<T>(how: &Capture, run: impl Fn(&Capture) -> T, out: impl Fn(&T) -> &[u8]) -> T {
    for time in [100, 300, 1000, 3000, 10_000] {
        let answer = run(&how.clone().timeout(Duration::from_millis(time)));
        if out(&answer).contains(&b'\n') {
            return answer;
        }
    }
    run(&how.clone().timeout(forkless_tests::patience::limit(20)))
}

fn run_in_time(command: &mut Command, how: &Capture) -> Captured {
    let command = std::cell::RefCell::new(command);
    in_time(how, |how| run(&mut command.borrow_mut(), how), |captured| &captured.stdout)
}

scenario!(a_timeout_ends_the_program);
/// When the time is up.
pub fn a_timeout_ends_the_program(_: &[String]) {
    let plain = Capture::new();
    let soon = plain.clone().timeout(Duration::from_millis(300));
    let asked = |grace| soon.clone().terminate(15, grace);
    let mut ready = sh("trap '' TERM; echo ready; while :; do sleep 0.01; done");
    let deaf = run_in_time(&mut ready, &plain.clone().terminate(15, Duration::from_millis(50)));
    assert_eq!((deaf.status.signal(), deaf.timed_out, &deaf.stdout[..]), (Some(9), true, &b"ready\n"[..]));
    let mut ready = sh("trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    let hears = run_in_time(&mut ready, &plain.clone().terminate(15, LONG));
    assert_eq!((hears.status.code(), hears.timed_out, &hears.stdout[..]), (Some(5), true, &b"ready\nbye\n"[..]));
    let stopped = run_in_time(&mut sh("echo a; kill -STOP $$"), &plain);
    assert_eq!((stopped.status.signal(), stopped.timed_out, &stopped.stdout[..]), (Some(9), true, &b"a\n"[..]));
    let continued = run(&mut sh("echo a; kill -STOP $$; echo b"), &asked(LONG));
    assert_eq!((continued.status.signal(), continued.timed_out), (Some(15), true));
    let silent = run(&mut sh("exec >&- 2>&-; exec sleep 100"), &soon);
    assert_eq!((silent.status.signal(), silent.timed_out), (Some(9), true));
    let floods = run_in_time(&mut sh("exec yes"), &plain.clone().limit(100));
    assert_eq!((floods.status.signal(), floods.timed_out, floods.stdout.len()), (Some(9), true, 100));
    let ends = run(&mut sh("echo x"), &Capture::new().timeout(LONG).linger(LONG));
    assert_eq!((ends.status.code(), ends.timed_out, ends.held_open), (Some(0), false, false));
    // Blind: without a pidfd.
    let blind = run_in_time(sh("echo x; exec sleep 100").pidfd(false), &plain);
    assert_eq!((blind.timed_out, &blind.stdout[..]), (true, &b"x\n"[..]));
    // The program closes its output again: the timeout applies nevertheless.
    for _ in 0..scaled(5) {
        let takes = run(&mut sh("while :; do echo x >&2; done & exec cat /dev/fd/2 >/dev/null"), &soon);
        assert_eq!((takes.status.signal(), takes.timed_out), (Some(9), true));
    }
    for group in [false, true] {
        before_exec(group);
    }
    // Its group: killed with it, after it, and in place of it.
    for (script, how) in [
        ("sleep 100 & wait", plain.clone()),
        ("(trap '' TERM; sleep 100; sleep 100) & wait", plain.clone().terminate(15, LONG)),
        ("sleep 100 & exit 0", plain.clone()),
    ] {
        let group = run_in_time(sh(&format!("echo $$; {script}")).process_group(0), &how);
        let leader = group.text().parse().expect("a number");
        eventually("the group is gone", || !is_group_running(leader));
    }
}

/// A FIFO that no process opens at its other end, in a directory of its own.
pub(crate) fn make_fifo() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let fifo = directory.path().join("fifo");
    let path = std::ffi::CString::new(fifo.to_str().expect("text")).expect("no NUL");
    // SAFETY: makes a file.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    (directory, fifo)
}

/// A child that the time finds in the middle of its launch.
fn before_exec(leads_group: bool) {
    let (_directory, fifo) = make_fifo();
    let mut command = sh("cat");
    command.stdin(Stdio::open(&fifo, libc::O_RDONLY, 0));
    if leads_group {
        command.process_group(0);
    }
    let held = run(&mut command, &Capture::new().timeout(Duration::from_millis(50)));
    assert_eq!((held.status.signal(), held.timed_out), (Some(9), true));
}

scenario!(a_timeout_of_zero_is_no_failed_launch);
/// No time at all is not a launch that fails.
pub fn a_timeout_of_zero_is_no_failed_launch(_: &[String]) {
    for how in [Capture::new(), Capture::new().terminate(15, LONG)] {
        let how = how.timeout(Duration::ZERO);
        for n in 0..scaled(500) {
            let mut command = Command::new("sleep");
            let none = command.arg("100").capture(&how).unwrap_or_else(|error| panic!("{n}: {error}"));
            assert!(none.timed_out && none.status.signal().is_some(), "{none:?}");
        }
    }
    leaving_nothing(|| Command::new("sleep").arg("100").capture(&Capture::new().timeout(Duration::ZERO)))
        .expect("a capture");
}

scenario!(output_is_never_lost);
/// The program's own output is returned, although another process holds its streams open.
pub fn output_is_never_lost(_: &[String]) {
    for linger in [Duration::ZERO, Duration::from_millis(50)] {
        let how = Capture::new().linger(linger);
        for n in 0..scaled(15) {
            for kib in [0, 1, 4, 63, 200] {
                let script = format!("sleep 20 & head -c {0} /dev/zero; head -c {0} /dev/zero >&2", kib * 1024);
                let held = sh(&script).capture(&how).expect("a capture");
                let found = (held.stdout.len() / 1024, held.stderr.len() / 1024, held.held_open);
                assert_eq!(found, (kib, kib, true), "round {n}");
            }
        }
        // Others do not stop writing: there is an end nevertheless.
        let flood = run(&mut sh("head -c 50000 /dev/zero; yes & yes >&2 & exit 4"), &how.clone().limit(MIB));
        assert_eq!((flood.status.code(), flood.held_open), (Some(4), true));
        assert!(flood.stdout[..50_000].iter().all(|&byte| byte == 0));
        // Packets, as many as a pipe takes, are as many reads.
        let packets = run(&mut me("packets"), &how);
        assert_eq!(packets.stdout.len(), 16);
    }
    // The time ends it too, and is no failure of the program's.
    let over = run_in_time(&mut sh("sleep 60 & echo x"), &Capture::new());
    assert_eq!((over.status.code(), over.held_open, over.text().as_str()), (Some(0), true, "x"));
}

scenario!(failed_launches_leak_nothing);
/// Launches that fail, with all that can be asked for.
pub fn failed_launches_leak_nothing(_: &[String]) {
    for bits in 0..128 {
        let is = |bit: i32| bits >> bit & 1 == 1;
        let mut how = Capture::new().merged(is(0)).memory_file(is(1)).kill_at_limit(is(2));
        if is(3) {
            how = how.input(pattern(MIB));
        }
        if is(4) {
            how = how.limit(10);
        }
        if is(5) {
            how = how.timeout(LONG).terminate(15, LONG);
        }
        if is(6) {
            how = how.linger(LONG);
        }
        let error = leaving_nothing(|| Command::new("/no/such/program").capture(&how)).expect_err("no such program");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Exec), "{error}");
        let error = leaving_nothing(|| sh("x").current_dir("/no/such").process_group(0).capture(&how))
            .expect_err("no directory");
        assert_eq!(Error::of(&error).map(Error::step), Some(Step::Chdir), "{error}");
    }
    let killed = run(&mut sh("echo a; kill -SEGV $$"), &Capture::new());
    assert_eq!((killed.status.signal(), &killed.stdout[..]), (Some(11), &b"a\n"[..]));
}

scenario!(merged_standard_error_is_in_order);
/// Standard error where standard output goes.
pub fn merged_standard_error_is_in_order(_: &[String]) {
    let how = Capture::new().merged(true);
    let script = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done";
    let text: String = (1..=5).map(|n| format!("out {n}\nerr {n}\n")).collect();
    for how in [how.clone(), how.clone().memory_file(true), how.clone().timeout(LONG)] {
        let both = run(&mut sh(script), &how);
        assert_eq!((std::str::from_utf8(&both.stdout), both.stderr.len()), (Ok(text.as_str()), 0));
    }
    let nowhere = run(sh(script).stdout(Stdio::null()), &how);
    assert_eq!((nowhere.stdout.len(), nowhere.stderr.len()), (0, 0));
    let apart = run(sh("echo out; echo err >&2").stderr(Stdio::piped()), &how);
    assert_eq!((&apart.stdout[..], &apart.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
    // Where standard output is the caller's: what goes there is what is captured of the caller.
    let inherits = run(&mut me("merged-inherits"), &Capture::new());
    assert_eq!((&inherits.stdout[..], inherits.stderr.len()), (&b"out\nerr\n"[..], 0));
    let file = Stdio::open("/dev/null", libc::O_WRONLY, 0);
    let refused = leaving_nothing(|| sh("echo").stdout(file).capture(&how)).expect_err("a file");
    assert_eq!(Error::of(&refused).map(Error::step), Some(Step::Check), "{refused}");
}

part!(child);
/// Captures selected by arguments: the code of a child of [`me`].
pub fn child(args: &[String]) {
    let len = 5000;
    let out = |offset: i64, bytes: &[u8]| {
        // SAFETY: the kernel reads the bytes.
        assert_eq!(unsafe { libc::pwrite(1, bytes.as_ptr().cast(), bytes.len(), offset) }, bytes.len() as isize);
    };
    match args[0].as_str() {
        "merged-inherits" => {
            let mut command = sh("echo out; echo err >&2");
            let captured = command.stdout(Stdio::inherit()).capture(&Capture::new().merged(true)).expect("a capture");
            assert_eq!((captured.stdout.len(), captured.stderr.len()), (0, 0));
        }
        "tee" => {
            let mut bytes = vec![0; 50_000];
            loop {
                match io::stdin().read(&mut bytes).expect("read") {
                    0 => break,
                    count => {
                        io::stdout().write_all(&bytes[..count]).expect("write");
                        io::stderr().write_all(&bytes[..count]).expect("write");
                    }
                }
            }
            io::stdout().flush().expect("flush");
        }
        "packets" => {
            // SAFETY: a flag of a pipe's; the child sleeps with its ends.
            unsafe { assert_eq!(libc::fcntl(1, libc::F_SETFL, libc::O_DIRECT), 0) };
            std::mem::forget(Command::new("sleep").arg("20").stdout(Stdio::inherit()).spawn().expect("spawn"));
            (0..16).for_each(|_| observe::write_raw(1, b"x"));
        }
        "mmap" | "mmap-hold" => {
            let (read, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            // SAFETY: a new mapping of standard output, which is a file of that length at least.
            let bytes = unsafe {
                let at = libc::mmap(std::ptr::null_mut(), len, read, shared, 1, 0);
                assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
                std::slice::from_raw_parts_mut(at.cast::<u8>(), len)
            };
            bytes.fill(b'a');
            if args[0] == "mmap-hold" {
                // Whoever waits for this goes on; we spoil the file meanwhile.
                eprintln!("mapped");
                for n in 0..200 {
                    bytes.fill(b'b' + n % 20);
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
        "pwrite" => {
            out(0, &pattern(len));
            out(3 * 4096, b"end");
        }
        "back" => {
            observe::write_raw(1, &vec![b'x'; len]);
            // SAFETY: sets an offset.
            unsafe { libc::lseek(1, 0, libc::SEEK_SET) };
            observe::write_raw(1, b"head");
        }
        "far" => {
            observe::write_raw(1, b"here");
            // SAFETY: sets an offset.
            assert!(unsafe { libc::lseek(1, 1 << 24, libc::SEEK_SET) } > 0);
        }
        other => panic!("{other}?"),
    }
}

scenario!(output_is_captured_in_memfds);
/// Files in memory instead of pipes.
pub fn output_is_captured_in_memfds(_: &[String]) {
    let how = Capture::new().memory_file(true);
    let both = run(&mut sh("echo out; echo err >&2; exit 2"), &how);
    assert_eq!((&both.stdout[..], &both.stderr[..], both.status.code()), (&b"out\n"[..], &b"err\n"[..], Some(2)));
    let empty = run(&mut sh("true"), &how.clone().timeout(LONG));
    assert_eq!((empty.stdout.len(), empty.stderr.len()), (0, 0));
    let long = run(&mut sh("head -c 10000000 /dev/zero; echo"), &how.clone().input("x"));
    assert_eq!((long.stdout.len(), long.stdout.last()), (10_000_001, Some(&b'\n')));
    assert_eq!(long.stdout.into_vec().len(), 10_000_001);
    let full = run(&mut sh("dd if=/dev/zero bs=4096 count=100"), &how.clone().limit(8192));
    assert_eq!((full.stdout.len(), full.status.code()), (8192, Some(1)));
    assert!(String::from_utf8_lossy(&full.stderr).contains("not permitted"), "{:?}", full.stderr);
    let none = run(&mut sh("echo x"), &how.clone().limit(0));
    assert_eq!((none.stdout.len(), none.status.success()), (0, false));
    let timed = run_in_time(&mut sh("echo x; exec sleep 100"), &how);
    assert_eq!((&timed.stdout[..], timed.timed_out), (&b"x\n"[..], true));
    // A program that opens it again appends beyond the limit; it can never be truncated.
    for anew in [">>", ">"] {
        let refused = run(&mut sh(&format!("echo x; echo y {anew}/dev/fd/1")), &how);
        assert_eq!((&refused.stdout[..], refused.status.success()), (&b"x\n"[..], false), "{anew}");
    }
    out_of_order(&how);
    leftovers(&how);
}

/// Offsets that do not tell the length.
fn out_of_order(how: &Capture) {
    let mapped = run(&mut me("mmap"), how);
    assert_eq!((mapped.status.success(), &mapped.stdout[..]), (true, &[b'a'; 5000][..]));
    let mut expected = pattern(5000);
    expected.resize(3 * 4096, 0);
    expected.extend_from_slice(b"end");
    assert_eq!(&run(&mut me("pwrite"), how).stdout[..], expected);
    let back = run(&mut me("back"), how);
    assert_eq!((&back.stdout[..4], back.stdout.len()), (&b"head"[..], 5000));
    for limit in [10, 4096, MIB] {
        let far = run(&mut me("far"), &how.clone().limit(limit));
        // All of it can be read.
        assert_eq!(far.stdout.iter().filter(|&&byte| byte != 0).count(), 4);
        assert_eq!((&far.stdout[..4], far.stdout.len()), (&b"here"[..], limit));
    }
}

/// Whoever holds the files when the program has ended.
fn leftovers(how: &Capture) {
    let (directory, fifo) = make_fifo();
    let said = directory.path().join("said");
    let late =
        format!("read go <{}; dd if=/dev/zero count=1 2>{1}.new; mv {1}.new {1}", fifo.display(), said.display());
    let early = run(&mut sh(&format!("({late}) & echo early")), how);
    assert_eq!(&early.stdout[..], b"early\n");
    fs::write(&fifo, "go\n").expect("the late one");
    eventually("the late one has written", || said.exists());
    assert!(fs::read_to_string(&said).expect("text").contains("not permitted"));
    assert_eq!(&early.stdout[..], b"early\n");
    // It has it mapped, and goes on writing.
    let exe = std::env::current_exe().expect("this program");
    let script = format!(
        "{0} capture::child mmap-hold 2>{1} & while ! [ -s {1} ]; do sleep 0.01; done",
        exe.display(),
        said.display()
    );
    fs::remove_file(&said).expect("remove");
    let spoiled = run(&mut sh(&script), how);
    let before = spoiled.stdout.to_vec();
    assert_eq!(before.len(), 5000);
    thread::sleep(Duration::from_millis(100));
    assert!(spoiled.stdout[..] == before[..], "it changes under our hands");
}

/// A capture in every way, in whatever process.
pub(crate) fn in_every_way() {
    let data = pattern(MIB);
    for how in
        [Capture::new(), Capture::new().timeout(LONG), Capture::new().memory_file(true), Capture::new().linger(LONG)]
    {
        for merged in [false, true] {
            let got =
                sh("cat; echo err >&2; exit 7").capture(&how.clone().input(&data).merged(merged)).expect("a capture");
            assert_eq!((got.status.code(), got.timed_out, got.held_open), (Some(7), false, false));
            assert!(got.stdout[..MIB] == data[..]);
            assert_eq!(if merged { &got.stdout[MIB..] } else { &got.stderr[..] }, b"err\n");
        }
    }
}
