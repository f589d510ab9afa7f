//! Problem documents: errors as `application/problem+json` (RFC 9457).

mod code;

use std::collections::BTreeMap;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use dueq::{Applied, Error, ErrorKind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

pub(crate) use code::Code;

use crate::edge::shown::shown;

/// The address of the page that explains the codes.
const PAGE: &str = concat!(
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/guide/http.md#"
);
pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

/// An error that becomes a problem document.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) code: Code,
    pub(crate) detail: String,
    pub(crate) applied: Applied,
    is_retryable: bool,
    retry_after_s: Option<u64>,
    id: Option<Vec<u8>>,
    more: Box<More>,
}

/// Fields that only few problems have.
#[derive(Debug, Default)]
struct More {
    /// The id of the running operation that conflicts with the call.
    operation: Option<String>,
    /// When the message is due.
    due_ms: Option<u64>,
    ended: Option<Ended>,
    /// Further fields of the document that a route adds, as JSON.
    fields: BTreeMap<&'static str, Box<RawValue>>,
}

/// How the message of an id ended, as the queue remembers it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Ended {
    /// `finished`: acked. `expired`: dropped at its expiry. `cancelled`: cancelled or purged.
    how: &'static str,
    /// When, by the clock of Redis.
    at_ms: u64,
    /// Until when pushes of the id store nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    remembered_until_ms: Option<u64>,
}

impl From<dueq::inspect::MessageEnd> for Ended {
    fn from(end: dueq::inspect::MessageEnd) -> Self {
        Self {
            how: end.kind.as_str(),
            at_ms: end.ended_at_ms,
            remembered_until_ms: end.remembered_until_ms,
        }
    }
}

/// An error of what goes on without a caller, as its progress says it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Failure {
    /// One word for programs, as in a problem document.
    pub(crate) code: String,
    /// What failed, and why.
    pub(crate) detail: String,
    /// Whether it took effect: `no`, `yes` or `unknown`.
    pub(crate) applied: String,
    /// Whether the same may succeed later.
    pub(crate) retryable: bool,
}

impl Failure {
    pub(crate) fn of(problem: &Problem) -> Self {
        Self {
            code: problem.code.word().to_owned(),
            detail: shown(&problem.detail),
            applied: word_of(problem.applied).to_owned(),
            retryable: problem.is_retryable,
        }
    }
}

fn word_of(applied: Applied) -> &'static str {
    match applied {
        Applied::No => "no",
        Applied::Yes => "yes",
        Applied::Unknown => "unknown",
    }
}

/// A problem as it is sent.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Document {
    /// The section of the guide that explains the code.
    #[serde(rename = "type")]
    #[schema(rename = "type")]
    page: String,
    /// The same for every problem of this code.
    title: &'static str,
    /// The status of the response.
    status: u16,
    /// One word for programs.
    code: &'static str,
    /// What failed, with which value, why, and what to do.
    detail: String,
    /// Whether the call took effect: `no`, `yes` or `unknown`.
    applied: &'static str,
    /// Whether the same call may succeed later.
    retryable: bool,
    /// The message that the call was about, if the call took effect or may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The same in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    id_base64: Option<String>,
    /// The operation that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    /// When the message is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_ms: Option<u64>,
    /// How the message ended that the call names, if the queue remembers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
}

/// A problem document with the fields that a route adds.
#[derive(Serialize)]
struct Extended<'a> {
    #[serde(flatten)]
    document: Document,
    #[serde(flatten)]
    fields: &'a BTreeMap<&'static str, Box<RawValue>>,
}

