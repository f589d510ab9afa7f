//! Charts as SVG. Each chart has a table with the same numbers.

mod scale;
mod spark;

pub(super) use spark::spark;
