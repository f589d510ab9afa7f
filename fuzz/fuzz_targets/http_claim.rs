#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dueq_fuzz::http_claim(bytes));
