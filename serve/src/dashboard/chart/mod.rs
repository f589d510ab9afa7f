//! Charts as SVG. Each chart has a table with the same numbers.
