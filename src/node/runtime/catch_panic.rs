//! Catches the panic of a future, and that of its drop.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::error::panic_text;
use crate::telemetry::events;

/// Calls `start` and awaits the future that it returns. A panic of either becomes the error.
pub(crate) async fn catch_panic<F: Future>(
    start: impl FnOnce() -> F,
) -> Result<F::Output, Box<dyn Any + Send>> {
    // Unwind safe: a panic of the future can leave nothing half changed that the caller uses.
    let mut future = pin!(Some(catch_unwind(AssertUnwindSafe(start))?));
    let mut future = CatchDrop {
        future: future.as_mut(),
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

/// Catches a panic in the drop of a future, which must not keep its delivery from being settled.
struct CatchDrop<'a, F> {
    future: Pin<&'a mut Option<F>>,
}

impl<F: Future> CatchDrop<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        self.future
            .as_mut()
            .as_pin_mut()
            .map_or(Poll::Pending, |future| future.poll(context))
    }
}

impl<F> Drop for CatchDrop<'_, F> {
    fn drop(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.future.set(None))) {
            events::drop_panicked(panic_text(&*panic));
        }
    }
}
