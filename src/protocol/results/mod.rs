//! Decodes each reply, and each item result of a batch, once into a type.
//!
//! Only this folder knows the words that scripts reply with.

pub(crate) mod administer;
pub(crate) mod claim;
pub(crate) mod inspect;
pub(crate) mod nodes;
pub(crate) mod produce;
pub(crate) mod schedules;
pub(crate) mod settle;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::limits::TOO_LARGE;
use crate::protocol::replies::unexpected;
use crate::protocol::verbs::Verb;

/// The result of one item of a batch: a word and its detail, such as `MOVED 1700000000000`.
#[derive(Debug, Clone, Copy)]
struct ItemText<'a> {
    verb: Verb,
    word: &'a str,
    detail: &'a str,
}

impl<'a> ItemText<'a> {
    fn new(verb: Verb, text: &'a str) -> Self {
        let (word, detail) = text.split_once(' ').unwrap_or((text, ""));
        Self { verb, word, detail }
    }

    /// The detail as a time in Unix milliseconds.
    fn time_ms(self) -> Result<u64, Error> {
        self.detail.parse().map_err(|_| self.unexpected())
    }

    /// The error for a word that refuses the item, or that this verb never replies with.
    fn refusal(self) -> Error {
        match self.word {
            "INVALID" => {
                let error = Error::invalid(self.detail);
                match self.detail.starts_with("payload has ") {
                    true => error.with_code(TOO_LARGE),
                    false => error,
                }
            }
            "FULL" => {
                let what_to_do = if self.detail.starts_with("this queue may remember") {
                    "push with shorter windows, or raise the limit: dueq configure QUEUE --max-remembered N"
                } else {
                    "work it off, or raise the limit: dueq configure QUEUE --max-messages N"
                };
                let message = format!("FULL: {}; {what_to_do}", self.detail);
                Error::new(ErrorKind::Full, Applied::No, message)
            }
            _ => self.unexpected(),
        }
    }

    fn unexpected(self) -> Error {
        unexpected(self.verb, &format!("{:?} {:?}", self.word, self.detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_results_split_at_the_first_space_only() {
        let item = ItemText::new(Verb::Push, "INVALID id must be 1 to 200 bytes");
        assert_eq!(
            (item.word, item.detail),
            ("INVALID", "id must be 1 to 200 bytes")
        );
        assert_eq!(item.refusal().kind(), ErrorKind::InvalidInput);
        assert_eq!(ItemText::new(Verb::Ack, "OK").detail, "");
    }
}
