//! Asks Redis Sentinels which server is the master.

pub(super) mod master;
pub(crate) mod url;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind,
    RedisError, Value,
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::error::{Applied, Error, ErrorKind};
use crate::server::connect::target::Target;
use crate::server::failure;
use crate::server::sentinel::url::{Parts, bad_url};

/// The time limit for connecting to a Sentinel, and for its reply. A Sentinel keeps no data, so a
/// slow one is unreachable.
const LIMIT: Duration = Duration::from_millis(500);

/// How long the client waits for slower Sentinels after a majority has replied.
const MAJORITY_PAUSE: Duration = Duration::from_millis(50);

/// The Sentinels of one service.
pub(crate) struct Sentinels {
    service: String,
    nodes: Vec<Arc<Node>>,
    /// User, database and TLS of the servers, with the address of a Sentinel.
    server: Target,
    /// Notified when a Sentinel reports a new master.
    changed: Arc<Notify>,
}

struct Node {
    target: Target,
    address: String,
    changed: Arc<Notify>,
    held: Mutex<Option<MultiplexedConnection>>,
}

/// The reply of a Sentinel: the master that it names, and the epoch of that decision.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) epoch: u64,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The newest reply of a round in which the client asks all Sentinels.
#[derive(Debug)]
pub(crate) struct MasterReply {
    pub(crate) answer: Answer,
    /// Whether a majority of the Sentinels replied.
    pub(crate) majority: bool,
}

impl Sentinels {
    /// Reads `redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]`, or
    /// `rediss+sentinel://` for TLS to all of them, with
    /// `?sentinel_user=USER&sentinel_password=PASSWORD` for Sentinels that need a password. `None`
    /// for another kind of URL. `prepare` makes the target for each address.
    pub(crate) fn new(
        url: &str,
        prepare: impl Fn(ConnectionInfo) -> Result<Target, Error>,
    ) -> Result<Option<Self>, Error> {
        let (scheme, rest) = if let Some(rest) = url.strip_prefix("redis+sentinel://") {
            ("redis", rest)
        } else if let Some(rest) = url.strip_prefix("rediss+sentinel://") {
            ("rediss", rest)
        } else {
            return Ok(None);
        };
        let parts = Parts::read(rest).ok_or_else(bad_url)?;
        let info = |user: &str, place: &str, database: &str| {
            format!("{scheme}://{user}{place}/{database}")
                .into_connection_info()
                .map_err(|_| bad_url())
        };
        let server = prepare(info(parts.user, &parts.places[0], parts.database)?)?;
        let changed = Arc::new(Notify::new());
        let mut nodes = Vec::with_capacity(parts.places.len());
        for place in &parts.places {
            let info = info(&parts.sentinel_user, place, "")?;
            // One connection serves both queries and notifications.
            let settings = info
                .redis_settings()
                .clone()
                .set_protocol(ProtocolVersion::RESP3);
            let address = place.clone();
            nodes.push(Arc::new(Node {
                target: server.sentinel(info.set_redis_settings(settings)),
                address,
                changed: Arc::clone(&changed),
                held: Mutex::new(None),
            }));
        }
        Ok(Some(Self {
            service: parts.service.to_owned(),
            nodes,
            server,
            changed,
        }))
    }

    /// The target of the servers, with the address of a Sentinel.
    pub(crate) fn server(&self) -> &Target {
        &self.server
    }

    /// The service and the Sentinels, for error texts.
    pub(crate) fn address(&self) -> String {
        let nodes: Vec<_> = self
            .nodes
            .iter()
            .map(|node| node.address.as_str())
            .collect();
        format!(
            "{} (by the sentinels at {})",
            self.service,
            nodes.join(", ")
        )
    }

    /// Completes when a Sentinel has reported a new master since the last call. It may complete
    /// without a change. It misses changes while no Sentinel is connected, so the caller must also
    /// ask from time to time.
    pub(crate) async fn hint(&self) {
        self.changed.notified().await;
    }

    /// Asks all Sentinels at once for the master. The highest epoch wins, because a Sentinel that
    /// is cut off from the others has an old decision. The replies of a majority suffice, because
    /// each new connection waits for this call.
    pub(crate) async fn master(&self) -> Result<MasterReply, Error> {
        let mut asked = JoinSet::new();
        for node in &self.nodes {
            let (node, service) = (Arc::clone(node), self.service.clone());
            asked.spawn(async move { node.ask(&service).await });
        }
        let (mut newest, mut failed, mut answered) = (None::<Answer>, None::<Error>, 0);
        let mut end = None;
        loop {
            let answer = match end {
                None => asked.join_next().await,
                Some(end) => timeout_at(end, asked.join_next()).await.unwrap_or(None),
            };
            let Some(answer) = answer else { break };
            answered += usize::from(matches!(answer, Ok(Ok(_))));
            match answer {
                Ok(Ok(answer))
                    if newest
                        .as_ref()
                        .is_none_or(|newest| newest.epoch < answer.epoch) =>
                {
                    newest = Some(answer);
                }
                // The error of an unreachable Sentinel is preferred: it may know the service that
                // the others do not.
                Ok(Err(error)) if failed.as_ref().is_none_or(|failed| !failed.is_retryable()) => {
                    failed = Some(error)
                }
                Ok(_) | Err(_) => {}
            }
            if 2 * answered > self.nodes.len() {
                end.get_or_insert_with(|| Instant::now() + MAJORITY_PAUSE);
            }
        }
        match (newest, failed) {
            (Some(answer), _) => Ok(MasterReply {
                answer,
                majority: 2 * answered > self.nodes.len(),
            }),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::new(
                ErrorKind::Unavailable,
                Applied::No,
                "no sentinel was asked",
            )),
        }
    }
}

