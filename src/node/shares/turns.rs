//! Gives free handlers to several queues, one handler at a time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{Order, Shares, Want};
use crate::node::queue_number::QueueNumber;

/// A queue that wants a handler. The greatest gets the next one.
struct Candidate {
    queue: QueueNumber,
    /// How many more it could use.
    wanted: usize,
    /// How long it has waited, if its next handler is its turn as an overdue queue.
    overdue: Option<Duration>,
    running: usize,
    weight: u32,
    rank: Reverse<u64>,
    /// Its index in the reply, once it got a handler.
    given: Option<usize>,
}

impl Shares {
    /// `allot` for any number of queues.
    pub(super) fn allot_in_turns(&mut self, wants: &[Want]) -> Vec<(QueueNumber, usize)> {
        let candidates: Vec<_> = wants
            .iter()
            .filter_map(|want| self.candidate(want))
            .collect();
        let mut candidates = BinaryHeap::from(candidates);
        let mut given: Vec<(QueueNumber, usize)> = Vec::new();
        let mut only_reserves = false;
        while self.free() > 0 {
            // In one allot no queue's share of the free handlers grows, so a queue that may not
            // take is dropped: all such queues at once, for the cost of the log is theirs.
            if !only_reserves && self.only_reserves_are_free() {
                only_reserves = true;
                candidates.retain(|candidate| self.free_for(candidate.queue) > 0);
            }
            let Some(mut next) = candidates.pop() else {
                break;
            };
            if self.free_for(next.queue) == 0 {
                continue;
            }
            self.take(next.queue, 1);
            match next.given {
                Some(index) => given[index].1 += 1,
                None => {
                    next.given = Some(given.len());
                    given.push((next.queue, 1));
                }
            }
            if next.overdue.take().is_some() {
                self.overdue_turn_taken(next.queue);
            } else {
                self.round += 1;
            }
            next.running += 1;
            next.wanted -= 1;
            if next.wanted > 0 {
                candidates.push(next);
            }
        }
        given
    }

    fn candidate(&self, want: &Want) -> Option<Candidate> {
        let share = self.queues.get(&want.queue)?;
        if want.handlers == 0 || self.free_to(share) == 0 {
            return None;
        }
        let (weight, overdue) = match self.order {
            Order::Weighted => (share.settings.weight, None),
            // With a weight of 0 for all, the rank alone decides.
            Order::Strict { max_wait } => {
                let turn = want.waited >= max_wait && share.overdue_turn != Some(self.round);
                (0, turn.then_some(want.waited))
            }
        };
        Some(Candidate {
            queue: want.queue,
            wanted: want.handlers,
            overdue,
            running: share.running,
            weight,
            rank: Reverse(share.rank),
            given: None,
        })
    }

    fn overdue_turn_taken(&mut self, queue: QueueNumber) {
        let round = self.round;
        self.change(queue, |share| share.overdue_turn = Some(round));
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // Compares running / weight without a division.
        let load = self.running as u128 * u128::from(other.weight);
        let other_load = other.running as u128 * u128::from(self.weight);
        (self.overdue.cmp(&other.overdue))
            .then(other_load.cmp(&load))
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
