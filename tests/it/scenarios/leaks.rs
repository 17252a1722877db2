//! No leaks of descriptors, children, stacks, mappings or memory; and nothing is freed too early.

use crate::elf::Programs;
use crate::foreign;
use crate::launched::{Command, fewer};
use crate::observe::{self, Dice, eventually};
use forkless::{Prepared, Stdio};
use std::fs::OpenOptions;
use std::hint::black_box;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::thread;

/// Threads that launch at the same time.
const THREADS: usize = 4;

/// The resources of a process.
pub(crate) struct Holdings {
    fds: Vec<i32>,
    mappings: usize,
    resident_kib: u64,
}

impl Holdings {
    pub(crate) fn now() -> Self {
        Self { fds: observe::open_fds(), mappings: observe::mappings(), resident_kib: observe::resident_kib() }
    }

    /// Panics if there are more than before. Memory and mappings may vary a little, because threads share the heap.
    pub(crate) fn assert_as_before(&self, what: &str) {
        observe::assert_no_orphans();
        let now = Self::now();
        assert_eq!(self.fds, now.fds, "descriptors after {what}");
        let stacks = forkless::mapped_stacks();
        assert!(stacks <= 256, "{stacks} stacks are kept after {what}: the pool holds 256");
        // Each stack is two mappings (guard and stack), in use or kept.
        let limit = self.mappings + 2 * stacks + 40;
        assert!(now.mappings <= limit, "{} mappings after {what}, {} before", now.mappings, self.mappings);
        // One page of data and one of stack for each kept stack, and 8 MiB for the heap's moods.
        let limit = self.resident_kib + 8192 + stacks as u64 * 16;
        assert!(now.resident_kib <= limit, "{} KiB after {what}, {} before", now.resident_kib, self.resident_kib);
    }
}

/// Runs `run(thread, n)` in all threads, `total` times together.
fn from_all_threads(total: usize, run: impl Fn(usize, usize) + Sync) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let run = &run;
            scope.spawn(move || (0..total / THREADS).for_each(|n| run(thread, n)));
        }
    });
}

scenario!(a_running_child_holds_only_the_callers_ends);
/// While it runs the caller has its own ends of three pipes and a pidfd, none of which another program inherits.
pub fn a_running_child_holds_only_the_callers_ends(_: &[String]) {
    let before = observe::open_fds();
    let mut command = Command::new("/bin/cat");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn");
    let more: Vec<i32> = observe::open_fds().into_iter().filter(|fd| !before.contains(fd)).collect();
    assert_eq!(more.len(), 4, "{more:?}");
    for fd in more {
        // SAFETY: asks about a number.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC, "descriptor {fd}");
    }
    assert!(child.wait().expect("wait").success());
    drop(child);
    assert_eq!(observe::open_fds(), before);
    observe::assert_no_orphans();
}

scenario!(launches_leak_nothing, launches_leak_nothing_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]);
/// Launches that work, by every front end.
pub fn launches_leak_nothing(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(3);
    let prepared = Command::new(&program).prepare().expect("prepare");
    let round = |n: usize| one_good(&program, &prepared, n);
    from_all_threads(400, |_, n| round(n));
    observe::assert_no_orphans();
    let before = Holdings::now();
    from_all_threads(fewer(observe::scaled(10_000)), |_, n| round(n));
    before.assert_as_before("good launches");
}

fn one_good(program: &std::path::Path, prepared: &Prepared, n: usize) {
    let mut command = Command::new(program);
    let status = match n % 8 {
        0 => command.status(),
        1 => command.spawn().and_then(|mut child| child.wait()),
        2 => command.launch().and_then(|mut child| child.wait()),
        3 => command.output().map(|output| output.status),
        4 => prepared.status(),
        5 => prepared.spawn().and_then(|mut child| child.wait()),
        6 => prepared.output().map(|output| output.status),
        _ => command.stdin(Stdio::piped()).fd(Stdio::socketpair(), 5).spawn().and_then(|mut child| child.wait()),
    };
    assert_eq!(status.expect("a launch that works").code(), Some(3));
}

