//! The handle of a server: it connects, checks that the server is fit for queues, and makes the
//! handles of queues.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::model::codec::{Codec, Json, RawBytes};
use crate::model::durability::Durability;
use crate::model::reached::PartialRead;
use crate::protocol::limits;
use crate::queue::Queue;
use crate::router::Registry;
use crate::server::connect::options::ClientOptions;
use crate::server::link::ServerLink;
use crate::server::patience::REACH_LIMIT;
use crate::server::queue_scan::{QueueScan, names_reached};
use crate::server::rounds::at_once;
use crate::server::servers::Servers;
use crate::server::stores::OtherStores;

/// How many queues [`Client::may_hold`] reads at once.
const READ_AT_ONCE: usize = 100;

/// A Redis server that holds queues. Cheap to clone. Connections are pooled, opened when a call
/// needs them, and replaced when they are lost.
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
    servers: Arc<Servers>,
    queues: Arc<Registry>,
    others: Arc<OtherStores>,
    durability: Durability,
}

impl Client {
    /// Connects to the server at `redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]`, or with TLS at
    /// `rediss://`.
    ///
    /// For a service that Redis Sentinels monitor, the URL is
    /// `redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]`. The
    /// hosts are those of the Sentinels (port 26379 unless given). User and password are for the
    /// servers, not for the Sentinels. For Sentinels that need a password, add
    /// `?sentinel_password=PASSWORD`, and `&sentinel_user=USER`. With `rediss+sentinel://` all
    /// connections use TLS. The client asks the Sentinels before each connection, and the server
    /// must report that it is the master. After a failover all connections, also those of running
    /// workers, move to the new master.
    ///
    /// If the server belongs to a Redis Cluster, the client uses all its masters: each queue is on
    /// the master of its slot. `redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]` names
    /// several servers, of which one suffices, and `rediss+cluster://` uses TLS. Redirections are
    /// followed, also by running workers, when a slot moves or a replica is promoted.
    ///
    /// TLS is by rustls. Its cryptography provider is one for the whole process, because redis-rs
    /// uses the process-wide one. If the program has not installed one before the first `rediss://`
    /// URL, ring is installed. A program that wants another one calls
    /// `rustls::crypto::CryptoProvider::install_default` first.
    ///
    /// The client asks the server once whether it is fit, and each server that Sentinels name
    /// later. It must be Redis 7.0 or Valkey 7.2 or newer, and it must not evict keys: a
    /// `maxmemory-policy` of `allkeys-...` is refused with [`ErrorKind::Unsupported`], with or
    /// without `maxmemory`, because it drops messages while every call succeeds. A policy of
    /// `volatile-...` is accepted: it evicts only keys that expire, and a queue's keys do not. The
    /// client does not ask the same server again after a restart or a change of its policy;
    /// [`Client::examine`](crate::Client::examine) does at any time. A server without an
    /// append-only file is accepted with a warning (by `tracing`). If the user may not call INFO,
    /// the checks are skipped, with a warning.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] at once if the connection is refused, [`ErrorKind::Timeout`]
    /// after about 10 s without a reply, [`ErrorKind::Denied`] if user or password are refused,
    /// [`ErrorKind::InvalidInput`] if the URL cannot be read.
    ///
    /// [`ErrorKind::Unsupported`]: crate::ErrorKind::Unsupported
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Timeout`]: crate::ErrorKind::Timeout
    /// [`ErrorKind::Denied`]: crate::ErrorKind::Denied
    /// [`ErrorKind::InvalidInput`]: crate::ErrorKind::InvalidInput
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(url, &ClientOptions::new()).await
    }

    /// Connects as [`Client::connect`] does, with options such as certificates for TLS.
    ///
    /// # Errors
    /// The errors of `connect`, and `InvalidInput` if there are certificates and the URL is not
    /// `rediss://`.
    pub async fn connect_with(url: &str, options: &ClientOptions) -> Result<Self, Error> {
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        let connecting: Pin<Box<dyn Future<Output = _> + Send>> =
            Box::pin(Servers::connect(url, options));
        Ok(Self {
            servers: Arc::new(connecting.await?),
            queues: Arc::default(),
            others: Arc::new(OtherStores::new(url, options)),
            durability: Durability::Memory,
        })
    }

