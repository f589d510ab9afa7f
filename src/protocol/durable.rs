//! Calls whose effect must be on replicas or disks before they are answered: WAIT and WAITAOF.
//!
//! Redis waits for what the *connection* has written so far, so the command comes after the script on the same connection. A
//! script that finds its work done by somebody else writes nothing, and from Redis 7.2 on there is then nothing to wait for: so
//! a write that changes nothing goes before it, and comes after all that others have done. Whatever else is sent on the
//! connection meanwhile stands behind the wait: hence a lane of its own for each durability of each queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use crate::durability::Durability;
use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::connect::RESPONSE_LIMIT;
#[cfg(feature = "harness")]
use crate::protocol::harness;
use crate::protocol::keys::{self, Keys};
use crate::protocol::lane::Lane;
use crate::protocol::replies::Reply;
use crate::protocol::scripts::Verb;
use crate::protocol::target::Target;

impl Lane {
    /// Calls a script once and waits until its effect is as durable as is asked. Beside the reply: who has not confirmed in
    /// time, if somebody has not.
    ///
    /// A script that changes nothing is waited for all the same, as is whatever came before it: so the repetition of a push whose
    /// first reply was lost says as much as the first.
    pub(crate) async fn call_durably(
        &self,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
        durability: Durability,
    ) -> Result<(Reply, Option<String>), Error> {
        if durability == Durability::Memory {
            return Ok((self.call(verb, keys, args).await?, None));
        }
        let _turn = self.turn.lock().await;
        let (mut connection, target) = self.connection().await?;
        if !self.is_fit(&target) {
            let probe = probe(durability);
            let asking = limited(RESPONSE_LIMIT, probe.query_async::<Value>(&mut connection));
            let answer = target.unless_left(Applied::No, async { Ok(asking.await) }).await?;
            answer.map_err(|error| self.unfit(&target, error))?;
            self.set_fit(&target);
        }
        let sent = Instant::now();
        let calls = [(verb, args)];
        let asked = async { Ok(limited(RESPONSE_LIMIT, Self::exchange(&mut connection, &calls, keys)).await) };
        #[cfg(feature = "harness")]
        let told = harness::invoke(verb, keys, args);
        let answer = target.unless_left(Applied::Unknown, asked).await?;
        let answer = answer.and_then(|mut answers| answers.pop().unwrap_or(Ok(Value::Nil)));
        #[cfg(feature = "harness")]
        harness::done(told, &answer);
        let reply = self.decode(verb, answer, sent, &target)?;
        if reply.header.born.is_empty() {
            // There is no queue, so nothing that could be lost.
            return Ok((reply, None));
        }
        let limit = RESPONSE_LIMIT + durability.timeout();
        let waiting = async { Ok(limited(limit, wait(&mut connection, keys, durability)).await) };
        // An error here, such as that this server is a master no more, says nothing about the replicas. The call is made again,
        // on the new master, if that is harmless.
        let waited = target.unless_left(Applied::Unknown, waiting).await?.map_err(|error| {
            let error = self.fail(&target, error);
            let message = format!("nobody knows who has the change besides the master: {error}");
            Error::with_source(error.kind(), Applied::Unknown, message, error)
        })?;
        Ok((reply, shortfall(durability, &waited)))
    }

    /// Why the server cannot wait. Nothing was changed yet.
    fn unfit(&self, target: &Arc<Target>, error: RedisError) -> Error {
        let detail = error.detail().unwrap_or_default().to_lowercase();
        let reason = if detail.contains("unknown command") {
            "waiting for disks (Durability::Fsynced, --fsync) needs WAITAOF: Redis 7.2 or newer, or Valkey"
        } else if detail.contains("appendonly is disabled") {
            "it keeps no append-only file, so that nothing can be on its disk: CONFIG SET appendonly yes"
        } else {
            let message = format!("redis at {} cannot be asked to wait: {error}", target.address);
            let cause = self.fail(target, error);
            return Error::with_source(cause.kind(), Applied::No, message, cause);
        };
        let message = format!("redis at {} is not fit: {reason}", target.address);
        Error::with_source(ErrorKind::Unsupported, Applied::No, message, error)
    }
}

