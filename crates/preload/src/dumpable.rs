//! `prctl(2)` PR_SET_DUMPABLE, for `c/prctl.c`.

use forkless_capi::boundary::as_libc;
use libc::c_int;

/// 0, or -1 with `errno`.
#[unsafe(no_mangle)]
extern "C" fn forkless_preload_set_dumpable(dumpable: c_int) -> c_int {
    as_libc(-1, || {
        forkless::set_dumpable(dumpable != 0)?;
        Ok(0)
    })
}
