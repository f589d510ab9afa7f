//! Finds the queues of a server step by step.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::time::timeout;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::reached::{PartialRead, UnreadPart};
use crate::protocol::keys;
use crate::protocol::keys::partition_of_key;
use crate::protocol::partition_map::Tag;
use crate::server::failure;
use crate::server::lane::Lane;
use crate::server::link::ServerLink;
use crate::server::patience::REACH_LIMIT;
use crate::server::servers::Servers;

/// The names of queues on the servers that reply. A server that fails halfway counts as one that
/// does not reply.
pub(crate) async fn names_reached(
    servers: &Arc<Servers>,
) -> Result<PartialRead<Vec<String>>, Error> {
    let reached = servers.reached_links().await;
    let (parts, mut unread) = (reached.parts, reached.unread);
    let mut scan = QueueScan::over(servers, keys::meta_glob("*"), reached.value);
    let mut names = BTreeSet::new();
    while let Some(address) = scan.address() {
        let step = timeout(REACH_LIMIT, scan.next()).await;
        match step.unwrap_or_else(|_| Err(failure::silent(&address, REACH_LIMIT))) {
            Ok(found) => names.extend(found.into_iter().flatten()),
            Err(error) => {
                unread.push(UnreadPart::master(&address, error));
                scan.leave_server();
            }
        }
    }
    match unread.first() {
        Some(first) if unread.len() == parts => Err(first.error.clone()),
        _ => Ok(PartialRead {
            value: names.into_iter().collect(),
            unread,
            parts,
        }),
    }
}

/// A scan for queues: see [`Client::scan_queues`](crate::Client::scan_queues).
pub struct QueueScan {
    servers: Arc<Servers>,
    glob: String,
    /// The servers that are not fully scanned yet, the present one last; `None` before the first
    /// step.
    links: Option<Vec<Arc<ServerLink>>>,
    cursor: u64,
}

impl QueueScan {
    pub(crate) fn new(servers: &Arc<Servers>) -> Self {
        Self {
            servers: Arc::clone(servers),
            glob: keys::meta_glob("*"),
            links: None,
            cursor: 0,
        }
    }

    /// Makes a scan of these servers with this pattern for meta keys.
    pub(crate) fn over(servers: &Arc<Servers>, glob: String, links: Vec<Arc<ServerLink>>) -> Self {
        Self {
            servers: Arc::clone(servers),
            glob,
            links: Some(links),
            cursor: 0,
        }
    }

    /// Makes the next step. Returns the names that it finds, in no order and often none; `None`
    /// after the last step. A step reads about 1,000 keys of any kind. A name may be found twice.
    ///
    /// After an error, or if the future is dropped, the next call repeats the step. If a server of
    /// a cluster never comes back, start a new scan.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// client.queue("orders")?.push("rate it").await?;
    /// let (mut scan, mut found) = (client.scan_queues(), Vec::new());
    /// while let Some(names) = scan.next().await? {
    ///     found.extend(names);
    /// }
    /// assert_eq!(found, ["orders"]);
    /// # });
    /// ```
    pub async fn next(&mut self) -> Result<Option<Vec<String>>, Error> {
        let links = match &mut self.links {
            Some(links) => links,
            none => none.insert(self.servers.links().await?),
        };
        let Some(link) = links.last() else {
            return Ok(None);
        };
        let step = step(&link.control, &self.glob, self.cursor).await?;
        self.cursor = step.cursor;
        if step.cursor == 0 {
            links.pop();
        }
        let mut names: Vec<_> = step.found.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        Ok(Some(names))
    }

    /// The address of the server that the next step reads; `None` after the last step.
    pub(crate) fn address(&self) -> Option<String> {
        let link = self.links.as_ref()?.last()?;
        Some(link.connector().address())
    }

    /// Continues with the next server.
    pub(crate) fn leave_server(&mut self) {
        self.cursor = 0;
        self.links.as_mut().and_then(Vec::pop);
    }
}

/// About how many keys one step reads.
pub(crate) const STEP_KEYS: u32 = 1_000;

/// One step of a scan of the key space.
pub(crate) struct Step {
    /// The cursor of the next step; 0 after the last step.
    pub(crate) cursor: u64,
    /// The queues and partitions that this step found. The same one may be found twice.
    pub(crate) found: Vec<(String, Tag)>,
}

/// Reads about [`STEP_KEYS`] keys from this cursor on; a scan starts at 0. `glob` is the pattern of
/// the meta keys.
pub(crate) async fn step(lane: &Lane, glob: &str, cursor: u64) -> Result<Step, Error> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor)
        .arg("MATCH")
        .arg(glob)
        .arg("COUNT")
        .arg(STEP_KEYS)
        .arg("TYPE")
        .arg("hash");
    let answer = lane.query(&scan).await?;
    let (cursor, keys): (u64, Vec<String>) = redis::from_redis_value(answer).map_err(|error| {
        let message = format!("SCAN replied with something unexpected: {error}");
        Error::new(ErrorKind::Server, Applied::No, message)
    })?;
    let found = keys.iter().filter_map(|key| partition_of_key(key));
    Ok(Step {
        cursor,
        found: found.map(|(name, tag)| (name.to_owned(), tag)).collect(),
    })
}
