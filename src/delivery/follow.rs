//! The ack of a delivery with its follow-ups, also while the partitions of the queue change.

use std::sync::Arc;
use std::time::Instant;

use crate::batch::{Answered, allows_new_try};
use crate::delivery::LeaseCalls;
use crate::error::Error;
use crate::model::message::Message;
use crate::model::outcomes::{AckPushOutcome, SettleOutcome};
use crate::partition::{FollowUps, Partition};
use crate::server::patience::PATIENCE;

impl LeaseCalls<'_> {
    /// Acks the message and stores its follow-ups: in one step, but for those that may be at
    /// another partition while the partitions change. These are pushed before.
    pub(crate) async fn ack_push(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<AckPushOutcome, Error> {
        let (id, token, began) = (self.granted.id(), self.granted.token(), Instant::now());
        let mut follow_ups = FollowUps::of(id, messages)?;
        let mut newer: Option<Arc<Partition>> = None;
        loop {
            let partition = newer.as_deref().unwrap_or(self.partition);
            while let Some((index, item)) = follow_ups.next_elsewhere(partition)? {
                follow_ups.pushed(index, partition.queue()?.push(item).await)?;
            }
            if follow_ups.is_empty() {
                return Ok(match self.ack().await? {
                    SettleOutcome::Done => follow_ups.followed_none(),
                    SettleOutcome::Gone => AckPushOutcome::Gone,
                    SettleOutcome::Lost => AckPushOutcome::Lost,
                });
            }
            let item = follow_ups.take_item(token, id);
            let answered = partition.settlers().ack_push.submit_routed(item).await;
            let (item, refusal) = match answered {
                Answered::Remapped(item, refusal) => (item, refusal),
                answered => return follow_ups.followed(answered.result()?, partition),
            };
            // The partition has a newer map than this object, and changed nothing.
            if !allows_new_try(&refusal) || began.elapsed() >= PATIENCE {
                return Err(refusal);
            }
            newer = Some(partition.queue()?.newer(partition, &refusal).await?);
            follow_ups.put_back(item);
        }
    }
}
