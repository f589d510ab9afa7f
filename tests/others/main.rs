//! Failures of other delay queues, ruled out one by one: each test is named after a failure, and its comment says how that
//! comes about elsewhere. Then how long recovery takes, with bounds that only a broken build exceeds, and the figure seen
//! printed (`cargo test --test others recovery -- --nocapture`).
//!
//! All of it on real servers, by the public API; where another language is meant, by the scripts alone.

mod contents;
mod crashes;
mod held;
mod hints;
mod late;
mod recovery;
#[allow(
    dead_code,
    reason = "the other half is used by tests/library, where the compiler looks for what nobody uses"
)]
#[path = "../library/support/mod.rs"]
mod support;
