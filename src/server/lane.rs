//! A lane: one connection to the server, used for script calls until it fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::error::{Applied, Error};
use crate::protocol::keys::Keys;
use crate::protocol::replies::Reply;
use crate::protocol::verbs::Verb;
use crate::server::clock::Clock;
use crate::server::connect::connector::Connector;
use crate::server::connect::pool::Server;
use crate::server::connect::probe::{DOUBT_AFTER, only_elsewhere};
use crate::server::failure;
#[cfg(feature = "harness")]
use crate::server::harness;
use crate::server::patience::{RESPONSE_LIMIT, limited};

/// A connection that was idle for longer than this may have been closed by the other side.
const IDLE_LIMIT: Duration = Duration::from_secs(1);

/// For this long after a lane gave up a connection, it waits longer before it gives up the next
/// one.
const SLOWER_FOR: Duration = Duration::from_secs(60);

/// Calls scripts on one connection, and replaces it when it is lost.
///
/// It keeps its connection: taking a used one from the pool for each call would cost a round trip.
pub(crate) struct Lane {
    connector: Arc<Connector>,
    clock: Arc<Clock>,
    /// Permit of a dedicated connection: one that is not from the pool.
    dedicated: Option<Arc<OwnedSemaphorePermit>>,
    open: Mutex<Option<OpenConnection>>,
    /// Whether only the first call after a pause doubts the connection. Other calls may just be
    /// waiting for a large call before them.
    doubts_idle_only: bool,
    /// When the lane last gave up a connection that it doubted, and after how long a call doubts
    /// the next one. That time doubles with each one given up, so that on a slow network a large
    /// call arrives at last.
    gave_up: Mutex<Option<(Instant, Duration)>>,
    /// How many connections the lane has had.
    connections: AtomicU64,
    /// Held by a call that waits for replicas. Redis processes a later call on the connection only
    /// after that wait, even if its caller is gone, so the next call is sent when the wait is over.
    pub(crate) wait_lock: tokio::sync::Mutex<()>,
}

/// Identifies one connection of a lane, and its server.
#[derive(Clone)]
pub(crate) struct ConnectionInfo {
    pub(crate) server: Arc<Server>,
    /// The number of the connection in its lane.
    number: u64,
    health: Arc<LaneHealth>,
    /// After how long without an answer the call that took the connection doubts that the
    /// connection is alive.
    doubt_after: Option<Duration>,
}

/// What calls have found out about one connection.
#[derive(Default)]
struct LaneHealth {
    /// Whether some call was answered soon. Only such a connection is doubted.
    is_fast: AtomicBool,
    /// Cancelled when the server answers, but not on this connection.
    is_dead: CancellationToken,
}

struct OpenConnection {
    connection: MultiplexedConnection,
    /// The pool's permit for the connection, unless the connection is dedicated.
    pooled: Option<deadpool_redis::Connection>,
    info: ConnectionInfo,
    used: Instant,
    /// Whether the server has shown that it can wait for replicas or disks.
    can_wait: bool,
}

impl ConnectionInfo {
    /// Awaits the answer to a call on this connection, for up to the limit of one command. Returns
    /// an error once the connection is known to be dead.
    pub(crate) async fn answered<T>(
        &self,
        call: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, RedisError> {
        let LaneHealth { is_fast, is_dead } = &*self.health;
        let sent = Instant::now();
        let doubt = async {
            match self.doubt_after {
                Some(after) if is_fast.load(Ordering::Relaxed) => {
                    self.server.answers_elsewhere(after).await;
                }
                _ => std::future::pending().await,
            }
            self.server.distrust_until(sent);
            is_dead.cancel();
        };
        tokio::select! {
            biased;
            answer = limited(RESPONSE_LIMIT, call) => {
                if sent.elapsed() < DOUBT_AFTER {
                    is_fast.store(true, Ordering::Relaxed);
                }
                answer
            }
            () = is_dead.cancelled() => Err(only_elsewhere()),
            // This also cancels `is_dead`.
            () = doubt => Err(only_elsewhere()),
        }
    }
}

impl OpenConnection {
    /// Closes the connection instead of returning it to the pool.
    fn discard(self) {
        self.pooled.map(deadpool_redis::Connection::take);
    }
}

impl Lane {
    pub(crate) fn new(connector: Arc<Connector>, clock: Arc<Clock>) -> Self {
        Self {
            connector,
            clock,
            dedicated: None,
            open: Mutex::new(None),
            doubts_idle_only: false,
            gave_up: Mutex::default(),
            connections: AtomicU64::new(0),
            wait_lock: tokio::sync::Mutex::new(()),
        }
    }

