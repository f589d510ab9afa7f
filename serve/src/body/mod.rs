//! Request bodies: a budget for all of them, and the extractor of JSON.

mod bounded;
mod budget;
mod json;
mod paused;
mod whole;

pub(crate) use bounded::Bounded;
pub(crate) use budget::{Bodies, Reserved};
pub(crate) use json::{JsonBody, code_of, media_type, parse as parse_json, require_json};
pub(crate) use paused::{BodyPaused, Watchful};
pub(crate) use whole::{Whole, unread, whole};
