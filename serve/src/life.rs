//! Whether the server runs or stops.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// The phases of a server: it runs, then it finishes its requests.
#[derive(Debug, Default)]
pub(crate) struct Life {
    is_stopping: AtomicBool,
    stopping: CancellationToken,
}

impl Life {
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Turns the server not ready, and then ends what waits for the stop.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.stopping.cancel();
    }

    /// Cancelled at the stop: a long poll ends empty then.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}
