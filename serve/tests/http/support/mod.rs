//! Support for the tests: the server, its calls and its log.

pub(crate) mod calls;
pub(crate) mod captured;
pub(crate) mod instance;
