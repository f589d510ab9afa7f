//! Charts as SVG. Each chart has a table with the same numbers.
//!
//! A chart is as wide as its place: places on it are percentages of that, and heights are pixels. So
//! its text has the same size on a phone. What is no rectangle is in an SVG of its own that is
//! stretched.

mod bands;
mod due;
mod figure;
mod flow;
mod scale;
mod spark;
mod time;

pub(super) use bands::{Band, bands};
pub(super) use due::{Due, Slot, due};
pub(super) use flow::{Counter, Flow, flow};
pub(super) use spark::spark;
pub(super) use time::Step;
