//! Decodes names in paths. A name is percent-encoded, or is `~` and base64url. Some proxies decode
//! `%2F`, so an id with a slash needs the second encoding.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::Uri;
use axum::http::request::Parts;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dueq::schedules::Schedule;
use dueq_input::Wording;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;

/// The queue in the path. The guard has checked that the caller may use it.
#[derive(Debug, Clone)]
pub(crate) struct QueueName(Arc<str>);

impl QueueName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for QueueName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| Problem::new(Code::Internal, "the route has no queue in its path"))
    }
}

/// The message id in the path.
#[derive(Debug, Clone)]
pub(crate) struct MessageId(Vec<u8>);

impl MessageId {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The id, quoted for the text of a problem.
    pub(crate) fn quoted(&self) -> String {
        quoted(&String::from_utf8_lossy(&self.0))
    }
}

impl<S: Sync> FromRequestParts<S> for MessageId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let raw = segment(parts, "{id}")
            .ok_or_else(|| Problem::new(Code::Internal, "the route has no id in its path"))?;
        let id = dueq_input::path_id(raw);
        id.map(Self)
            .map_err(|error| Problem::new(Code::InvalidPath, error.to_string()))
    }
}

/// The name of the schedule in the path.
#[derive(Debug, Clone)]
pub(crate) struct ScheduleName(String);

impl ScheduleName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Sync> FromRequestParts<S> for ScheduleName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let raw = segment(parts, "{name}")
            .ok_or_else(|| Problem::new(Code::Internal, "the route has no name in its path"))?;
        let wrong = |reason: String| Problem::new(Code::InvalidPath, reason);
        let name = dueq_input::path_id(raw).map_err(|error| wrong(error.to_string()))?;
        let name = String::from_utf8(name)
            .map_err(|_| wrong(format!("schedule {}: the name is not UTF-8", quoted(raw))))?;
        // The library decides which names are valid: a schedule with a valid name is accepted.
        let hourly = Schedule::every(Duration::from_secs(3_600)).name(&name);
        let checked = hourly.check(UNIX_EPOCH);
        checked.map_err(|error| wrong(error.to_string()))?;
        Ok(Self(name))
    }
}

/// The queue in the path of a request; `None` if the route has no queue.
pub(crate) fn queue_in(parts: &Parts) -> Result<Option<QueueName>, Problem> {
    let Some(raw) = segment(parts, "{queue}") else {
        return Ok(None);
    };
    let wrong = |reason: String| Problem::new(Code::InvalidPath, reason);
    let bytes = decode(raw)?;
    let name = String::from_utf8(bytes)
        .map_err(|_| wrong(format!("queue {}: the name is not UTF-8", quoted(raw))))?;
    // The library decides which names are valid.
    dueq::admin::queue_keys(&name).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(QueueName(name.into())))
}

/// A queue name in a list of names: plain, or `~` and base64url.
pub(crate) fn queue_named(spelled: &str) -> Result<String, Problem> {
    let wrong = |reason: String| Problem::new(Code::InvalidInput, reason);
    let name = match spelled.starts_with('~') {
        false => spelled.to_owned(),
        true => {
            let bytes = decode(spelled)?;
            let not_text = |_| wrong(format!("queue {}: the name is not UTF-8", quoted(spelled)));
            String::from_utf8(bytes).map_err(not_text)?
        }
    };
    dueq::admin::queue_keys(&name).map_err(|error| wrong(error.to_string()))?;
    Ok(name)
}

/// The path segment at a placeholder of the route, undecoded. Path and route are compared from
/// their ends, because a mounted router sees the path without its prefix.
pub(crate) fn segment<'a>(parts: &'a Parts, placeholder: &str) -> Option<&'a str> {
    let route = parts.extensions.get::<MatchedPath>()?.as_str();
    let mut segments = parts.uri.path().rsplit('/');
    for of_route in route.rsplit('/') {
        let of_path = segments.next()?;
        if of_route == placeholder {
            return Some(of_path);
        }
    }
    None
}

