//! Hearing notices: a subscription to a queue's shard channel.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::error::{Applied, Error};
use crate::server::connector::Connector;
use crate::server::failure;
use crate::server::pool::Server;

/// After so much silence we ask whether the server is still there: a connection that a firewall forgot, or whose machine
/// went away without a word, says nothing for ever.
const SILENCE: Duration = Duration::from_secs(3);

/// A subscription; dropped, it ends.
pub(crate) struct Listening {
    server: Arc<Server>,
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Listening {
    /// Subscribes. When this returns, everything that is published from now on is heard.
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

    /// The next notice: when the head of the queue is due, in Unix milliseconds; nothing if there is none any more. Fails once
    /// the connection is lost.
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
                    // Anybody may publish: what is no time is no notice.
                    if let Some(Value::BulkString(payload)) = data.get(1)
                        && let Some(head) = head(payload)
                    {
                        return Ok(head);
                    }
                }
                // The last comes when the queue's slot moves to another server: the connection lives on, and is deaf.
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

    /// Whether anybody is at the other end: any answer will do, a refusal included.
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

/// What a notice says: a time, or, empty, that nothing is scheduled.
pub(crate) fn head(payload: &[u8]) -> Option<Option<u64>> {
    match std::str::from_utf8(payload).ok()? {
        "" => Some(None),
        due_ms => due_ms.parse().ok().map(Some),
    }
}
