//! The masters of the simulation: partitions and the roster, as the scripts keep them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;

use dueq::harness::simulated::{LEADER_TTL, Roster};

/// Microseconds since the start of the simulation.
pub(super) type Us = u64;
pub(super) type NodeId = usize;

pub(super) const MS: Us = 1_000;
/// After this silence Redis forgets a node.
const SILENCE: Us = 3_000 * MS;
/// A node whose beats say `second` takes a lead only when it has been free for so long.
const SECOND_WAITS: Us = 1_000 * MS;
/// Scripts keep this many wake-up tokens while there is work.
const TOKENS: usize = 2;
/// A promote or claim publishes the new head unless it is due sooner.
const DENSE: Us = 25 * MS;
/// A push publishes an earlier head that is due within this time.
const NEAR: Us = 2_000 * MS;

/// What a beat says of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Stay,
    First,
    Second,
}

/// The head of a partition when a call ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) now: Us,
    pub(super) head: Option<Us>,
}

impl Header {
    pub(super) fn is_due(&self) -> bool {
        self.head.is_some_and(|head| head <= self.now)
    }
}

pub(super) struct Beat {
    pub(super) header: Header,
    pub(super) is_leader: bool,
    pub(super) nodes: u64,
    pub(super) ready: usize,
}

/// The due times of what a claim granted, and whether it left messages.
pub(super) struct Claim {
    pub(super) header: Header,
    pub(super) granted: Vec<Us>,
    pub(super) leaves: bool,
}

/// What a call tells other nodes.
#[derive(Default)]
pub(super) struct Hints {
    /// The nodes whose blocked pops take a token.
    pub(super) woken: Vec<NodeId>,
    /// A notice of the new head.
    pub(super) notice: Option<Option<Us>>,
}

struct Lead {
    node: NodeId,
    until: Us,
    is_second: bool,
}

#[derive(Default)]
pub(super) struct Partition {
    scheduled: BinaryHeap<Reverse<Us>>,
    ready: VecDeque<Us>,
    tokens: usize,
    /// The nodes whose pops are blocked, the longest waiting first.
    waiting: VecDeque<NodeId>,
    /// When each live node beat last.
    live: BTreeMap<NodeId, Us>,
    lead: Option<Lead>,
    /// When the last lead ended, or ends.
    lead_until: Us,
    pub(super) subscribers: Vec<NodeId>,
}

impl Partition {
    fn head(&self) -> Option<Us> {
        self.scheduled.peek().map(|Reverse(due)| *due)
    }

    /// The end of each call: wakes nodes if there is work.
    fn finish(&mut self, now: Us, hints: &mut Hints, may_wait: impl Fn(NodeId) -> bool) -> Header {
        let head = self.head();
        if head.is_some_and(|head| head <= now) || !self.ready.is_empty() {
            self.tokens = TOKENS;
        }
        self.serve(hints, may_wait);
        Header { now, head }
    }

    fn serve(&mut self, hints: &mut Hints, may_wait: impl Fn(NodeId) -> bool) {
        while self.tokens > 0
            && let Some(node) = self.waiting.pop_front()
        {
            if may_wait(node) {
                self.tokens -= 1;
                hints.woken.push(node);
            }
        }
    }

    /// A node starts to wait for a token.
    pub(super) fn wait(&mut self, node: NodeId, may_wait: impl Fn(NodeId) -> bool) -> Hints {
        let mut hints = Hints::default();
        if !self.waiting.contains(&node) {
            self.waiting.push_back(node);
        }
        self.serve(&mut hints, may_wait);
        hints
    }

    pub(super) fn push(&mut self, now: Us, due: Us, may_wait: impl Fn(NodeId) -> bool) -> Hints {
        let mut hints = Hints::default();
        let is_earlier = self.head().is_none_or(|head| due < head);
        self.scheduled.push(Reverse(due));
        self.finish(now, &mut hints, may_wait);
        if is_earlier && due > now && due - now <= NEAR {
            hints.notice = Some(Some(due));
        }
        hints
    }

    /// Moves due messages to the ready list; returns how many.
    pub(super) fn promote(
        &mut self,
        now: Us,
        may_wait: impl Fn(NodeId) -> bool,
    ) -> (Header, usize, Hints) {
        let (mut moved, mut hints) = (0, Hints::default());
        while self.head().is_some_and(|head| head <= now) {
            let due = self.scheduled.pop();
            self.ready.extend(due.map(|Reverse(due)| due));
            moved += 1;
        }
        if moved > 0 {
            hints.notice = self.notice(now);
        }
        let header = self.finish(now, &mut hints, may_wait);
        (header, moved, hints)
    }

