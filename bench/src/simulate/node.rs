//! A node of the simulation: the real timers and attendance, and what its coordinator does with
//! replies and hints.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dueq::harness::simulated::{self, Action, Attended, Roster, TICK, Timers};

use super::server::{Beat, Claim, Header, Us, Word};

/// How long a promote that moved nothing although something is due waits for the next.
const STUCK: Duration = Duration::from_secs(1);
/// After a claim that left messages to others, the node claims once more after this time.
const CLAIM_AGAIN: Us = 1_000;
/// The handlers of each node.
const HANDLERS: usize = 64;

/// A call of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Beat(Word),
    Leave,
    Promote,
    Claim { count: usize, for_promote: bool },
    Watch { known: u64 },
}

/// The answer to a call.
pub(super) enum Reply {
    Beat(Beat),
    Promoted(Header, usize),
    Claimed { claim: Claim, for_promote: bool },
    Watched(u64, Option<Rc<Roster>>),
}

/// What a node wants from the world.
pub(super) enum Wish {
    Call(u32, Call),
    /// Listen to a partition from now on: its notices and its wake-up list.
    Listen(u32),
    /// Watch again at this time.
    WatchAt(Us),
    /// The message that was due then is handled.
    Handled(Us),
}

pub(super) struct Node {
    pub(super) timers: Timers,
    attended: Option<Attended>,
    pub(super) slots: BTreeMap<u32, Slot>,
    roster_number: u64,
    roster_size: usize,
    pub(super) wishes: Vec<Wish>,
}

/// One attended partition.
#[derive(Default)]
pub(super) struct Slot {
    rank: Option<usize>,
    /// Whether its first beat has arrived.
    pub(super) is_live: bool,
    is_claiming: bool,
    is_wanted: bool,
    /// When the newest reply was made.
    newest: Us,
}

fn duration(us: Us) -> Duration {
    Duration::from_micros(us)
}

fn micros(duration: Duration) -> Us {
    duration.as_micros() as Us
}

impl Node {
    pub(super) fn new(name: &str, partitions: u32, seed: u64) -> Self {
        Self {
            attended: (partitions > 1).then(|| Attended::new(partitions, name)),
            timers: Timers::new(seed),
            slots: BTreeMap::new(),
            roster_number: 0,
            roster_size: 0,
            wishes: Vec::new(),
        }
    }

    /// Starts: with several partitions by a look at the roster.
    pub(super) fn start(&mut self, now: Us) {
        if self.attended.is_some() {
            self.watch();
        } else {
            self.attend(0, None, now);
        }
    }

    pub(super) fn watch(&mut self) {
        let known = self.roster_number;
        self.wishes.push(Wish::Call(0, Call::Watch { known }));
    }

    fn attend(&mut self, partition: u32, rank: Option<usize>, now: Us) {
        self.timers.add(partition, rank);
        self.timers.beat_at(partition, duration(now), duration(now));
        let slot = Slot {
            rank,
            ..Slot::default()
        };
        self.slots.insert(partition, slot);
        self.wishes.push(Wish::Listen(partition));
        self.want(partition);
    }

    /// Performs the actions that are due.
    pub(super) fn act(&mut self, now: Us) {
        while let Some((partition, action)) = self.timers.pop(duration(now)) {
            match action {
                Action::Beat => {
                    let rank = self.slots.get(&partition).and_then(|slot| slot.rank);
                    let word = match rank {
                        None => Word::Stay,
                        Some(0) => Word::First,
                        Some(_) => Word::Second,
                    };
                    self.wishes.push(Wish::Call(partition, Call::Beat(word)));
                }
                Action::Claim => self.want(partition),
                Action::Promote => self.promote(partition, now),
            }
        }
    }

    /// Promotes, or claims instead if the node may: a claim also takes due messages that nobody
    /// has promoted.
    fn promote(&mut self, partition: u32, now: Us) {
        let is_idle = !self.slots.values().any(|slot| slot.is_claiming);
        let is_idle = is_idle || self.attended.is_some() || self.timers.is_alone(partition);
        let Some(slot) = self.slots.get_mut(&partition) else {
            return;
        };
        let is_leader = self.timers.is_leader(partition, duration(now));
        if is_leader && is_idle && !slot.is_claiming && !slot.is_wanted {
            self.claim(partition, true);
        } else {
            self.wishes.push(Wish::Call(partition, Call::Promote));
        }
    }

    pub(super) fn want(&mut self, partition: u32) {
        match self.slots.get_mut(&partition) {
            Some(slot) if slot.is_claiming => slot.is_wanted = true,
            Some(_) => self.claim(partition, false),
            None => {}
        }
    }

