//! Why input is refused, and how errors name an option.

use std::borrow::Cow;
use std::fmt;

/// The longest reason, in characters.
const LONGEST: usize = 1_000;
/// The most characters of a value that an error quotes.
const QUOTED: usize = 100;

/// Why input is refused: which field, with which value, why, and what to do.
///
/// The text is safe to print: it has at most about 1,000 characters, and cannot control a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    field: Option<Cow<'static, str>>,
    reason: String,
}

impl Error {
    pub(crate) fn new(reason: impl AsRef<str>) -> Self {
        Self {
            field: None,
            reason: printable(reason.as_ref()),
        }
    }

    /// Names the field with the wrong value, unless a field is already named.
    pub(crate) fn of(self, field: impl Into<Cow<'static, str>>) -> Self {
        Self {
            field: self.field.or_else(|| Some(field.into())),
            ..self
        }
    }

    /// The field with the wrong value. `None` if the input is not an object, or if fields
    /// contradict each other.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// The error without the name of the field.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{field}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for Error {}

/// The value in quotes, truncated if it is long.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Escapes characters that cannot be printed, and truncates a long text. Parsers of other crates
/// quote their input without escaping.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(LONGEST));
    for (index, c) in text.chars().enumerate() {
        if index == LONGEST {
            shown.push_str("...");
            break;
        }
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

/// How errors name an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wording {
    /// As a flag of the program `dueq`: `--expires-at`. Errors about lines of a file have this
    /// wording too, because the flags give what a line leaves out.
    Flags,
    /// As a field of a JSON object: `expires_at`.
    Fields,
}

impl Wording {
    /// The name of an option, given as the name of its field.
    ///
    /// ```
    /// use dueq_input::Wording;
    ///
    /// assert_eq!(Wording::Flags.name("expires_at"), "--expires-at");
    /// assert_eq!(Wording::Fields.name("expires_at"), "expires_at");
    /// ```
    pub fn name(self, field: &str) -> String {
        match self {
            Self::Flags => format!("--{}", field.replace('_', "-")),
            Self::Fields => field.to_owned(),
        }
    }

    /// The option with a value, ready to paste.
    ///
    /// ```
    /// use dueq_input::Wording;
    ///
    /// assert_eq!(Wording::Flags.example("at", "tomorrow 20:00"), "--at 'tomorrow 20:00'");
    /// assert_eq!(Wording::Fields.example("at", "tomorrow 20:00"), r#""at": "tomorrow 20:00""#);
    /// ```
    pub fn example(self, field: &str, value: &str) -> String {
        match self {
            Self::Flags => {
                let word = dueq::admin::shell_word(value.as_bytes());
                format!("{} {word}", self.name(field))
            }
            Self::Fields => format!("\"{field}\": {value:?}"),
        }
    }

    /// The noun for what contains the options of a message.
    pub(crate) fn holder(self) -> &'static str {
        match self {
            Self::Flags => "line",
            Self::Fields => "object",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_printable_and_bounded() {
        for c in ('\0'..=char::MAX).filter(|c| crate::checks::steers(*c)) {
            let error = Error::new(format!("a{c}b"));
            assert!(!error.to_string().contains(c), "{c:?}");
        }
        let kept = "\u{fc}ber \u{1f600} 'a' \"b\" \\u{1b}";
        assert_eq!(Error::new(kept).to_string(), kept);
        assert_eq!(Error::new("x".repeat(5_000)).to_string().len(), 1_003);
        assert_eq!(quoted(&"\u{fc}".repeat(101)).chars().count(), 105);
        assert_eq!(quoted("a\"b"), r#""a\"b""#);
    }

    #[test]
    fn first_named_field_is_kept() {
        let error = Error::new("too long").of("tz").of("at");
        assert_eq!(error.field(), Some("tz"));
        assert_eq!(error.to_string(), "tz: too long");
        assert_eq!(error.reason(), "too long");
    }
}
