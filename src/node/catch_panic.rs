//! Turns panics of futures into values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) use crate::error::panic_text;
use crate::telemetry::events;

/// Calls `start` and awaits the future that it returns. A panic of either becomes the error.
pub(crate) async fn catch_panic<F: Future>(
    start: impl FnOnce() -> F,
) -> Result<F::Output, Box<dyn Any + Send>> {
    // Unwind safe: the caller shares no state with the future that a panic could leave half
    // changed.
    let future = catch_unwind(AssertUnwindSafe(start))?;
    let mut future = CatchDrop {
        future: Some(Box::pin(future)),
    };
    std::future::poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        },
    )
    .await
}

/// A future whose drop does not panic: a panic there must not keep the delivery from being settled.
struct CatchDrop<F> {
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> CatchDrop<F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        self.future
            .as_mut()
            .map_or(Poll::Pending, |future| future.as_mut().poll(context))
    }
}

impl<F> Drop for CatchDrop<F> {
    fn drop(&mut self) {
        let future = self.future.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
            events::drop_panicked(panic_text(&*panic));
        }
    }
}
