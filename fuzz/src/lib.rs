//! The checks that the fuzz targets call: those of the library, of the crate that reads input, and of
//! the program.

pub use dueq::checks::{answer, name, reply, url};
pub use dueq_cli::checks::{ndjson, redisson, schedules, shown};
pub use dueq_input::checks::{delay, hours, message, moment, path_id, rate, schedule};
