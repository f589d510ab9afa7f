//! Listening for hints that the head of the queue has moved. Losing them costs lateness of at most the floor.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, RedisError, Value};
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::error::{Error, ErrorKind};
use crate::node::Event;
use crate::protocol::connect::Connector;
use crate::protocol::failure;
use crate::protocol::lane::reconnect_delays;

/// How long to leave a server alone that does not let us listen.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// After so much silence we ask whether the server is still there: a connection that a firewall forgot, or whose machine
/// went away without a word, says nothing for ever.
const SILENCE: Duration = Duration::from_secs(3);

/// Listens on the channel for ever, and reconnects by itself.
pub(super) async fn listen(connector: Arc<Connector>, channel: String, events: UnboundedSender<Event>) {
    let mut failures = 0;
    loop {
        let pause = match listen_once(&connector, &channel, &events, &mut failures).await {
            Ok(()) => {
                failures += 1;
                reconnect_delays().delay(failures, fastrand::f64())
            }
            Err(error) if error.kind() == ErrorKind::Denied => {
                tracing::warn!(%error, "no right to listen for notices: messages may be up to a second late");
                DENIED_PAUSE
            }
            Err(error) => {
                failures += 1;
                tracing::warn!(%error, "listening for notices failed");
                reconnect_delays().delay(failures, fastrand::f64())
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Subscribes, has the head read, then passes notices on until the connection ends.
async fn listen_once(
    connector: &Connector,
    channel: &str,
    events: &UnboundedSender<Event>,
    failures: &mut u32,
) -> Result<(), Error> {
    let (sender, mut pushes) = mpsc::unbounded_channel();
    let mut connection = connector.listening(sender).await?;
    redis::cmd("SSUBSCRIBE")
        .arg(channel)
        .query_async::<Value>(&mut connection)
        .await
        .map_err(|error| failure::of_call(&connector.address, error))?;
    // What was published before this is not coming any more.
    let _ = events.send(Event::Resync);
    loop {
        let PushInfo { kind, data } = match tokio::time::timeout(SILENCE, pushes.recv()).await {
            Ok(Some(push)) => push,
            Ok(None) => return Ok(()),
            Err(_) => {
                alive(&mut connection).await.map_err(|error| failure::of_call(&connector.address, error))?;
                *failures = 0;
                continue;
            }
        };
        match kind {
            PushKind::SMessage => {
                *failures = 0;
                if let Some(Value::BulkString(payload)) = data.get(1)
                    && let Some(due_ms) = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok())
                {
                    let _ = events.send(Event::Notice(due_ms));
                }
            }
            // The second one comes when the queue's slot moves to another server: the connection lives on, and is deaf.
            PushKind::Disconnection | PushKind::SUnsubscribe => return Ok(()),
            _ => {}
        }
    }
}

/// Whether anybody is at the other end: any answer will do, a refusal included.
async fn alive(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    match redis::cmd("PING").query_async::<Value>(connection).await {
        Err(error) if error.code().is_none() => Err(error),
        _ => Ok(()),
    }
}
