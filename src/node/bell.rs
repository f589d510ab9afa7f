//! Waiting for work without asking for it again and again.

use std::sync::Arc;

use crate::protocol::connect::Connector;
use crate::protocol::lane::reconnect_delays;
use crate::protocol::waiting::Waiting;

/// The bell of a queue, as an idle node hears it.
pub(super) struct Bell {
    waiting: Waiting,
    failures: u32,
}

impl Bell {
    pub(super) fn new(connector: Arc<Connector>, bell: String) -> Self {
        Self { waiting: Waiting::new(connector, bell), failures: 0 }
    }

    /// Completes when there may be work: the bell rang, or it did not for a floor, or the wait failed. In the last two cases a
    /// token may have been lost, to us or to a connection whose machine is gone: so whoever waits looks for work all the same.
    ///
    /// Dropped, it may take a token along: whoever drops it must ring for the others.
    pub(super) async fn wait(&mut self) {
        match self.waiting.token().await {
            Ok(()) => self.failures = 0,
            Err(error) => {
                self.failures += 1;
                tracing::warn!(%error, "waiting for work failed");
                tokio::time::sleep(reconnect_delays().delay(self.failures, fastrand::f64())).await;
            }
        }
    }
}