    /// Grants up to `count`, or the fair share of one node if that is less.
    pub(super) fn claim(
        &mut self,
        now: Us,
        count: usize,
        may_wait: impl Fn(NodeId) -> bool,
    ) -> (Claim, Hints) {
        let mut hints = Hints::default();
        let due = self.scheduled.iter().filter(|Reverse(due)| *due <= now);
        let work = self.ready.len() + due.count();
        let live = self.live.values().filter(|beat| **beat + SILENCE >= now);
        let share = (work / live.count().max(1)).max(1).min(count).min(work);
        let mut granted = Vec::with_capacity(share);
        let mut is_changed = false;
        while granted.len() < share {
            if let Some(due) = self.ready.pop_front() {
                granted.push(due);
            } else if let Some(Reverse(due)) = self.scheduled.pop() {
                granted.push(due);
                is_changed = true;
            }
        }
        if is_changed {
            hints.notice = self.notice(now);
        }
        let header = self.finish(now, &mut hints, may_wait);
        let leaves = !self.ready.is_empty() || header.is_due();
        let claim = Claim {
            header,
            granted,
            leaves,
        };
        (claim, hints)
    }

    fn notice(&self, now: Us) -> Option<Option<Us>> {
        let head = self.head();
        head.is_none_or(|head| head > now + DENSE).then_some(head)
    }

    pub(super) fn beat(
        &mut self,
        now: Us,
        node: NodeId,
        word: Word,
        may_wait: impl Fn(NodeId) -> bool,
    ) -> (Beat, Hints) {
        let mut hints = Hints::default();
        self.live.retain(|_, beat| *beat + SILENCE >= now);
        self.live.insert(node, now);
        let lead = self.lead.as_ref().filter(|lead| lead.until > now);
        let takes = match (word, lead) {
            (_, Some(lead)) if lead.node == node => true,
            (Word::Stay | Word::First, None) => true,
            (Word::Second, None) => now >= self.lead_until + SECOND_WAITS || self.lead_until == 0,
            (Word::First, Some(lead)) => lead.is_second,
            _ => false,
        };
        if takes {
            let until = now + LEADER_TTL.as_micros() as Us;
            self.lead_until = until;
            self.lead = Some(Lead {
                node,
                until,
                is_second: word == Word::Second,
            });
        }
        let header = self.finish(now, &mut hints, may_wait);
        let beat = Beat {
            header,
            is_leader: takes,
            nodes: self.live.len() as u64,
            ready: self.ready.len(),
        };
        (beat, hints)
    }

    pub(super) fn leave(&mut self, now: Us, node: NodeId) {
        self.live.remove(&node);
        self.forget_connections(node);
        if self.lead.as_ref().is_some_and(|lead| lead.node == node) {
            self.lead = None;
            self.lead_until = now;
        }
    }

    /// The connections of a node are closed.
    pub(super) fn forget_connections(&mut self, node: NodeId) {
        self.waiting.retain(|waiting| *waiting != node);
        self.subscribers.retain(|subscriber| *subscriber != node);
    }
}

/// The roster at the home.
#[derive(Default)]
pub(super) struct Home {
    last: BTreeMap<NodeId, Us>,
    /// Each watch in its order, to find those that are too old.
    watches: VecDeque<(Us, NodeId)>,
    number: u64,
    roster: Option<Rc<Roster>>,
}

impl Home {
    /// Enters the node. Returns the number of the roster, and the roster unless `known` is current.
    pub(super) fn watch(
        &mut self,
        now: Us,
        node: NodeId,
        known: u64,
        name: impl Fn(NodeId) -> String,
    ) -> (u64, Option<Rc<Roster>>) {
        let mut is_changed = self.last.insert(node, now).is_none();
        self.watches.push_back((now, node));
        while let Some(&(at, old)) = self.watches.front()
            && at + SILENCE < now
        {
            self.watches.pop_front();
            if self.last.get(&old) == Some(&at) {
                self.last.remove(&old);
                is_changed = true;
            }
        }
        if is_changed {
            self.number += 1;
            self.roster = None;
        }
        if known == self.number {
            return (self.number, None);
        }
        let roster = self.roster.get_or_insert_with(|| {
            let names: Vec<_> = self.last.keys().map(|node| name(*node)).collect();
            Rc::new(Roster::of(names.iter().map(String::as_str)))
        });
        (self.number, Some(Rc::clone(roster)))
    }
}
