//! Cursors in URLs. A cursor names its list, so a cursor of another queue, state or order is
//! refused. Cursors are not signed: a forged one only begins at another message of the list.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dueq::MessageState;
use dueq::inspect::MessageCursor;

/// The most digits of a time or a number. Redis reads 15 digits without loss.
const MAX_DIGITS: usize = 15;

/// The list to which a cursor belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) queue: &'a str,
    pub(super) state: MessageState,
    pub(super) newest: bool,
}

impl Of<'_> {
    /// The beginning of every cursor of this list. The name of a queue has no slash.
    fn prefix(&self) -> String {
        let order = if self.newest { "newest" } else { "oldest" };
        format!("1/{}/{}/{order}/", self.queue, self.state)
    }

    /// Encodes the cursor for a URL.
    pub(super) fn text(&self, cursor: &MessageCursor) -> String {
        let mut bytes = self.prefix().into_bytes();
        bytes.extend(cursor.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a cursor of this list; `None` if the text is not one.
    pub(super) fn cursor(&self, text: &str) -> Option<MessageCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let own = bytes.strip_prefix(self.prefix().as_bytes())?;
        (is_place(own) || is_of_partitions(own)).then(|| MessageCursor::from_bytes(own))
    }
}

/// Whether the bytes are `NUMBER:` and the id of a message, or nothing.
fn is_place(bytes: &[u8]) -> bool {
    number(bytes).is_some_and(|(_, rest)| rest.first() == Some(&b':'))
}

/// Whether the bytes are `NUMBER`, and for each partition `/`, or `/LENGTH:` and the partition's
/// cursor.
fn is_of_partitions(bytes: &[u8]) -> bool {
    let Some((_, mut rest)) = number(bytes) else {
        return false;
    };
    if rest.is_empty() {
        return false;
    }
    while let Some(after) = rest.strip_prefix(b"/") {
        rest = after;
        if rest.is_empty() || rest[0] == b'/' {
            continue;
        }
        let own = number(rest).and_then(|(length, after)| {
            let after = after.strip_prefix(b":")?;
            after.split_at_checked(length)
        });
        match own {
            // The list has taken no message from this partition yet, so its cursor is empty.
            Some((own, after)) if own.is_empty() || is_place(own) => rest = after,
            _ => return false,
        }
    }
    rest.is_empty()
}

/// Splits off the number at the start.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    let (digits, rest) = bytes.split_at(digits.count());
    let is_short = digits.len() <= MAX_DIGITS;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    is_short.then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Of<'_> = Of {
        queue: "orders",
        state: MessageState::Dead,
        newest: true,
    };

    #[test]
    fn cursor_is_read_back_by_its_own_list_only() {
        let cursor = MessageCursor::from_bytes(b"1700000000000:a/b\xff".to_vec());
        let text = LIST.text(&cursor);
        assert_eq!(LIST.cursor(&text), Some(cursor));
        for other in [
            Of {
                queue: "order",
                ..LIST
            },
            Of {
                state: MessageState::Ready,
                ..LIST
            },
            Of {
                newest: false,
                ..LIST
            },
        ] {
            assert_eq!(other.cursor(&text), None, "{other:?}");
        }
    }

    #[test]
    fn bytes_other_than_cursors_of_the_library_are_refused() {
        let reads = |own: &str| {
            let text = URL_SAFE_NO_PAD.encode(format!("{}{own}", LIST.prefix()));
            LIST.cursor(&text).is_some()
        };
        for own in [
            "17:",
            "1700000000000:a",
            "7/",
            "7//",
            "7/3:17:/5:17:ab",
            "7/0:/",
        ] {
            assert!(reads(own), "{own}");
        }
        for own in [
            "",
            ":",
            "a",
            "17",
            "-1:",
            "1e3:",
            "1234567890123456:",
            "7/3:17",
            "7/9:17:",
            "7/2:17:",
            "7/x",
            "7/99999999999999999999:17:",
        ] {
            assert!(!reads(own), "{own}");
        }
        for text in ["", "=", "~", "MQ==", "\u{e4}"] {
            assert!(LIST.cursor(text).is_none(), "{text}");
        }
    }
}
