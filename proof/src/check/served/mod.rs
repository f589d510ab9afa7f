//! Consumers over HTTP: judges that the servers handed out, gave back and settled exactly the
//! deliveries in the histories, each once.
//!
//! | rule | what does not count |
//! |---|---|
//! | what a claim gets was granted, or `held` showed it | nothing |
//! | each grant is handed out once | nothing |
//! | a grant is handed out, or given back | its claim got no answer; its server was killed |
//! | what was granted before a claim with `claim_id` was repeated is in the answer to the repetition | the lease may have ended by then; the store or its clock was changed |
//! | a settlement was asked for, or gives back what only an unanswered claim without `claim_id` can have got | an extension, or a release, of what `held` showed after a lost reply |
//! | the outcome of a settlement is one that the queue answered to it | the outcome says that it is unknown |

mod grants;
mod settlements;

use std::collections::{HashMap, HashSet};

use crate::check::collect::Collection;
use crate::check::record::Record;
use crate::check::verdict::Verdict;
use crate::history::{Call, ClaimedItem, Handed, Http, Verb};
use settlements::{Asked, Settling, Told};

/// A delivery of a message under a lease: queue, id, token, and version, due time and attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Delivery {
    queue: u16,
    id: String,
    token: String,
    content: (u32, u64, u32),
}

/// The key by which settlements name a delivery: queue, id, token.
type Lease = (u16, String, String);
/// The key of a server's call, or of a consumer's claim or settlement: process, and the number
/// within it.
type Number = (u16, u64);

impl Delivery {
    pub(super) fn new(queue: u16, id: &str, token: &str, content: (u32, u64, u32)) -> Self {
        Self {
            queue,
            id: id.to_owned(),
            token: token.to_owned(),
            content,
        }
    }

    fn lease(&self) -> Lease {
        (self.queue, self.id.clone(), self.token.clone())
    }
}

/// An answered claim of a server.
#[derive(Debug)]
pub(super) struct Grant {
    process: u16,
    queue: u16,
    epoch: u16,
    seq: u64,
    asked_us: u64,
    answered_us: u64,
    lease_ms: u64,
    deliveries: Vec<Delivery>,
}

impl Grant {
    pub(super) fn new(
        (process, queue): (u16, u16),
        token: &str,
        lease_ms: u64,
        record: &Record,
        items: &[ClaimedItem],
    ) -> Self {
        let delivery =
            |item: &ClaimedItem| Delivery::new(queue, &item.0, token, (item.1, item.2, item.3));
        Self {
            process,
            queue,
            epoch: record.epoch,
            seq: record.seq(),
            asked_us: record.asked_us,
            answered_us: record.answered_us,
            lease_ms,
            deliveries: items.iter().map(delivery).collect(),
        }
    }
}

/// A claim of a consumer.
#[derive(Debug)]
struct Claim {
    queue: u16,
    is_repeatable: bool,
    sent: Vec<Sent>,
}

/// One try of a claim.
#[derive(Debug)]
struct Sent {
    sent_us: u64,
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Answer {
    answered_us: u64,
    status: u16,
    more: u64,
    deliveries: Vec<Delivery>,
}

impl Answer {
    /// Whether the answer says what the lease covers. An error does not.
    fn is_of_claim(&self) -> bool {
        matches!(self.status, 200 | 204)
    }
}

#[derive(Debug, Default)]
pub(super) struct Served {
    grants: Vec<Grant>,
    /// For each delivery's key: the index of its last grant.
    grant_of: HashMap<Lease, usize>,
    /// The deliveries that `held` showed.
    held: HashSet<Delivery>,
    settled: HashMap<Lease, Vec<Settling>>,
    /// For each settling call in flight: the deliveries, and the index of each settlement.
    settling: HashMap<Number, Vec<(Lease, usize)>>,
    claims: Vec<Claim>,
    /// For each queue and lease in ms: the indices of its claims.
    by_lease: HashMap<(u16, u64), Vec<usize>>,
    claim_of: HashMap<Number, usize>,
    asked: HashMap<Lease, Vec<Asked>>,
    asked_of: HashMap<Number, (Lease, Verb)>,
    told: Vec<Told>,
    /// For each process: whether it ended on request, and the time of its last line.
    ends: HashMap<u16, (bool, u64)>,
}

impl Served {
    /// Notes that a server was granted messages.
    pub(super) fn granted(&mut self, grant: Grant) {
        if grant.deliveries.is_empty() {
            return;
        }
        for delivery in &grant.deliveries {
            self.grant_of.insert(delivery.lease(), self.grants.len());
        }
        self.grants.push(grant);
    }

    pub(super) fn held(&mut self, delivery: Delivery) {
        self.held.insert(delivery);
    }

