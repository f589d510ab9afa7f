//! A connection to a server that is fit to hold queues.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::error::{Applied, ConnectionFault, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::protocol::keys::{META_PATTERN, queue_of_meta};
use crate::queue::Queue;
use crate::server::connector::Connector;
use crate::server::info::FITNESS;
use crate::server::link::ServerLink;
use crate::server::options::ClientOptions;
use crate::server::patience::{Patience, Repeat};
use crate::telemetry::events;

/// A Redis server to keep queues on. Cheap to clone; connections are pooled, made when needed and mended by themselves.
///
/// ```no_run
/// # async fn example() -> Result<(), dueq::Error> {
/// let client = dueq::Client::connect("redis://127.0.0.1/").await?;
/// let orders = client.queue("orders")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    link: Arc<ServerLink>,
    durability: Durability,
}

impl Client {
    /// Connects to the server at `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`; with `rediss://` over TLS.
    ///
    /// Or to whichever server is the master of a service that Sentinels look after, at
    /// `redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]`: the hosts are the Sentinels'
    /// (port 26379 if not given), user and password the servers'. If Sentinels ask for a password themselves, add
    /// `?sentinel_password=PASSWORD`, and `&sentinel_user=USER`; with `rediss+sentinel://` all connections use TLS. They are
    /// asked before each connection, and the server must say that it is the master; after a failover all connections, those
    /// of running workers too, go to the new one by themselves.
    ///
    /// TLS is by rustls, whose provider of cryptography is one for the whole process: redis-rs takes no other for its
    /// connections. If the program has installed none before the first `rediss://` URL, ring is installed. A program that wants
    /// another one calls `rustls::crypto::CryptoProvider::install_default` first.
    ///
    /// Asks the server what it is, once, and each one that Sentinels name later: calls fail with `Unsupported` as long as that
    /// is not fit. It must be Redis 7.0 or Valkey 7.2 or newer, and must not evict keys: a
    /// `maxmemory-policy` of `allkeys-...` is refused with [`ErrorKind::Unsupported`], with or without `maxmemory`, because it
    /// drops messages while every call succeeds. A policy of `volatile-...` is taken: it evicts only keys that expire, and a
    /// queue's do not. The same server is not asked again after it was restarted or given another policy;
    /// [`Client::examine`](crate::Client::examine) looks at any time. A server without an append-only file is accepted with a warning (by `tracing`). If the user may not
    /// call INFO, these checks are left out, with a warning.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] at once if nobody listens there, [`ErrorKind::Timeout`] within some ten seconds if nobody
    /// answers, [`ErrorKind::Denied`] if user or password are refused, [`ErrorKind::InvalidInput`] if the URL is none.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, &ClientOptions::new()).await
    }

    /// As [`Client::connect`], with options: certificates for TLS.
    ///
    /// # Errors
    /// Those of `connect`, and [`ErrorKind::InvalidInput`] if there are certificates and the URL is not `rediss://`.
    pub async fn connect_with(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        let connector = Arc::new(Connector::new(url, options)?);
        let client = Self {
            link: Arc::new(ServerLink::new(&connector)),
            durability: Durability::Memory,
        };
        let mut patience = Patience::new();
        loop {
            match client.check_server(options.accept_unfit).await {
                // A refused connection is told at once: at the start a wrong address is likelier than a restart.
                Err(error) if !refused(&error) && patience.allows(&error, Repeat::Harmless) => {
                    patience.pause().await
                }
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        client.link.control.time().await?;
        Ok(client)
    }

    /// The queue of this name: 1 to 128 bytes without control characters and `/ { }`. It exists from its first push on.
    ///
    /// Asks nothing of the server.
    pub fn queue(&self, name: &str) -> Result<Queue, Error> {
        Ok(Queue::new(name, Arc::clone(&self.link))?.durability(self.durability))
    }

    /// A client whose queues ask for this [`Durability`], unless a queue or a message asks for another. It shares the
    /// connections of this one; queues that were made before keep theirs.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The names of all queues on the server, sorted. Scans its whole key space in small steps: for people, not for loops.
    /// A queue that is made or deleted meanwhile may or may not be among them.
    pub async fn queues(&self) -> Result<Vec<String>, Error> {
        let (mut names, mut cursor) = (BTreeSet::new(), 0_u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor)
                .arg("MATCH")
                .arg(META_PATTERN)
                .arg("COUNT")
                .arg(1_000)
                .arg("TYPE")
                .arg("hash");
            let answer = self.link.control.query(&scan).await?;
            let (next, found): (u64, Vec<String>) =
                redis::from_redis_value(answer).map_err(|error| {
                    Error::new(
                        ErrorKind::Server,
                        Applied::No,
                        format!("SCAN answered something unexpected: {error}"),
                    )
                })?;
            names.extend(
                found
                    .iter()
                    .filter_map(|key| queue_of_meta(key))
                    .map(str::to_owned),
            );
            cursor = next;
            if cursor == 0 {
                return Ok(names.into_iter().collect());
            }
        }
    }

    /// How many connections it has opened since it was made. It opens one for each of four kinds of calls when the first is
    /// made, one for each queue and durability besides `Memory`, and two for each worker; what is more has replaced a lost one.
    pub fn connections_opened(&self) -> u64 {
        self.link.connector().opened()
    }

    /// Where the server is, as far as is known: `HOST:PORT`, without user and password.
    pub fn address(&self) -> String {
        self.link.connector().address()
    }

    pub(crate) fn link(&self) -> &ServerLink {
        &self.link
    }

    async fn check_server(&self, accept_unfit: bool) -> Result<(), Error> {
        let info = match self.link.control.info(&FITNESS).await {
            Ok(info) => info,
            Err(error) if error.code() == Some("NOPERM") => {
                events::server_unchecked(&self.link.connector().address());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if accept_unfit {
            return Ok(());
        }
        info.check(&self.link.connector().address())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.link.connector().address())
            .finish()
    }
}

/// Whether nothing was reached at all, as opposed to a server that is slow or does not serve yet.
fn refused(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.connection() == Some(ConnectionFault::Unreached)
}
