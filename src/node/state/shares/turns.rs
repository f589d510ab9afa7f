//! Gives free handlers to the queues that want some, one at a time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use super::{Order, Share, Shares, Want};
use crate::node::QueueId;

/// A queue that wants a handler. The greatest candidate gets the next one.
struct Candidate {
    queue: QueueId,
    /// How many more handlers the queue could use now, and how many in a moment.
    wanted: usize,
    soon: usize,
    /// For how long the queue has waited, if its next handler is its turn as an overdue queue.
    overdue: Option<Duration>,
    /// How far the queue's virtual time will be ahead of the fair time when its running handlers
    /// end.
    ahead: f64,
    /// By how much the next handler increases `ahead`.
    step: f64,
    served: Reverse<u64>,
    rank: Reverse<u64>,
    /// The queue's index in the result, once it got a handler.
    given: Option<usize>,
}

impl Shares {
    /// The general case of `allot`, for any number of queues.
    pub(super) fn allot_in_turns(
        &mut self,
        wants: &[Want<QueueId>],
        now: Instant,
    ) -> Vec<(QueueId, usize)> {
        let pace = self.compete(wants, now);
        // A queue that is the only one to want handlers needs no turn as an overdue one.
        let takes_turns = wants.len() > 1;
        let candidates: Vec<_> = wants
            .iter()
            .filter_map(|want| self.candidate(want, pace, takes_turns))
            .collect();
        let mut wanted: usize = candidates.iter().map(|candidate| candidate.wanted).sum();
        let mut candidates = BinaryHeap::from(candidates);
        let mut given: Vec<(QueueId, usize)> = Vec::new();
        let mut soon = Vec::new();
        let mut only_reserves = false;
        while wanted > 0 && self.free() > 0 {
            // Within one allot, a queue that may not take a handler cannot do so later, so it is
            // dropped. All such queues are dropped at once, because that costs less than one by
            // one.
            if !only_reserves && self.only_reserves_are_free() {
                only_reserves = true;
                candidates.retain(|candidate| self.free_for(candidate.queue) > 0);
            }
            let Some(mut next) = candidates.pop() else {
                break;
            };
            if self.free_for(next.queue) == 0 {
                wanted -= next.wanted;
                continue;
            }
            self.take(next.queue, 1);
            // A handler that is kept for a claim in flight counts as the turn, too. Otherwise an
            // overdue queue would keep all handlers.
            let is_turn = next.overdue.take().is_some();
            if is_turn {
                self.overdue_turn_taken(next.queue);
            }
            if next.wanted > 0 {
                next.wanted -= 1;
                wanted -= 1;
                match next.given {
                    Some(index) => given[index].1 += 1,
                    None => {
                        next.given = Some(given.len());
                        given.push((next.queue, 1));
                    }
                }
                self.round += u64::from(!is_turn);
            } else {
                next.soon -= 1;
                soon.push(next.queue);
            }
            next.ahead += next.step;
            if next.wanted + next.soon > 0 {
                candidates.push(next);
            }
        }
        if !self.only_reserves_are_free() {
            self.era += 1;
        }
        for queue in soon {
            self.change(queue, |share| share.running -= 1);
        }
        let allots = self.allots;
        for (queue, _) in &given {
            self.change(*queue, |share| share.served = allots);
        }
        given
    }

    /// Makes the queues of `wants` compete from now on, or continue to compete. Returns how many
    /// handlers there are for each unit of weight.
    fn compete(&mut self, wants: &[Want<QueueId>], now: Instant) -> f64 {
        let (allots, era) = (self.allots, self.era);
        let (mut sum, mut weights, mut all_weights) = (0.0, 0.0, 0.0);
        let mut handlers = self.free() as f64;
        for want in wants {
            let share = self.queues.get_mut(&want.id);
            let Some(share) = share.filter(|share| share.competes(want)) else {
                continue;
            };
            share.settle(now);
            let weight = f64::from(share.settings.weight);
            if share.era == era && share.competed == allots {
                sum += weight * share.usage.virtual_time;
                weights += weight;
            }
            all_weights += weight;
            handlers += share.running as f64;
        }
        if weights > 0.0 {
            self.fair = sum / weights;
        }
        self.allots += 1;
        for want in wants {
            let share = self.queues.get_mut(&want.id);
            if let Some(share) = share.filter(|share| share.competes(want)) {
                if share.era != era {
                    // The queue begins to compete, so it starts from the fair time.
                    share.usage.virtual_time = self.fair;
                    share.era = era;
                } else if share.competed != allots {
                    share.usage.virtual_time = share.usage.virtual_time.max(self.fair);
                }
                share.competed = self.allots;
            }
        }
        handlers / all_weights
    }

    fn candidate(&self, want: &Want<QueueId>, pace: f64, takes_turns: bool) -> Option<Candidate> {
        let share = self.queues.get(&want.id)?;
        if !share.competes(want) || self.free_to(share) == 0 {
            return None;
        }
        let mut candidate = Candidate {
            queue: want.id,
            wanted: want.handlers,
            soon: want.soon,
            overdue: None,
            ahead: 0.0,
            step: 0.0,
            served: Reverse(0),
            rank: Reverse(share.rank),
            given: None,
        };
        match self.order {
            Order::Weighted => {
                (candidate.ahead, candidate.step) = share.ahead(pace, self.fair);
                candidate.served = Reverse(share.served);
            }
            // The remaining values are equal for all, so that the rank decides.
            Order::Strict { max_wait } => {
                let has_turn = takes_turns && share.overdue_turn != Some(self.round);
                let is_overdue = has_turn && want.waited >= max_wait;
                candidate.overdue = is_overdue.then_some(want.waited);
            }
        }
        Some(candidate)
    }

    fn overdue_turn_taken(&mut self, queue: QueueId) {
        let round = self.round;
        self.change(queue, |share| share.overdue_turn = Some(round));
    }
}

impl Share {
    fn competes(&self, want: &Want<QueueId>) -> bool {
        self.may_take() && self.running < self.settings.max && want.handlers + want.soon > 0
    }

    /// How far the queue's virtual time will be ahead of the fair time when its handlers end, and
    /// how much one more handler adds. If each queue has its part of the handlers, all advance at
    /// the same pace.
    fn ahead(&self, pace: f64, fair: f64) -> (f64, f64) {
        let step = self.usage.mean() / f64::from(self.settings.weight);
        let until_end = self.running as f64 * step - pace * self.usage.mean();
        (self.usage.virtual_time - fair + until_end, step)
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.overdue.cmp(&other.overdue))
            .then(other.ahead.total_cmp(&self.ahead))
            .then(self.served.cmp(&other.served))
            .then(self.rank.cmp(&other.rank))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}
