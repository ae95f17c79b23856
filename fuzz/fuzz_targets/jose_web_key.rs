#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mizzen_fuzz::jose::web_key(bytes));
