//! The checks that the fuzz targets call: those of the library, and those of the program.

pub use dueq::checks::{answer, name, reply, url};
pub use dueq_cli::checks::{delay, hours, moment, ndjson, rate, redisson, schedules, shown};
