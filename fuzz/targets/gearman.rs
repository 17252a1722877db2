//! What a Gearman server sends, and what is in its jobs: any bytes, in any pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| forkless_gearman::fuzzed::all(bytes));
