//! Calls that wait until their effect is on replicas or disks, by WAIT and WAITAOF.
//!
//! WAIT covers the writes of its *connection*, so it follows the script on the same connection. A
//! script that finds its work already done writes nothing, and from Redis 7.2 on WAIT then waits
//! for nothing. So each WAIT follows a write that changes nothing ([`TOUCH`]). WAIT blocks its
//! connection: each durability of a queue has its own lane.

use std::time::Instant;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use crate::error::{Applied, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::protocol::keys::{self, Keys};
use crate::protocol::replies::Reply;
use crate::protocol::verbs::{TOUCH, Verb};
#[cfg(feature = "harness")]
use crate::server::harness;
use crate::server::lane::{ConnectionInfo, Lane};
use crate::server::patience::{RESPONSE_LIMIT, limited};

/// The result of the wait for replicas or disks.
pub(crate) enum Waited {
    Confirmed,
    /// Too few replicas or disks confirmed in time. The text says which are missing.
    Short(String),
    /// The wait failed, so it is not known whether replicas have the change. The master has done
    /// what the script replied.
    Failed(Error),
}

impl Lane {
    /// Calls a script once, and waits until its effect is as durable as requested. An error means
    /// that the script did not reply; the result of the wait is returned beside the reply.
    ///
    /// The wait covers every write before it, also if this script changes nothing. So the
    /// repetition of a push whose first reply was lost confirms as much as the first.
    pub(crate) async fn call_durably(
        &self,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
        durability: Durability,
        asking: bool,
    ) -> Result<(Reply, Waited), Error> {
        if durability == Durability::Memory {
            let reply = self.call(verb, keys, args, asking).await?;
            return Ok((reply, Waited::Confirmed));
        }
        let _guard = self.wait_lock.lock().await;
        let (mut connection, info) = self.connection().await?;
        if !self.can_wait(&info) {
            let probe = probe(durability);
            let asking = limited(RESPONSE_LIMIT, probe.query_async::<Value>(&mut connection));
            let answer = info
                .server
                .unless_superseded(Applied::No, async { Ok(asking.await) })
                .await?;
            answer.map_err(|error| self.cannot_wait(&info, error))?;
            self.set_can_wait(&info);
        }
        let sent = Instant::now();
        let exchange = Self::exchange(&mut connection, verb, keys, args, asking);
        let exchange = info.answered(exchange);
        let asked = async { Ok(exchange.await) };
        #[cfg(feature = "harness")]
        let observed = harness::invoke(&info.server.address, verb, keys, args);
        let answer = info
            .server
            .unless_superseded(Applied::Unknown, asked)
            .await?;
        #[cfg(feature = "harness")]
        harness::done(observed, &answer);
        let reply = self.decode(verb, answer, sent, &info)?;
        if reply.header.incarnation.is_empty() {
            // The queue does not exist, so there is nothing to lose.
            return Ok((reply, Waited::Confirmed));
        }
        let limit = RESPONSE_LIMIT + durability.timeout();
        let waiting =
            async { Ok(limited(limit, wait(&mut connection, keys, durability, asking)).await) };
        let waited = match info
            .server
            .unless_superseded(Applied::Unknown, waiting)
            .await
        {
            Ok(Ok(answer)) => {
                shortfall(durability, &answer).map_or(Waited::Confirmed, Waited::Short)
            }
            Ok(Err(error)) => Waited::Failed(of_wait(self.fail(&info, error))),
            Err(error) => Waited::Failed(error),
        };
        Ok((reply, waited))
    }

    /// The error of a server that cannot wait. Nothing was changed.
    fn cannot_wait(&self, info: &ConnectionInfo, error: RedisError) -> Error {
        let detail = error.detail().unwrap_or_default().to_lowercase();
        let reason = if detail.contains("unknown command") {
            "waiting for disks (Durability::Fsynced, --fsync) needs WAITAOF: Redis 7.2 or newer, or Valkey"
        } else if detail.contains("appendonly is disabled") {
            "it keeps no append-only file, so that nothing can be on its disk: CONFIG SET appendonly yes"
        } else {
            let message = format!(
                "redis at {} cannot be asked to wait: {error}",
                info.server.address
            );
            let cause = self.fail(info, error);
            return Error::with_source(cause.kind(), Applied::No, message, cause);
        };
        let message = format!("redis at {} is not fit: {reason}", info.server.address);
        Error::with_source(ErrorKind::Unsupported, Applied::No, message, error)
    }
}

/// The error of a wait. If the master was replaced between script and wait, the wait may be
/// redirected: the change may be missing where the keys are now.
fn of_wait(error: Error) -> Error {
    if !matches!(error.code(), Some("MOVED" | "ASK")) {
        return error;
    }
    let message = format!("the keys are at another node now: {error}");
    Error::with_source(ErrorKind::Unavailable, Applied::Unknown, message, error)
}

/// Waits for all earlier writes on this connection.
async fn wait(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    durability: Durability,
    asking: bool,
) -> Result<Value, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(3);
    if asking {
        pipeline.cmd("ASKING");
    }
    pipeline
        .add_command(touch(keys))
        .add_command(waiting(durability));
    // Without the write before it, WAIT's count of replicas means nothing, so an error of that
    // write counts as the wait's error.
    let count = pipeline.len();
    let answers = connection.send_packed_commands(&pipeline, 0, count).await?;
    let answers = answers
        .into_iter()
        .map(Value::extract_error)
        .collect::<Result<Vec<_>, _>>()?;
    Ok(answers.into_iter().next_back().unwrap_or(Value::Nil))
}