    /// Notes that a server calls a script.
    pub(super) fn invoked(&mut self, process: u16, queue: u16, t_us: u64, call: (u64, &Call)) {
        let Call::Settle { verb, items } = call.1 else {
            return;
        };
        let mut places = Vec::new();
        for item in items {
            let lease = (queue, item.0.clone(), item.1.clone());
            let of_lease = self.settled.entry(lease.clone()).or_default();
            places.push((lease, of_lease.len()));
            of_lease.push(Settling::new(process, *verb, t_us));
        }
        self.settling.insert((process, call.0), places);
    }

    pub(super) fn answered(&mut self, call: Number, words: &[String]) {
        let places = self.settling.remove(&call).unwrap_or_default();
        for ((lease, place), word) in places.into_iter().zip(words) {
            if let Some(settling) = self.settling_at(&lease, place) {
                settling.said(word);
            }
        }
    }

    pub(super) fn refused(&mut self, call: Number) {
        for (lease, place) in self.settling.remove(&call).unwrap_or_default() {
            if let Some(settling) = self.settling_at(&lease, place) {
                settling.refused();
            }
        }
    }

    fn settling_at(&mut self, lease: &Lease, place: usize) -> Option<&mut Settling> {
        self.settled.get_mut(lease)?.get_mut(place)
    }

    pub(super) fn queue_of(&self, claim: Number) -> Option<u16> {
        let place = *self.claim_of.get(&claim)?;
        Some(self.claims.get(place)?.queue)
    }

    /// Notes a line of a consumer. `queue` is the queue that the line names.
    pub(super) fn consumed(&mut self, process: u16, queue: u16, t_us: u64, event: Http) {
        match event {
            Http::Claim {
                claim,
                lease_ms,
                repeatable,
                ..
            } => {
                let place = *self.claim_of.entry((process, claim)).or_insert_with(|| {
                    let same = self.by_lease.entry((queue, lease_ms)).or_default();
                    same.push(self.claims.len());
                    self.claims.push(Claim {
                        queue,

                        is_repeatable: repeatable,
                        sent: Vec::new(),
                    });
                    self.claims.len() - 1
                });
                self.claims[place].sent.push(Sent {
                    sent_us: t_us,
                    answer: None,
                });
            }
            Http::Claimed {
                claim,
                status,
                more,
                deliveries,
            } => {
                let Some(place) = self.claim_of.get(&(process, claim)) else {
                    return;
                };
                let claim = &mut self.claims[*place];
                let delivery = |Handed(id, token, version, due_ms, attempt)| {
                    Delivery::new(claim.queue, &id, &token, (version, due_ms, attempt))
                };
                let deliveries = deliveries.into_iter().map(delivery).collect();
                if let Some(sent) = claim.sent.last_mut() {
                    sent.answer = Some(Answer {
                        answered_us: t_us,
                        status,
                        more,
                        deliveries,
                    });
                }
            }
            Http::Unanswered { .. } => {}
            Http::Settle {
                op,
                verb,
                id,
                token,
                ..
            } => {
                let lease = (queue, id, token);
                let asked = Asked { verb, t_us };
                self.asked.entry(lease.clone()).or_default().push(asked);
                self.asked_of.insert((process, op), (lease, verb));
            }
            Http::Settled { op, outcome } => {
                if let Some((lease, verb)) = self.asked_of.remove(&(process, op)) {
                    self.told.push(Told {
                        process,
                        t_us,
                        lease,
                        verb,
                        outcome,
                    });
                }
            }
        }
    }

    pub(super) fn ended(&mut self, process: u16, is_on_request: bool, last_us: u64) {
        self.ends.insert(process, (is_on_request, last_us));
    }

    /// The consumer's claim to which a grant belongs: the last one with its lease that was sent
    /// before it.
    fn claim_for(&self, grant: &Grant) -> Option<&Claim> {
        let same = self.by_lease.get(&(grant.queue, grant.lease_ms))?;
        let same = same.iter().filter_map(|place| self.claims.get(*place));
        let earlier = same.filter(|claim| first_sent(claim) <= grant.asked_us);
        earlier.max_by_key(|claim| first_sent(claim))
    }
}

fn first_sent(claim: &Claim) -> u64 {
    claim.sent.first().map_or(u64::MAX, |sent| sent.sent_us)
}

pub(super) fn judge(all: &Collection, verdict: &mut Verdict) {
    let served = &all.served;
    let http = &mut verdict.http;
    let sent = || served.claims.iter().flat_map(|claim| &claim.sent);
    http.claims = served.claims.len() as u64;
    http.unanswered = sent().filter(|sent| sent.answer.is_none()).count() as u64;
    http.settled = served.told.len() as u64;
    grants::judge(all, verdict);
    settlements::judge(all, verdict);
}
