//! A request body that fails when it pauses for too long.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

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

impl Body for Watchful {
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