/// Decodes a path segment.
pub(crate) fn decode(raw: &str) -> Result<Vec<u8>, Problem> {
    let wrong = |reason: &str| {
        let detail = format!(
            "{} in the path: {reason}; percent-encode the name, or write ~ and its base64url",
            quoted(raw)
        );
        Problem::new(Code::InvalidPath, detail)
    };
    if let Some(encoded) = raw.strip_prefix('~') {
        let bytes = URL_SAFE_NO_PAD.decode(encoded);
        return bytes.map_err(|_| wrong("what follows ~ is not base64url without padding"));
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        let value = digit().zip(digit()).map(|(high, low)| high * 16 + low);
        let value = value.and_then(|value| u8::try_from(value).ok());
        bytes.push(value.ok_or_else(|| wrong("% is not followed by two hexadecimal digits"))?);
    }
    Ok(bytes)
}

/// Decodes an id: plain, or `~` and base64url.
pub(crate) fn read_id(spelled: &str) -> Result<Vec<u8>, Problem> {
    let wrong = |reason: &str| Err(Problem::new(Code::InvalidInput, format!("id: {reason}")));
    let id = match spelled.strip_prefix('~') {
        None => spelled.as_bytes().to_vec(),
        Some(encoded) => match URL_SAFE_NO_PAD.decode(encoded) {
            Ok(id) => id,
            Err(_) => return wrong("what follows ~ is not base64url without padding"),
        },
    };
    let is_control = |byte: &u8| *byte < 0x20 || *byte == 0x7f;
    if id.is_empty() || id.len() > 200 || id.iter().any(is_control) {
        return wrong("an id has 1 to 200 bytes, none of them a control byte");
    }
    Ok(id)
}

/// Parses an instant in a parameter.
pub(crate) fn moment(field: &str, text: &str) -> Result<SystemTime, Problem> {
    let moment = dueq_input::moment(text, None, Timestamp::now(), Wording::Fields);
    moment.map_err(|error| {
        let hint = match text.contains(' ') {
            true => "; a + in a URL is a blank: write %2B",
            false => "",
        };
        Problem::new(Code::InvalidInput, format!("{field}: {error}{hint}"))
    })
}

/// The parameters of a request. An unknown one is refused if `T` denies unknown fields.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::read(&parts.uri)
    }
}

impl<T: DeserializeOwned> Query<T> {
    /// Parses the parameters of this URI.
    pub(crate) fn read(uri: &Uri) -> Result<Self, Problem> {
        let read = axum::extract::Query::try_from_uri(uri);
        read.map(|axum::extract::Query(value)| Self(value))
            .map_err(|error| {
                use std::error::Error;
                let reason = error
                    .source()
                    .map_or_else(|| error.to_string(), ToString::to_string);
                // If a value is wrong, the parser puts the parameter's name before the reason.
                let detail = match reason.split_once(": ") {
                    Some((name, reason)) if !name.contains(' ') => {
                        format!("{name}: {}", dueq_input::in_plain_words(reason))
                    }
                    _ => reason.replace("field", "parameter"),
                };
                Problem::new(Code::InvalidInput, detail)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_decode_to_the_same_bytes() {
        for (raw, expected) in [
            ("orders", Some(&b"orders"[..])),
            ("a%2Fb", Some(b"a/b")),
            ("a%2fb%00", Some(b"a/b\0")),
            ("%FF", Some(b"\xff")),
            ("%2e%2e", Some(b"..")),
            ("~YS9i", Some(b"a/b")),
            ("%7EYS9i", Some(b"~YS9i")),
            ("a+b", Some(b"a+b")),
            ("~", Some(b"")),
            ("~YS9i=", None),
            ("~YS+i", None),
            ("%", None),
            ("%2", None),
            ("%2g", None),
            ("%+1", None),
        ] {
            assert_eq!(decode(raw).ok().as_deref(), expected, "{raw}");
        }
    }
}
