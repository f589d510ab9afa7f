//! What an error of the library leaves open: whether the call took effect, and how to find out.

use std::fmt;

use dueq::{Applied, Error, ErrorKind, shell_word};

/// An error in words of this program, which say what the call may have done.
#[derive(Debug)]
pub(crate) struct Told {
    text: String,
    pub(crate) error: Error,
}

impl Told {
    /// The error as it is told of a call to `queue`, if it was to one.
    pub(crate) fn of(error: &Error, queue: Option<&str>) -> Self {
        Self {
            text: format!("{error}{}", doubt(error, queue)),
            error: error.clone(),
        }
    }

    /// The same of one line of a file.
    pub(crate) fn of_line(self, number: u64) -> Self {
        Self {
            text: format!("line {number}: {}; {}", self.text, again(number)),
            ..self
        }
    }

    /// The same of a push whose id was made here: who knows it can push the same message again.
    pub(crate) fn of_made_id(self, id: &[u8]) -> Self {
        match self.error.was_applied() {
            Applied::No => self,
            _ => Self {
                text: format!(
                    "{}; to push the same message again add --id {}",
                    self.text,
                    shell_word(id)
                ),
                ..self
            },
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Told {}

/// How to go on with a file from this line.
pub(crate) fn again(number: u64) -> String {
    format!(
        "the same command again pushes the rest, and once more each line whose message was delivered or cancelled meanwhile; \
         --from-line {number} begins here"
    )
}

/// The word for scripts.
pub(crate) fn applied(error: &Error) -> &'static str {
    match error.was_applied() {
        Applied::No => "no",
        Applied::Yes => "yes",
        Applied::Unknown => "unknown",
    }
}

/// That nobody knows whether it was done, and what shows it.
fn doubt(error: &Error, queue: Option<&str>) -> String {
    if error.was_applied() != Applied::Unknown {
        return String::new();
    }
    let Some(queue) = queue else {
        return "; it may have been done".to_owned();
    };
    let queue = queue.as_bytes();
    let look = match error.message_id() {
        Some(id) => dueq("show", &[queue, id]),
        None => dueq("stats", &[queue]),
    };
    // A damaged queue, or rights that do not suffice: the call may be half done.
    let repair = match error.kind() {
        ErrorKind::Server | ErrorKind::Denied => format!(" and {}", dueq("doctor", &[queue])),
        _ => String::new(),
    };
    format!("; it may have been done: run {look}{repair}")
}

/// A command to paste.
pub(crate) fn dueq(verb: &str, words: &[&[u8]]) -> String {
    let separator = if words.iter().any(|word| word.starts_with(b"-")) {
        " --"
    } else {
        ""
    };
    let words: String = words
        .iter()
        .map(|word| format!(" {}", shell_word(word)))
        .collect();
    format!("dueq {verb}{separator}{words}")
}
