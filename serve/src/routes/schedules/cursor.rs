//! Cursors of lists of schedules in URLs: not signed, because a forged one only begins a page of the
//! same list elsewhere.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dueq::ScheduleCursor;

/// What a cursor of this queue's schedules begins with. A name of a queue has no slash.
fn prefix(queue: &str) -> String {
    format!("1/{queue}/schedules/")
}

/// The cursor as it is in a URL.
pub(super) fn text(queue: &str, cursor: &ScheduleCursor) -> String {
    let mut bytes = prefix(queue).into_bytes();
    bytes.extend(cursor.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The cursor of this queue's schedules; `None` if the text is none.
pub(super) fn read(queue: &str, text: &str) -> Option<ScheduleCursor> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let own = bytes.strip_prefix(prefix(queue).as_bytes())?;
    let (set, name) = std::str::from_utf8(own).ok()?.split_once(' ')?;
    (is_name(set) && is_name(name)).then(|| ScheduleCursor::from_bytes(own))
}

/// Whether it can be the name of a set or a schedule.
fn is_name(text: &str) -> bool {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    (1..=100).contains(&text.len()) && text.chars().all(is_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_read_back_by_its_queue_only() {
        let cursor = ScheduleCursor::from_bytes("billing a/b:1");
        let text = text("reports", &cursor);
        assert_eq!(read("reports", &text), Some(cursor));
        assert_eq!(read("report", &text), None);
        for own in ["", " ", "a", "a ", " b", "a b c", "a \0", "a \u{e4}"] {
            let text = URL_SAFE_NO_PAD.encode(format!("{}{own}", prefix("reports")));
            assert_eq!(read("reports", &text), None, "{own:?}");
        }
        for text in ["", "=", "~", "MQ==", "\u{e4}", "MQ"] {
            assert_eq!(read("reports", text), None, "{text}");
        }
    }
}
