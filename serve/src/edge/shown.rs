//! Escapes text from outside where the server quotes it: in problem documents, in the log and in
//! the audit log.

/// The most characters of a text that are quoted.
const MAX_QUOTED: usize = 200;

/// Escapes every character that controls a terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Like [`shown`], but in quotes, and with at most 200 characters of the text.
pub(crate) fn quoted(text: &str) -> String {
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(MAX_QUOTED).collect();
    let rest = if characters.next().is_some() {
        "..."
    } else {
        ""
    };
    format!("\"{}{rest}\"", shown(&start).replace('"', "\\\""))
}

/// A time in the syntax that parameters and fields of `/v1` accept. They do not accept small
/// numbers as Unix milliseconds.
pub(crate) fn moment(ms: u64) -> String {
    let time = i64::try_from(ms).ok();
    let time = time.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    time.map_or_else(|| ms.to_string(), |time| time.to_string())
}

/// Whether the character controls a terminal instead of being shown: control characters, and
/// characters that change the direction of writing or end a line.
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
    fn quoted_text_is_bounded_and_has_no_control_characters() {
        assert_eq!(quoted("a\x1b[2J\"\u{202e}"), r#""a\u{1b}[2J\"\u{202e}""#);
        let long = quoted(&"\n".repeat(10_000));
        assert!(long.len() < 1_000 && long.ends_with("...\""), "{long}");
    }
}
