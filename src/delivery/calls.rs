//! The calls of consumers for one granted message: of a delivery, or of its handle in another
//! process.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{BatchVerb, Batcher, Item, OfClaim};
use crate::error::Error;
use crate::model::due::{Due, MAX_DELAY_MS, ceil_ms};
use crate::model::message::Message;
use crate::model::outcomes::{Extended, Followed, Retried, Settled, Snoozed, Throttled};
use crate::partition::Partition;
use crate::protocol::limits;
use crate::server::patience::Repeat;

/// Settles one message by its id and lease token, and extends its lease.
pub(crate) struct LeaseCalls<'a> {
    pub(crate) partition: &'a Partition,
    pub(crate) granted: Arc<dyn OfClaim>,
}

impl LeaseCalls<'_> {
    pub(crate) async fn ack(&self) -> Result<Settled, Error> {
        self.submit(&self.partition.settlers().ack, []).await
    }

    /// The ack of a worker: it lingers up to 1 ms to share a call with others.
    pub(crate) async fn ack_behind(&self) -> Result<Settled, Error> {
        self.submit(&self.partition.settlers().ack_lingering, [])
            .await
    }

    pub(crate) async fn again(&self, due: Due) -> Result<Settled, Error> {
        let due = due.encode()?.into_bytes();
        self.submit(&self.partition.settlers().again, [due]).await
    }

    pub(crate) async fn retry(&self, after: Duration, error: &str) -> Result<Retried, Error> {
        let after = Due::from(after)
            .encode()?
            .trim_start_matches('+')
            .as_bytes()
            .to_vec();
        let rest = [after, error.as_bytes().to_vec()];
        self.submit(&self.partition.settlers().retry, rest).await
    }

    pub(crate) async fn release(&self) -> Result<Settled, Error> {
        self.submit(&self.partition.settlers().release, []).await
    }

    pub(crate) async fn bury(&self, reason: &str) -> Result<Settled, Error> {
        let rest = [reason.as_bytes().to_vec()];
        self.submit(&self.partition.settlers().bury, rest).await
    }

    pub(crate) async fn snooze(&self, due: Due) -> Result<Snoozed, Error> {
        let due = due.encode()?.into_bytes();
        self.submit(&self.partition.settlers().snooze, [due]).await
    }

    /// Closes the partition of the message. Returns for how many ms the others are to be closed.
    pub(crate) async fn throttle(&self, duration: Duration) -> Result<(Throttled, u64), Error> {
        let wait_ms = ceil_ms(duration).clamp(1, MAX_DELAY_MS);
        let rest = [wait_ms.to_string().into_bytes()];
        let throttle = &self.partition.settlers().throttle;
        Ok((self.submit(throttle, rest).await?, wait_ms))
    }

    pub(crate) async fn extend(&self, lease: Duration) -> Result<Extended, Error> {
        let lease_ms = limits::lease_ms(lease)?.to_string().into_bytes();
        self.submit(&self.partition.settlers().extend, [lease_ms])
            .await
    }

    pub(crate) async fn ack_push(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Followed, Error> {
        let (id, token) = (self.granted.id(), self.granted.token());
        let mut follow_ups = self.partition.follow_ups(id, messages)?;
        if follow_ups.is_empty() {
            return Ok(match self.ack().await? {
                Settled::Done => Followed::Done(Vec::new()),
                Settled::Gone => Followed::Gone,
                Settled::Lost => Followed::Lost,
            });
        }
        let item = follow_ups.take_item(token, id);
        let result = self.partition.settlers().ack_push.submit(item).await?;
        follow_ups.followed(result, self.partition)
    }

    async fn submit<V: BatchVerb, const N: usize>(
        &self,
        batcher: &Batcher<V>,
        rest: [Vec<u8>; N],
    ) -> Result<V::Output, Error> {
        batcher
            .submit(Item {
                granted: Some(Arc::clone(&self.granted)),
                args: rest.into(),
                // The fencing token makes it safe: a settlement that acted does not act again.
                repeat: Repeat::Harmless,
            })
            .await
    }
}
