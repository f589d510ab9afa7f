//! Opening connections: the pool for commands, and connections of their own for what blocks or listens.

use std::time::Duration;

use deadpool_redis::{Manager, Pool, PoolError, Runtime, TimeoutType, Timeouts};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, PushInfo,
};
#[cfg(feature = "tls")]
use redis::{ClientTlsConfig, TlsCertificates};
use tokio::sync::mpsc::UnboundedSender;

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::failure;
use crate::protocol::options::ClientOptions;

/// How long opening a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// How long one command may take before its connection is given up. Not less: a claim that is given up leaves what it took
/// without a consumer until the lease runs out, and servers do stall for seconds, on a slow disk or in a fork.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(5);
/// How long a caller may wait for a connection of the pool.
const POOL_WAIT_LIMIT: Duration = Duration::from_secs(5);
/// One for each lane, and as many while lost ones are replaced: a call carries a batch, so few are needed.
const POOL_SIZE: usize = 8;

/// Where the server is and how connections to it are made.
pub(crate) struct Connector {
    client: Client,
    /// Without user or password, for error messages.
    pub(crate) address: String,
    pub(crate) pool: Pool,
}

impl Connector {
    /// Reads a URL: `redis://` or `rediss://`, `[USER][:PASSWORD@]HOST[:PORT][/DATABASE]`, or `redis+unix:///PATH`.
    pub(crate) fn new(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        let info = url.into_connection_info().map_err(|_| bad_url())?;
        let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        if tls && !cfg!(feature = "tls") {
            return Err(Error::invalid("a rediss:// URL needs the feature `tls` of the crate dueq"));
        }
        if options.want_tls() && !tls {
            return Err(Error::invalid(
                "certificates were given, and the URL is not rediss://: nothing would be encrypted",
            ));
        }
        // A program that has several TLS providers among its crates must choose one; so does this library, if nobody has.
        #[cfg(feature = "tls")]
        let _ = rustls::crypto::ring::default_provider().install_default();
        #[cfg(feature = "tls")]
        let info = with_certificates(info, options)?;
        Self::of(info)
    }

    /// The same, at another server that takes the same user, password and TLS.
    pub(crate) fn elsewhere(&self, host: String, port: u16) -> Result<Self, Error> {
        let info = self.client.get_connection_info().clone();
        let addr = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Self::of(info.set_addr(addr))
    }

    /// The host that it was told to connect to.
    pub(crate) fn host(&self) -> String {
        match self.client.get_connection_info().addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "127.0.0.1".to_owned(),
        }
    }

    fn of(info: ConnectionInfo) -> Result<Self, Error> {
        let address = info.addr().to_string();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(RESPONSE_LIMIT));
        let manager =
            Manager::new_with_config(info.clone(), config).map_err(|error| failure::of_connecting(&address, error))?;
        let pool = Pool::builder(manager)
            .max_size(POOL_SIZE)
            .timeouts(Timeouts {
                wait: Some(POOL_WAIT_LIMIT),
                create: Some(CONNECT_LIMIT),
                recycle: Some(CONNECT_LIMIT),
            })
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| {
                Error::with_source(ErrorKind::InvalidInput, Applied::No, "the pool cannot be built", error)
            })?;
        let client = Client::open(info).map_err(|error| failure::of_connecting(&address, error))?;
        Ok(Self { client, address, pool })
    }

    /// A connection of the pool.
    pub(crate) async fn pooled(&self) -> Result<deadpool_redis::Connection, Error> {
        self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => failure::of_connecting(&self.address, error),
            PoolError::Timeout(TimeoutType::Wait) => Error::new(
                ErrorKind::Unavailable,
                Applied::No,
                format!("no free connection to redis at {} within {POOL_WAIT_LIMIT:?}", self.address),
            ),
            PoolError::Timeout(_) => Error::new(
                ErrorKind::Timeout,
                Applied::No,
                format!("cannot reach redis at {}: no connection within {CONNECT_LIMIT:?}", self.address),
            ),
            other => Error::with_source(
                ErrorKind::Unavailable,
                Applied::No,
                format!("no connection to redis at {}", self.address),
                other,
            ),
        })
    }

    /// A connection of its own for blocking waits: commands on it have no time limit but the caller's.
    pub(crate) async fn dedicated(&self) -> Result<MultiplexedConnection, Error> {
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_LIMIT)).set_response_timeout(None);
        self.open(&self.client, config).await
    }

    /// A connection of its own whose pushed messages, and its end, go to `sender`.
    pub(crate) async fn listening(&self, sender: UnboundedSender<PushInfo>) -> Result<MultiplexedConnection, Error> {
        let info: &ConnectionInfo = self.client.get_connection_info();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.clone().set_redis_settings(settings))
            .map_err(|error| failure::of_connecting(&self.address, error))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_LIMIT))
            .set_response_timeout(Some(RESPONSE_LIMIT))
            .set_push_sender(sender);
        self.open(&client, config).await
    }

    async fn open(&self, client: &Client, config: AsyncConnectionConfig) -> Result<MultiplexedConnection, Error> {
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| failure::of_connecting(&self.address, error))
    }
}

/// The same with the certificates of the options.
#[cfg(feature = "tls")]
fn with_certificates(info: ConnectionInfo, options: &ClientOptions) -> Result<ConnectionInfo, Error> {
    if !options.want_tls() {
        return Ok(info);
    }
    let marker = b"BEGIN CERTIFICATE";
    // An empty list would be taken, and nobody trusted.
    if options.ca_certificates.as_ref().is_some_and(|pem| !pem.windows(marker.len()).any(|part| part == marker)) {
        return Err(Error::invalid("what was given as the CA's certificates holds none in PEM"));
    }
    let client_tls = options.client_certificate.clone();
    let certificates = TlsCertificates {
        client_tls: client_tls.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
        root_cert: options.ca_certificates.clone(),
    };
    let client = Client::build_with_tls(info, certificates).map_err(|error| {
        let message = format!("the certificates, or the key, cannot be read as PEM: {error}");
        Error::with_source(ErrorKind::InvalidInput, Applied::No, message, error)
    })?;
    Ok(client.get_connection_info().clone())
}

/// The URL itself is not repeated: it may hold a password.
fn bad_url() -> Error {
    Error::invalid(
        "the Redis URL cannot be read; it must look like redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS",
    )
}
