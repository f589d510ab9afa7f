//! The subscription to a queue's notices, on its shard channel.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::error::{Applied, Error};
use crate::server::connector::Connector;
use crate::server::failure;
use crate::server::pool::Server;

/// After this long without a message, check whether the server still replies. A connection that a
/// firewall forgot, or whose machine vanished, stays silent for ever.
const SILENCE: Duration = Duration::from_secs(3);

/// A subscription; dropped, it ends.
pub(crate) struct Subscription {
    server: Arc<Server>,
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Subscription {
    /// Subscribes. Every message published after this returns is received.
    pub(crate) async fn to(connector: &Connector, channel: &str) -> Result<Self, Error> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let (mut connection, server) = connector.listening(sender).await?;
        let subscribing = async {
            let answer = redis::cmd("SSUBSCRIBE")
                .arg(channel)
                .query_async::<Value>(&mut connection)
                .await;
            answer.map_err(|error| failure::of_call(&server.address, error))
        };
        server
            .unless_superseded(Applied::Unknown, subscribing)
            .await?;
        Ok(Self {
            server,
            connection,
            pushes,
        })
    }

    /// The next notice: the head time in Unix milliseconds, or `None` if no message is scheduled.
    /// Fails when the connection is lost.
    pub(crate) async fn notice(&mut self) -> Result<Option<u64>, Error> {
        let server = Arc::clone(&self.server);
        server
            .unless_superseded(Applied::Unknown, self.next())
            .await
    }

    async fn next(&mut self) -> Result<Option<u64>, Error> {
        loop {
            let push = match tokio::time::timeout(SILENCE, self.pushes.recv()).await {
                Ok(push) => push,
                Err(_) => {
                    self.check().await?;
                    continue;
                }
            };
            match push {
                Some(PushInfo {
                    kind: PushKind::SMessage,
                    data,
                }) => {
                    // Other programs may publish too: ignore payloads that are not a time.
                    if let Some(Value::BulkString(payload)) = data.get(1)
                        && let Some(head) = head(payload)
                    {
                        return Ok(head);
                    }
                }
                // SUNSUBSCRIBE arrives when the queue's slot moves to another server: the
                // connection stays open and gets no more messages.
                None
                | Some(PushInfo {
                    kind: PushKind::Disconnection | PushKind::SUnsubscribe,
                    ..
                }) => {
                    return Err(failure::hung_up(&self.server.address));
                }
                Some(_) => {}
            }
        }
    }

    /// Checks that the server still replies; a refusal counts as a reply.
    async fn check(&mut self) -> Result<(), Error> {
        match redis::cmd("PING")
            .query_async::<Value>(&mut self.connection)
            .await
        {
            Err(error) if error.code().is_none() => {
                Err(failure::of_call(&self.server.address, error))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the payload of a notice: a time, or empty if no message is scheduled.
pub(crate) fn head(payload: &[u8]) -> Option<Option<u64>> {
    match std::str::from_utf8(payload).ok()? {
        "" => Some(None),
        due_ms => due_ms.parse().ok().map(Some),
    }
}
