//! Routes one call to the partition of its id, also while the map changes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::Partition;
use crate::router::{Partitions, Router};
use crate::server::patience::{PATIENCE, Patience, Repeat};

/// How long a call pauses whose message is on its way to another partition, in ms.
const MOVING_PAUSE_MS: std::ops::Range<u64> = 5..50;

/// The routing of one caller's ids. For up to 10 s it routes a call by the newer map if its epoch
/// was refused, since such a call was not applied.
pub(crate) struct Routing<'a> {
    router: &'a Router,
    seen: Arc<Partitions>,
    /// The time limit of the repetitions, since the first refusal.
    patience: Option<Patience>,
    /// Since when the message is on its way to another partition.
    moving_since: Option<Instant>,
}

impl<'a> Routing<'a> {
    pub(crate) fn new(router: &'a Router) -> Self {
        Self {
            router,
            seen: router.current(),
            patience: None,
            moving_since: None,
        }
    }

    /// The partitions among which ids are distributed. Waits while the queue is being deleted.
    ///
    /// # Errors
    /// `Unavailable` if the deletion has taken 10 s.
    pub(crate) async fn partitions(&mut self) -> Result<Arc<Partitions>, Error> {
        if !self.router.has_learned() {
            self.seen = Box::pin(self.router.learned()).await;
        }
        while let Err(deleting) = self.seen.check_deletion() {
            self.wait(deleting).await?;
            // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
            match Box::pin(self.router.refresh(&self.seen)).await {
                Ok(now) => self.seen = now,
                Err(error) => self.wait(error).await?,
            }
        }
        Ok(Arc::clone(&self.seen))
    }

    /// Learns the newest map after these partitions refused calls because of their epochs. Waits if
    /// the map is not newer.
    pub(crate) async fn refused(&mut self, by: &[(&Partition, &Error)]) -> Result<(), Error> {
        let (before, mut last) = (Arc::clone(&self.seen), None);
        for (partition, refusal) in by {
            match Box::pin(self.router.resolve(&self.seen, partition, refusal)).await {
                Ok(now) => {
                    self.seen = now;
                    // The error is wrapped without its code, which would say that no repetition
                    // helps.
                    let wrong_epoch = refusal.to_string();
                    last = Some(Error::new(ErrorKind::Unavailable, Applied::No, wrong_epoch));
                }
                Err(error) => last = Some(error),
            }
        }
        match last {
            Some(error) if Arc::ptr_eq(&before, &self.seen) => self.wait(error).await,
            _ => Ok(()),
        }
    }

    /// Pauses because the message is on its way to another partition.
    ///
    /// # Errors
    /// `Unavailable` if it has been on its way for 10 s: whoever moves it has stopped.
    pub(crate) async fn moving(&mut self) -> Result<(), Error> {
        let since = self.moving_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            return Err(self.seen.moving());
        }
        let pause = Duration::from_millis(fastrand::u64(MOVING_PAUSE_MS));
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Pauses before the next try. Returns the error if there must not be one.
    async fn wait(&mut self, error: Error) -> Result<(), Error> {
        let patience = self.patience.get_or_insert_with(Patience::new);
        // The failure is a failed read of the map or a refused call, so repeating is harmless.
        if !patience.allows(&error, Repeat::Harmless) {
            return Err(error.of_read());
        }
        patience.pause().await;
        Ok(())
    }
}
