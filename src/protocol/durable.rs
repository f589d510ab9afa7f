//! Calls whose effect must be on replicas or disks before they are answered: WAIT and WAITAOF.
//!
//! Redis waits for what the *connection* has written so far, so the command follows the script on the same connection, in the
//! same pipeline. A script that finds its work done by somebody else writes nothing, and from Redis 7.2 on there is then nothing
//! to wait for: so between the two stands a write that changes nothing, and comes after all that others have done. Whatever else is sent on it meanwhile stands behind it: hence a lane of its own for each durability of each queue.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};

use crate::durability::Durability;
use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::connect::RESPONSE_LIMIT;
#[cfg(feature = "harness")]
use crate::protocol::harness;
use crate::protocol::keys::Keys;
use crate::protocol::lane::{Lane, eval, evalsha, is_unknown};
use crate::protocol::replies::Reply;
use crate::protocol::scripts::Verb;
use crate::protocol::target::Target;

type Values = [Result<Value, RedisError>; 2];

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
        let (mut connection, target) = self.connection().await?;
        if !self.is_fit(&target) {
            let (touch, probe) = (touch(keys), probe(durability));
            let asking = limited(RESPONSE_LIMIT, async {
                touch.query_async::<Value>(&mut connection).await?;
                probe.query_async::<Value>(&mut connection).await
            });
            let answer = target.unless_left(Applied::No, async { Ok(asking.await) }).await?;
            answer.map_err(|error| self.unfit(&target, error))?;
            self.set_fit(&target);
        }
        let sent = Instant::now();
        let asked = async {
            #[cfg(feature = "harness")]
            let told = harness::invoke(verb, keys, args);
            let limit = RESPONSE_LIMIT + durability.timeout();
            let results = limited(limit, exchange(&mut connection, verb, keys, args, durability)).await;
            #[cfg(feature = "harness")]
            match &results {
                Ok([reply, _]) => harness::done(told, reply),
                Err(error) => harness::done(told, &Err(error.clone())),
            }
            Ok(results)
        };
        let results = target.unless_left(Applied::Unknown, asked).await?;
        let [reply, waited] = results.map_err(|error| self.fail(&target, error))?;
        let reply = self.decode(verb, reply, sent, &target)?;
        // An error here, such as that this server is a master no more, says nothing about the replicas. The call is made again,
        // on the new master, if it may be.
        let waited = waited.map_err(|error| {
            let error = self.fail(&target, error);
            let message = format!("nobody knows who has the change besides the master: {error}");
            Error::with_source(ErrorKind::Unavailable, Applied::Unknown, message, error)
        })?;
        Ok((reply, shortfall(durability, &waited)))
    }

    /// Why the server cannot wait. Nothing was changed yet.
    fn unfit(&self, target: &Arc<Target>, error: RedisError) -> Error {
        let detail = error.detail().unwrap_or_default().to_lowercase();
        let reason = if detail.contains("unknown command") {
            "Durability::Fsynced needs WAITAOF: Redis 7.2 or newer, or Valkey"
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

/// In one pipeline; in another one with the script itself, if the server did not know it.
async fn exchange(
    connection: &mut MultiplexedConnection,
    verb: Verb,
    keys: &Keys,
    args: &[&[u8]],
    durability: Durability,
) -> Result<Values, RedisError> {
    let values = both(connection, evalsha(verb, keys, args), keys, durability).await?;
    if is_unknown(&values[0]) { both(connection, eval(verb, keys, args), keys, durability).await } else { Ok(values) }
}

async fn both(
    connection: &mut MultiplexedConnection,
    call: Cmd,
    keys: &Keys,
    durability: Durability,
) -> Result<Values, RedisError> {
    let mut pipeline = redis::Pipeline::with_capacity(3);
    pipeline.add_command(call).add_command(touch(keys)).add_command(wait(durability));
    let mut values = connection.send_packed_commands(&pipeline, 0, 3).await?.into_iter().map(Value::extract_error);
    let mut next = || values.next().unwrap_or(Ok(Value::Nil));
    let (reply, touched, waited) = (next(), next(), next());
    // Without that write the count of replicas says nothing.
    Ok([reply, touched.and(waited)])
}

/// A write that changes nothing, whatever is there: the first entry of the ready list goes where it was.
fn touch(keys: &Keys) -> Cmd {
    redis::cmd("LMOVE").arg(keys.ready()).arg(keys.ready()).arg("LEFT").arg("LEFT").to_owned()
}

fn wait(durability: Durability) -> Cmd {
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
