//! Charts as SVG. Each chart has a table with the same numbers.
//!
//! A chart is as wide as the page allows. Horizontal positions are percentages of the width, and
//! heights are pixels, so that text has one size on every screen. Shapes other than rectangles are
//! in a nested SVG that is stretched.

mod due;
mod figure;
mod flow;
mod lines;
mod scale;
mod spark;
mod stack;
mod time;

pub(super) use due::{Due, Slot, due};
pub(super) use flow::{Counter, Flow, flow};
pub(super) use lines::{LATEST, Lines, PERCENTILES, Slice, lines};
pub(super) use spark::spark;
pub(super) use stack::{Layer, Stack, stack};
pub(super) use time::{Step, span};
