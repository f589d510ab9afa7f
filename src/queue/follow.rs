//! What acks with follow-ups need of the whole queue while its partitions change.

use std::sync::{Arc, Weak};

use crate::batch::Item;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::durability::Durability;
use crate::partition::{Partition, Producers, WholeCall, WholeQueue};
use crate::protocol::results::produce::PushResult;
use crate::queue::submit;
use crate::router::{Router, Routing};

/// A queue as its partitions know it.
struct OwnQueue(Weak<Router>);

/// Makes the queue known to its partitions.
pub(super) fn link(router: &Arc<Router>) {
    router.link(|| Box::new(OwnQueue(Arc::downgrade(router))));
}

impl OwnQueue {
    fn router(&self) -> Result<Arc<Router>, Error> {
        self.0.upgrade().ok_or_else(|| {
            let message = "the partitions of the queue change, and no handle of the queue is left";
            Error::new(ErrorKind::Unavailable, Applied::No, message)
        })
    }
}

impl WholeQueue for OwnQueue {
    fn newer<'a>(
        &'a self,
        partition: &'a Partition,
        refusal: &'a Error,
    ) -> WholeCall<'a, Arc<Partition>> {
        Box::pin(async move {
            let router = self.router()?;
            let mut routing = Routing::new(&router);
            routing.refused(&[(partition, refusal)]).await?;
            let now = routing.partitions().await?;
            // A partition that holds messages is never removed. So if it is gone, the delivery is
            // gone as well, and any partition gives that answer.
            Ok(Arc::clone(
                now.of_tag(partition.tag()).unwrap_or(now.home()),
            ))
        })
    }

    fn push(&self, item: Item) -> WholeCall<'_, PushResult> {
        Box::pin(async move {
            let router = self.router()?;
            let (mut routing, memory) = (Routing::new(&router), Durability::Memory);
            submit(
                &mut routing,
                memory,
                &|to: &Producers| &to.push,
                item,
                false,
            )
            .await
        })
    }
}
