//! A lane to Redis: one connection, kept while it works, on which scripts are called.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::{Applied, Error};
use crate::model::retry::Retry;
use crate::protocol::keys::Keys;
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::server::clock::Clock;
use crate::server::connector::Connector;
use crate::server::failure;
#[cfg(feature = "harness")]
use crate::server::harness;
use crate::server::pool::Target;
use crate::telemetry::events;

/// What the server answered to one call.
pub(crate) type Answer = Result<Value, RedisError>;

/// How long a call is repeated before its error is reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// After this long a connection that is held is not trusted to be open still.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

/// What may be done about a call whose reply was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Repeat it: twice has the effect of once.
    Harmless,
    /// Report it: only a call that certainly was not applied is repeated.
    Unsafe,
}

/// A way to Redis. Taking a used connection from the pool costs a round trip, so a lane holds on to its own.
pub(crate) struct Lane {
    connector: Arc<Connector>,
    clock: Arc<Clock>,
    /// Its place among those whose connection is none of the pool's: what is called on it limits its own time.
    apart: Option<OwnedSemaphorePermit>,
    held: Mutex<Option<Held>>,
    /// How many connections it has had.
    lines: AtomicU64,
    /// Of calls that wait for replicas: whatever is sent behind such a wait is done when it is over, even if nobody waits for
    /// the answer any more. So the next one is sent when it is over.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

/// Names one connection of a lane, and the server that it leads to.
#[derive(Clone)]
pub(crate) struct Line {
    target: Arc<Target>,
    /// Counts the connections of the lane: another connection to the same server is another line.
    number: u64,
}

impl Deref for Line {
    type Target = Target;

    fn deref(&self) -> &Target {
        &self.target
    }
}

struct Held {
    connection: MultiplexedConnection,
    /// Its place in the pool.
    pooled: Option<deadpool_redis::Connection>,
    line: Line,
    used: Instant,
    /// Whether the server has shown that it can wait for replicas, or disks.
    fit: bool,
}

impl Held {
    /// Closes it instead of giving it back.
    fn discard(self) {
        self.pooled.map(deadpool_redis::Connection::take);
    }
}

impl Lane {
    pub(crate) fn new(connector: Arc<Connector>, clock: Arc<Clock>) -> Self {
        let (held, turn) = (Mutex::new(None), tokio::sync::Mutex::new(()));
        Self {
            connector,
            clock,
            apart: None,
            held,
            lines: AtomicU64::new(0),
            turn,
        }
    }

    /// A lane whose connection does not come from the pool, for calls that wait long.
    pub(crate) fn apart(
        connector: Arc<Connector>,
        clock: Arc<Clock>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        Self {
            apart: Some(place),
            ..Self::new(connector, clock)
        }
    }

    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.connector
    }

    /// Before a call that must not be repeated: a connection that has idled may have been closed meanwhile, and whoever sends
    /// on it learns nothing. The pool checks what it hands out.
    pub(crate) fn distrust_idle(&self) {
        self.lock().take_if(|held| held.used.elapsed() > IDLE_LIMIT);
    }

    /// Calls a script once; one that the server does not know is loaded first.
    pub(crate) async fn call(
        &self,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
    ) -> Result<Reply, Error> {
        let sent = Instant::now();
        let called = async {
            let (mut values, line) = self.send(&[(verb, args)], keys).await?;
            self.decode(verb, values.pop().unwrap_or(Ok(Value::Nil)), sent, &line)
        };
        called.await.map_err(|error| {
            if verb.only_reads(args) {
                error.of_read()
            } else {
                error
            }
        })
    }

    /// Calls a script, repeating it with growing, jittered pauses for as long as `PATIENCE` where that is safe. `failed` is told
    /// of each error.
    pub(crate) async fn call_patiently(
        &self,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
        repeat: Repeat,
        failed: impl Fn(&Error),
    ) -> Result<Reply, Error> {
        if repeat == Repeat::Unsafe {
            self.distrust_idle();
        }
        let mut patience = Patience::new();
        loop {
            match self.call(verb, keys, args).await.inspect_err(&failed) {
                Err(error) if patience.allows(&error, repeat) => patience.pause().await,
                result => return result.map_err(|error| patience.last(error)),
            }
        }
    }

