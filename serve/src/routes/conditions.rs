//! Conditions in headers: `If-Match` and `If-None-Match`.

use axum::http::{HeaderMap, HeaderName};

use crate::problem::{Code, Problem};
use crate::shown::quoted;

/// The tags of a condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tags {
    /// `*`: whichever there is.
    Any,
    /// One of these; whether each is a strong one.
    Of(Vec<(String, bool)>),
}

impl Tags {
    /// The tags of this header; `None` without it.
    pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let wrong = |tag: &str| {
            let detail = format!("{name}: {} is no ETag: write \"...\" or *", quoted(tag));
            Problem::new(Code::InvalidInput, detail)
        };
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let text = String::from_utf8_lossy(value.as_bytes());
            for tag in text.split(',').map(str::trim) {
                let (opaque, is_strong) = match tag.strip_prefix("W/") {
                    Some(weak) => (weak, false),
                    None => (tag, true),
                };
                let inner = opaque.strip_prefix('"');
                let inner = inner.and_then(|tag| tag.strip_suffix('"'));
                match inner.filter(|inner| inner.is_ascii()) {
                    Some(inner) => tags.push((inner.to_owned(), is_strong)),
                    None if text.trim() == "*" && tags.is_empty() => return Ok(Some(Self::Any)),
                    None => return Err(wrong(tag)),
                }
            }
        }
        Ok(headers.contains_key(name).then_some(Self::Of(tags)))
    }

    /// Whether this tag, a strong one, is among them. `If-Match` compares strongly: a weak tag is
    /// never equal.
    pub(super) fn has(&self, tag: &str, is_weakly: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags
                .iter()
                .any(|(known, is_strong)| known == tag && (*is_strong || is_weakly)),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::IF_MATCH;

    use super::*;

    #[test]
    fn condition_is_a_star_or_tags_which_are_strong_or_weak() {
        let read = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_MATCH, value.parse().expect("a value"));
            }
            Tags::read(&headers, &IF_MATCH).map_err(|problem| problem.code)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["*"]), Ok(Some(Tags::Any)));
        for values in [&["\"a\" , W/\"b\""][..], &["\"a\"", "W/\"b\""]] {
            let tags = read(values).expect("tags").expect("a header");
            assert!(tags.has("a", false) && tags.has("b", true));
            assert!(!tags.has("b", false) && !tags.has("c", true));
        }
        for wrong in [
            "", "a", "\"", "\"a", "\"a\",", "\"a\", *", "*, \"a\"", "W/a",
        ] {
            assert_eq!(read(&[wrong]), Err(Code::InvalidInput), "{wrong}");
        }
    }
}
