//! Failures of other delay queues, ruled out one by one: each test is named after a failure, and its
//! comment says how that failure arises elsewhere. `recovery` measures how long recovery takes: its
//! bounds fail only a broken build, and each test prints the time that it saw
//! (`cargo test --test library recovery -- --nocapture`).
//!
//! All tests use real servers and the public API, or the scripts alone where a test stands for a client
//! in another language.

mod contents;
mod crashes;
mod held;
mod hints;
mod late;
mod recovery;
