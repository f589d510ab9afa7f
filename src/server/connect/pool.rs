//! A server and the connections to it.
//!
//! deadpool-redis has one role here: it opens, checks and limits the shared connections, which
//! lanes then keep. Connections that block or subscribe are opened without the pool.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use deadpool_redis::{Hook, Manager, Pool, PoolError, Runtime, TimeoutType, Timeouts};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, Value};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::error::{Applied, ConnectionFault, Error, ErrorKind};
use crate::server::connect::credentials::Secrets;
use crate::server::connect::target::Target;
use crate::server::failure;
use crate::server::info::{FITNESS, Info};
use crate::server::patience::{CONNECT_LIMIT, RESPONSE_LIMIT};

/// How long a caller waits for a connection of the pool.
const POOL_WAIT_LIMIT: Duration = Duration::from_secs(5);
/// Four lanes, each with one connection, and as many again while lost connections are replaced. A
/// call carries a batch, so a few connections suffice.
const POOL_SIZE: usize = 8;

/// One server. A client uses it until Sentinels, or servers of its cluster, name another master.
pub(crate) struct Server {
    pub(crate) target: Target,
    /// The address of the server, without user and password, for error texts.
    pub(crate) address: String,
    /// The pool, and the secrets with which it opens connections.
    pool: StdMutex<Option<(Arc<Secrets>, Pool)>>,
    opened: Arc<AtomicU64>,
    /// Identifies the server: all pools of one server share it.
    identity: Arc<()>,
    /// Cancelled when Sentinels name another master, or when this server no longer serves slots of
    /// its cluster. `None` for a server of a plain URL. A master that froze may never reply to the
    /// calls that are in flight here.
    superseded: Option<CancellationToken>,
    /// Whether this server of a cluster was found fit for queues.
    checked: AtomicBool,
    /// How long the last connection took to open, in microseconds.
    opening_us: AtomicU64,
    /// Connections that were last used before this instant may be dead, because one of them was.
    distrusted: StdMutex<Option<Instant>>,
    /// When the server last answered a question on a new connection. See `probe`.
    pub(crate) answered: Mutex<Option<Instant>>,
}

impl Server {
    /// The server of a plain URL. `opened` counts its connections.
    pub(crate) fn fixed(target: Target, opened: &Arc<AtomicU64>) -> Self {
        Self::of(target, None, opened, Arc::default())
    }

    /// A server that Sentinels, or servers of a cluster, named as a master.
    pub(crate) fn named(target: Target, opened: &Arc<AtomicU64>) -> Self {
        let superseded = Some(CancellationToken::new());
        Self::of(target, superseded, opened, Arc::default())
    }

    /// This server with another pool.
    pub(crate) fn with_own_pool(&self) -> Self {
        let identity = Arc::clone(&self.identity);
        let superseded = self.superseded.clone();
        Self::of(self.target.clone(), superseded, &self.opened, identity)
    }

