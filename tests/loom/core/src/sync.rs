//! The atomic types, fences and futexes of the product's modules in these models: loom's, which try every order.
//!
//! - An atomic can be a static: at its first use in an execution it gets its first value again.
//! - loom treats SeqCst like AcqRel, but not in fences. So an access that is SeqCst has such a fence before it here.
//! - A wait on a futex has no timeout, so a lost wake-up is a deadlock, which loom reports.
//! - Each place in the sources that orders, changes or wakes can be weakened: see [`Plant`].

use loom::sync::atomic as model;
use loom::sync::{Arc, Condvar, Mutex};
use std::cell::{Cell, UnsafeCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize as Count, Ordering};

/// What is made wrong, to see that the model finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Plant {
    /// The place has the next weaker order: SeqCst, Acquire and Release, Relaxed. A fence is left out.
    Weaker,
    /// The change is a load and a store.
    NotAtomic,
    /// Nothing is woken.
    NoWake,
}

/// A place in the sources, and what can be wrong there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    pub file: &'static str,
    pub line: u32,
    pub column: u32,
    pub plant: Plant,
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.file.find("crates/").map_or(self.file, |at| &self.file[at..]);
        write!(out, "{name}:{}:{} {:?}", self.line, self.column, self.plant)
    }
}

/// loom runs the threads of a model in turn on one thread of the process, so these cells are never used at once.
struct Global<T>(UnsafeCell<T>);

// SAFETY: see the type.
unsafe impl<T> Sync for Global<T> {}

impl<T> Global<T> {
    fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: see the type; `work` is short and calls nothing of loom.
        work(unsafe { &mut *self.0.get() })
    }
}

/// The places that were executed, and whether they are weakened.
static SITES: Global<BTreeMap<Site, bool>> = Global(UnsafeCell::new(BTreeMap::new()));
static PLANTED: Global<Option<String>> = Global(UnsafeCell::new(None));

/// The statics that have been used: they get their first values when an execution begins, before there is a second thread.
static STATICS: Global<Vec<(usize, fn(usize))>> = Global(UnsafeCell::new(Vec::new()));

/// The number of the execution.
static EXECUTION: Count = Count::new(0);

pub fn executions() -> usize {
    EXECUTION.load(Ordering::Relaxed)
}

pub fn sites() -> Vec<Site> {
    SITES.with(|sites| sites.keys().copied().collect())
}

/// Weakens the place that is displayed so.
pub fn plant(site: String) {
    PLANTED.with(|planted| *planted = Some(site));
}

/// Begins an execution. Must be called first in each.
pub fn begin() {
    EXECUTION.fetch_add(1, Ordering::Relaxed);
    let statics = STATICS.with(|statics| statics.clone());
    for (address, renew) in statics {
        renew(address);
    }
    let _ = &*SLEEPERS;
}

fn is_planted(location: &'static Location<'static>, plant: Plant) -> bool {
    let site = Site { file: location.file(), line: location.line(), column: location.column(), plant };
    // These models' own accesses are right.
    if !site.file.contains("crates/") {
        return false;
    }
    let is_new = SITES.with(|sites| !sites.contains_key(&site));
    if is_new {
        let is_it = PLANTED.with(|planted| planted.as_deref() == Some(&*site.to_string()));
        SITES.with(|sites| sites.insert(site, is_it));
    }
    SITES.with(|sites| sites[&site])
}

/// The order that an access has, and whether a fence makes it SeqCst.
fn order(location: &'static Location<'static>, order: Ordering, strongest: Ordering) -> (Ordering, bool) {
    if order == Ordering::Relaxed || !is_planted(location, Plant::Weaker) {
        return if order == Ordering::SeqCst { (strongest, true) } else { (order, false) };
    }
    (if order == Ordering::SeqCst { strongest } else { Ordering::Relaxed }, false)
}

#[track_caller]
pub fn fence(order: Ordering) {
    if !is_planted(Location::caller(), Plant::Weaker) {
        model::fence(order);
    }
}

fn fenced<R>((order, is_fenced): (Ordering, bool), access: impl FnOnce(Ordering) -> R) -> R {
    if is_fenced {
        model::fence(Ordering::SeqCst);
    }
    access(order)
}

fn failure(order: Ordering) -> Ordering {
    match order {
        Ordering::AcqRel | Ordering::Acquire | Ordering::SeqCst => Ordering::Acquire,
        _ => Ordering::Relaxed,
    }
}

unsafe extern "C" {
    static __data_start: u8;
    static _end: u8;
}

fn is_static(address: usize) -> bool {
    (&raw const __data_start as usize..&raw const _end as usize).contains(&address)
}

