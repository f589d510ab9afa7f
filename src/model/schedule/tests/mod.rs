//! Tests of schedules without a server: clock changes, random patterns, refusals, texts.

mod clock_changes;
mod oracle;
mod pattern;
mod refusals;
mod text;
