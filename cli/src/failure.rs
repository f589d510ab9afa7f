//! Adds to an error of the library whether the call took effect, and how to find out.

use std::fmt;

use dueq::admin::shell_word;
use dueq::{Applied, Error, ErrorKind};

/// An error of the library with the program's explanation of what the call may have done.
#[derive(Debug)]
pub(crate) struct Explained {
    text: String,
    pub(crate) error: Error,
}

impl Explained {
    /// Explains the error of a call, which was a call to `queue` if that is given.
    pub(crate) fn of(error: &Error, queue: Option<&str>) -> Self {
        Self {
            text: format!(
                "{}{}",
                with_queue(&error.to_string(), queue),
                doubt(error, queue)
            ),
            error: error.clone(),
        }
    }

    /// Adds the line of the file, and how to continue the run with its idempotency key.
    pub(crate) fn of_line(self, number: u64, key: &str) -> Self {
        Self {
            text: format!("line {number}: {}; {}", self.text, again(number, key)),
            ..self
        }
    }

    /// Adds the generated id of a push, so that the user can push the same message again.
    pub(crate) fn of_generated_id(self, id: &[u8]) -> Self {
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

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Explained {}

/// How to continue the run with this idempotency key from this line.
pub(crate) fn again(number: u64, key: &str) -> String {
    let key = shell_word(key.as_bytes());
    format!(
        "run the same command with --idempotency-key {key} again for the rest; it pushes again each line whose \
         message was delivered or cancelled since; --from-line {number} starts here"
    )
}

/// Whether the call took effect, as a word for scripts.
pub(crate) fn applied(error: &Error) -> &'static str {
    match error.was_applied() {
        Applied::No => "no",
        Applied::Yes => "yes",
        Applied::Unknown => "unknown",
    }
}

/// Replaces the placeholder QUEUE in commands within the library's texts, so that they can be
/// pasted.
pub(crate) fn with_queue(text: &str, queue: Option<&str>) -> String {
    let Some(queue) = queue else {
        return text.to_owned();
    };
    let mut text = text.to_owned();
    for verb in ["configure", "doctor"] {
        let placeholder = format!("dueq {verb} QUEUE");
        text = text.replace(&placeholder, &dueq(verb, &[queue.as_bytes()]));
    }
    text
}

/// The warning that the call may have taken effect, and the command that shows whether it did.
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
    // The queue is damaged, or a right is missing: the call may have taken effect in part.
    let repair = match error.kind() {
        ErrorKind::Server | ErrorKind::Denied => format!(" and {}", dueq("doctor", &[queue])),
        _ => String::new(),
    };
    format!("; it may have been done: run {look}{repair}")
}

/// A command to paste, with its words quoted for a shell.
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
