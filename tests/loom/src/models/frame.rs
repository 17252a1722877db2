//! A launch: the child plays a plan of the product in a thread, the caller waits on the futex word.

use super::maps::{self, await_request, dismiss_writer};
use super::stack::Stack;
use crate::Model;
use crate::plan::IdMaps;
use forkless_core::child::play;
use forkless_core::frame::{ASK_WANTED, Frame, LEFT, RUNNING};
use forkless_core::plan::OpCode::{AwaitGo, Chdir, PreExec, Taken};
use forkless_core::plan::{Header, Op, OpCode};
use forkless_core::report::{Outcome, outcome};
use forkless_core::sync::{child_leaves, futex_wait};
use forkless_core::sys::{Exit, errno};
use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};
use std::mem::{offset_of, zeroed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// The child takes the caller's descriptors, reports that, and fails: the caller learns the step and the reason, and uses
/// descriptors and memory again only when the child does no more.
pub const FAILURE: Model = Model { name: "frame", run: fails, warm: || (), switches: None };

/// The child waits for its ID maps, which another thread writes: it continues after that.
pub const MAPS: Model = Model { name: "maps", run: || waits_for_maps(false), warm: || (), switches: None };

/// The child leaves before it asks for ID maps: nothing is written, and no thread waits for ever.
pub const UNASKED: Model = Model { name: "no-maps", run: || waits_for_maps(true), warm: || (), switches: None };

#[repr(C)]
struct Arena {
    header: Header,
    ops: [Op; 6],
    path: [u8; 8],
}

/// What the child uses of the caller.
struct Launch {
    frame: Frame,
    arena: Arena,
    /// The descriptors, until the child has its own.
    descriptors: UnsafeCell<u32>,
    /// The memory, until the child has left it.
    memory: UnsafeCell<u32>,
    /// What is written before the child may go on.
    maps: UnsafeCell<u32>,
}

// SAFETY: loom reports accesses that could take place at once.
unsafe impl Sync for Launch {}

/// The hook of each PreExec, at the step that is numbered from 1.
unsafe extern "C" fn look(frame: *const Frame, launch: *const ()) -> i32 {
    // SAFETY: the model's launches stay.
    let (frame, launch) = unsafe { (&*frame, &*launch.cast::<Launch>()) };
    // The child's own step, which only it writes.
    let step = frame.step.load(Ordering::Relaxed);
    // SAFETY: loom checks the accesses.
    unsafe {
        match step {
            2 => launch.maps.with(|at| assert_eq!(*at, 1, "the maps are written before the child goes on")),
            3 => _ = launch.descriptors.with(|at| *at),
            _ => _ = launch.memory.with(|at| *at),
        }
    }
    0
}

fn new_launch(ops: [OpCode; 6]) -> &'static Launch {
    // SAFETY: a frame, a header and atomics may be all zero.
    let (mut frame, mut header): (Frame, Header) = unsafe { (zeroed(), zeroed()) };
    (header.ops, header.op_count) = (offset_of!(Arena, ops) as u32, 6);
    let mut ops = ops.map(Op::new);
    for op in &mut ops {
        op.a = offset_of!(Arena, path) as u32;
    }
    frame.announce = 1;
    frame.hook = Some(look);
    let arena = Arena { header, ops, path: *b"/dev/x/\0" };
    let [descriptors, memory, maps] = [0; 3].map(UnsafeCell::new);
    let launch: &'static mut Launch = Box::leak(Box::new(Launch { frame, arena, descriptors, memory, maps }));
    launch.frame.hook_data = (&raw const *launch).cast();
    let launch: &'static Launch = launch;
    let frame = &launch.frame;
    for word in [&frame.word, &frame.step, &frame.go, &frame.asked, &frame.ended_by, &frame.skipped] {
        word.renew();
    }
    for word in [&frame.errno, &frame.detail, &frame.pid] {
        word.renew();
    }
    frame.plan.store((&raw const launch.arena).cast_mut().cast(), Ordering::Relaxed);
    frame.word.store(RUNNING, Ordering::Relaxed);
    launch
}

/// The child, and what the kernel does when it exits.
fn clone(launch: &'static Launch) -> JoinHandle<()> {
    thread::spawn(|| {
        // SAFETY: frame and plan stay.
        let end = catch_unwind(AssertUnwindSafe(|| unsafe { play((&raw const launch.frame).cast_mut()) }));
        let panic = match end {
            Ok(never) => never,
            Err(panic) => panic,
        };
        match panic.downcast::<Exit>() {
            Ok(_) => child_leaves(&launch.frame.word),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The caller's wait, as `wait_while` of `launch/watch.rs`, which has timeouts besides.
fn wait_while(frame: &Frame, busy: impl Fn(u32) -> bool) {
    loop {
        let value = frame.state();
        if !busy(value) {
            return;
        }
        let _ = futex_wait(&frame.word, value, None);
    }
}

fn fails() {
    let launch = new_launch([PreExec, PreExec, PreExec, Taken, AwaitGo, Chdir]);
    launch.maps.with_mut(|at| unsafe { *at = 1 });
    let child = clone(launch);
    wait_while(&launch.frame, |word| word == RUNNING);
    // SAFETY: loom checks the accesses.
    launch.descriptors.with_mut(|at| unsafe { *at = 1 });
    // Only now: the child may sleep for ever once it has its descriptors, and the caller does not wait for it.
    let go = maps::write(7, &launch.frame.go, &IdMaps::default(), false, || true);
    assert!(go.is_ok());
    wait_while(&launch.frame, |word| word != LEFT);
    // SAFETY: loom checks the accesses.
    launch.memory.with_mut(|at| unsafe { *at = 1 });
    // SAFETY: the plan that was played.
    let outcome = unsafe { outcome(&launch.frame, (&raw const launch.arena).cast()) };
    let expected = Outcome::Failed { op: 5, code: Chdir, detail: 0, errno: errno::ENOENT };
    assert_eq!(outcome, expected);
    child.join().expect("no panic");
}

fn waits_for_maps(leaves_early: bool) {
    let first = if leaves_early { Chdir } else { AwaitGo };
    let launch = new_launch([first, PreExec, PreExec, Taken, PreExec, Chdir]);
    let (go, asked, child, word) = Stack(&launch.frame).handshake();
    asked.store(ASK_WANTED, Ordering::Relaxed);
    let writer = thread::spawn(move || {
        // So that it also begins when the child has left.
        thread::yield_now();
        let pid = await_request(asked, child);
        if pid.is_some() {
            // SAFETY: loom checks the accesses.
            launch.maps.with_mut(|at| unsafe { *at = 1 });
        }
        pid.map(|pid| maps::write(pid, go, &IdMaps::default(), false, || word.load(Ordering::Acquire) != LEFT))
    });
    // The kernel stores the PID before the child begins, and with CLONE_VFORK the caller continues when it has left.
    child.store(7, Ordering::Relaxed);
    clone(launch).join().expect("no panic");
    dismiss_writer(asked, child);
    let written = writer.join().expect("no panic");
    assert_eq!(written.is_some(), !leaves_early);
}