impl Node {
    async fn ask(&self, service: &str) -> Result<Answer, Error> {
        let asking = async {
            let mut connection = self.connection().await?;
            let mut pipeline = redis::pipe();
            pipeline
                .cmd("SENTINEL")
                .arg("GET-MASTER-ADDR-BY-NAME")
                .arg(service);
            pipeline.cmd("SENTINEL").arg("MASTER").arg(service);
            let answers = connection.send_packed_commands(&pipeline, 0, 2).await;
            let answers = answers.map_err(|error| self.failed(error))?;
            Answer::read(answers).ok_or_else(|| {
                Error::invalid(format!(
                    "the sentinel at {} knows no master named {service:?}",
                    self.address
                ))
            })
        };
        let answer = tokio::time::timeout(LIMIT, asking)
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "the sentinel at {} did not answer within {LIMIT:?}",
                    self.address
                );
                Err(Error::new(ErrorKind::Timeout, Applied::No, message))
            });
        if answer.is_err() {
            *self.held.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        answer
    }

    fn failed(&self, error: RedisError) -> Error {
        failure::of_connecting(&format!("{} (a sentinel)", self.address), error)
    }

    /// The kept connection to a Sentinel, or a new one that subscribes to changes of the master.
    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        if let Some(held) = &*self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(held.clone());
        }
        let changed = Arc::clone(&self.changed);
        let heard = move |push: PushInfo| {
            if push.kind == PushKind::Message {
                changed.notify_one();
            }
            Ok::<(), std::convert::Infallible>(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(LIMIT))
            .set_response_timeout(Some(LIMIT))
            .set_push_sender(heard);
        let of_connecting = |error| self.failed(error);
        let mut connection = self
            .target
            .client()
            .await?
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(of_connecting)?;
        redis::cmd("SUBSCRIBE")
            .arg(&["+promoted-slave", "+switch-master"])
            .query_async::<Value>(&mut connection)
            .await
            .map_err(of_connecting)?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
        Ok(connection)
    }
}

impl Answer {
    /// Reads the replies to GET-MASTER-ADDR-BY-NAME and MASTER. The address comes from the first:
    /// it names a promoted master at once, whereas MASTER names the old one until the replicas are
    /// reconfigured.
    pub(crate) fn read(replies: Vec<Value>) -> Option<Self> {
        let mut replies = replies.into_iter();
        // Read as text, because redis-rs would truncate a number that is too large for a port.
        let (host, port): (String, String) =
            redis::from_redis_value(replies.next()?.extract_error().ok()?).ok()?;
        if host.is_empty() || host.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let about: HashMap<String, String> =
            redis::from_redis_value(replies.next()?.extract_error().ok()?).ok()?;
        Some(Self {
            epoch: about.get("config-epoch")?.parse().ok()?,
            host,
            port: port.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(info: ConnectionInfo) -> Result<Target, Error> {
        Ok(info.into())
    }

    #[test]
    fn users_and_databases_are_read_as_in_other_urls() {
        let sentinels = Sentinels::new("redis+sentinel://u:p%40ss@[::1]:7/orders/3", plain)
            .expect("good")
            .expect("a sentinel's");
        let settings = sentinels.server().info().redis_settings();
        assert_eq!(
            (settings.username(), settings.password(), settings.db()),
            (Some("u"), Some("p@ss"), 3)
        );
        assert_eq!(
            sentinels.nodes[0].target.info().redis_settings().password(),
            None
        );
        assert_eq!(sentinels.address(), "orders (by the sentinels at [::1]:7)");
        assert!(
            Sentinels::new("redis://127.0.0.1/", plain)
                .expect("good")
                .is_none()
        );
        let error = Sentinels::new("redis+sentinel://u:hunter2@one/", plain)
            .err()
            .expect("no service");
        assert!(!format!("{error:?}").contains("hunter2"));
        assert!(Sentinels::new("redis+sentinel://one/orders/nine", plain).is_err());
    }

    #[test]
    fn sentinel_replies_are_read_and_refusals_are_not_answers() {
        let text = |text: &str| Value::BulkString(text.into());
        let address = Value::Array(vec![text("127.0.0.1"), text("7000")]);
        let about = Value::Map(vec![(text("config-epoch"), text("3"))]);
        let answer = Answer {
            epoch: 3,
            host: "127.0.0.1".into(),
            port: 7_000,
        };
        assert_eq!(
            Answer::read(vec![address.clone(), about.clone()]),
            Some(answer)
        );
        for place in [
            [text("h"), Value::Int(65_536)],
            [text("h"), Value::Int(i64::MAX)],
            [text("h"), text("-1")],
            [text("a b"), text("1")],
        ] {
            assert_eq!(
                Answer::read(vec![Value::Array(place.to_vec()), about.clone()]),
                None
            );
        }
        assert_eq!(Answer::read(vec![Value::Nil, about]), None);
        assert_eq!(Answer::read(vec![address, Value::Nil]), None);
    }
}
