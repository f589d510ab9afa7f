//! Reads Redisson's keys, and stores the ids of imported elements.
//!
//! This is the only file of the program that uses the `redis` crate, because the public API has no
//! calls for keys of other programs. It touches no key of a queue.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, FromRedisValue, Pipeline, cmd};

use crate::output::Usage;

/// How many elements one step reads.
pub(crate) const STEP: usize = 256;
/// How long a server may take to answer. Some steps transfer large elements.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to a server.
pub(crate) struct Store(MultiplexedConnection);

impl Store {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let client = redis::Client::open(url).map_err(|_| {
            Usage("--from is no URL such as redis://[USER:PASSWORD@]HOST:PORT/".to_owned())
        })?;
        if matches!(
            client.get_connection_info().addr(),
            ConnectionAddr::TcpTls { insecure: true, .. }
        ) {
            bail!(
                "the URL ends with #insecure, so that TLS would accept any certificate: remove it"
            );
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

    /// One step of a ZSCAN: returns the next cursor, and members with their scores. A scan returns
    /// each member at least once, if it stays in the ZSET meanwhile.
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

    /// Reads the next elements of a list.
    pub(crate) async fn range(&mut self, key: &str, start: usize) -> Result<Vec<Vec<u8>>> {
        self.ask(key, cmd("LRANGE").arg(key).arg(start).arg(start + STEP - 1))
            .await
    }

    /// Reads the scores of members of a ZSET.
    pub(crate) async fn scores(
        &mut self,
        key: &str,
        members: &[Vec<u8>],
    ) -> Result<Vec<Option<f64>>> {
        // No ZMSCORE: Redisson's server may be older than Redis 6.2.
        let mut pipeline = Pipeline::new();
        for member in members {
            pipeline.cmd("ZSCORE").arg(key).arg(member);
        }
        pipeline
            .query_async(&mut self.0)
            .await
            .with_context(|| format!("cannot read {key}"))
    }

    /// Counts the existing keys.
    pub(crate) async fn existing(&mut self, keys: &[&str]) -> Result<usize> {
        self.ask(keys[0], cmd("EXISTS").arg(keys)).await
    }

    /// Counts the subscribers of a channel.
    pub(crate) async fn subscribers(&mut self, channel: &str) -> Result<usize> {
        let (_, count): (Vec<u8>, usize) = self
            .ask(channel, cmd("PUBSUB").arg("NUMSUB").arg(channel))
            .await?;
        Ok(count)
    }

    /// Counts the ids of the journal.
    pub(crate) async fn remembered(&mut self, journal: &str) -> Result<u64> {
        self.ask(journal, cmd("SCARD").arg(journal)).await
    }

    /// Whether the journal has each of these ids.
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
