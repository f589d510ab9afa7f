//! Waits on the wake-up list of a queue, instead of polling.

use std::pin::Pin;
use std::sync::Arc;

use crate::error::Error;
use crate::server::blocking::BlockingPop;
use crate::server::connector::Connector;
use crate::server::patience::reconnect_delays;
use crate::telemetry::events;

/// A wait in flight. It returns the connection, and whether a token came.
type Pending = Pin<Box<dyn Future<Output = (BlockingPop, Result<bool, Error>)> + Send>>;

/// The wake-up list, as an idle node waits on it.
pub(crate) struct WakeUps {
    queue: String,
    connector: Arc<Connector>,
    /// The key of the list.
    wake: String,
    /// The connection, while no wait is in flight.
    waiting: Option<BlockingPop>,
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

    /// Completes when there may be work: a token came, or the wait failed and may have lost one.
    ///
    /// Cancel safe: a dropped wait stays in flight, and the next call continues it. After dropping
    /// `WakeUps`, return a token to the list, because the wait in flight may take one.
    pub(crate) async fn wait(&mut self) {
        loop {
            let pending = self.pending.get_or_insert_with(|| {
                let new = || BlockingPop::new(Arc::clone(&self.connector), self.wake.clone());
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
                    events::wake_up_failed(&self.queue, &error);
                    let pause = reconnect_delays().delay(self.failures, fastrand::f64());
                    tokio::time::sleep(pause).await;
                    return;
                }
            }
        }
    }

    /// Whether a wait is in flight, which may take a token.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending.is_some()
    }
}
