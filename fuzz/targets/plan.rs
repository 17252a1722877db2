//! Settings made at random compile to plans that the child can trust, or are refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forkless::fuzzed::plan(bytes));
