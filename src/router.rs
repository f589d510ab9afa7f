//! Which partition of a queue holds a message. Today a queue has one partition.

use std::sync::Arc;

use crate::error::Error;
use crate::partition::Partition;
use crate::server::link::ServerLink;

/// Maps the messages of one queue to its partitions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Router {
    partition: Arc<Partition>,
}

impl Router {
    pub(crate) fn new(queue_name: &str, link: Arc<ServerLink>) -> Result<Self, Error> {
        let partition = Arc::new(Partition::new(queue_name, link)?);
        Ok(Self { partition })
    }

    /// The only partition of the queue.
    pub(crate) fn partition(&self) -> &Arc<Partition> {
        &self.partition
    }
}