/// Waits for all that has been done on this server until now.
async fn wait(
    connection: &mut MultiplexedConnection,
    keys: &Keys,
    durability: Durability,
) -> Result<Value, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(2);
    pipeline.add_command(touch(keys)).add_command(waiting(durability));
    // Without that write the count of replicas says nothing: its error counts as much.
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await?;
    let answers = answers.into_iter().map(Value::extract_error).collect::<Result<Vec<_>, _>>()?;
    Ok(answers.into_iter().next_back().unwrap_or(Value::Nil))
}

/// A write that changes nothing, and that a producer may do: the sentinel that each queue has among its attrs.
fn touch(keys: &Keys) -> Cmd {
    redis::cmd("HSET").arg(keys.attrs()).arg(&keys::SENTINEL).arg("").to_owned()
}

fn waiting(durability: Durability) -> Cmd {
    let timeout_ms = u64::try_from(durability.timeout().as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    match durability {
        Durability::Memory => redis::cmd("PING"),
        Durability::Replicated { replicas, .. } => redis::cmd("WAIT").arg(replicas).arg(timeout_ms).to_owned(),
        Durability::Fsynced { local, replicas, .. } => {
            redis::cmd("WAITAOF").arg(u8::from(local)).arg(replicas).arg(timeout_ms).to_owned()
        }
    }
}

/// Asks for what would be refused, before anything is changed: waits for no replica, and for a disk a millisecond at most.
fn probe(durability: Durability) -> Cmd {
    match durability {
        Durability::Fsynced { local, .. } => redis::cmd("WAITAOF").arg(u8::from(local)).arg(0).arg(1).to_owned(),
        Durability::Replicated { .. } | Durability::Memory => redis::cmd("WAIT").arg(0).arg(1).to_owned(),
    }
}

/// Who has not confirmed, if somebody has not.
fn shortfall(durability: Durability, answer: &Value) -> Option<String> {
    let timeout = durability.timeout();
    match (durability, answer) {
        (Durability::Memory, _) => None,
        (Durability::Replicated { replicas, .. }, Value::Int(have)) => (*have < i64::from(replicas))
            .then(|| format!("only {have} of {replicas} replicas confirmed it within {timeout:?}")),
        (Durability::Fsynced { local, replicas, .. }, Value::Array(have)) => {
            let [Value::Int(own), Value::Int(others)] = have[..] else {
                return Some(format!("WAITAOF answered {have:?}"));
            };
            let missing = match (local && own < 1, others < i64::from(replicas)) {
                (false, false) => return None,
                (true, false) => "the master's disk did not confirm it".to_owned(),
                (false, true) => format!("only {others} of {replicas} replicas' disks confirmed it"),
                (true, true) => {
                    format!("neither the master's disk nor more than {others} of {replicas} replicas' confirmed it")
                }
            };
            Some(format!("{missing} within {timeout:?}"))
        }
        (_, other) => Some(format!("the wait for replicas was answered {other:?}")),
    }
}

async fn limited<T>(limit: Duration, work: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    tokio::time::timeout(limit, work)
        .await
        .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_who_is_missing_is_named() {
        let timeout = Duration::from_millis(5);
        let replicated = Durability::Replicated { replicas: 2, timeout };
        assert_eq!(shortfall(replicated, &Value::Int(2)), None);
        assert_eq!(shortfall(replicated, &Value::Int(3)), None);
        let short = shortfall(replicated, &Value::Int(1));
        assert_eq!(short.as_deref(), Some("only 1 of 2 replicas confirmed it within 5ms"));
        let answer = |own, others| Value::Array(vec![Value::Int(own), Value::Int(others)]);
        let both = Durability::Fsynced { local: true, replicas: 1, timeout };
        assert_eq!(shortfall(both, &answer(1, 1)), None);
        for (own, others) in [(0, 1), (1, 0), (0, 0)] {
            assert!(shortfall(both, &answer(own, others)).is_some(), "{own} {others}");
        }
        let replicas = Durability::Fsynced { local: false, replicas: 1, timeout };
        assert_eq!(shortfall(replicas, &answer(0, 1)), None);
        assert!(shortfall(replicated, &Value::Nil).is_some(), "what cannot be read confirms nothing");
    }
}
