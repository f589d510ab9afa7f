//! Panics of a batcher's tasks: no item is left without a result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};

use crate::batch::call::CallSpec;
use crate::error::panic_text;

/// Runs the tasks of batchers, and learns of their panics. Without one, a batcher runs its tasks on
/// the runtime of its callers.
pub(crate) trait Supervisor: Send + Sync {
    /// Spawns the task that gathers the items of a batcher.
    fn spawn(&self, work: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// A call of a batcher panicked: its items have their errors already.
    fn panicked(&self, text: &str);
}

/// Awaits one call, and reports its panic.
pub(crate) async fn supervise(spec: &CallSpec, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let result = std::future::poll_fn(|context| {
        // Unwind safe: the unwinding drops all that the call has, and so answers its items.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    });
    if let Err(panic) = result.await
        && let Some(supervisor) = &spec.supervisor
    {
        supervisor.panicked(panic_text(&*panic));
    }
}
