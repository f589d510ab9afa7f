//! Formats values for pages: each kind of value in one place.

mod clock;
mod number;
mod payload;
mod text;

pub(super) use clock::{Clock, Zone};
pub(super) use number::{duration, micros};
pub(super) use number::{number, percent, rate, short};
pub(super) use payload::{Payload, payload};
pub(super) use text::Markup;
pub(super) use text::text;
