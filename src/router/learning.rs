//! The first read of the map, in a cluster.
//!
//! A client that knows no map sends a call to the home, which refuses it if the queue has a map.
//! That does not suffice in a cluster: the home's master may be away, or may have come back empty,
//! while other masters hold the other partitions. The decision is 0073 in docs/decisions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::error::Error;
use crate::router::refresh::Ask;
use crate::router::{Partitions, Router};

/// How long a call waits for the first read. Then it goes to the home, and reports why that fails.
const FIRST_READ_LIMIT: Duration = Duration::from_secs(2);
/// After a failed first read, calls go to the home for so long, and for twice as long after each
/// further one: the other masters had no copy, or are away too.
const FIRST_READ_PAUSE: Duration = Duration::from_secs(1);
const MAX_READ_PAUSE: Duration = Duration::from_secs(60);

impl Router {
    /// Whether a call may go to the partitions that this client knows.
    pub(crate) fn has_learned(&self) -> bool {
        self.has_read.load(Ordering::Relaxed) || !self.servers.is_cluster()
    }

    /// The home exists, and its reply told whether it has a map.
    pub(crate) fn set_learned(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    /// The partitions as far as this client knows them. Before the first call in a cluster it reads
    /// the map.
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
            *failed = (!matches!(read, Ok(Ok(_)))).then(|| (Instant::now(), pause));
        }
        self.current()
    }

    /// The same for a process that serves the whole queue: it looks for copies of the map also if
    /// the home exists without one. A client that knows no maps may have made it, after its master
    /// had come back empty.
    pub(crate) async fn searched(&self) -> Result<Arc<Partitions>, Error> {
        let known = self.current();
        Box::pin(self.read_again(&known, Ask::All)).await
    }
}
