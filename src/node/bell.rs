//! Waiting for work without asking for it again and again.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;

use crate::error::Error;
use crate::protocol::connect::Connector;
use crate::protocol::lane::reconnect_delays;

/// How long Redis keeps a waiting node before it answers that nothing came.
const WAIT_SECONDS: u32 = 1;
/// How long we wait for that answer: Redis's own timeout follows its wall clock, which may be set, and ten ticks a second.
const WAIT_LIMIT: Duration = Duration::from_secs(3);

/// A connection that does nothing but block on the bell of a queue.
pub(super) struct Bell {
    connector: Arc<Connector>,
    key: String,
    connection: Option<MultiplexedConnection>,
    failures: u32,
}

impl Bell {
    pub(super) fn new(connector: Arc<Connector>, key: String) -> Self {
        Self { connector, key, connection: None, failures: 0 }
    }

    /// Completes when there may be work: the bell rang, or the wait failed, in which case a token may have been lost.
    ///
    /// Dropped, it may take a token along: whoever drops it must ring for the others.
    pub(super) async fn wait(&mut self) {
        loop {
            match self.wait_once().await {
                Ok(true) => {
                    self.failures = 0;
                    return;
                }
                Ok(false) => self.failures = 0,
                Err(error) => {
                    self.connection = None;
                    self.failures += 1;
                    tracing::warn!(%error, "waiting for work failed");
                    tokio::time::sleep(reconnect_delays().delay(self.failures, fastrand::f64())).await;
                    return;
                }
            }
        }
    }

    async fn wait_once(&mut self) -> Result<bool, Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            empty => empty.insert(self.connector.dedicated().await?),
        };
        let mut blpop = redis::cmd("BLPOP");
        blpop.arg(&self.key).arg(WAIT_SECONDS);
        let answer = tokio::time::timeout(WAIT_LIMIT, blpop.query_async::<Value>(connection)).await;
        match answer {
            Ok(Ok(Value::Nil)) => Ok(false),
            Ok(Ok(_)) => Ok(true),
            Ok(Err(error)) => Err(crate::protocol::failure::of_call(&self.connector.address, error)),
            Err(_) => Err(crate::protocol::failure::silent(&self.connector.address, WAIT_LIMIT)),
        }
    }
}
