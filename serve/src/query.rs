//! The extractor of parameters after the question mark.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::{Code, Problem};

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
                Problem::new(Code::InvalidInput, format!("the parameters: {reason}"))
            })
    }
}
