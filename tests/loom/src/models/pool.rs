//! The pool of stacks: no two threads get one stack, none gets one that a child uses, and what the last user wrote has
//! happened before.

use super::pool::Pool;
use crate::Model;
use forkless_core::frame::{LEFT, RUNNING};
use forkless_core::sync::{AtomicU32, AtomicUsize, child_leaves, fence};
use loom::cell::UnsafeCell;
use loom::thread;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub const MODEL: Model = Model { name: "pool", run: launches, warm: || (), switches: Some(3) };

struct Stack {
    word: AtomicU32,
    memory: UnsafeCell<u32>,
}

// SAFETY: loom reports accesses that could take place at once.
unsafe impl Send for Stack {}
// SAFETY: as above.
unsafe impl Sync for Stack {}

struct Sent(NonNull<Stack>);

// SAFETY: the model's stacks stay mapped.
unsafe impl Send for Sent {}

impl Stack {
    fn write(&self) {
        // SAFETY: loom checks the accesses.
        self.memory.with_mut(|at| unsafe { *at += 1 });
    }
}

struct Process {
    pool: Pool<Stack, 3>,
    mapped: AtomicUsize,
    /// Stacks that found no slot. In the product they are unmapped, or lost while a child uses them.
    left_over: AtomicUsize,
}

impl Process {
    fn take(&self) -> NonNull<Stack> {
        let is_unused = |stack: &Stack| stack.word.load(Ordering::Acquire) == LEFT;
        let taken = self.pool.take(0, is_unused, |_| _ = self.left_over.fetch_add(1, Ordering::Relaxed));
        let stack = taken.map_or_else(|| self.map(), |(stack, _)| stack);
        // SAFETY: stacks stay mapped.
        let object = unsafe { stack.as_ref() };
        object.write();
        object.word.store(RUNNING, Ordering::Relaxed);
        stack
    }

    fn map(&self) -> NonNull<Stack> {
        self.mapped.fetch_add(1, Ordering::Relaxed);
        let stack = Box::leak(Box::new(Stack { word: AtomicU32::new(LEFT), memory: UnsafeCell::new(0) }));
        stack.word.renew();
        stack.into()
    }

    /// As a handle that is dropped, whether or not the child has left.
    fn put(&self, stack: NonNull<Stack>) {
        // SAFETY: stacks stay mapped.
        if unsafe { self.pool.put(0, stack) }.is_none() {
            self.left_over.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Launches, waits, and reads what the child has reported.
    fn run(&self) {
        let stack = self.take();
        child(Sent(stack));
        // SAFETY: stacks stay mapped, and loom checks the accesses.
        unsafe { stack.as_ref() }.memory.with(|at| _ = unsafe { *at });
        self.put(stack);
    }
}

/// What a child does in its stack, until it has left.
fn child(Sent(stack): Sent) {
    // SAFETY: stacks stay mapped.
    let stack = unsafe { stack.as_ref() };
    stack.write();
    fence(Ordering::Release);
    child_leaves(&stack.word);
}

fn launches() {
    let (mapped, left_over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let process = Arc::new(Process { pool: Pool::new(), mapped, left_over });
    process.pool.take(0, |_| false, |_| ());
    process.mapped.renew();
    process.left_over.renew();
    let first = process.take();
    let launched = Sent(first);
    let first_child = thread::spawn(move || child(launched));
    process.put(first);
    let copy = Arc::clone(&process);
    let other = thread::spawn(move || copy.run());
    process.run();
    other.join().expect("no panic");
    first_child.join().expect("no panic");
    let in_pool = (0..3).filter(|_| process.pool.take(0, |_| true, |_| ()).is_some()).count();
    let [mapped, left_over] = [&process.mapped, &process.left_over].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(mapped, in_pool + left_over, "no stack is lost");
}
