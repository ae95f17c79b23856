#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mizzen_fuzz::targets::fields_v1(bytes));
