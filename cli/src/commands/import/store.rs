//! Reading keys that are not dueq's, and remembering what was imported.
//!
//! The one file of the program that names the `redis` crate: Redisson's keys are no queues, so the public API has no call for
//! them. No key of a dueq queue is touched here; everything about queues goes through the public API.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, FromRedisValue, Pipeline, cmd};

/// So many elements are read in one step.
pub(crate) const STEP: usize = 256;
/// How long a server may take to answer; some steps carry large elements.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server.
pub(crate) struct Store(MultiplexedConnection);

impl Store {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let client = redis::Client::open(url)
            .map_err(|_| anyhow!("--from is no URL such as redis://[USER:PASSWORD@]HOST:PORT/"))?;
        if matches!(
            client.get_connection_info().addr(),
            ConnectionAddr::TcpTls { insecure: true, .. }
        ) {
            bail!("a URL that ends with #insecure would have TLS trust everybody");
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await;
        connection
            .map(Self)
            .with_context(|| format!("cannot connect to {}", client.get_connection_info().addr()))
    }

    /// A step through a ZSET: the next cursor, and members with their scores. Members that are there all the while are seen,
    /// some perhaps twice.
    pub(crate) async fn scan(
        &mut self,
        key: &str,
        cursor: u64,
    ) -> Result<(u64, Vec<(Vec<u8>, f64)>)> {
        self.ask(
            key,
            cmd("ZSCAN").arg(key).arg(cursor).arg("COUNT").arg(STEP),
        )
        .await
    }

    /// A step through a list.
    pub(crate) async fn range(&mut self, key: &str, start: usize) -> Result<Vec<Vec<u8>>> {
        self.ask(key, cmd("LRANGE").arg(key).arg(start).arg(start + STEP - 1))
            .await
    }

    /// The scores that members of a ZSET have.
    pub(crate) async fn scores(
        &mut self,
        key: &str,
        members: &[Vec<u8>],
    ) -> Result<Vec<Option<f64>>> {
        // One by one, because Redis before 6.2 has no ZMSCORE, and the server that is left behind may be that old.
        let mut pipeline = Pipeline::new();
        for member in members {
            pipeline.cmd("ZSCORE").arg(key).arg(member);
        }
        pipeline
            .query_async(&mut self.0)
            .await
            .with_context(|| format!("cannot read {key}"))
    }

    /// How many of these keys there are.
    pub(crate) async fn existing(&mut self, keys: &[&str]) -> Result<usize> {
        self.ask(keys[0], cmd("EXISTS").arg(keys)).await
    }

    /// How many clients are subscribed to a channel.
    pub(crate) async fn subscribers(&mut self, channel: &str) -> Result<usize> {
        let (_, count): (Vec<u8>, usize) = self
            .ask(channel, cmd("PUBSUB").arg("NUMSUB").arg(channel))
            .await?;
        Ok(count)
    }

    /// How many ids are remembered.
    pub(crate) async fn remembered(&mut self, journal: &str) -> Result<u64> {
        self.ask(journal, cmd("SCARD").arg(journal)).await
    }

    /// Which of these ids are remembered.
    pub(crate) async fn remembers(&mut self, journal: &str, ids: &[&str]) -> Result<Vec<bool>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(journal, cmd("SMISMEMBER").arg(journal).arg(ids))
            .await
    }

    pub(crate) async fn remember(&mut self, journal: &str, ids: &[&str]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.ask(journal, cmd("SADD").arg(journal).arg(ids)).await
    }

    pub(crate) async fn forget(&mut self, journal: &str) -> Result<()> {
        self.ask(journal, cmd("UNLINK").arg(journal)).await
    }

    async fn ask<T: FromRedisValue>(&mut self, key: &str, command: &Cmd) -> Result<T> {
        command
            .query_async(&mut self.0)
            .await
            .with_context(|| format!("cannot read or write {key}"))
    }
}
