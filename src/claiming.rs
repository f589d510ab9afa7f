//! Claiming: by hand, and for workers.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::delivery::{Delivery, Granted};
use crate::error::Error;
use crate::metrics::Count;
use crate::protocol::lane::{Patience, Repeat};
use crate::protocol::limits::{self, MAX_ITEMS};
use crate::protocol::replies::{Header, Options, Reply};
use crate::protocol::scripts::Verb;
use crate::queue::Queue;

/// How many messages a claim promotes at least, so that others find some too, and the next claims as well.
const STEP: usize = 512;

impl Queue {
    /// Claims up to `count` (1 to 1,000) due messages under a lease (1 ms to a day), without waiting; none if nothing is
    /// due. Beside running workers it gets their fair share: the number of ready messages over that of live workers.
    ///
    /// The lower rung below [`Queue::worker`]: the caller extends and settles. If the reply is lost, the claim is made anew,
    /// and what the first one took comes back when its lease runs out.
    pub async fn claim(&self, count: usize, lease: Duration) -> Result<Vec<Delivery>, Error> {
        if !(1..=MAX_ITEMS).contains(&count) {
            return Err(Error::invalid(format!("claim of {count} messages: 1 to {MAX_ITEMS} can be claimed at once")));
        }
        let (lease_ms, mut patience) = (limits::lease_ms(lease)?, Patience::new());
        let claim = loop {
            match self.claim_up_to(count, lease_ms, true).await {
                Err(error) if patience.allows(&error, Repeat::Harmless) => patience.pause().await,
                result => break result.map_err(|error| patience.last(error))?,
            }
        };
        let now = Instant::now();
        Ok(claim.granted.into_iter().map(|granted| Delivery::new(self.clone(), granted, now)).collect())
    }

    /// Claims, and promotes what is due before, in one round trip. `count` 0 only gives a wake token back.
    pub(crate) async fn claim_up_to(&self, count: usize, lease_ms: u64, promote: bool) -> Result<Claim, Error> {
        let token = *Uuid::new_v4().as_bytes();
        let (count_text, lease_text) = (count.to_string(), lease_ms.to_string());
        let lane = &self.lanes().claims;
        let claim: [&[u8]; 4] = [b"", count_text.as_bytes(), &token, lease_text.as_bytes()];
        let answer = if count == 0 || !promote {
            lane.call(Verb::Claim, self.all_keys(), &claim).await.map(|reply| (None, reply))
        } else {
            let room = count.max(STEP).to_string();
            let promote: [&[u8]; 3] = [b"", room.as_bytes(), b"1"];
            let answer = lane.call_both((Verb::Promote, &promote), (Verb::Claim, &claim), self.all_keys()).await;
            answer.map(|(promoted, reply)| (Some(promoted), reply))
        };
        let (promoted, reply) = answer.inspect_err(|error| self.meters().call_failed(error))?;
        match promoted.map(|promoted| promoted.and_then(|mut promoted| promoted.body.count())) {
            Some(Ok(moved)) => self.meters().add_many(Count::Promoted, moved),
            Some(Err(error)) => self.meters().call_failed(&error),
            None => {}
        }
        let claim = Claim::decode(reply, token)?;
        self.meters().add_many(Count::Claimed, claim.granted.len() as u64);
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
    /// How many parts of the reply a delivery has: id, payload, due, attempt, options.
    const PARTS: usize = 5;

    pub(crate) fn decode(mut reply: Reply, token: [u8; 16]) -> Result<Self, Error> {
        let left = reply.body.count()?;
        let deadline_ms = u64::try_from(reply.body.integer()?).unwrap_or(0);
        let mut items = reply.body.parts()?;
        let mut granted = Vec::with_capacity(items.len() / Self::PARTS);
        while !items.is_empty() {
            granted.push(Granted {
                id: items.bytes()?,
                payload: items.bytes()?,
                due_ms: items.count()?,
                attempt: u32::try_from(items.count()?).unwrap_or(u32::MAX),
                token,
                deadline_ms,
                claimed_us: reply.header.now_us,
                trace_parent: Options::parse(&String::from_utf8_lossy(&items.bytes()?)).trace_parent,
            });
        }
        Ok(Self { header: reply.header, left, granted })
    }
}