    /// Returns the queue of this name, whose payloads are bytes. A name has 1 to 128 bytes; control
    /// characters and `/ { }` are not allowed. The queue exists from its first push on.
    ///
    /// Sends nothing to the server. Handles of the same name share batches and
    /// [metrics](Queue::metrics), whatever their codec. The client forgets these when no handle of
    /// the name is left and 64 other names were asked for since.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let orders = client.queue("orders")?;
    /// orders.push("rate it").id("order:42").await?;
    /// # });
    /// ```
    pub fn queue(&self, name: &str) -> Result<Queue, Error> {
        self.queue_with_codec(name, RawBytes)
    }

    /// Returns the queue of this name, as [`queue`](Client::queue) does. Its payloads are values of
    /// `T` as JSON.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use std::collections::BTreeMap;
    ///
    /// let scores = client.queue_of::<BTreeMap<String, u32>>("scores")?;
    /// scores.push(BTreeMap::from([("order:42".to_owned(), 5)])).await?;
    /// # });
    /// ```
    pub fn queue_of<T>(&self, name: &str) -> Result<Queue<Json<T>>, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.queue_with_codec(name, Json::default())
    }

    /// Returns the queue of this name, as [`queue`](Client::queue) does. This codec encodes and
    /// decodes its payloads.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let numbers = client.queue_with_codec("numbers", dueq::Json::<u64>::default())?;
    /// numbers.push(42_u64).await?;
    /// # });
    /// ```
    pub fn queue_with_codec<C: Codec>(&self, name: &str, codec: C) -> Result<Queue<C>, Error> {
        let router = self.queues.router(name, &self.servers, &self.others)?;
        Ok(Queue::new(router, self.durability, codec))
    }

    /// A client that shares the connections of this one and gives its queues this [`Durability`],
    /// unless a queue or a message sets another. Handles that this client made earlier keep their
    /// durability.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::Durability;
    /// use std::time::Duration;
    ///
    /// let replicas = 1;
    /// let safe = client.durability(Durability::Replicated { replicas, timeout: Duration::from_secs(1) });
    /// let orders = safe.queue("orders")?;
    /// # });
    /// ```
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The names of all queues on the server, sorted. It scans the whole key space in small steps:
    /// use it for inspection, not in a loop. A queue that is created or deleted meanwhile may or
    /// may not be listed. A queue of several partitions is found by any of them.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// client.queue("orders")?.push("rate it").await?;
    /// assert_eq!(client.queues().await?, ["orders"]);
    /// # });
    /// ```
    pub async fn queues(&self) -> Result<Vec<String>, Error> {
        let (mut scan, mut names) = (self.scan_queues(), BTreeSet::new());
        while let Some(found) = scan.next().await? {
            names.extend(found);
        }
        Ok(names.into_iter().collect())
    }

    /// Lists the names of queues as [`queues`](Client::queues) does, for monitoring: it skips each
    /// master of a cluster that does not reply within 2 s, and names that master.
    ///
    /// # Errors
    /// If no server can be read.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// client.queue("orders")?.push("rate it").await?;
    /// let names = client.queues_reached().await?;
    /// println!("{:?} {}", names.value, names.gap().unwrap_or_default());
    /// # assert_eq!(names.value, ["orders"]);
    /// # });
    /// ```
    pub async fn queues_reached(&self) -> Result<PartialRead<Vec<String>>, Error> {
        names_reached(&self.servers).await
    }

    /// Returns a scan that finds the queues of [`queues`](Client::queues) step by step, for a
    /// program that scans repeatedly and spreads the steps over time. This call sends nothing.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let mut scan = client.scan_queues();
    /// while let Some(names) = scan.next().await? {
    ///     println!("{names:?}");
    /// }
    /// # });
    /// ```
    pub fn scan_queues(&self) -> QueueScan {
        QueueScan::new(&self.servers)
    }

    /// Whether Redis answers reads now, for readiness probes; in a cluster, whether any master does. A
    /// read of one key at each master; the first answer decides. Wait for it with a time limit.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use std::time::Duration;
    ///
    /// let asked = tokio::time::timeout(Duration::from_secs(2), client.is_served()).await;
    /// assert!(asked.unwrap_or(false));
    /// # });
    /// ```
    pub async fn is_served(&self) -> bool {
        self.servers.any_serves().await
    }

    /// Those of these queues that may hold a message with this id: for a search in many queues, as
    /// [`Queue::get_up_to`] then tells what they hold. The others do not hold it.
    ///
    /// It reads a hundred queues at once, by plain commands that Redis answers in a tenth of the time
    /// of a `get`. A queue stays in the list if it cannot be read in this way: also one with several
    /// partitions, and one whose master is away. The rights are those of `get`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// client.queue("orders")?.push("rate it").id("order:42").await?;
    /// client.queue("mail")?.push("rate it").await?;
    /// assert_eq!(client.may_hold("order:42", vec!["mail", "orders"]).await, ["orders"]);
    /// # });
    /// ```
    pub async fn may_hold<N: AsRef<str>>(&self, id: impl AsRef<[u8]>, names: Vec<N>) -> Vec<N> {
        let id: Arc<[u8]> = id.as_ref().into();
        if limits::check_id(&id).is_err() {
            return names; // `get` returns the error
        }
        let mut lacks = Vec::with_capacity(names.len());
        for names in names.chunks(READ_AT_ONCE) {
            lacks.extend(self.lack(&id, names).await);
        }
        let all = names.into_iter().zip(lacks);
        all.filter_map(|(name, lacks)| (!lacks).then_some(name))
            .collect()
    }

    /// Which of these queues hold no message with this id, as far as plain reads tell.
    async fn lack(&self, id: &Arc<[u8]>, names: &[impl AsRef<str>]) -> Vec<bool> {
        let mut by_master: Vec<(Arc<ServerLink>, Vec<_>)> = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let Ok(queue) = self.queue(name.as_ref()) else {
                continue;
            };
            let known = queue.router().current();
            let link = known.home().route().known_link();
            let Some(link) = link.filter(|_| known.map().is_none()) else {
                continue;
            };
            let home = (number, Arc::clone(known.home()));
            match by_master.iter_mut().find(|(of, _)| Arc::ptr_eq(of, &link)) {
                Some((_, homes)) => homes.push(home),
                None => by_master.push((link, vec![home])),
            }
        }
        let reads = by_master.into_iter().map(|(link, homes)| {
            let id = Arc::clone(id);
            async move {
                let keys: Vec<_> = homes.iter().map(|(_, home)| home.keys()).collect();
                let read = link.control.lack(&keys, &id);
                let lacks = homes[0].1.reach(REACH_LIMIT, read).await?;
                let numbers = homes.into_iter().map(|(number, _)| number);
                Ok(numbers.zip(lacks).collect::<Vec<_>>())
            }
        });
        let mut all = vec![false; names.len()];
        for (number, lacks) in at_once(reads).await.into_iter().flatten().flatten() {
            all[number] = lacks;
        }
        all
    }

    /// How many connections this client has opened since it was made. It opens one for each of four
    /// kinds of calls at the first such call, and one for each queue and durability besides
    /// `Memory`. Each worker opens five, whatever the number of its queues. Further connections
    /// have replaced lost ones. A worker with a pattern opens one more. In a cluster, client and
    /// worker open them to each master that they use, and a worker has one more for each queue that
    /// is not parked, up to 64.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let before = client.connections_opened();
    /// client.queue("orders")?.push("rate it").await?;
    /// assert!(client.connections_opened() > before);
    /// # });
    /// ```
    pub fn connections_opened(&self) -> u64 {
        self.servers.opened()
    }

    /// The address of the server as far as it is known: `HOST:PORT`, without user and password.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// println!("connected to {}", client.address());
    /// # assert!(client.address().starts_with("127.0.0.1:"));
    /// # });
    /// ```
    pub fn address(&self) -> String {
        self.servers.address()
    }

    /// How many masters hold the queues of this client: those of the cluster that serve slots, or 1.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// println!("about {} partitions are a good number", 4 * client.masters());
    /// # assert_eq!(client.masters(), 1);
    /// # });
    /// ```
    pub fn masters(&self) -> usize {
        let masters = self.servers.masters().into_iter();
        masters.filter(|slots| !slots.is_empty()).count()
    }

    pub(crate) fn servers(&self) -> &Arc<Servers> {
        &self.servers
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.servers.address())
            .finish()
    }
}
