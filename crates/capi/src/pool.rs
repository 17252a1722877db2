//! Children cloned ahead of their launch.

use crate::child::ChildHandle;
use crate::entry::answer;
use crate::error::{Error, bad};
use crate::handle::{NULL, free, give, limit, out, shared};
use crate::run::{child, raw};
use forkless::{Pool, PoolOptions, PoolStats, Prepared};
use libc::{c_int, size_t};
use std::time::Duration;

/// `forkless_pool_options`. It grows at its end, and `size` tells how far the caller's reaches.
#[repr(C)]
pub(crate) struct Options {
    size: size_t,
    low: c_int,
    high: c_int,
    idle_ms: i64,
    recheck_ms: i64,
    fixed_namespaces: c_int,
}

/// `forkless_pool_stats`, of which the caller's may be a shorter one.
#[repr(C)]
pub(crate) struct Stats {
    parked: u64,
    low: u64,
    high: u64,
    pooled: u64,
    empty: u64,
    differed: u64,
    unfit: u64,
    lost: u64,
    renewals: u64,
    failures: u64,
    last_errno: u64,
    refiller: u64,
}

impl From<PoolStats> for Stats {
    fn from(stats: PoolStats) -> Self {
        Self {
            parked: stats.parked as u64,
            low: stats.low as u64,
            high: stats.high as u64,
            pooled: stats.pooled,
            empty: stats.empty,
            differed: stats.differed,
            unfit: stats.unfit,
            lost: stats.lost,
            renewals: stats.renewals,
            failures: stats.failures,
            last_errno: stats.last_errno.unwrap_or(0) as u64,
            refiller: stats.refiller.unwrap_or(0).into(),
        }
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pool_new(options: *const Options, pool: *mut *mut Pool, error: *mut Error) -> c_int {
    let make = || {
        // SAFETY: the header's contract.
        let Some(options) = (unsafe { options.as_ref() }) else { return Ok(out(Pool::new()?)) };
        if options.size != size_of::<Options>() {
            return Err(bad("options of a size that this library does not know"));
        }
        let mark = |mark: c_int| usize::try_from(mark).map_err(|_| bad("a mark below 0"));
        let mut how = PoolOptions::new();
        how.marks(mark(options.low)?, mark(options.high)?).idle(limit(options.idle_ms));
        how.recheck(limit(options.recheck_ms).unwrap_or(Duration::ZERO));
        how.fixed_namespaces(options.fixed_namespaces != 0);
        Ok(out(how.start()?))
    };
    // SAFETY: the header's contract.
    unsafe { answer(error, || give(pool, make)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pool_free(pool: *mut Pool) {
    // SAFETY: the header's contract.
    unsafe { free(pool) };
}

/// Functions that run something prepared through a pool.
macro_rules! runs {
    ($(fn $name:ident() -> $made:ty, $pool:ident, $prepared:ident => $work:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            pool: *mut Pool,
            prepared: *mut Prepared,
            result: *mut $made,
            error: *mut Error
        ) -> c_int {
            // SAFETY: the header's contract.
            unsafe {
                answer(error, || {
                    let ($pool, $prepared) = (shared(pool)?, shared(prepared)?);
                    give(result, || $work)
                })
            }
        }
    )* };
}

runs! {
    fn forkless_pool_spawn() -> *mut ChildHandle, pool, prepared => child(pool.spawn(prepared));
    fn forkless_pool_launch() -> *mut ChildHandle, pool, prepared => child(pool.launch(prepared));
    fn forkless_pool_status() -> c_int, pool, prepared => raw(pool.status(prepared));
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pool_refresh(pool: *mut Pool, error: *mut Error) -> c_int {
    // SAFETY: the header's contract.
    unsafe { answer(error, || Ok(shared(pool)?.refresh().map(|()| 0)?)) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
unsafe extern "C" fn forkless_pool_get_stats(pool: *mut Pool, stats: *mut Stats, size: size_t) -> c_int {
    let get = || {
        if stats.is_null() {
            return Err(bad("no place for the result"));
        }
        // SAFETY: the header's contract.
        let found = Stats::from(unsafe { shared(pool) }?.stats());
        // SAFETY: the header's contract: `size` bytes of it are the caller's.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), stats.cast(), size.min(size_of::<Stats>()))
        };
        Ok(0)
    };
    // SAFETY: no error to write to.
    unsafe { answer(NULL, get) }
}