/// A write that changes nothing, that producers may do, and that a full server accepts: the
/// placeholder in the queue's attrs.
fn touch(keys: &Keys) -> Cmd {
    redis::cmd("EVAL")
        .arg(TOUCH)
        .arg(1)
        .arg(keys.attrs())
        .arg(&keys::PLACEHOLDER)
        .to_owned()
}

fn waiting(durability: Durability) -> Cmd {
    let timeout_ms =
        u64::try_from(durability.timeout().as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    match durability {
        Durability::Memory => redis::cmd("PING"),
        Durability::Replicated { replicas, .. } => {
            redis::cmd("WAIT").arg(replicas).arg(timeout_ms).to_owned()
        }
        Durability::Fsynced {
            local, replicas, ..
        } => redis::cmd("WAITAOF")
            .arg(u8::from(local))
            .arg(replicas)
            .arg(timeout_ms)
            .to_owned(),
    }
}

/// A command that finds out, before any change, whether the server can wait. It waits for no
/// replica, and at most 1 ms for a disk.
fn probe(durability: Durability) -> Cmd {
    match durability {
        Durability::Fsynced { local, .. } => redis::cmd("WAITAOF")
            .arg(u8::from(local))
            .arg(0)
            .arg(1)
            .to_owned(),
        Durability::Replicated { .. } | Durability::Memory => {
            redis::cmd("WAIT").arg(0).arg(1).to_owned()
        }
    }
}

/// The text about the replicas or disks that have not confirmed, if there are any.
pub(crate) fn shortfall(durability: Durability, answer: &Value) -> Option<String> {
    let timeout = durability.timeout();
    match (durability, answer) {
        (Durability::Memory, _) => None,
        (Durability::Replicated { replicas, .. }, Value::Int(have)) => (*have
            < i64::from(replicas))
        .then(|| format!("only {have} of {replicas} replicas confirmed it within {timeout:?}")),
        (
            Durability::Fsynced {
                local, replicas, ..
            },
            Value::Array(have),
        ) => {
            let [Value::Int(own), Value::Int(others)] = have[..] else {
                return Some(format!("WAITAOF answered {have:?}"));
            };
            let missing = match (local && own < 1, others < i64::from(replicas)) {
                (false, false) => return None,
                (true, false) => "the master's disk did not confirm it".to_owned(),
                (false, true) => {
                    format!("only {others} of {replicas} replicas' disks confirmed it")
                }
                (true, true) => {
                    format!(
                        "neither the master's disk nor more than {others} of {replicas} replicas' confirmed it"
                    )
                }
            };
            Some(format!("{missing} within {timeout:?}"))
        }
        (_, other) => Some(format!("the wait for replicas was answered {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_shortfall_names_missing_replicas_and_disks() {
        let timeout = Duration::from_millis(5);
        let replicated = Durability::Replicated {
            replicas: 2,
            timeout,
        };
        assert_eq!(shortfall(replicated, &Value::Int(2)), None);
        assert_eq!(shortfall(replicated, &Value::Int(3)), None);
        let short = shortfall(replicated, &Value::Int(1));
        assert_eq!(
            short.as_deref(),
            Some("only 1 of 2 replicas confirmed it within 5ms")
        );
        let answer = |own, others| Value::Array(vec![Value::Int(own), Value::Int(others)]);
        let both = Durability::Fsynced {
            local: true,
            replicas: 1,
            timeout,
        };
        assert_eq!(shortfall(both, &answer(1, 1)), None);
        for (own, others) in [(0, 1), (1, 0), (0, 0)] {
            assert!(
                shortfall(both, &answer(own, others)).is_some(),
                "{own} {others}"
            );
        }
        let replicas = Durability::Fsynced {
            local: false,
            replicas: 1,
            timeout,
        };
        assert_eq!(shortfall(replicas, &answer(0, 1)), None);
        assert!(
            shortfall(replicated, &Value::Nil).is_some(),
            "what cannot be read confirms nothing"
        );
    }
}
