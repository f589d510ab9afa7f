//! Escapes characters that control a terminal: those that move the cursor, set colours or change
//! the direction of writing.

use std::borrow::Cow;

/// Escapes every character that controls a terminal, including line ends.
pub(crate) fn visible(bytes: &[u8]) -> String {
    escaped(
        &String::from_utf8_lossy(bytes),
        |_| false,
        |out, c| out.extend(c.escape_default()),
    )
    .into_owned()
}

/// Like [`visible`], but keeps line ends: for texts of the program that quote text from outside.
pub(crate) fn guarded(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n', |out, c| out.extend(c.escape_default()))
}

/// Like [`guarded`], with JSON's escapes, so that the JSON keeps its value.
pub(crate) fn guarded_json(json: &str) -> Cow<'_, str> {
    escaped(
        json,
        |c| c == '\n',
        |out, c| {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        },
    )
}

fn escaped(
    text: &str,
    is_kept: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    let steers = |c: char| steers(c) && !is_kept(c);
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) {
            escape(&mut shown, c);
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Whether the character controls a terminal instead of being shown: control characters of both
/// sets, characters that reverse or isolate the direction of writing, and Unicode's other line
/// ends.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{206f}'
                | '\u{fff9}'..='\u{fffb}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(visible(b"a\x1b[2Jb\n\0"), "a\\u{1b}[2Jb\\n\\u{0}");
        assert_eq!(
            visible("f\u{fc}r \u{1f600}".as_bytes()),
            "f\u{fc}r \u{1f600}"
        );
        assert_eq!(
            visible("\u{9b}31m\u{202e}\x7f".as_bytes()),
            "\\u{9b}31m\\u{202e}\\u{7f}"
        );
        assert_eq!(visible(b"\xff"), "\u{fffd}");
        assert_eq!(guarded("two\nlines\r\x1b"), "two\nlines\\r\\u{1b}");
    }

    #[test]
    fn every_control_and_bidirectional_character_is_escaped() {
        for c in ('\0'..=char::MAX).filter(|c| steers(*c)) {
            let text = format!("a{c}b");
            assert!(!visible(text.as_bytes()).contains(steers), "{c:?}");
        }
        // The controls of Unicode's bidirectional algorithm, and both sets of control characters.
        for c in
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}".chars()
        {
            assert!(steers(c), "{c:?}");
        }
        for code in (0..0x20).chain(0x7f..0xa0) {
            assert!(char::from_u32(code).is_some_and(steers), "{code:#x}");
        }
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let value = serde_json::json!({ "a\u{9b}b": "\x7f\x1b[31m\u{202e}\u{1f600}\n" });
        let shown = guarded_json(&value.to_string()).into_owned();
        assert!(!shown.contains(steers), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).ok(),
            Some(value)
        );
    }
}
