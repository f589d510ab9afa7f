//! Patterns of queue names.

use crate::error::Error;
use crate::protocol::keys;
use crate::protocol::limits;

/// The most wildcards of a pattern; adjacent ones count as one.
const MAX_WILDCARDS: usize = 8;

/// The most wildcards of a pattern that the client sends to the server. Redis 7.0.0 to 7.0.8 match
/// a glob in time that is exponential in this number: for a name of 128 characters, 2 take up to
/// 8,000 steps, and 5 take 276 million.
const MAX_SENT: usize = 2;

/// A pattern of queue names: `*` stands for any characters, `?` for one, and every other character
/// for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Reads a pattern. It has the length of a queue name, no characters that no name has, and at
    /// most [`MAX_WILDCARDS`] wildcards.
    pub(crate) fn new(text: &str) -> Result<Self, Error> {
        limits::check_queue_name(text)
            .map_err(|error| Error::invalid(format!("pattern of queues: {error}")))?;
        let runs = text.split(|c| !matches!(c, '*' | '?'));
        let wildcards = runs.filter(|run| !run.is_empty()).count();
        if wildcards > MAX_WILDCARDS {
            return Err(Error::invalid(format!(
                "pattern of queues: {wildcards} wildcards, and at most {MAX_WILDCARDS} are allowed \
                 (adjacent ones count as one)"
            )));
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Whether the pattern matches this name.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (pattern, name): (Vec<char>, Vec<char>) =
            (self.0.chars().collect(), name.chars().collect());
        let (mut p, mut n) = (0, 0);
        // Where the match continues if the part after the last `*` does not match.
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

    /// The SCAN pattern for the meta keys of matching queues. It may also match other queues.
    pub(crate) fn meta_glob(&self) -> String {
        let mut glob = self.glob();
        // The meta keys of further partitions have a tag after the name.
        if !glob.ends_with('*') {
            glob.push('*');
        }
        keys::meta_glob(&glob)
    }

    /// The pattern of the channels on which new matching queues are announced. It may also match
    /// other queues. Redis compares its text with the user's right exactly.
    pub(crate) fn notice_glob(&self) -> String {
        keys::notice_glob(&self.glob())
    }

    /// A glob of Redis that matches these names, and perhaps others: Redis counts bytes where this
    /// counts characters, and from the second wildcard on everything matches.
    fn glob(&self) -> String {
        let mut glob = String::new();
        let mut wildcards = 0;
        for c in self.0.chars() {
            match c {
                '*' | '?' if glob.ends_with('*') => {}
                '*' | '?' => {
                    glob.push('*');
                    wildcards += 1;
                }
                _ if wildcards == MAX_SENT => break,
                '[' | ']' | '\\' | '^' => glob.extend(['\\', c]),
                _ => glob.push(c),
            }
        }
        glob
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_star_matches_any_characters_and_a_question_mark_one() {
        for (pattern, name, expected) in [
            ("mail-*", "mail-", true),
            ("mail-*", "mail-a", true),
            ("mail-*", "mails", false),
            ("*", "", true),
            ("*-*-x", "a-b-c-x", true),
            ("*-*-x", "a-x", false),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("a[b]", "ab", false),
            ("a[b]", "a[b]", true),
            ("a*b*c", "a--b--b-c", true),
            ("a*b*c", "a--b--b-", false),
        ] {
            let pattern = Pattern::new(pattern).expect("a pattern");
            assert_eq!(pattern.matches(name), expected, "{pattern:?} {name}");
        }
    }

    #[test]
    fn a_pattern_has_no_characters_that_a_name_cannot_have() {
        for text in ["", "a{b", "a/b", "a\nb", &"x".repeat(129)] {
            assert!(Pattern::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_has_at_most_eight_wildcards() {
        for (text, is_allowed) in [
            ("a*b*c*d*e*f*g*h*i", true),
            ("*a*b*c*d*e*f*g*", true),
            ("?*??***a*b*c*d*e*f*g*???", true),
            (&*"?".repeat(128), true),
            ("*a*b*c*d*e*f*g*h*", false),
            ("a*b*c*d*e*f*g*h*i?", false),
            (&*"a?".repeat(9), false),
        ] {
            let result = Pattern::new(text);
            assert_eq!(result.is_ok(), is_allowed, "{text:?}");
            if let Err(error) = result {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
            }
        }
    }

    #[test]
    fn other_special_characters_are_escaped_for_the_server() {
        let glob = |text| Pattern::new(text).expect("a pattern").meta_glob();
        assert_eq!(glob("mail-*"), "dueq:{mail-*}:meta");
        assert_eq!(glob(r"a[b]\?"), r"dueq:{a\[b\]\\*}:meta");
        let glob = |text| Pattern::new(text).expect("a pattern").notice_glob();
        assert_eq!(glob("*-de"), "dueq:{*-de}:notice");
        assert_eq!(glob("a*b*c"), "dueq:{a*b*}:notice");
    }

    #[test]
    fn the_server_gets_at_most_two_wildcards_of_a_pattern() {
        let glob = |text| Pattern::new(text).expect("a pattern").meta_glob();
        assert_eq!(glob("a*?b*c"), "dueq:{a*b*}:meta");
        assert_eq!(glob("a*b?*c*d"), "dueq:{a*b*}:meta");
        assert_eq!(glob("*a*"), "dueq:{*a*}:meta");
    }
}
