//! Request bodies: a budget for all of them, and the extractor of JSON.

mod bounded;
mod budget;
mod json;
mod paused;
mod whole;

pub(crate) use bounded::Bounded;
pub(crate) use budget::{Bodies, Reserved};
#[cfg(any(test, feature = "harness"))]
pub(crate) use json::parse as parse_json;
pub(crate) use json::{JsonBody, media_type, require_json};
pub(crate) use paused::{BodyPaused, Watchful};
pub(crate) use whole::{Whole, unread, whole};
