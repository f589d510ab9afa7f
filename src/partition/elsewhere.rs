//! The way from a partition to its whole queue, for acks with follow-ups while the partitions change.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use crate::batch::Item;
use crate::error::Error;
use crate::partition::Partition;
use crate::protocol::results::produce::PushResult;

/// The future of a call. Boxed: keeps the futures of callers shallow, as rustc limits their depth.
pub(crate) type WholeCall<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What a partition needs of its whole queue.
pub(crate) trait WholeQueue: Send + Sync {
    /// This partition by the newest map, after it refused a call because of its epoch.
    fn newer<'a>(
        &'a self,
        partition: &'a Partition,
        refusal: &'a Error,
    ) -> WholeCall<'a, Arc<Partition>>;

    /// Pushes a message to the partition that it belongs to.
    fn push(&self, item: Item) -> WholeCall<'_, PushResult>;
}

/// A place for the whole queue, which is set when the first handle of the queue is made.
pub(crate) type QueueLink = Arc<OnceLock<Box<dyn WholeQueue>>>;
