//! The ack of a delivery with its follow-ups, also while the partitions of the queue change.

use std::sync::Arc;

use crate::batch::Answered;
use crate::delivery::LeaseCalls;
use crate::error::Error;
use crate::model::durability::Durability;
use crate::model::message::Message;
use crate::model::outcomes::{AckPushOutcome, SettleOutcome};
use crate::partition::{FollowUps, Partition, Producers};
use crate::queue::submit;
use crate::router::{Router, Routing, may_send_again};

impl LeaseCalls<'_> {
    /// Acks the message and stores its follow-ups: in one step, but for those that may be at
    /// another partition while the partitions change. These are pushed before.
    pub(crate) async fn ack_push(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<AckPushOutcome, Error> {
        let (id, token) = (self.granted.id(), self.granted.token());
        let mut follow_ups = FollowUps::of(id, messages)?;
        let router = self.partition.router();
        let mut routing = router.as_deref().map(Routing::new);
        let mut newer: Option<Arc<Partition>> = None;
        loop {
            let partition = newer.as_deref().unwrap_or(self.partition);
            push_elsewhere(&mut follow_ups, partition, router.as_deref()).await?;
            if follow_ups.is_empty() {
                // With no follow-up left, the ack needs no map.
                return match self.ack().await? {
                    SettleOutcome::Done => Ok(follow_ups.followed_none()),
                    SettleOutcome::Gone => Ok(AckPushOutcome::Gone),
                    SettleOutcome::Lost => Ok(AckPushOutcome::Lost),
                };
            }
            let item = follow_ups.take_item(token, id);
            let answered = partition.settlers().ack_push.submit_routed(item).await;
            let (item, refusal) = match answered {
                Answered::Remapped(item, refusal) => (item, refusal),
                answered => return follow_ups.followed(answered.result()?, partition),
            };
            // The partition has a newer map than this object, and changed nothing.
            let Some(routing) = routing.as_mut().filter(|_| may_send_again(&refusal)) else {
                return Err(refusal);
            };
            routing.refused(&[(partition, &refusal)]).await?;
            let now = routing.partitions().await?;
            // A partition that holds messages is never removed. So if it is gone, the delivery is
            // gone as well, and any partition gives that answer.
            let tag = self.partition.tag();
            newer = Some(Arc::clone(now.of_tag(tag).unwrap_or(now.home())));
            follow_ups.put_back(item);
        }
    }
}

/// Pushes the follow-ups that may not be stored in the partition of the delivery.
async fn push_elsewhere(
    follow_ups: &mut FollowUps,
    partition: &Partition,
    router: Option<&Router>,
) -> Result<(), Error> {
    while let Some((index, item)) = follow_ups.next_elsewhere(partition)? {
        let Some(router) = router else {
            return Err(Error::invalid(
                "the partitions of the queue change, and its handle was dropped",
            ));
        };
        let mut routing = Routing::new(router);
        let pushed = submit(
            &mut routing,
            Durability::Memory,
            &|to: &Producers| &to.push,
            item,
            false,
        );
        // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
        follow_ups.pushed(index, Box::pin(pushed).await)?;
    }
    Ok(())
}
