//! The checks that the fuzz targets call: those of the library, of the crate that reads input, of the
//! program and of the server.

pub use dueq::checks::{answer, handle, name, reply, url};
pub use dueq_cli::checks::{ndjson, redisson, schedules, shown};
pub use dueq_input::checks::{delay, hours, message, moment, path_id, rate, schedule};
pub use dueq_serve::checks::{
    http_claim, http_cursor, http_extensions, http_head, http_lines, http_operation, http_path,
    http_pattern, http_query, http_settlements, http_tokens,
};
