//! Subscriptions to notices of queues: on their shard channels, and on the channels for new queues.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;

use crate::error::{Applied, Error};
use crate::protocol::keys;
use crate::server::connect::connector::Connector;
use crate::server::connect::pool::Server;
use crate::server::connect::probe::{DOUBT_AFTER, only_elsewhere};
use crate::server::failure;

/// After this long without a message, the client checks whether the server still replies. A
/// connection that a firewall forgot, or whose machine vanished, would stay silent for ever.
const SILENCE: Duration = Duration::from_secs(3);

/// How many subscriptions are requested at once, before the first is confirmed.
const REQUESTS: usize = 100;

/// The subscriptions of one connection. They end when this is dropped.
pub(crate) struct Subscription {
    server: Arc<Server>,
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
    /// Channels whose subscriptions this client is ending.
    removed: HashSet<Vec<u8>>,
}

/// What a subscription received.
pub(crate) enum Received {
    /// A notice: its channel, and the due time of the head in Unix milliseconds, or `None` if no
    /// message is scheduled.
    Notice(Vec<u8>, Option<u64>),
    /// A queue of this name was created.
    Created(String),
    /// The server ended the subscription to this channel, because another server serves the queue's
    /// slot.
    Ended(Vec<u8>),
}

impl Subscription {
    /// Opens a connection without subscriptions.
    pub(crate) async fn open(connector: &Connector) -> Result<Self, Error> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let (connection, server) = connector.listening(sender).await?;
        Ok(Self {
            server,
            connection,
            pushes,
            removed: HashSet::new(),
        })
    }

    /// Subscribes to each channel, and returns the refusals by index. Every message that is
    /// published after this call returns is received.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) async fn add(&self, channels: &[String]) -> Result<Vec<(usize, Error)>, Error> {
        self.subscribe("SSUBSCRIBE", channels).await
    }

    /// Subscribes as [`add`](Self::add) does, to the notices of new queues whose channels match
    /// these patterns.
    pub(crate) async fn add_creations(
        &self,
        globs: &[String],
    ) -> Result<Vec<(usize, Error)>, Error> {
        self.subscribe("PSUBSCRIBE", globs).await
    }

    async fn subscribe(
        &self,
        command: &str,
        channels: &[String],
    ) -> Result<Vec<(usize, Error)>, Error> {
        let mut refusals = Vec::new();
        let subscribing = async {
            for (part, channels) in channels.chunks(REQUESTS).enumerate() {
                let mut requests = JoinSet::new();
                for (index, channel) in channels.iter().enumerate() {
                    let mut subscribe = redis::cmd(command);
                    subscribe.arg(channel);
                    let mut connection = self.connection.clone();
                    requests.spawn(async move {
                        let answer = subscribe.query_async::<Value>(&mut connection).await;
                        (index, answer.map(drop))
                    });
                }
                while let Some(answer) = requests.join_next().await {
                    // The tasks of the requests neither panic nor are cancelled.
                    let Ok((index, Err(error))) = answer else {
                        continue;
                    };
                    let error = failure::of_call(&self.server.address, error);
                    if error.code().is_none() {
                        return Err(error);
                    }
                    refusals.push((part * REQUESTS + index, error));
                }
            }
            Ok(())
        };
        self.server
            .unless_superseded(Applied::Unknown, subscribing)
            .await?;
        Ok(refusals)
    }

    /// Ends the subscription to a channel.
    pub(crate) async fn remove(&mut self, channel: &str) -> Result<(), Error> {
        self.removed.insert(channel.as_bytes().to_vec());
        let mut unsubscribe = redis::cmd("SUNSUBSCRIBE");
        unsubscribe.arg(channel);
        let address = &self.server.address;
        let connection = &mut self.connection;
        let unsubscribing = async {
            match unsubscribe.query_async::<Value>(connection).await {
                // The server no longer serves the slot, so it has ended the subscription already.
                Err(error) if error.code().is_some() => Ok(()),
                answer => answer
                    .map(drop)
                    .map_err(|error| failure::of_call(address, error)),
            }
        };
        self.server
            .unless_superseded(Applied::Unknown, unsubscribing)
            .await
    }

    /// The next notice, or the next end of a subscription. Fails when the connection is lost. Cancel
    /// safe.
    pub(crate) async fn receive(&mut self) -> Result<Received, Error> {
        let server = Arc::clone(&self.server);
        server
            .unless_superseded(Applied::Unknown, self.next())
            .await
    }

    async fn next(&mut self) -> Result<Received, Error> {
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
                    // Other programs may publish too, so payloads that are not a time are ignored.
                    if let [Value::BulkString(channel), Value::BulkString(payload)] = &data[..]
                        && let Some(head_ms) = head(payload)
                    {
                        return Ok(Received::Notice(channel.clone(), head_ms));
                    }
                }
                Some(PushInfo {
                    kind: PushKind::PMessage,
                    data,
                }) => {
                    if let [_, Value::BulkString(channel), _] = &data[..]
                        && let Ok(channel) = std::str::from_utf8(channel)
                        && let Some(name) = keys::queue_of_notice(channel)
                    {
                        return Ok(Received::Created(name.to_owned()));
                    }
                }
                // SUNSUBSCRIBE also arrives when the queue's slot moves to another server. The
                // connection stays open, but gets no more messages of that channel.
                Some(PushInfo {
                    kind: PushKind::SUnsubscribe,
                    data,
                }) => {
                    if let Some(Value::BulkString(channel)) = data.first()
                        && !self.removed.remove(channel)
                    {
                        return Ok(Received::Ended(channel.clone()));
                    }
                }
                None
                | Some(PushInfo {
                    kind: PushKind::Disconnection,
                    ..
                }) => {
                    return Err(failure::hung_up(&self.server.address));
                }
                Some(_) => {}
            }
        }
    }

    /// Checks that the server still replies. A refusal counts as a reply.
    async fn check(&mut self) -> Result<(), Error> {
        let ping = redis::cmd("PING");
        let answer = tokio::select! {
            answer = ping.query_async::<Value>(&mut self.connection) => answer,
            () = self.server.answers_elsewhere(DOUBT_AFTER) => Err(only_elsewhere()),
        };
        match answer {
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
