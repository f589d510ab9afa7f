//! Reads copies of the map, of which each partition has one. In a cluster, the first read of the
//! map may need them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::StoredMap;
use crate::protocol::keys;
use crate::protocol::keys::Keys;
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::protocol::placement::SEARCHED_TAGS;
use crate::router::refresh::Ask;
use crate::router::{HOME_LIMIT, Partitions, Router};
use crate::server::queue_scan;
use crate::server::route::RoutedLane;

/// How long a search waits for all partitions. After a copy that is at least as new as the map that
/// the client knows, it also waits no longer than this for others. A frozen master replies to
/// nothing.
const SEARCH_LIMIT: Duration = Duration::from_secs(2);
const OTHERS_LIMIT: Duration = Duration::from_millis(50);

/// The result of a search for copies of the map.
#[derive(Default)]
pub(super) struct Copies {
    pub(super) newest: Option<PartitionMap>,
    /// The partition that has the newest copy.
    pub(super) source: Option<Tag>,
    /// Why some partition could not be read.
    pub(super) failed: Option<Error>,
}

impl Router {
    /// The copies of the other partitions. If this client knows no other partitions, it asks those
    /// with the first tags, some of which every map has. With `home_is_away` it asks no partition
    /// on the home's server.
    pub(super) async fn copies(&self, known: &Partitions, home_is_away: bool) -> Copies {
        let tags: Vec<Tag> = match known.map() {
            Some(_) => known.near_list()[1..].iter().map(|one| one.tag()).collect(),
            None => (0..SEARCHED_TAGS).map(Tag::Numbered).collect(),
        };
        self.copies_at(&tags, home_is_away).await
    }

    async fn copies_at(&self, tags: &[Tag], home_is_away: bool) -> Copies {
        let near = Arc::clone(&self.current().stores().near);
        let home = near.route(&self.home_keys);
        let mut reads = JoinSet::new();
        for tag in tags {
            let Ok(keys) = Keys::of_partition(&self.queue_name, *tag) else {
                continue;
            };
            let route = near.route(&keys);
            if home_is_away && route.shares_server_with(&home) {
                continue;
            }
            let (name, control) = (self.queue_name.clone(), RoutedLane::control(&route));
            let tag = *tag;
            reads.spawn(async move { (tag, StoredMap::read(&control, &name, &keys).await) });
        }
        let known_epoch = self.current().epoch();
        let (mut copies, mut end) = (Copies::default(), Instant::now() + SEARCH_LIMIT);
        // The tasks of the reads neither panic nor are cancelled.
        while let Ok(Some(Ok((tag, read)))) = timeout_at(end, reads.join_next()).await {
            match read {
                Ok(StoredMap { map: Some(map), .. }) => {
                    if Some(map.epoch) >= known_epoch {
                        end = end.min(Instant::now() + OTHERS_LIMIT);
                    }
                    let newest = copies.newest.as_ref();
                    if newest.is_none_or(|newest| newest.epoch < map.epoch) {
                        (copies.newest, copies.source) = (Some(map), Some(tag));
                    }
                }
                Ok(_) => {}
                Err(error) => copies.failed = Some(error),
            }
        }
        if !reads.is_empty() {
            copies.failed.get_or_insert_with(|| self.silent());
        }
        copies
    }

    fn silent(&self) -> Error {
        let message = format!(
            "a master that may have the map of queue {} did not answer within {SEARCH_LIMIT:?}",
            self.queue_name
        );
        Error::new(ErrorKind::Timeout, Applied::No, message)
    }

    /// The map of the other partitions, if the home has lost its own. For operators' calls only,
    /// because it scans every key. `None` if the home has a map, or no other partition has a newer
    /// one.
    pub(crate) async fn lost_map(&self) -> Result<Option<PartitionMap>, Error> {
        let home = Arc::clone(self.current().home());
        let home = home.within(HOME_LIMIT, home.stored_map()).await?;
        // One server loses all partitions together, unless somebody deletes single keys.
        let near = Arc::clone(&self.current().stores().near);
        let is_whole = home.incarnation.is_some() && !near.is_cluster();
        if home.map.is_some() || is_whole {
            return Ok(None);
        }
        let first: Vec<Tag> = (0..SEARCHED_TAGS).map(Tag::Numbered).collect();
        let mut found = self.copies_at(&first, false).await.newest;
        if found.is_none() && home.incarnation.is_none() {
            found = self
                .copies_at(&self.scanned_tags().await?, false)
                .await
                .newest;
        }
        Ok(found.filter(|map| map.epoch > home.epoch))
    }

    /// The tags of all partitions whose keys are on some server.
    async fn scanned_tags(&self) -> Result<Vec<Tag>, Error> {
        let glob = keys::partitions_glob(&self.queue_name);
        let mut tags = Vec::new();
        let near = Arc::clone(&self.current().stores().near);
        for link in near.usable_links().await.0 {
            let mut cursor = 0;
            loop {
                let step = match queue_scan::step(&link.control, &glob, cursor).await {
                    // The user has no right to SCAN, so only the first tags are searched.
                    Err(error) if error.code() == Some("NOPERM") => return Ok(tags),
                    step => step?,
                };
                tags.extend(step.found.into_iter().map(|(_, tag)| tag));
                cursor = step.cursor;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(tags)
    }
}

/// How long a call waits for the first read of the map. After that it goes to the home, and reports
/// why that fails.
const FIRST_READ_LIMIT: Duration = Duration::from_secs(2);
/// For how long calls go to the home after a failed first read. Each further failure doubles this
/// time, because the other masters had no copy or are unreachable as well.
const FIRST_READ_PAUSE: Duration = Duration::from_secs(1);
const MAX_READ_PAUSE: Duration = Duration::from_secs(60);

impl Router {
    /// Whether a call may go to the partitions that this client knows.
    pub(crate) fn has_learned(&self) -> bool {
        self.has_read.load(Ordering::Relaxed) || !self.servers.is_cluster()
    }

    /// Records that the home exists and has replied whether it has a map.
    pub(crate) fn set_learned(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    /// The partitions as this client knows them. Before the first call in a cluster it reads the
    /// map.
    pub(crate) async fn learned(&self) -> Arc<Partitions> {
        if self.has_learned() {
            return self.current();
        }
        let mut failed = self.first_read.lock().await;
        let is_pausing = failed.is_some_and(|(at, pause)| at.elapsed() < pause);
        if !self.has_learned() && !is_pausing {
            let known = self.current();
            let reading = Box::pin(self.read_again(&known, Ask::Home));
            let read = timeout(FIRST_READ_LIMIT, reading).await;
            let pause = failed.map_or(FIRST_READ_PAUSE, |(_, last)| MAX_READ_PAUSE.min(2 * last));
            *failed = (!matches!(read, Ok(Ok(_)))).then(|| (std::time::Instant::now(), pause));
        }
        self.current()
    }

    /// The partitions, for a process that serves the whole queue. It looks for copies of the map
    /// even if the home exists without one: after the home's master came back empty, a client that
    /// knows no maps may have created the home again.
    pub(crate) async fn searched(&self) -> Result<Arc<Partitions>, Error> {
        let known = self.current();
        Box::pin(self.read_again(&known, Ask::All)).await
    }
}
