//! The grant of a claim, and its recovery if the claim's reply was lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::delivery::Delivery;
use crate::error::Error;
use crate::model::outcomes::ExtendOutcome;
use crate::node::consumers::pulls::bound::BoundPulls;
use crate::node::state::lost_claim::OwnClaim;
use crate::partition::Partition;
use crate::protocol::replies::Header;
use crate::protocol::results::claim::Granted;
use crate::telemetry::metrics::Counter;

/// Turns granted messages into deliveries of the partition.
pub(crate) fn deliveries(
    partition: &Arc<Partition>,
    granted: Vec<Granted>,
) -> impl Iterator<Item = Delivery> {
    let granted = granted.into_iter();
    granted.map(|granted| Delivery::new(Arc::clone(partition), granted))
}

/// The lease of a claim without a reply, as Redis returned it.
pub(crate) struct LostGrant {
    pub(crate) bound: Option<BoundPulls>,
    pub(crate) result: Result<Recovered, Error>,
    /// Whether this is the last read, because the node stops or leaves the partition. It is
    /// repeated for 10 s if it fails.
    pub(crate) is_last: bool,
}

/// The messages that the lease holds.
pub(crate) struct Recovered {
    pub(crate) header: Header,
    /// When the claim was first sent: no lease of these messages began earlier.
    pub(crate) sent: Instant,
    pub(crate) leased: Vec<Delivery>,
    /// Messages whose leases may have ended.
    pub(crate) unsure: Vec<Delivery>,
}

/// Reads what the lease of this claim's token holds. It extends the messages if much of the lease
/// is over. With `patiently`, the read is repeated for 10 s.
pub(crate) async fn read_lease(
    claim: OwnClaim,
    partition: &Arc<Partition>,
    patiently: bool,
) -> Result<Recovered, Error> {
    let held = if patiently {
        partition.held(claim.token).await?.0
    } else {
        partition.held_once(claim.token).await?
    };
    let count = held.granted.len() as u64;
    partition.meters().add_many(Counter::Claimed, count);
    let mut recovered = Recovered {
        header: held.header,
        sent: claim.sent,
        leased: deliveries(partition, held.granted).collect(),
        unsure: Vec::new(),
    };
    let lease = Duration::from_millis(claim.lease_ms);
    if claim.sent.elapsed() > lease / 3 {
        recovered.extend(lease).await;
    }
    Ok(recovered)
}

impl Recovered {
    async fn extend(&mut self, lease: Duration) {
        self.sent = Instant::now();
        let mut extensions = JoinSet::new();
        for delivery in std::mem::take(&mut self.leased) {
            extensions.spawn(async move {
                let result = delivery.extend(lease).await;
                (delivery, result)
            });
        }
        // The tasks of the extensions neither panic nor are cancelled.
        while let Some(Ok((delivery, result))) = extensions.join_next().await {
            match result {
                Ok(ExtendOutcome::Until(_)) => self.leased.push(delivery),
                Ok(ExtendOutcome::Gone | ExtendOutcome::Lost) => {}
                Err(_) => self.unsure.push(delivery),
            }
        }
    }

    pub(crate) fn all(mut self) -> Vec<Delivery> {
        self.leased.append(&mut self.unsure);
        self.leased
    }
}

impl LostGrant {
    /// Replaces the answer of this grant.
    #[cfg(test)]
    pub(crate) fn with(self, answer: Result<(Header, Vec<Delivery>), Error>) -> Self {
        let result = answer.map(|(header, leased)| Recovered {
            header,
            sent: Instant::now(),
            leased,
            unsure: Vec::new(),
        });
        Self { result, ..self }
    }

    /// All messages, for a release: no consumer is left that could take them.
    pub(crate) fn all(self) -> Vec<Delivery> {
        self.result.map(Recovered::all).unwrap_or_default()
    }
}