scenario!(concurrent_launches_do_not_mix);
/// Many at once: their order is kept, each has an error of its own, nothing is left.
pub fn concurrent_launches_do_not_mix(_: &[String]) {
    let programs = Programs::new();
    let good: Vec<Prepared> =
        (0..5).map(|code| Command::new(programs.exits(code)).prepare().expect("prepare")).collect();
    let missing = Command::new(programs.path("missing")).prepare().expect("prepare");
    // SAFETY: nothing is open there.
    let unpassable = Command::new(programs.exits(0)).fd(unsafe { Stdio::fd(7777) }, 4).prepare().expect("prepare");
    let which = |n: usize| match n % 11 {
        7 => &missing,
        9 => &unpassable,
        _ => &good[n % 5],
    };
    let round = |count: usize| {
        let all: Vec<Prepared> = (0..count).map(|n| which(n).clone()).collect();
        for (n, child) in forkless::launch_all(&all).into_iter().enumerate() {
            let status = child.and_then(|mut child| child.wait());
            match n % 11 {
                7 => assert_eq!(status.expect_err("no such program").kind(), std::io::ErrorKind::NotFound),
                9 => assert!(status.expect_err("no such descriptor").to_string().contains("7777")),
                _ => assert_eq!(status.expect("status").code(), Some((n % 5) as i32), "command {n}"),
            }
        }
    };
    round(0);
    round(1);
    round(400);
    observe::assert_no_orphans();
    let before = Holdings::now();
    for _ in 0..10 {
        round(observe::scaled(1000));
    }
    before.assert_as_before("launches at once");
    // Handles that are dropped.
    drop(forkless::launch_all(&vec![good[0].clone(); 200]));
    before.assert_as_before("dropped launches at once");
}

scenario!(
    failed_launches_leak_nothing,
    failed_launches_leak_nothing_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]
);
/// Launches that fail, by every front end.
pub fn failed_launches_leak_nothing(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(0);
    let missing = programs.path("missing");
    let round = |n: usize| one_failed(&program, &missing, n);
    from_all_threads(400, |_, n| round(n));
    observe::assert_no_orphans();
    let before = Holdings::now();
    from_all_threads(fewer(observe::scaled(10_000)), |_, n| round(n));
    before.assert_as_before("failed launches");
}

fn one_failed(program: &std::path::Path, missing: &std::path::Path, n: usize) {
    let mut command = match n % 3 {
        0 => Command::new(missing),
        1 => {
            let mut command = Command::new(program);
            command.current_dir(missing);
            command
        }
        _ => {
            let mut command = Command::new(program);
            // SAFETY: nothing is open there.
            command.fd(unsafe { Stdio::fd(7777) }, 4);
            command
        }
    };
    if n.is_multiple_of(2) {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    }
    let failed = match n / 6 % 6 {
        0 => command.status().is_err(),
        1 => command.spawn().is_err(),
        2 => command.launch().and_then(|mut child| child.wait()).is_err(),
        3 => command.output().is_err(),
        4 => command.launch().and_then(|mut child| child.wait_exec()).is_err(),
        _ => command.prepare().expect("prepare").status().is_err(),
    };
    assert!(failed, "launch {n} should have failed");
}

scenario!(
    dropped_handles_leak_nothing,
    dropped_handles_leak_nothing_by_other_launchers["launcher=fork"]["launcher=posix_spawn"]
);
/// Handles dropped without a wait, at once and later.
pub fn dropped_handles_leak_nothing(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(0);
    let missing = programs.path("missing");
    let prepared = Command::new(&program).prepare().expect("prepare");
    let round = |n: usize| {
        let mut command = Command::new(if n % 10 == 9 { &missing } else { &program });
        match n % 5 {
            0 => drop(command.spawn()),
            1 => drop(command.launch()),
            2 => drop(command.stdin(Stdio::piped()).stdout(Stdio::piped()).launch()),
            3 => drop(command.pidfd(false).launch()),
            _ => drop(prepared.launch()),
        }
    };
    from_all_threads(400, |_, n| round(n));
    observe::assert_no_orphans();
    let before = Holdings::now();
    from_all_threads(fewer(observe::scaled(10_000)), |_, n| round(n));
    before.assert_as_before("dropped handles");
}

scenario!(dropped_children_are_reaped_by_later_launches);
/// Children whose handles were dropped are reaped by later launches, without a request.
pub fn dropped_children_are_reaped_by_later_launches(_: &[String]) {
    let programs = Programs::new();
    let program = programs.exits(3);
    let dropped: Vec<i32> = (0..40)
        .map(|_| {
            let child = Command::new(&program).spawn().expect("spawn");
            let pid = child.id() as i32;
            drop(child);
            pid
        })
        .collect();
    eventually("the end of each", || dropped.iter().all(|&pid| matches!(observe::state_of(pid), None | Some('Z'))));
    for _ in 0..40 {
        assert_eq!(Command::new(&program).status().expect("status").code(), Some(3));
    }
    assert_eq!(observe::children(), [0; 0], "dropped children that nobody has reaped");
}