    /// A plain command that only reads, such as INFO.
    pub(crate) async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        self.command(command).await.map_err(Error::of_read)
    }

    /// A plain command outside the protocol.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, Error> {
        let (mut connection, line) = self.connection().await?;
        let asked = async { Ok(command.query_async::<Value>(&mut connection).await) };
        line.unless_left(Applied::Unknown, asked)
            .await?
            .map_err(|error| self.fail(&line, error))
    }

    pub(crate) fn decode(
        &self,
        verb: Verb,
        value: Result<Value, RedisError>,
        sent: Instant,
        line: &Line,
    ) -> Result<Reply, Error> {
        let value = value.map_err(|error| self.fail(line, error))?;
        let reply = Reply::decode(verb, value, sent)?;
        self.clock
            .observe(sent, Instant::now(), reply.header.now_us);
        Ok(reply)
    }

    /// Sends the calls in one pipeline and loads what the server does not know. Each result stands for itself.
    async fn send(
        &self,
        calls: &[(Verb, &[&[u8]])],
        keys: &Keys,
    ) -> Result<(Vec<Answer>, Line), Error> {
        let (mut connection, line) = self.connection().await?;
        let asked = async {
            #[cfg(feature = "harness")]
            let told: Vec<_> = calls
                .iter()
                .map(|(verb, args)| harness::invoke(*verb, keys, args))
                .collect();
            let results = Self::exchange(&mut connection, calls, keys).await;
            #[cfg(feature = "harness")]
            for (place, call) in told.into_iter().enumerate() {
                match &results {
                    Ok(results) => harness::done(call, &results[place]),
                    Err(error) => harness::done(call, &Err(error.clone())),
                }
            }
            Ok(results)
        };
        let results = line.unless_left(Applied::Unknown, asked).await?;
        results
            .map(|results| (results, line.clone()))
            .map_err(|error| self.fail(&line, error))
    }

    pub(crate) async fn exchange(
        connection: &mut MultiplexedConnection,
        calls: &[(Verb, &[&[u8]])],
        keys: &Keys,
    ) -> Result<Vec<Answer>, RedisError> {
        let mut pipeline = redis::Pipeline::with_capacity(calls.len());
        for (verb, args) in calls {
            pipeline.add_command(evalsha(*verb, keys, args));
        }
        let values = connection
            .send_packed_commands(&pipeline, 0, calls.len())
            .await?;
        let mut results: Vec<_> = values.into_iter().map(Value::extract_error).collect();
        for (place, (verb, args)) in calls.iter().enumerate() {
            if !is_unknown(&results[place]) {
                continue;
            }
            // A call that was made already must not come before one that stood in front of it: then this one is left out,
            // and its script only loaded. EVAL, unlike a load and an EVALSHA, cannot be forgotten halfway.
            if results[place + 1..].iter().all(is_unknown) {
                results[place] = eval(*verb, keys, args)
                    .query_async::<Value>(connection)
                    .await;
            } else {
                let load = redis::cmd("SCRIPT").arg("LOAD").arg(verb.code()).to_owned();
                // What the later call was granted must not be lost for this.
                if let Err(error) = load.query_async::<Value>(connection).await {
                    results[place] = Err(error);
                }
            }
        }
        Ok(results)
    }

    /// The connection that is held, or a new one.
    pub(crate) async fn connection(&self) -> Result<(MultiplexedConnection, Line), Error> {
        {
            let mut held = self.lock();
            held.take_if(|held| !self.connector.is_current(&held.line.target))
                .into_iter()
                .for_each(Held::discard);
            if let Some(held) = &mut *held {
                held.used = Instant::now();
                return Ok((held.connection.clone(), held.line.clone()));
            }
        }
        let (connection, pooled, target) = if self.apart.is_some() {
            let (connection, target) = self.connector.dedicated().await?;
            (connection, None, target)
        } else {
            let (pooled, target) = self.connector.pooled().await?;
            (MultiplexedConnection::clone(&pooled), Some(pooled), target)
        };
        let line = Line {
            target,
            number: self.lines.fetch_add(1, Ordering::Relaxed),
        };
        let taken = (connection.clone(), line.clone());
        *self.lock() = Some(Held {
            connection,
            pooled,
            line,
            used: Instant::now(),
            fit: false,
        });
        Ok(taken)
    }

    /// Whether the server behind this connection has shown that it can wait for replicas, or disks.
    pub(crate) fn is_fit(&self, line: &Line) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|held| held.fit && held.line.number == line.number)
    }

    pub(crate) fn set_fit(&self, line: &Line) {
        if let Some(held) = self
            .lock()
            .as_mut()
            .filter(|held| held.line.number == line.number)
        {
            held.fit = true;
        }
    }

    /// After an error that is not the server's own the connection is out of step; after one that says that it became a
    /// replica, useless: it is closed, not given back. A connection that has replaced it stays open.
    pub(crate) fn fail(&self, line: &Line, error: RedisError) -> Error {
        let useless =
            matches!(error.code(), None | Some("READONLY" | "UNBLOCKED")) || error.is_timeout();
        if useless && let Some(held) = self.lock().take_if(|held| held.line.number == line.number) {
            held.discard();
        }
        failure::of_call(&line.address, error)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server did not know the script.
fn is_unknown(result: &Result<Value, RedisError>) -> bool {
    result
        .as_ref()
        .is_err_and(|error| error.code() == Some("NOSCRIPT"))
}

fn evalsha(verb: Verb, keys: &Keys, args: &[&[u8]]) -> Cmd {
    call("EVALSHA", verb.sha(), keys, args)
}

/// The same with the script itself, which the server then knows.
fn eval(verb: Verb, keys: &Keys, args: &[&[u8]]) -> Cmd {
    call("EVAL", verb.code(), keys, args)
}

fn call(command: &str, script: &str, keys: &Keys, args: &[&[u8]]) -> Cmd {
    let mut command = redis::cmd(command);
    command.arg(script).arg(keys.vector.len());
    for key in &keys.vector {
        command.arg(key);
    }
    for arg in args {
        command.arg(arg);
    }
    command
}

/// How often, and how long, a failing call is repeated.
pub(crate) struct Patience {
    end: Instant,
    attempt: u32,
    retry: Retry,
    /// A call that was repeated may have been applied.
    unknown: bool,
    /// Why the call is about to be repeated.
    reason: Option<Error>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self::since(Instant::now())
    }

    /// Of somebody who has been waiting since `start`.
    pub(crate) fn since(start: Instant) -> Self {
        Self {
            end: start + PATIENCE,
            attempt: 0,
            retry: reconnect_delays(),
            unknown: false,
            reason: None,
        }
    }

    /// Whether a call that ended so may be sent again.
    pub(crate) fn allows(&mut self, error: &Error, repeat: Repeat) -> bool {
        use crate::error::ErrorKind::{Timeout, Unavailable};
        let harmless = error.was_applied() == Applied::No || repeat == Repeat::Harmless;
        let allowed =
            harmless && matches!(error.kind(), Timeout | Unavailable) && Instant::now() < self.end;
        self.unknown |= allowed && error.was_applied() != Applied::No;
        if allowed {
            self.reason = Some(error.clone());
        }
        allowed
    }

    /// What is told of a call that ended so and is not sent again: the attempts before this one count too.
    pub(crate) fn last(&self, error: Error) -> Error {
        if self.unknown {
            error.of_repeated()
        } else {
            error
        }
    }

    pub(crate) async fn pause(&mut self) {
        self.attempt += 1;
        if let Some(reason) = self.reason.take().filter(|_| self.attempt == 1) {
            events::call_repeated(&reason);
        }
        tokio::time::sleep(self.retry.delay(self.attempt, fastrand::f64())).await;
    }
}

/// Repeats a call that does no harm twice while the server cannot be reached.
pub(crate) async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut patience = Patience::new();
    loop {
        match call().await {
            Err(error) if patience.allows(&error, Repeat::Harmless) => patience.pause().await,
            result => return result.map_err(|error| patience.last(error)),
        }
    }
}

/// The pauses before a lost connection or a refused call is tried again: soon, then up to half a second apart, so that work
/// goes on within a second when a server is back.
pub(crate) fn reconnect_delays() -> Retry {
    Retry::exponential(Duration::from_millis(10), Duration::from_millis(500)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
