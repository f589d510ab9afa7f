//! The pages of the dashboard, as a browser without JavaScript gets them.

mod basics;
#[path = "../http/instance.rs"]
#[expect(dead_code, reason = "the tests of /v1 use the rest")]
mod instance;
mod queue;
