//! Parses what people and programs write for dueq: delays, moments, hours, rates, messages as JSON,
//! schedules as TOML or JSON, and ids in URLs.
//!
//! The program `dueq` parses its flags and its JSON lines with it; so every other reader that uses
//! it, such as a server for HTTP, accepts the same notations. Everything here is pure: callers pass
//! the present time, and nothing reads a clock, a file or the network.
//!
//! An [`Error`] says what failed, with which value, why, and what to do. [`Wording`] says whether
//! it names the program's flags or the fields of an object.
//!
//! ```
//! use dueq_input::Defaults;
//!
//! let noon = 1_796_126_400_000;
//! let text = br#"{"payload": {"order": 42}, "id": "order:42", "delay": "48h"}"#;
//! let message = dueq_input::message(text, &Defaults::fields(noon))?;
//! assert_eq!(message.id_bytes(), Some(&b"order:42"[..]));
//!
//! let wrong = dueq_input::message(br#"{"payload": "x", "dealy": "48h"}"#, &Defaults::fields(noon));
//! assert!(wrong.unwrap_err().to_string().contains("unknown field `dealy`"));
//! # Ok::<(), dueq_input::Error>(())
//! ```

#[cfg(any(test, feature = "harness"))]
pub mod checks;
mod clock_changes;
mod defaults;
mod error;
mod expiry;
mod filter;
mod message;
mod path_id;
mod rate;
mod schedule;
pub mod time;
mod unreadable;
mod when;

pub use clock_changes::ClockChanges;
pub use defaults::{Clock, Defaults, ServerClock};
pub use error::Error;
pub use error::Wording;
pub use expiry::Unique;
pub use expiry::{Expiry, Last, expiring};
pub use filter::Filter;
pub use message::{MAX_BYTES, MAX_DEPTH, message, message_of};
pub use path_id::{id_path, path_id};
pub use rate::{Rate, rate};
pub use schedule::{
    DeclaredSchedule, Given, GivenValue, Notation, ScheduleFault, schedule_json, schedules,
    schedules_json,
};
pub use time::{delay, moment, period, zone};
pub use unreadable::{in_plain_words, is_json, unreadable};
pub use when::{Timing, When};
