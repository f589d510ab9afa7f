//! Waiting for work without asking for it again and again.

use std::pin::Pin;
use std::sync::Arc;

use crate::error::Error;
use crate::server::blocking::Waiting;
use crate::server::connector::Connector;
use crate::server::lane::reconnect_delays;
use crate::telemetry::events;

/// A wait that is under way: it gives the connection back, and whether a token came.
type Pending = Pin<Box<dyn Future<Output = (Waiting, Result<bool, Error>)> + Send>>;

/// The wake-up list of a queue, as an idle node hears it.
pub(crate) struct WakeUps {
    queue: String,
    connector: Arc<Connector>,
    wake: String,
    waiting: Option<Waiting>,
    pending: Option<Pending>,
    failures: u32,
}

impl WakeUps {
    pub(crate) fn new(queue: &str, connector: Arc<Connector>, wake: String) -> Self {
        Self {
            queue: queue.to_owned(),
            connector,
            wake,
            waiting: None,
            pending: None,
            failures: 0,
        }
    }

    /// Completes when there may be work: the wake-up list rang, or the wait failed, in which case a token may have been lost.
    ///
    /// Cancel safe: a wait goes on while nobody looks, and the next call takes it up. Who drops the wake-up list must ring for the
    /// others, as it may take a token along.
    pub(crate) async fn wait(&mut self) {
        loop {
            let pending = self.pending.get_or_insert_with(|| {
                let new = || Waiting::new(Arc::clone(&self.connector), self.wake.clone());
                let mut waiting = self.waiting.take().unwrap_or_else(new);
                Box::pin(async move {
                    let token = waiting.token().await;
                    (waiting, token)
                })
            });
            let (waiting, token) = pending.await;
            self.pending = None;
            self.waiting = Some(waiting);
            match token {
                Ok(came) => {
                    self.failures = 0;
                    if came {
                        return;
                    }
                }
                Err(error) => {
                    self.failures += 1;
                    events::waiting_failed(&self.queue, &error);
                    tokio::time::sleep(reconnect_delays().delay(self.failures, fastrand::f64()))
                        .await;
                    return;
                }
            }
        }
    }

    /// Whether a wait is under way that may take a token.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }
}