impl Problem {
    /// A problem of a call that changed nothing.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            applied: Applied::No,
            is_retryable: matches!(
                code.status(),
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::REQUEST_TIMEOUT
            ),
            retry_after_s: None,
            id: None,
            more: Box::default(),
        }
    }

    /// Says whether the failed call took effect.
    pub(crate) fn applied(mut self, applied: Applied) -> Self {
        self.applied = applied;
        self
    }

    /// Marks the problem as temporary: the call may succeed later.
    pub(crate) fn retryable(mut self) -> Self {
        self.is_retryable = true;
        self
    }

    /// Adds the id of the operation that runs.
    pub(crate) fn operation(mut self, id: &str) -> Self {
        self.more.operation = Some(id.to_owned());
        self
    }

    /// Adds the time at which the message is due.
    pub(crate) fn due_ms(mut self, due_ms: u64) -> Self {
        self.more.due_ms = Some(due_ms);
        self
    }

    /// Adds what is known of how the message ended.
    pub(crate) fn ended(mut self, ended: Option<dueq::inspect::MessageEnd>) -> Self {
        self.more.ended = ended.map(Ended::from);
        self
    }

    /// Adds a field to the document.
    pub(crate) fn with(mut self, field: &'static str, value: &impl Serialize) -> Self {
        let value = serde_json::value::to_raw_value(value);
        self.more
            .fields
            .extend(value.ok().map(|value| (field, value)));
        self
    }

    /// Adds the number of seconds after which the caller may repeat the call.
    pub(crate) fn retry_after_s(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// The word of the code, and the detail.
    pub(crate) fn reason(&self) -> (&'static str, &str) {
        (self.code.word(), &self.detail)
    }

    pub(crate) fn is_retryable(&self) -> bool {
        self.is_retryable
    }

    fn document(&self) -> Document {
        let id = self.id.as_deref();
        let text = id.map(|id| String::from_utf8_lossy(id).into_owned());
        let is_text = id.is_none_or(|id| std::str::from_utf8(id).is_ok());
        Document {
            page: format!("{PAGE}{}", self.code.word()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            code: self.code.word(),
            detail: shown(&self.detail),
            applied: word_of(self.applied),
            retryable: self.is_retryable,
            id: text,
            id_base64: id.filter(|_| !is_text).map(|id| {
                use base64::Engine;
                base64::engine::general_purpose::STANDARD.encode(id)
            }),
            operation: self.more.operation.clone(),
            due_ms: self.more.due_ms,
            ended: self.more.ended.clone(),
        }
    }
}

impl Problem {
    /// What failed and why.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The JSON of the document.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let extended = Extended {
            document: self.document(),
            fields: &self.more.fields,
        };
        serde_json::to_vec(&extended).unwrap_or_default()
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidInput if error.code() == Some("TOO_LARGE") => Code::TooLarge,
            ErrorKind::InvalidInput => Code::InvalidInput,
            ErrorKind::Unavailable => Code::RedisUnavailable,
            ErrorKind::Timeout => Code::RedisTimeout,
            ErrorKind::Unconfirmed => Code::Unconfirmed,
            ErrorKind::Full => Code::Full,
            ErrorKind::Denied => Code::RedisDenied,
            ErrorKind::Unsupported => Code::RedisUnsupported,
            ErrorKind::Server => Code::RedisError,
            // A later release of the library may add a kind: then this match lacks it.
            _ => Code::Internal,
        };
        Self {
            is_retryable: error.is_retryable(),
            id: error.message_id().map(<[u8]>::to_vec),
            ..Self::new(code, error.to_string())
        }
        .applied(error.was_applied())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = self.to_json();
        let mut response = (status, body).into_response();
        response.extensions_mut().insert(self.code);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            headers.insert(RETRY_AFTER, self.retry_after_s.unwrap_or(1).max(1).into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"dueq\"");
            headers.insert(WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Panics unless the problem has a text of bounded length that cannot control a terminal.
#[cfg(any(test, feature = "harness"))]
pub(crate) fn check_problem(problem: &Problem) {
    let (code, detail) = problem.reason();
    let detail = shown(detail);
    assert!(!code.is_empty() && !detail.is_empty(), "{problem:?}");
    assert!(detail.len() < 6_000, "{detail:?}");
    assert!(!detail.contains(crate::edge::shown::steers), "{detail:?}");
}
