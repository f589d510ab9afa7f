#![no_main]

use std::sync::LazyLock;

static CHECK: LazyLock<fn(&[u8])> = LazyLock::new(dueq_fuzz::check);

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CHECK(bytes));
