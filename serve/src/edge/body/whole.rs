//! Reads a whole body into memory, within its limit and the budget. A body that pauses for
//! too long fails.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_LENGTH;
use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use crate::edge::body::Bodies;
use crate::edge::body::budget::Reserved;
use crate::edge::problem::{Code, Problem};

/// A body in memory, with its share of the budget.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    _reserved: Reserved,
}

/// Reads a body of at most `max` bytes.
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
        // Refuse at once what cannot fit. What has arrived is reserved, not what is announced: a
        // slow client must not hold memory that nobody uses.
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

/// The problem of a body that ended with an error.
pub(crate) fn unread(error: &axum::Error) -> Problem {
    let mut cause: Option<&dyn StdError> = Some(error);
    while let Some(error) = cause {
        if let Some(paused) = error.downcast_ref::<BodyPaused>() {
            return Problem::new(Code::BodyTimeout, paused.to_string());
        }
        cause = error.source();
    }
    Problem::new(
        Code::BadRequest,
        format!("the body cannot be read: {error}"),
    )
}

/// The body sent nothing for too long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyPaused(pub(crate) Duration);

impl fmt::Display for BodyPaused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the body paused for {} ms", self.0.as_millis())
    }
}

impl std::error::Error for BodyPaused {}

/// A body that fails if a handler waits for it and nothing comes for some time.
pub(crate) struct Watchful {
    body: Incoming,
    pause: Duration,
    /// Runs while the handler waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Watchful {
    pub(crate) fn new(body: Incoming, pause: Duration) -> Self {
        Self {
            body,
            pause,
            timer: None,
        }
    }
}

impl http_body::Body for Watchful {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let pause = this.pause;
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep(pause)));
        ready!(timer.as_mut().poll(context));
        timer.as_mut().reset(Instant::now() + pause);
        Poll::Ready(Some(Err(Box::new(BodyPaused(pause)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
