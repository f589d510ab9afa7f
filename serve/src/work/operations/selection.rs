//! Which messages of a queue an operation selects.

use std::ops::RangeInclusive;

use dueq::admin::Picks;
use dueq::{MessageState, Queue};
use dueq_input::Filter;

use crate::edge::problem::{Code, Problem};

/// The number of characters of an error's first line that are compared.
const MAX_LINE: usize = 300;
/// The most characters of `error_text`.
const MAX_TEXT: usize = 300;

/// Selects messages in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) state: MessageState,
    /// The first line of their error.
    pub(crate) error: Option<String>,
    pub(crate) crashed: Option<bool>,
    pub(crate) filter: Filter,
    pub(crate) after_ms: Option<u64>,
    /// `None` for no bound.
    pub(crate) before_ms: Option<u64>,
    /// How many messages the operation changes at most.
    pub(crate) limit: Option<u64>,
}

impl Selection {
    /// Whether the scripts of a requeue or a purge can select these messages: by their time only.
    pub(super) fn is_by_time(&self) -> bool {
        let is_all = self.error.is_none() && self.crashed.is_none() && self.filter.is_all();
        is_all && self.limit.is_none()
    }

    /// The times that messages of the selection have.
    pub(super) fn times(&self) -> RangeInclusive<u64> {
        self.after_ms.unwrap_or(0)..=self.before_ms.unwrap_or(u64::MAX)
    }

    /// Reads the selected messages.
    pub(super) fn picks(&self, queue: &Queue) -> Picks {
        let own = self.clone();
        queue.picks(self.state, self.times(), move |message| {
            own.has(message.failures, message.crashes, &message.error)
        })
    }

    /// Whether a message with these counts and this error is selected, apart from its time.
    pub(super) fn has(&self, failures: u32, crashes: u32, text: &str) -> bool {
        let is_error = |error: &String| *error == error_line(text);
        self.filter.has(failures, crashes, text)
            && self.error.as_ref().is_none_or(is_error)
            && self
                .crashed
                .is_none_or(|only| only == died_by_crash(crashes, text))
    }
}

/// The filter of a list or an operation. An empty text selects all errors.
pub(crate) fn filter(
    error_text: Option<String>,
    min_failures: Option<u32>,
    min_crashes: Option<u32>,
) -> Result<Filter, Problem> {
    let error_text = error_text.filter(|text| !text.is_empty());
    let length = error_text.as_ref().map_or(0, |text| text.chars().count());
    if length > MAX_TEXT {
        let detail = format!("error_text: {length} characters; it has {MAX_TEXT} at most");
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    Ok(Filter {
        error_text,
        min_failures: min_failures.filter(|least| *least > 0),
        min_crashes: min_crashes.filter(|least| *least > 0),
    })
}

/// The first line of the error, truncated.
pub(crate) fn error_line(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default().trim();
    line.chars().take(MAX_LINE).collect()
}

/// Whether a dead message died by crashes: then its error is the text that reap writes.
pub(crate) fn died_by_crash(crashes: u32, error: &str) -> bool {
    crashes > 0 && error.starts_with("the lease ran out ")
}
