//! `dueq push`: lines of a file, and business hours.

pub(crate) mod again;
pub(crate) mod lost_file;
pub(crate) mod ndjson;
pub(crate) mod within;
