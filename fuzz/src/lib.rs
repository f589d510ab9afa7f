//! The checks that the fuzz targets call: those of the library, and those of the program, whose files are included here because
//! a program has no public API.

pub use dueq::checks::{answer, name, reply, url};

macro_rules! checks {
    ($($name:ident),+) => { $(pub fn $name(bytes: &[u8]) { checks::$name(bytes) })+ };
}

checks!(delay, moment, ndjson, redisson, shown);

#[expect(dead_code, reason = "the list of checks, for tests")]
#[path = "../../cli/src/checks.rs"]
mod checks;
#[path = "../../cli/src/ndjson.rs"]
mod ndjson;
#[expect(dead_code, reason = "the program uses more of it")]
#[path = "../../cli/src/output.rs"]
mod output;
#[path = "../../cli/src/shown.rs"]
mod shown;
#[path = "../../cli/src/time.rs"]
mod time;
#[expect(dead_code, reason = "the program uses more of it")]
#[path = "../../cli/src/when.rs"]
mod when;

#[path = "../../cli/src/import"]
mod import {
    pub(crate) mod codec;
    pub(crate) mod frame;
}
