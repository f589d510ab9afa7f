//! Routes one call to the partition of its id, also while the map changes.

use std::sync::Arc;

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::Partition;
use crate::router::{Partitions, Router};
use crate::server::patience::{Patience, Repeat};

/// The routing of one caller's ids. For up to 10 s it routes a call by the newer map if its epoch
/// was refused, since such a call was not applied.
pub(crate) struct Routing<'a> {
    router: &'a Router,
    seen: Arc<Partitions>,
    /// The time limit of the repetitions, since the first refusal.
    patience: Option<Patience>,
    /// Whether the last refusals led to a map with other partitions.
    is_moved: bool,
}

impl<'a> Routing<'a> {
    pub(crate) fn new(router: &'a Router) -> Self {
        Self {
            router,
            seen: router.current(),
            patience: None,
            is_moved: false,
        }
    }

    /// The partitions among which ids are distributed. Waits while the map changes.
    ///
    /// # Errors
    /// `Unavailable` if the map has been changing for 10 s.
    pub(crate) async fn settled(&mut self) -> Result<Arc<Partitions>, Error> {
        if !self.router.has_learned() {
            self.seen = Box::pin(self.router.learned()).await;
        }
        while let Err(changing) = self.seen.routed() {
            self.wait(changing).await?;
            // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
            match Box::pin(self.router.refresh(&self.seen)).await {
                Ok(now) => self.seen = now,
                Err(error) => self.wait(error).await?,
            }
        }
        Ok(Arc::clone(&self.seen))
    }

    /// The partition that this id belongs to. Waits while the map changes.
    pub(crate) async fn partition(&mut self, id: &[u8]) -> Result<Arc<Partition>, Error> {
        let partitions = self.settled().await?;
        partitions.of_id(id).map(Arc::clone)
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
        self.is_moved = !before.has_tags_of(&self.seen);
        match last {
            Some(error) if Arc::ptr_eq(&before, &self.seen) => self.wait(error).await,
            _ => Ok(()),
        }
    }

    /// Whether an item that was refused may be sent as a new one: no earlier try of it was applied.
    ///
    /// A partition gets a map with other partitions only while it remembers no call. A map with the
    /// same partitions is that of a reverted change. If the partition's map is older than that of
    /// the call, a failover has undone what the partition did since.
    pub(crate) fn may_send_again(&self, refusal: &Error) -> bool {
        refusal.was_applied() == Applied::No || refusal.is_behind() || self.is_moved
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
