//! Markup that needs no more escaping.

use std::fmt;

use askama::filters::HtmlSafe;

/// Markup made by [`crate::dashboard::show`] or [`crate::dashboard::chart`]. Whoever makes one escapes
/// what comes from outside with [`Markup::escaped`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::dashboard) struct Markup(String);

impl HtmlSafe for Markup {}

impl Markup {
    pub(in crate::dashboard) fn of(markup: String) -> Self {
        Self(markup)
    }

    /// The text with every character escaped that means something in markup, also within quotes.
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
