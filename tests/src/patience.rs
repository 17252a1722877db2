//! Time limits of tests. On a slow machine, such as an emulated one, `FORKLESS_TEST_SLOW` multiplies them.

use std::time::Duration;

/// `FORKLESS_TEST_SLOW`: how many times as long as usual anything may take (default 1).
pub fn factor() -> u32 {
    let factor = std::env::var("FORKLESS_TEST_SLOW").ok().and_then(|text| text.parse().ok());
    factor.unwrap_or(1).clamp(1, 1000)
}

/// A limit that only a hang exceeds.
pub fn limit(seconds: u64) -> Duration {
    Duration::from_secs(seconds) * factor()
}

/// Ends this process by SIGALRM after so many seconds, unless it has ended by then: `alarm(2)`.
pub fn end_after(seconds: u32) {
    // SAFETY: no handler is set; the default action ends the process.
    unsafe { libc::alarm(seconds * factor()) };
}
