//! Hearing notices: a subscription to a queue's shard channel.

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::error::Error;
use crate::protocol::connect::Connector;
use crate::protocol::failure;

/// A subscription; dropped, it ends.
pub(crate) struct Listening {
    /// Kept so that the connection stays open.
    _connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Listening {
    /// Subscribes. When this returns, everything that is published from now on is heard.
    pub(crate) async fn to(connector: &Connector, channel: &str) -> Result<Self, Error> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let mut connection = connector.listening(sender).await?;
        redis::cmd("SSUBSCRIBE")
            .arg(channel)
            .query_async::<Value>(&mut connection)
            .await
            .map_err(|error| failure::of_call(&connector.address, error))?;
        Ok(Self { _connection: connection, pushes })
    }

    /// The next notice: when the head of the queue is due, in Unix milliseconds. Nothing once the connection is lost.
    pub(crate) async fn notice(&mut self) -> Option<u64> {
        loop {
            let PushInfo { kind, data } = self.pushes.recv().await?;
            match (kind, data.get(1)) {
                (PushKind::SMessage, Some(Value::BulkString(payload))) => {
                    // Anybody may publish: what is no time is no notice.
                    if let Some(due_ms) = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok()) {
                        return Some(due_ms);
                    }
                }
                (PushKind::Disconnection, _) => return None,
                _ => {}
            }
        }
    }
}
