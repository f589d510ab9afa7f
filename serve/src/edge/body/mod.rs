//! Request bodies: the memory budget that they share, and the extractor of JSON.

mod budget;
mod json;
mod whole;

pub(crate) use budget::{Bodies, Reserved};
pub(crate) use json::{Bounded, JsonBody, code_of, media_type, parse as parse_json, require_json};
pub(crate) use whole::{PAUSE, Whole, unread, whole};