    fn claim(&mut self, partition: u32, for_promote: bool) {
        if let Some(slot) = self.slots.get_mut(&partition) {
            slot.is_claiming = true;
            slot.is_wanted = false;
            let call = Call::Claim {
                count: HANDLERS,
                for_promote,
            };
            self.wishes.push(Wish::Call(partition, call));
        }
    }

    pub(super) fn noticed(&mut self, partition: u32, head: Option<Us>, now: Us) {
        if self.slots.contains_key(&partition) {
            let head = head.map(duration);
            self.timers.head_is(partition, head, duration(now));
        }
    }

    /// The answer to a call that was sent at `sent`. `part` (0 to 1) spreads watches.
    pub(super) fn answered(&mut self, partition: u32, reply: Reply, sent: Us, now: Us, part: f64) {
        let at = duration(now);
        match reply {
            Reply::Beat(beat) => {
                let Some(slot) = self.slots.get(&partition) else {
                    return;
                };
                let interval = simulated::beat_interval(slot.rank, beat.is_leader);
                self.timers
                    .completed(partition, Action::Beat, at, Duration::ZERO);
                self.timers
                    .beat_at(partition, duration(sent) + interval, at);
                let (is_leader, nodes) = (beat.is_leader, beat.nodes);
                self.timers
                    .set_leader(partition, is_leader, nodes, duration(sent));
                if self.absorb(partition, beat.header, now) {
                    let head = beat.header.head.map(duration);
                    self.timers.head_is(partition, head, at);
                }
                if beat.ready > 0 {
                    self.want(partition);
                }
            }
            Reply::Promoted(header, count) => self.moved(partition, header, count, now),
            Reply::Claimed { claim, for_promote } => {
                self.claimed(partition, claim, for_promote, now);
            }
            Reply::Watched(number, roster) => {
                self.roster_number = number;
                if let Some(roster) = roster {
                    self.roster_size = roster.nodes();
                    self.take_roster(&roster, now);
                }
                let interval = simulated::watch_interval(self.roster_size, part);
                self.wishes.push(Wish::WatchAt(sent + micros(interval)));
            }
        }
    }

    fn claimed(&mut self, partition: u32, claim: Claim, for_promote: bool, now: Us) {
        let handled = claim.granted.iter().map(|due| Wish::Handled(*due));
        self.wishes.extend(handled);
        let Some(slot) = self.slots.get_mut(&partition) else {
            return;
        };
        slot.is_claiming = false;
        let (is_wanted, granted) = (slot.is_wanted, claim.granted.len());
        if for_promote {
            self.moved(partition, claim.header, granted, now);
        } else {
            self.absorb(partition, claim.header, now);
        }
        if is_wanted || claim.leaves && granted == HANDLERS {
            self.want(partition);
        } else if claim.leaves {
            let at = duration(now + CLAIM_AGAIN);
            self.timers.claim_at(partition, at, duration(now));
        }
    }

    /// The reply to a promote, or to a claim that replaced it.
    fn moved(&mut self, partition: u32, header: Header, count: usize, now: Us) {
        let backoff = match count {
            0 if header.is_due() => STUCK,
            0 => TICK,
            _ => Duration::ZERO,
        };
        let at = duration(now);
        self.timers
            .completed(partition, Action::Promote, at, backoff);
        self.absorb(partition, header, now);
    }

    /// Returns whether the header is the newest so far.
    fn absorb(&mut self, partition: u32, header: Header, now: Us) -> bool {
        let Some(slot) = self.slots.get_mut(&partition) else {
            return false;
        };
        if header.now < slot.newest {
            return false;
        }
        slot.newest = header.now;
        if let Some(head) = header.head.filter(|_| !header.is_due()) {
            self.timers
                .promote_at(partition, duration(head), duration(now));
        }
        true
    }

    /// Attends what the roster gives to this node, and leaves the rest.
    fn take_roster(&mut self, roster: &Roster, now: Us) {
        let Some(attended) = &mut self.attended else {
            return;
        };
        if !attended.update(roster) && !self.slots.is_empty() {
            return;
        }
        let new: BTreeMap<u32, usize> = attended.attended().collect();
        let old: Vec<_> = self.slots.keys().copied().collect();
        for partition in old.into_iter().filter(|old| !new.contains_key(old)) {
            self.slots.remove(&partition);
            self.timers.remove(partition);
            self.wishes.push(Wish::Call(partition, Call::Leave));
        }
        for (partition, rank) in new {
            match self.slots.get_mut(&partition) {
                Some(slot) if slot.rank == Some(rank) => {}
                Some(slot) => {
                    slot.rank = Some(rank);
                    self.timers.set_rank(partition, Some(rank));
                }
                None => self.attend(partition, Some(rank), now),
            }
        }
    }
}
