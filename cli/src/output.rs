//! Writing to the terminal: what others chose must not steer it.

use std::io;

/// Text with its control characters made visible, so that a payload cannot move the cursor or change colours.
pub(crate) fn visible(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .flat_map(
            |c| if c.is_control() || is_bidi(c) { Shown::Escaped(c.escape_default()) } else { Shown::Plain(Some(c)) },
        )
        .collect()
}

enum Shown {
    Plain(Option<char>),
    Escaped(std::char::EscapeDefault),
}

impl Iterator for Shown {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self {
            Self::Plain(c) => c.take(),
            Self::Escaped(escape) => escape.next(),
        }
    }
}

/// Characters that reverse or isolate the direction of what follows.
fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether the reader of our output has gone away.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(visible(b"a\x1b[2Jb\n\0"), "a\\u{1b}[2Jb\\n\\u{0}");
        assert_eq!(visible("für \u{1f600}".as_bytes()), "für \u{1f600}");
        assert_eq!(visible("\u{9b}31m\u{202e}".as_bytes()), "\\u{9b}31m\\u{202e}");
        assert_eq!(visible(b"\xff"), "\u{fffd}");
    }
}
