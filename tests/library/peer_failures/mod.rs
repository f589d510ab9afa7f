//! Failures of other delay queues: one test for each shows that dueq does not fail so. The test's
//! comment describes the failure in the other product. `recovery` measures recovery times; its
//! bounds fail only a broken build. Each test prints the measured time (`cargo test --test library
//! recovery -- --nocapture`).
//!
//! All tests use real servers and the public API. A test calls the scripts directly where it
//! simulates a client in another language.

mod contents;
mod crashes;
mod held;
mod hints;
mod recovery;