    /// Makes a lane with a dedicated connection, for calls that wait long.
    pub(crate) fn dedicated(
        connector: Arc<Connector>,
        clock: Arc<Clock>,
        permit: Arc<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            dedicated: Some(permit),
            ..Self::for_pushes(connector, clock)
        }
    }

    /// Makes a lane for calls of up to 1 MiB.
    pub(crate) fn for_pushes(connector: Arc<Connector>, clock: Arc<Clock>) -> Self {
        Self {
            doubts_idle_only: true,
            ..Self::new(connector, clock)
        }
    }

    pub(crate) fn clock(&self) -> &Arc<Clock> {
        &self.clock
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.connector
    }

    /// Drops a connection that has been idle for more than 1 s. Used before a call that must not be
    /// repeated: if the other side had closed the connection, the outcome of the call would be
    /// unknown. The pool checks the connections that it gives out.
    pub(crate) fn distrust_idle(&self) {
        self.lock().take_if(|open| open.used.elapsed() > IDLE_LIMIT);
    }

    /// Calls a script once. If the server does not know the script, its source is sent. `asking` is
    /// for a server that is getting the slot of the keys: it serves them only after ASKING.
    pub(crate) async fn call(
        &self,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
        asking: bool,
    ) -> Result<Reply, Error> {
        let sent = Instant::now();
        let called = async {
            let (mut connection, info) = self.connection().await?;
            let exchange = Self::exchange(&mut connection, verb, keys, args, asking);
            let asked = async { Ok(info.answered(exchange).await) };
            #[cfg(feature = "harness")]
            let observed = harness::invoke(&info.server.address, verb, keys, args);
            let answer = info
                .server
                .unless_superseded(Applied::Unknown, asked)
                .await?;
            #[cfg(feature = "harness")]
            harness::done(observed, &answer);
            self.decode(verb, answer, sent, &info)
        };
        called.await.map_err(|error| {
            if verb.only_reads(args) {
                error.of_read()
            } else {
                error
            }
        })
    }

