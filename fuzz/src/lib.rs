//! The checks that the fuzz targets call: those of the library, and those of the program, whose files are included here because
//! a program has no public API.

pub use dueq::checks::{answer, name, reply, url};

macro_rules! checks {
    ($($name:ident),+) => { $(pub fn $name(bytes: &[u8]) { checks::$name(bytes) })+ };
}

checks!(delay, moment, ndjson, redisson, shown);

#[allow(dead_code)]
#[path = "../../cli/src/checks.rs"]
mod checks;
#[path = "../../cli/src/ndjson.rs"]
mod ndjson;
#[allow(dead_code)]
#[path = "../../cli/src/output.rs"]
mod output;
#[path = "../../cli/src/shown.rs"]
mod shown;
#[path = "../../cli/src/time.rs"]
mod time;
#[allow(dead_code)]
#[path = "../../cli/src/when.rs"]
mod when;

mod import {
    #[path = "../../../cli/src/import/codec.rs"]
    pub(crate) mod codec;
    #[path = "../../../cli/src/import/frame.rs"]
    pub(crate) mod frame;
}
