//! No heap in any child, and none in a run of a prepared plan.

use crate::allocator;
use crate::elf::Programs;
use crate::foreign;
use forkless::{Capture, Command, Prepared, Stdio};
use forkless_core::sys::{self, uapi};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

scenario!(no_front_end_uses_the_heap_in_a_child);
/// Every front end, launches that work and launches that do not, under the trap.
pub fn no_front_end_uses_the_heap_in_a_child(_: &[String]) {
    let programs = Programs::new();
    let good = programs.exits(0);
    allocator::own();
    for _ in 0..20 {
        for change in CHANGES {
            let mut command = Command::new(&good);
            command.arg("one").env("TWO", "2");
            change(&mut command, &programs);
            every_front_end(&mut command);
        }
        every_front_end(Command::new("no-such-program-anywhere").or_else("nor-this-one"));
        every_front_end(&mut Command::new(programs.path("missing/program")));
        every_front_end(&mut Command::new("/"));
    }
    assert!(!allocator::has_tripped(), "a child used the heap");
}

/// Settings beyond those of a plain command.
const CHANGES: &[fn(&mut Command, &Programs)] = &[
    |_, _| {},
    |command, _| {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    },
    |command, _| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::dup_of(1));
    },
    |command, _| {
        // SAFETY: standard error.
        command.fd(Stdio::socketpair(), 7).fd(unsafe { Stdio::fd(2) }, 40).inherit_all(true);
    },
    |command, _| {
        command.fd(Stdio::open("/dev/null", libc::O_RDONLY, 0), 9);
    },
    |command, _| {
        command.setsid(true).current_dir("/").inherit_signal_mask(true).signal_ignore(10);
    },
    |command, _| {
        command.process_group(0).signal_block(12).pidfd(false);
    },
    |command, programs| {
        command.current_dir(programs.path("no-such-directory"));
    },
    |command, _| {
        // SAFETY: nothing is open there.
        command.fd(unsafe { Stdio::fd(4000) }, 3);
    },
    |command, _| {
        command.process_group(1);
    },
    |command, _| {
        command.fd(Stdio::open("/no/such/file", libc::O_RDONLY, 0), 3);
    },
    |command, _| {
        command.arg("x".repeat(200_000));
    },
];

fn every_front_end(command: &mut Command) {
    let _ = command.spawn().and_then(|mut child| child.wait());
    let _ = command.launch().and_then(|mut child| child.wait());
    let _ = command.launch().map(drop);
    let _ = command.status();
    let _ = command.output();
    if let Ok(prepared) = command.prepare() {
        let _ = prepared.spawn().and_then(|mut child| child.wait());
        let _ = prepared.launch().and_then(|mut child| child.wait());
        let _ = prepared.status();
        let _ = prepared.output();
    }
}

scenario!(the_trap_catches_a_forked_child);
/// The trap detects a forked child that allocates: its exit status shows that.
/// Negative control: the trap catches a forked child that allocates.
pub fn the_trap_catches_a_forked_child(_: &[String]) {
    allocator::own();
    // SAFETY: the child does nothing but what it is to be caught at, and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(black_box(Box::new(black_box(1u64))));
        // SAFETY: ends the child that was not caught.
        unsafe { libc::_exit(0) };
    }
    let (_, status) = foreign::wait(pid, 0).expect("wait");
    assert_eq!(status, allocator::TRAP_STATUS << 8, "the forked child was not caught");
}

scenario!(the_trap_catches_a_cloned_child);
/// The trap catches a child in shared memory.
/// Negative control: the trap catches a child in shared memory.
pub fn the_trap_catches_a_cloned_child(_: &[String]) {
    unsafe extern "C-unwind" fn allocate(_: *mut u64) -> ! {
        drop(black_box(Box::new(black_box(1u64))));
        sys::exit(0)
    }
    let mut stack = vec![0u64; 8192];
    allocator::own();
    let args = uapi::clone_args {
        flags: uapi::CLONE_VM as u64,
        exit_signal: libc::SIGCHLD as u64,
        stack: stack.as_mut_ptr() as u64,
        stack_size: (stack.len() * 8) as u64,
        // SAFETY: all zeroes is a valid clone_args.
        ..unsafe { std::mem::zeroed() }
    };
    // SAFETY: the stack is the child's own until it is reaped below, and the entry touches nothing but the heap, which
    // it is caught at.
    let pid = unsafe { sys::clone3_call(&args, 64, allocate, stack.as_mut_ptr()) }.expect("clone3");
    let (_, status) = foreign::wait(pid, 0).expect("wait");
    assert_eq!(status, allocator::TRAP_STATUS << 8, "the cloned child was not caught");
    assert!(allocator::has_tripped(), "the flag in shared memory was not set");
}

scenario!(runs_of_a_prepared_plan_do_not_allocate);
/// Runs of a prepared plan allocate nothing.
/// The scenario has its own negative controls: the counter counts.
pub fn runs_of_a_prepared_plan_do_not_allocate(_: &[String]) {
    let programs = Programs::new();
    let prepared = prepare(&programs.exits(0), |_| {});
    let piped = prepare(&programs.exits(0), |command| {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    });
    let runs: &[(&str, &dyn Fn())] = &[
        ("status", &|| assert!(prepared.status().expect("status").success())),
        ("spawn, wait", &|| assert!(prepared.spawn().expect("spawn").wait().expect("wait").success())),
        ("launch, wait", &|| assert!(prepared.launch().expect("launch").wait().expect("wait").success())),
        ("launch, wait_exec, wait", &|| {
            let mut child = prepared.launch().expect("launch");
            child.wait_exec().expect("wait_exec");
            assert!(child.wait().expect("wait").success());
        }),
        ("spawn with three pipes, wait", &|| assert!(piped.spawn().expect("spawn").wait().expect("wait").success())),
    ];
    for (name, run) in runs {
        run();
        let before = allocator::calls();
        (0..100).for_each(|_| run());
        assert_eq!(allocator::calls() - before, 0, "allocations in 100 runs of {name}");
    }
    // Captures allocate a buffer for each stream, one list for the loop, and one for each of its turns, of which there
    // are one to three here.
    let limits = Capture::new().timeout(Duration::from_secs(600)).limit(1 << 20);
    let captured = prepare(&programs.exits(0), |_| {});
    for _ in 0..20 {
        let before = allocator::calls();
        assert!(captured.capture(&limits).expect("capture").status.success());
        let made = allocator::calls() - before;
        assert!((1..=6).contains(&made), "{made} allocations in a capture");
    }
    // The count counts: compiling a command allocates, and so does one box.
    let before = allocator::calls();
    drop(black_box(Box::new(black_box(1u64))));
    assert_eq!(allocator::calls() - before, 1, "one box is one allocation");
    let before = allocator::calls();
    assert!(Command::new(programs.exits(0)).status().expect("status").success());
    assert!(allocator::calls() > before, "a command that is not prepared allocates");
}

fn prepare(program: &Path, change: impl Fn(&mut Command)) -> Prepared {
    let mut command = Command::new(program);
    change(&mut command);
    command.prepare().expect("prepare")
}
