//! A response body whose parts come one after the other.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use http_body::{Body, Frame};

type Next<S> = Pin<Box<dyn Future<Output = Option<(Bytes, S)>> + Send>>;

/// A body that `next` makes part by part of a state. A part is made when the connection has sent the
/// one before.
pub(crate) struct Unfold<S, F> {
    next: F,
    making: Option<Next<S>>,
}

impl<S, F, N> Unfold<S, F>
where
    F: FnMut(S) -> N,
    N: Future<Output = Option<(Bytes, S)>> + Send + 'static,
{
    pub(crate) fn new(state: S, mut next: F) -> Self {
        let making: Next<S> = Box::pin(next(state));
        Self {
            next,
            making: Some(making),
        }
    }
}

impl<S, F, N> Body for Unfold<S, F>
where
    F: FnMut(S) -> N + Unpin,
    N: Future<Output = Option<(Bytes, S)>> + Send + 'static,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(making) = &mut this.making else {
            return Poll::Ready(None);
        };
        match ready!(making.as_mut().poll(context)) {
            Some((bytes, state)) => {
                this.making = Some(Box::pin((this.next)(state)));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            None => {
                this.making = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.making.is_none()
    }
}
