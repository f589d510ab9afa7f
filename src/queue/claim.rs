//! Claiming: by hand, and for workers.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::delivery::{Delivery, Granted};
use crate::error::Error;
use crate::protocol::limits::{self, MAX_ITEMS};
use crate::protocol::replies::{Header, Reply};
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::lane::{Patience, Repeat};
use crate::telemetry::metrics::Count;

impl Queue {
    /// Claims up to `count` (1 to 1,000) due messages under a lease (1 ms to a day), without waiting; none if nothing is
    /// due. Beside running workers it gets their fair share: the number of due messages over that of live workers.
    ///
    /// The lower rung below [`Queue::worker`]: the caller extends and settles. If the reply is lost, the claim is made again.
    ///
    /// What the caller does not settle, and what a claim took whose reply was lost, comes back after its lease has run out, if a
    /// worker of the queue runs in some process: workers alone take leases back. Without one it stays leased.
    pub async fn claim(&self, count: usize, lease: Duration) -> Result<Vec<Delivery>, Error> {
        if !(1..=MAX_ITEMS).contains(&count) {
            return Err(Error::invalid(format!(
                "claim of {count} messages: 1 to {MAX_ITEMS} can be claimed at once"
            )));
        }
        let (lease_ms, mut patience) = (limits::lease_ms(lease)?, Patience::new());
        let claim = loop {
            match self.claim_up_to(count, lease_ms).await {
                Err(error) if patience.allows(&error, Repeat::Harmless) => patience.pause().await,
                result => break result.map_err(|error| patience.last(error))?,
            }
        };
        let now = Instant::now();
        let begun = |granted| {
            let delivery = Delivery::new(self.clone(), granted);
            delivery.begin(now);
            delivery
        };
        Ok(claim.granted.into_iter().map(begun).collect())
    }

    /// Claims what is ready, and then what is due, whether it was promoted or not. `count` 0 only gives a wake token back.
    pub(crate) async fn claim_up_to(&self, count: usize, lease_ms: u64) -> Result<Claim, Error> {
        let token = *Uuid::new_v4().as_bytes();
        let (count_text, lease_text) = (count.to_string(), lease_ms.to_string());
        let claim: [&[u8]; 5] = [
            b"",
            count_text.as_bytes(),
            &token,
            lease_text.as_bytes(),
            b"1",
        ];
        let answer = self
            .lanes()
            .claims
            .call(Verb::Claim, self.all_keys(), &claim)
            .await;
        let claim = Claim::decode(
            answer.inspect_err(|error| self.meters().call_failed(error))?,
            token,
        )?;
        self.meters()
            .add_many(Count::Claimed, claim.granted.len() as u64);
        Ok(claim)
    }
}

/// What a claim answered.
pub(crate) struct Claim {
    pub(crate) header: Header,
    /// How many ready messages it left.
    pub(crate) left: u64,
    pub(crate) granted: Vec<Granted>,
}

impl Claim {
    pub(crate) fn decode(mut reply: Reply, token: [u8; 16]) -> Result<Self, Error> {
        let left = reply.body.count()?;
        let deadline_ms = u64::try_from(reply.body.integer()?).unwrap_or(0);
        let (mut ids, mut payloads, mut details) = (
            reply.body.parts()?,
            reply.body.parts()?,
            reply.body.parts()?,
        );
        // One detail may stand for all.
        let shared = details.len() == 1;
        if payloads.len() != ids.len() || details.len() != ids.len() && !shared {
            let lengths = format!(
                "{} ids, {} payloads and {} details",
                ids.len(),
                payloads.len(),
                details.len()
            );
            return Err(reply.body.unexpected(&lengths));
        }
        let mut granted = Vec::with_capacity(ids.len());
        let ([mut due_ms, mut attempt], mut options) = Default::default();
        while !ids.is_empty() {
            if !details.is_empty() {
                ([due_ms, attempt], options) = details.counts_and_options()?;
            }
            granted.push(Granted {
                id: ids.bytes()?,
                payload: payloads.bytes()?,
                due_ms,
                attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
                token,
                deadline_ms,
                claimed_us: reply.header.now_us,
                trace_parent: options.trace_parent.clone(),
            });
        }
        Ok(Self {
            header: reply.header,
            left,
            granted,
        })
    }
}
