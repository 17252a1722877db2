//! A zygote's helper reads and writes nothing outside of the parcel that it is sent.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| forkless::fuzzed::parcel(bytes));