macro_rules! atomic {
    ($name:ident $(<$T:ident>)?, $value:ty) => {
        /// All zero bytes are an atomic of value zero.
        #[repr(C)]
        pub struct $name $(<$T>)? {
            first: UnsafeCell<$value>,
            execution: Cell<usize>,
            shown: Cell<*mut model::$name $(<$T>)?>,
        }

        // SAFETY: as for `Global`.
        unsafe impl $(<$T>)? Sync for $name $(<$T>)? {}
        // SAFETY: as for `Global`.
        unsafe impl $(<$T>)? Send for $name $(<$T>)? {}

        #[allow(dead_code)]
        impl $(<$T>)? $name $(<$T>)? {
            pub const fn new(first: $value) -> Self {
                Self { first: UnsafeCell::new(first), execution: Cell::new(0), shown: Cell::new(null_mut()) }
            }

            /// The atomic of this execution. Of earlier ones nothing is freed: these values are few and small.
            pub fn renew(&self) -> &model::$name $(<$T>)? {
                if self.execution.get() != executions() {
                    // SAFETY: set before, or never; nothing has a reference to it.
                    let first = unsafe { *self.first.get() };
                    self.shown.set(Box::into_raw(Box::new(model::$name::new(first))));
                    let address = self as *const Self as usize;
                    if self.execution.get() == 0 && is_static(address) {
                        // SAFETY: statics stay.
                        let renew = |address| _ = unsafe { (*(address as *const Self)).renew() };
                        STATICS.with(|statics| statics.push((address, renew)));
                    }
                    self.execution.set(executions());
                }
                // SAFETY: made above in this execution, and not freed.
                unsafe { &*self.shown.get() }
            }

            pub fn as_ptr(&self) -> *mut $value {
                self.first.get()
            }

            #[track_caller]
            pub fn load(&self, with: Ordering) -> $value {
                fenced(order(Location::caller(), with, Ordering::Acquire), |order| self.renew().load(order))
            }

            #[track_caller]
            pub fn store(&self, value: $value, with: Ordering) {
                fenced(order(Location::caller(), with, Ordering::Release), |order| self.renew().store(value, order));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, with: Ordering) -> $value {
                let is_torn = is_planted(Location::caller(), Plant::NotAtomic);
                fenced(order(Location::caller(), with, Ordering::AcqRel), |order| {
                    if is_torn {
                        let before = self.renew().load(failure(order));
                        self.renew().store(value, Ordering::Release);
                        return before;
                    }
                    self.renew().swap(value, order)
                })
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                with: Ordering,
                fails: Ordering,
            ) -> Result<$value, $value> {
                let is_torn = is_planted(Location::caller(), Plant::NotAtomic);
                fenced(order(Location::caller(), with, Ordering::AcqRel), |order| {
                    if is_torn {
                        let before = self.renew().load(failure(order));
                        if before != current {
                            return Err(before);
                        }
                        self.renew().store(new, Ordering::Release);
                        return Ok(before);
                    }
                    let fails = if order == Ordering::Relaxed { Ordering::Relaxed } else { failure(fails) };
                    self.renew().compare_exchange(current, new, order, fails)
                })
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                with: Ordering,
                fails: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, with, fails)
            }

            #[track_caller]
            pub fn fetch_update(
                &self,
                with: Ordering,
                fails: Ordering,
                update: impl Fn($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(fails);
                while let Some(new) = update(before) {
                    match self.compare_exchange(before, new, with, fails) {
                        Ok(_) => return Ok(before),
                        Err(now) => before = now,
                    }
                }
                Err(before)
            }
        }
    };
}

macro_rules! number {
    ($($name:ident: $value:ty),*) => { $(
        atomic!($name, $value);

        #[allow(dead_code)]
        impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $value, with: Ordering) -> $value {
                let is_torn = is_planted(Location::caller(), Plant::NotAtomic);
                fenced(order(Location::caller(), with, Ordering::AcqRel), |order| {
                    if is_torn {
                        let before = self.renew().load(failure(order));
                        self.renew().store(before.wrapping_add(value), Ordering::Release);
                        return before;
                    }
                    self.renew().fetch_add(value, order)
                })
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $value, with: Ordering) -> $value {
                self.fetch_add((0 as $value).wrapping_sub(value), with)
            }
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    )* };
}

number!(AtomicU32: u32, AtomicI32: i32, AtomicU64: u64, AtomicUsize: usize);
atomic!(AtomicPtr<T>, *mut T);

loom::lazy_static! {
    /// The threads that sleep, by the address of the word. The lock is that of the kernel's list of sleepers.
    static ref SLEEPERS: Mutex<HashMap<usize, Arc<Condvar>>> = Mutex::new(HashMap::new());
}

fn wait(address: usize, is_expected: impl FnOnce() -> bool) -> crate::sys::Result<()> {
    let mut sleepers = SLEEPERS.lock().expect("not poisoned");
    if !is_expected() {
        return Err(crate::sys::errno::EAGAIN);
    }
    let condition = Arc::clone(sleepers.entry(address).or_insert_with(|| Arc::new(Condvar::new())));
    drop(condition.wait(sleepers).expect("not poisoned"));
    Ok(())
}

#[track_caller]
fn wake(address: usize, all: bool) {
    if is_planted(Location::caller(), Plant::NoWake) {
        return;
    }
    wake_by_kernel(address, all);
}

fn wake_by_kernel(address: usize, all: bool) {
    let sleepers = SLEEPERS.lock().expect("not poisoned");
    if let Some(condition) = sleepers.get(&address) {
        if all { condition.notify_all() } else { condition.notify_one() }
    }
}

type Timeout<'a> = Option<&'a crate::sys::uapi::__kernel_timespec>;

pub fn futex_wait(word: &AtomicU32, expected: u32, _: Timeout<'_>) -> crate::sys::Result<()> {
    wait(word.as_ptr() as usize, || word.load(Ordering::SeqCst) == expected)
}

#[track_caller]
pub fn futex_wake(word: &AtomicU32) {
    wake(word.as_ptr() as usize, false);
}

#[track_caller]
#[allow(dead_code)]
pub fn futex_wake_all(word: &AtomicU32) {
    wake(word.as_ptr() as usize, true);
}

pub fn futex_wait_low(word: &AtomicU64, expected: u32, _: Timeout<'_>) -> crate::sys::Result<()> {
    wait(word.as_ptr() as usize, || word.load(Ordering::SeqCst) as u32 == expected)
}

#[track_caller]
pub fn futex_wake_low(word: &AtomicU64) {
    wake(word.as_ptr() as usize, true);
}

/// What the kernel does when a child leaves the memory: it clears the word with a plain store, and wakes.
pub fn child_leaves(word: &AtomicU32) {
    word.store(0, Ordering::Relaxed);
    wake_by_kernel(word.as_ptr() as usize, false);
}
