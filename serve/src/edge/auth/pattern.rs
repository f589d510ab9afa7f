//! Patterns of queue names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A pattern of the names of the queues that a caller may use. `*` matches any characters, `?` one
/// character, and every other character only itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamePattern(String);

/// The most bytes of a pattern, equal to those of a queue name.
const MAX_BYTES: usize = 128;

impl NamePattern {
    /// The pattern that matches all queues.
    pub fn all() -> Self {
        Self("*".to_owned())
    }

    /// Whether the pattern matches this name.
    pub fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), name.chars().collect());
        let (mut p, mut n) = (0, 0);
        // The two positions to go on from if the match after the last `*` fails.
        let mut again = None;
        while n < name.len() {
            match pattern.get(p) {
                Some('*') => {
                    again = Some((p, n));
                    p += 1;
                }
                Some(&c) if c == '?' || Some(&c) == name.get(n) => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((star, from)) = again else {
                        return false;
                    };
                    again = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
            }
        }
        pattern.iter().skip(p).all(|c| *c == '*')
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The queue name, if the pattern matches exactly one.
    pub(crate) fn name(&self) -> Option<&str> {
        (!self.0.contains(['*', '?'])).then_some(&self.0)
    }
}

impl FromStr for NamePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_wrong = |c: char| c.is_control() || "/{}".contains(c);
        if text.is_empty() || text.len() > MAX_BYTES || text.contains(is_wrong) {
            return Err(format!(
                "{text:?} is no pattern of queues: it has 1 to {MAX_BYTES} bytes without control \
                 characters and / {{ }}, such as orders or 'mail-*'"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for NamePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<NamePattern> for String {
    fn from(pattern: NamePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_whole_names() {
        for (pattern, name, expected) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("orders", "my-orders", false),
            ("orders", "Orders", false),
            ("mail-*", "mail-", true),
            ("mail-*", "mails", false),
            ("a?c", "aéc", true),
            ("*-*-x", "a-b-c-x", true),
            ("*", "anything", true),
        ] {
            let pattern: NamePattern = pattern.parse().expect("a pattern");
            assert_eq!(pattern.matches(name), expected, "{pattern} {name}");
        }
        assert!("a/b".parse::<NamePattern>().is_err());
        assert!("".parse::<NamePattern>().is_err());
    }
}
