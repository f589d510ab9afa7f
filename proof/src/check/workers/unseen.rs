//! Judges that a worker asks what an unanswered claim was granted, by the claim's token; and that
//! it repeats a refused settlement.

use std::collections::{HashMap, HashSet};

use crate::check::calls::token_of;
use crate::history::{Call, SettleItem, Verb};

/// If a settlement is refused while this much of the lease is left, it must be repeated, unless the
/// worker sends nothing in the second half of that time.
const ENOUGH_US: u64 = 1_500_000;

/// A claim of a node that got no answer.
#[derive(Debug)]
struct LostClaim {
    queue: u16,
    token: u64,
    unknown_us: u64,
    /// If the claim was granted messages, their lease lasts at least until this time.
    leased_us: u64,
}

/// A settlement of a node that was refused.
#[derive(Debug)]
struct RefusedSettlement {
    at_us: u64,
    leased_us: u64,
    /// Whether the worker sent another call at a time when it should have repeated this one. A
    /// frozen worker sends none.
    is_dropped: bool,
}

/// Queue, id and token of a delivery.
type Delivery = (u16, String, String);

/// What is known about one worker.
#[derive(Debug, Default)]
pub(crate) struct Unseen {
    /// The lease of the node's claims; claims with another lease are by hand. 0 until the worker
    /// serves.
    pub(crate) lease_ms: u64,
    lost: Vec<LostClaim>,
    /// For each delivery: the time until which it is leased at least.
    leased_us: HashMap<Delivery, u64>,
    /// Ids that the process settles by hand.
    by_hand: HashSet<(u16, String)>,
    refused: HashMap<Delivery, RefusedSettlement>,
}

fn settled(call: &Call) -> &[SettleItem] {
    match call {
        Call::Settle { verb, items } if *verb != Verb::Extend => items,
        Call::Follow { ack, .. } => std::slice::from_ref(&**ack),
        _ => &[],
    }
}

impl Unseen {
    pub(crate) fn asked(&mut self, queue: u16, ids: &[String]) {
        self.by_hand
            .extend(ids.iter().map(|id| (queue, id.clone())));
    }

    /// Notes a call that is sent. `queue` is the whole queue, not the partition.
    pub(crate) fn invoked(&mut self, queue: u16, t_us: u64, call: &Call) {
        for refused in self.refused.values_mut() {
            let is_in_time = refused.at_us + ENOUGH_US / 2 < t_us && t_us < refused.leased_us;
            refused.is_dropped |= is_in_time;
        }
        for item in settled(call) {
            self.refused
                .remove(&(queue, item.0.clone(), item.1.clone()));
        }
    }

    /// Notes that a claim of the node got no answer.
    pub(crate) fn unknown(&mut self, queue: u16, asked_us: u64, unknown_us: u64, call: &Call) {
        if let Call::Claim {
            token, lease_ms, ..
        } = call
            && *lease_ms == self.lease_ms
        {
            self.lost.push(LostClaim {
                queue,
                token: token_of(token),
                unknown_us,
                leased_us: asked_us + 1_000 * lease_ms,
            });
        }
    }

    /// Notes an answered call. Returns the lost claims of this queue that the node has given up: it
    /// got an answer to another claim while their leases lasted, without having asked for them
    /// again.
    pub(crate) fn answered(
        &mut self,
        (queue, whole): (u16, u16),
        (asked_us, answered_us): (u64, u64),
        call: &Call,
    ) -> Vec<u64> {
        let (token, is_other) = match call {
            Call::Claim {
                token, lease_ms, ..
            } => (token, *lease_ms == self.lease_ms),
            Call::Other { verb, args } if verb == "held" && !args.is_empty() => (&args[0], false),
            _ => {
                for item in settled(call) {
                    self.leased_us
                        .remove(&(whole, item.0.clone(), item.1.clone()));
                }
                return Vec::new();
            }
        };
        let token = token_of(token);
        self.lost
            .retain(|lost| (lost.queue, lost.token) != (queue, token));
        let given_up = |lost: &LostClaim| {
            is_other
                && lost.queue == queue
                && lost.unknown_us < asked_us
                && answered_us < lost.leased_us
        };
        let given_up = self.lost.extract_if(.., |lost| given_up(lost));
        given_up.map(|lost| lost.token).collect()
    }

    pub(crate) fn granted<'a>(
        &mut self,
        queue: u16,
        token: &str,
        leased_us: u64,
        ids: impl Iterator<Item = &'a str>,
    ) {
        let deliveries = ids.map(|id| ((queue, id.to_owned(), token.to_owned()), leased_us));
        self.leased_us.extend(deliveries);
    }

    /// Notes that a call was refused as a whole.
    pub(crate) fn refused(&mut self, queue: u16, refused_us: u64, call: &Call) {
        for item in settled(call) {
            let delivery = (queue, item.0.clone(), item.1.clone());
            let leased_us = self.leased_us.get(&delivery).copied().unwrap_or(0);
            let by_hand = self.by_hand.contains(&(queue, item.0.clone()));
            if leased_us > refused_us + ENOUGH_US && !by_hand {
                let refused = RefusedSettlement {
                    at_us: refused_us,
                    leased_us,
                    is_dropped: false,
                };
                self.refused.insert(delivery, refused);
            }
        }
    }

    /// Describes the settlements that were refused and not repeated, although the process went on
    /// while their leases lasted and afterwards.
    pub(crate) fn dropped(&self, last_us: u64) -> Vec<String> {
        let dropped = |(_, refused): &(&Delivery, &RefusedSettlement)| {
            refused.is_dropped && refused.leased_us < last_us
        };
        let tell = |((_, id, token), refused): (&Delivery, &RefusedSettlement)| {
            format!(
                "the settlement of {id} under {token} was refused at {} us and not sent again, and its lease lasted until {} us",
                refused.at_us, refused.leased_us
            )
        };
        self.refused.iter().filter(dropped).map(tell).collect()
    }
}