    /// Sends a plain command that only reads, such as INFO.
    pub(crate) async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        self.command(command).await.map_err(Error::of_read)
    }

    /// Sends a plain command.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, Error> {
        self.command_asking(command, false).await
    }

    /// Sends a plain command. `asking` is for a server that is getting the slot of the keys.
    pub(crate) async fn command_asking(&self, command: &Cmd, asking: bool) -> Result<Value, Error> {
        let (mut connection, info) = self.connection().await?;
        let asked = async { Ok(info.answered(send(&mut connection, command, asking)).await) };
        info.server
            .unless_superseded(Applied::Unknown, asked)
            .await?
            .map_err(|error| self.fail(&info, error))
    }

    /// Decodes the answer to a script call, and corrects the estimate of the server's clock.
    pub(crate) fn decode(
        &self,
        verb: Verb,
        answer: Result<Value, RedisError>,
        sent: Instant,
        info: &ConnectionInfo,
    ) -> Result<Reply, Error> {
        let value = answer.map_err(|error| self.fail(info, error))?;
        let reply = Reply::decode(verb, value, sent)?;
        self.clock
            .observe(sent, Instant::now(), reply.header.now_us);
        Ok(reply)
    }

    /// Calls a script by its hash; if the server does not know the hash, by its source.
    pub(crate) async fn exchange(
        connection: &mut MultiplexedConnection,
        verb: Verb,
        keys: &Keys,
        args: &[&[u8]],
        asking: bool,
    ) -> Result<Value, RedisError> {
        let evalsha = call("EVALSHA", verb.sha(), keys, args);
        match send(connection, &evalsha, asking).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let eval = call("EVAL", verb.code(), keys, args);
                send(connection, &eval, asking).await
            }
            answer => answer,
        }
    }

    /// The open connection, or a new one.
    pub(crate) async fn connection(
        &self,
    ) -> Result<(MultiplexedConnection, ConnectionInfo), Error> {
        {
            let mut open = self.lock();
            open.take_if(|open| {
                let server = &open.info.server;
                !self.connector.is_current(server) || server.distrusts(open.used)
            })
            .into_iter()
            .for_each(OpenConnection::discard);
            if let Some(open) = &mut *open {
                let was_idle = open.used.elapsed() > IDLE_LIMIT;
                open.used = Instant::now();
                let mut info = open.info.clone();
                let doubts = was_idle || !self.doubts_idle_only;
                info.doubt_after = doubts.then(|| self.doubt_after());
                return Ok((open.connection.clone(), info));
            }
        }
        let (connection, pooled, server) = if self.dedicated.is_some() {
            let (connection, server) = self.connector.dedicated().await?;
            (connection, None, server)
        } else {
            let (pooled, server) = self.connector.pooled().await?;
            (MultiplexedConnection::clone(&pooled), Some(pooled), server)
        };
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let info = ConnectionInfo {
            server,
            number,
            health: Arc::default(),
            doubt_after: None,
        };
        let taken = (connection.clone(), info.clone());
        *self.lock() = Some(OpenConnection {
            connection,
            pooled,
            info,
            used: Instant::now(),
            can_wait: false,
        });
        Ok(taken)
    }

    /// Whether the server has shown on this connection that it can wait for replicas or disks.
    pub(crate) fn can_wait(&self, info: &ConnectionInfo) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|open| open.can_wait && open.info.number == info.number)
    }

    pub(crate) fn set_can_wait(&self, info: &ConnectionInfo) {
        let mut open = self.lock();
        if let Some(open) = open.as_mut().filter(|open| open.info.number == info.number) {
            open.can_wait = true;
        }
    }

    /// Converts an error, and closes the connection if it cannot be used any more. After an error
    /// that is not a reply of the server, the connection is out of step; and a server that became a
    /// replica accepts no writes. A newer connection of this lane stays open.
    pub(crate) fn fail(&self, info: &ConnectionInfo, error: RedisError) -> Error {
        let useless =
            matches!(error.code(), None | Some("READONLY" | "UNBLOCKED")) || error.is_timeout();
        if useless && let Some(open) = self.lock().take_if(|open| open.info.number == info.number) {
            if info.health.is_dead.is_cancelled() {
                let next = 2 * self.doubt_after();
                *self.gave_up() = Some((Instant::now(), next));
            }
            open.discard();
        }
        failure::of_call(&info.server.address, error)
    }

    fn doubt_after(&self) -> Duration {
        let lately = self.gave_up().filter(|(at, _)| at.elapsed() < SLOWER_FOR);
        lately.map_or(DOUBT_AFTER, |(_, after)| after)
    }

    fn gave_up(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        self.gave_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpenConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a command. With `asking`, ASKING goes right before it, so that no other call comes
/// between.
async fn send(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
    asking: bool,
) -> Result<Value, RedisError> {
    if !asking {
        return command.query_async(connection).await;
    }
    let mut pipeline = redis::Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command.clone());
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await?;
    let mut answers = answers.into_iter().map(Value::extract_error);
    match (answers.next(), answers.next()) {
        // The user has no right to ASKING, so following the redirection would be in vain.
        (Some(Err(refused)), Some(Err(error))) if error.code() == Some("MOVED") => Err(refused),
        (_, Some(answer)) => answer,
        (_, None) => Ok(Value::Nil),
    }
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

#[cfg(test)]
mod tests;