scenario!(planted_leaks_are_detected, planted_leaks_are_detected_by_fork["launcher=fork"]);
/// Negative control: the checks detect a leaked descriptor, zombie, mapping and memory.
/// Negative control: planted leaks of each kind are detected.
pub fn planted_leaks_are_detected(_: &[String]) {
    let programs = Programs::new();
    let caught = |leak: &dyn Fn()| {
        let before = Holdings::now();
        leak();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| before.assert_as_before("a planted leak"))).is_err()
    };
    assert!(caught(&|| std::mem::forget(std::fs::File::open("/dev/null").expect("open"))), "a descriptor");
    assert!(caught(&|| std::mem::forget(std::hint::black_box(vec![1u8; 64 << 20]))), "memory");
    assert!(
        caught(&|| {
            for n in 0..1000 {
                let protection = if n % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                // SAFETY: a new mapping where the kernel likes.
                unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
            }
        }),
        "mappings"
    );
    let pid = std::cell::Cell::new(0);
    assert!(caught(&|| pid.set(foreign::fork_exec(&programs.exits(0)))), "a child that nobody waits for");
    foreign::wait(pid.get(), 0).expect("wait");
}

scenario!(
    a_plan_outlives_every_handle_while_a_child_reads_it,
    a_plan_outlives_every_handle_while_a_child_reads_it_by_fork["launcher=fork"]
);
/// A child held before exec, by opening a FIFO, still finds all it needs when everything of the parent's is dropped and
/// the heap has been written over.
pub fn a_plan_outlives_every_handle_while_a_child_reads_it(_: &[String]) {
    let programs = Programs::new();
    for (n, prepared) in [(0, false), (1, true)] {
        let fifo = programs.fifo(&format!("hold-{n}"));
        let long: String = (0..3000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
        let mut out = {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "printf '%s %s' \"$1\" \"$LONG\"", "sh", &long]).env("LONG", &long);
            command.stdout(Stdio::piped()).fd(Stdio::open(&fifo, libc::O_RDONLY, 0), 5);
            let launched = if prepared { command.prepare().expect("prepare").launch() } else { command.launch() };
            launched.expect("launch").stdout.take().expect("a pipe")
        };
        churn(&mut Dice::new(7), 20_000);
        // The child opens for reading and is held until someone opens for writing.
        drop(OpenOptions::new().write(true).open(&fifo).expect("open"));
        let mut text = String::new();
        out.read_to_string(&mut text).expect("read");
        assert_eq!(text, format!("{long} {long}"), "what the child found after everything was dropped");
    }
    observe::assert_no_orphans();
}

scenario!(a_plan_outlives_every_handle_while_a_child_reads_it_under_load);
/// The same without a hold, often, from several threads.
pub fn a_plan_outlives_every_handle_while_a_child_reads_it_under_load(_: &[String]) {
    from_all_threads(observe::scaled(600), |thread, n| {
        let mut dice = Dice::new((thread * 10_000 + n + 1) as u64);
        let text = format!("{thread}-{n}-{}", "x".repeat(dice.below(2000) as usize));
        let mut out = {
            let mut command = Command::new("/bin/echo");
            let mut child = command.arg(&text).stdout(Stdio::piped()).launch().expect("launch");
            child.stdout.take().expect("a pipe")
        };
        churn(&mut dice, 200);
        let mut found = String::new();
        out.read_to_string(&mut found).expect("read");
        assert_eq!(found, format!("{text}\n"));
        assert!(out.as_raw_fd() > 2);
    });
    eventually("orphans reaped", || forkless::reap_orphans() == 0);
    observe::assert_no_orphans();
}

/// Allocates, writes over and frees blocks of all sizes.
pub(crate) fn churn(dice: &mut Dice, blocks: usize) {
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for _ in 0..blocks {
        kept.push(black_box(vec![0xa5; 16 + dice.below(8000) as usize]));
        if kept.len() > 64 {
            let at = dice.below(64) as usize;
            kept.swap_remove(at);
        }
    }
}
