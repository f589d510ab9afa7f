//! Text from outside, and markup that is safe to show.

use std::fmt;

use askama::filters::HtmlSafe;

use crate::edge::shown::steers;

/// Spells out the characters that are invisible or change the direction of writing. Templates
/// escape the result for HTML, like every other text.
pub(in crate::dashboard) fn text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}'
            | '\u{2060}'..='\u{2065}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Markup that [`crate::dashboard::show`] or [`crate::dashboard::chart`] made. Code that makes a
/// `Markup` passes text from outside through [`Markup::escaped`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::dashboard) struct Markup(String);

impl HtmlSafe for Markup {}

impl Markup {
    pub(in crate::dashboard) fn of(markup: String) -> Self {
        Self(markup)
    }

    /// Escapes every character that has a meaning in HTML, also within quotes.
    pub(in crate::dashboard) fn escaped(text: &str) -> String {
        let mut escaped = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '&' => escaped.push_str("&amp;"),
                '<' => escaped.push_str("&lt;"),
                '>' => escaped.push_str("&gt;"),
                '"' => escaped.push_str("&quot;"),
                '\'' => escaped.push_str("&#39;"),
                c => escaped.push(c),
            }
        }
        escaped
    }
}

impl fmt::Display for Markup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_spelled_out() {
        assert_eq!(text("a\u{202e}b\u{200b}\n"), "a\\u{202e}b\\u{200b}\\u{a}");
        assert_eq!(text("<b>é 漢"), "<b>é 漢");
    }
}
