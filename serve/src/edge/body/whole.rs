//! Reads a whole body into memory, within its limit and the budget.

use std::error::Error as StdError;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tower_http::timeout::TimeoutError;

use crate::edge::body::Bodies;
use crate::edge::body::budget::Reserved;
use crate::edge::problem::{Code, Problem};

/// How long a sender may pause within a body, while the handler waits for it.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);

/// A complete body in memory, with its reservation of the budget.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _reserved: Reserved,
}

/// Reads a whole body of at most `max` bytes.
pub(crate) async fn whole(
    bodies: &Bodies,
    headers: &HeaderMap,
    mut body: Body,
    max: usize,
) -> Result<Whole, Problem> {
    let too_large = || {
        Problem::new(
            Code::TooLarge,
            format!("the body has more than {max} bytes"),
        )
    };
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    if let Some(length) = length.and_then(|text| text.parse::<usize>().ok()) {
        if length > max {
            return Err(too_large());
        }
        // Refuse at once a body that cannot fit. Only bytes that have arrived are reserved, not the
        // announced length: a slow client must not hold unused memory.
        bodies.check(length)?;
    }
    let (mut reserved, mut bytes) = (bodies.none(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| unread(&error))?;
        let Ok(data) = frame.into_data() else {
            continue; // trailers
        };
        if bytes.len() + data.len() > max {
            return Err(too_large());
        }
        reserved.grow(data.len())?;
        bytes.extend_from_slice(&data);
    }
    Ok(Whole {
        bytes: bytes.freeze(),
        _reserved: reserved,
    })
}

/// The problem of a body that could not be read to its end.
pub(crate) fn unread(error: &axum::Error) -> Problem {
    let mut cause: Option<&dyn StdError> = Some(error);
    while let Some(error) = cause {
        if error.is::<TimeoutError>() {
            let detail = format!("the body paused for {} ms", PAUSE.as_millis());
            return Problem::new(Code::BodyTimeout, detail);
        }
        cause = error.source();
    }
    Problem::new(
        Code::BadRequest,
        format!("the body cannot be read: {error}"),
    )
}