    /// Whether both values stand for the same server, whatever their pools.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.identity, &other.identity)
    }

    fn of(
        target: Target,
        superseded: Option<CancellationToken>,
        opened: &Arc<AtomicU64>,
        identity: Arc<()>,
    ) -> Self {
        Self {
            address: target.info().addr().to_string(),
            target,
            pool: StdMutex::default(),
            opened: Arc::clone(opened),
            identity,
            superseded,
            checked: AtomicBool::new(false),
            opening_us: AtomicU64::new(0),
            distrusted: StdMutex::default(),
            answered: Mutex::default(),
        }
    }

    /// The pool for the present secrets. New secrets start a new pool, because a pool opens all its
    /// connections with one client.
    async fn pool(&self) -> Result<Pool, Error> {
        let secrets = self.target.secrets().await?;
        let mut last = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, pool)) = &*last
            && Arc::ptr_eq(of, &secrets)
        {
            return Ok(pool.clone());
        }
        let pool = self.new_pool(&self.target.client_with(&secrets)?)?;
        Ok(last.insert((secrets, pool)).1.clone())
    }

    /// The lanes, which use these connections, limit each call.
    fn new_pool(&self, client: &Client) -> Result<Pool, Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(None);
        let info = client.get_connection_info().clone();
        let manager = Manager::new_with_config(info, config)
            .map_err(|error| failure::of_connecting(&self.address, error))?;
        let pooled = Arc::clone(&self.opened);
        Pool::builder(manager)
            .max_size(POOL_SIZE)
            .post_create(Hook::sync_fn(move |_, _| {
                pooled.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }))
            .timeouts(Timeouts {
                wait: Some(POOL_WAIT_LIMIT),
                create: Some(CONNECT_LIMIT),
                recycle: Some(CONNECT_LIMIT),
            })
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| {
                Error::with_source(
                    ErrorKind::InvalidInput,
                    Applied::No,
                    "the pool cannot be built",
                    error,
                )
            })
    }

    pub(crate) fn opened(&self) -> &Arc<AtomicU64> {
        &self.opened
    }

    /// Whether the server was found fit for queues.
    pub(crate) fn is_checked(&self) -> bool {
        self.checked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_checked(&self) {
        self.checked.store(true, Ordering::Relaxed);
    }

    /// Records that the connection of a call sent at `sent` is dead. Connections that were not used
    /// since then may be dead, too: a firewall that forgot one has often forgotten all.
    pub(crate) fn distrust_until(&self, sent: Instant) {
        *self.distrusted() = Some(sent);
    }

    /// Whether a connection that was last used at this instant may be dead.
    pub(crate) fn distrusts(&self, used: Instant) -> bool {
        self.distrusted().is_some_and(|until| used < until)
    }

    fn distrusted(&self) -> MutexGuard<'_, Option<Instant>> {
        let distrusted = self.distrusted.lock();
        distrusted.unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it took to open the last connection.
    pub(crate) fn opening_time(&self) -> Duration {
        Duration::from_micros(self.opening_us.load(Ordering::Relaxed))
    }

    fn opened_since(&self, began: Instant) {
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.opening_us.store(took, Ordering::Relaxed);
    }

    /// Whether another server has become the master.
    pub(crate) fn is_superseded(&self) -> bool {
        let superseded = self.superseded.as_ref();
        superseded.is_some_and(CancellationToken::is_cancelled)
    }

    /// Fails if another server is the master, before a connection is opened: a former master may be
    /// dead, or refuse every connection.
    fn refuse_superseded(&self) -> Result<(), Error> {
        if self.is_superseded() {
            return Err(failure::superseded(&self.address, Applied::No));
        }
        Ok(())
    }

    /// Fails the calls in flight, because another server is the master.
    pub(crate) fn supersede(&self) {
        if let Some(superseded) = &self.superseded {
            superseded.cancel();
        }
    }

    /// Awaits `work`, but returns an error as soon as another server is the master. `applied` says
    /// whether the work may have taken effect then.
    pub(crate) async fn unless_superseded<T>(
        &self,
        applied: Applied,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(superseded) = &self.superseded else {
            return work.await;
        };
        tokio::select! {
            biased;
            result = work => result,
            () = superseded.cancelled() => Err(failure::superseded(&self.address, applied)),
        }
    }

    /// Takes a connection of the pool.
    pub(crate) async fn pooled(&self) -> Result<deadpool_redis::Connection, Error> {
        self.refuse_superseded()?;
        let pool = self.pool().await?;
        let began = Instant::now();
        let getting = async {
            let mut connection = pool
                .get()
                .await
                .map_err(|error| self.no_connection(error))?;
            self.opened_since(began);
            if let Err(error) = self.check_role(&mut connection).await {
                drop(deadpool_redis::Connection::take(connection));
                return Err(error);
            }
            Ok(connection)
        };
        self.unless_stuck(getting).await
    }

    fn no_connection(&self, error: PoolError) -> Error {
        match error {
            PoolError::Backend(error) => failure::of_connecting(&self.address, error),
            PoolError::Timeout(TimeoutType::Wait) => Error::new(
                ErrorKind::Unavailable,
                Applied::No,
                format!(
                    "no free connection to redis at {} within {POOL_WAIT_LIMIT:?}",
                    self.address
                ),
            ),
            PoolError::Timeout(_) => self.slow(),
            other => Error::with_source(
                ErrorKind::Unavailable,
                Applied::No,
                format!("no connection to redis at {}", self.address),
                other,
            ),
        }
    }

    fn slow(&self) -> Error {
        let message = format!(
            "cannot reach redis at {}: no connection within {CONNECT_LIMIT:?}",
            self.address
        );
        Error::new(ErrorKind::Timeout, Applied::No, message)
            .with_connection(ConnectionFault::Unreached)
    }

    /// Opens a dedicated connection for blocking calls. Callers set their own timeouts.
    pub(crate) async fn dedicated(&self) -> Result<MultiplexedConnection, Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(None);
        self.open(&self.target.client().await?, config).await
    }

    /// Opens a dedicated connection that sends pushed messages, and its end, to `sender`.
    pub(crate) async fn listening(
        &self,
        sender: UnboundedSender<PushInfo>,
    ) -> Result<MultiplexedConnection, Error> {
        let info = self.target.client().await?.get_connection_info().clone();
        let settings = info
            .redis_settings()
            .clone()
            .set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))
            .map_err(|error| failure::of_connecting(&self.address, error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(RESPONSE_LIMIT))
            .set_push_sender(sender);
        self.open(&client, config).await
    }

    async fn open(
        &self,
        client: &Client,
        config: AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, Error> {
        self.refuse_superseded()?;
        let began = Instant::now();
        let opening = async {
            let mut connection = client
                .get_multiplexed_async_connection_with_config(&config)
                .await
                .map_err(|error| failure::of_connecting(&self.address, error))?;
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.opened_since(began);
            self.check_role(&mut connection).await?;
            Ok(connection)
        };
        self.unless_stuck(opening).await
    }

    /// Checks that the server is fit for queues. Skipped if the user may not call INFO.
    pub(crate) async fn check_fit(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), Error> {
        let mut info = redis::cmd("INFO");
        info.arg(&FITNESS[..]);
        let answer = tokio::time::timeout(CONNECT_LIMIT, info.query_async::<Value>(connection));
        match answer.await.map_err(|_| self.slow())? {
            Ok(answer) => Info::read(answer)?.check(&self.address),
            Err(error) if error.code() == Some("NOPERM") => Ok(()),
            Err(error) => Err(failure::of_connecting(&self.address, error)),
        }
    }

    /// Checks that a server which Sentinels named reports the role master. The Sentinels may have
    /// old information, or the server may not yet know its role.
    async fn check_role(&self, connection: &mut MultiplexedConnection) -> Result<(), Error> {
        if self.superseded.is_none() {
            return Ok(());
        }
        let role = redis::cmd("ROLE");
        let answer = tokio::time::timeout(CONNECT_LIMIT, role.query_async::<Value>(connection));
        match answer.await.map_err(|_| self.slow())? {
            Ok(Value::Array(parts))
                if parts.first() != Some(&Value::BulkString(b"master".to_vec())) =>
            {
                let message = format!(
                    "redis at {} is a replica: the master is being changed",
                    self.address
                );
                Err(Error::new(ErrorKind::Unavailable, Applied::No, message))
            }
            // If the user has no right to call ROLE, the first write will show whether the server
            // is a master.
            Err(error) if error.code() != Some("NOPERM") => {
                Err(failure::of_connecting(&self.address, error))
            }
            _ => Ok(()),
        }
    }
}
