//! The extractor of parameters after the question mark.

use std::time::SystemTime;

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use dueq_input::Wording;
use jiff::Timestamp;
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

/// A moment in a parameter.
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

/// The parameters of a request. What `T` does not know is refused if `T` denies unknown fields.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Self::read(&parts.uri)
    }
}

impl<T: DeserializeOwned> Query<T> {
    /// The parameters of this URI.
    pub(crate) fn read(uri: &Uri) -> Result<Self, Problem> {
        let read = axum::extract::Query::try_from_uri(uri);
        read.map(|axum::extract::Query(value)| Self(value))
            .map_err(|error| {
                use std::error::Error;
                let reason = error
                    .source()
                    .map_or_else(|| error.to_string(), ToString::to_string);
                // The name of the parameter is before the reason, if its value is wrong.
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
