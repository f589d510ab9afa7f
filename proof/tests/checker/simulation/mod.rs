//! A queue in memory that follows docs/protocol or breaks one rule of it, used by random calls and
//! with lost replies.

mod changes;

use std::collections::{BTreeMap, BTreeSet};

use dueq_proof::check::Verdict;
use dueq_proof::history::{Answer, Call, ClaimedItem, Event, LeftItem, State, Verb};
use fastrand::Rng;

use crate::story::{Story, change, push, settle};

const LEASE_MS: u64 = 1_000;
const IDS: u32 = 12;
const STEPS: u32 = 250;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wrong {
    Nothing,
    /// An ack leaves the message in the queue.
    AckIsForgotten,
    /// A reap charges nothing.
    CrashIsFree,
    /// A cancel leaves the message in the queue.
    CancelIsForgotten,
    /// A settlement acts with any token.
    TokenIsIgnored,
    /// A claim takes messages that are due in 100 ms.
    ClaimIsEarly,
    /// A message in twenty vanishes when it is pushed.
    PushIsForgotten,
    /// A repeated push is stored although its message has ended.
    MemoryIsIgnored,
    /// A reap takes leases that have not run out.
    ReapIsEarly,
    /// Retries charge two failures.
    RetryIsCountedTwice,
    /// A claim takes the latest due times first.
    ClaimTakesTheNewest,
    /// A claim overlooks one message in ten.
    ClaimOverlooks,
    /// An extension does nothing, and reports the true deadline.
    ExtendIsForgotten,
}

#[derive(Debug, Clone)]
struct Message {
    due_ms: u64,
    reported_ms: u64,
    leased: Option<(String, u64)>,
    dead: bool,
    died_ms: u64,
    failures: u32,
    crashes: u32,
}

pub(crate) struct Simulation {
    pub(crate) story: Story,
    rng: Rng,
    wrong: Wrong,
    ms: u64,
    messages: BTreeMap<String, Message>,
    /// The pushes that have stored a message.
    made: BTreeSet<(String, u64)>,
    /// Unanswered pushes that will be repeated: id, delay, `until`.
    repeated: Vec<(String, u64, u64)>,
    /// For each cancelled id: the time until which it is remembered.
    cancelled: BTreeMap<String, u64>,
    /// The deliveries that clients believe they hold.
    held: Vec<(String, String)>,
    tokens: u64,
}

/// A reply of a word and a due time: the server's time `ms` after the start of the story.
fn told(word: &str, ms: u64) -> String {
    format!("{word} {}", Story::server(ms))
}

impl Simulation {
    pub(crate) fn new(seed: u64, wrong: Wrong) -> Self {
        Self {
            story: Story::new(),
            rng: Rng::with_seed(seed),
            wrong,
            ms: 0,
            messages: BTreeMap::new(),
            made: BTreeSet::new(),
            repeated: Vec::new(),
            cancelled: BTreeMap::new(),
            held: Vec::new(),
            tokens: 0,
        }
    }

    pub(crate) fn run(mut self) -> Verdict {
        for _ in 0..STEPS {
            self.ms += self.rng.u64(1..60);
            if self.rng.u32(0..60) == 0 {
                self.ms += self.rng.u64(0..1_500);
            }
            self.story.at(self.ms);
            match self.rng.u32(0..20) {
                0..5 => self.push(),
                5..9 => self.claim(),
                9..15 => self.settle(),
                15..17 => self.cancel(),
                17 => self.reschedule(),
                _ => self.reap(),
            }
        }
        for (id, message) in &self.messages {
            let (state, time_ms) = match (message.dead, &message.leased) {
                (true, _) => (State::Dead, message.died_ms),
                (_, Some(_)) => (State::Leased, message.reported_ms),
                _ => (State::Scheduled, message.due_ms),
            };
            let item = LeftItem(
                id.clone(),
                Story::server(time_ms),
                message.failures,
                message.crashes,
            );
            self.story.write(Event::Left {
                queue: "q".into(),
                state,
                items: vec![item],
            });
        }
        self.story.verdict()
    }

    /// Answers a call. One reply in ten is lost, and then returns `false`: that call may or may not
    /// have been applied.
    fn answer(&mut self, call: Call, apply: impl FnOnce(&mut Self) -> (Answer, bool)) -> bool {
        match self.rng.u32(0..20) {
            0 => {
                self.story.unanswered(call, false);
                false
            }
            1 => {
                let (_, changed) = apply(self);
                self.story.unanswered(call, changed);
                false
            }
            _ => {
                let (answer, changed) = apply(self);
                self.story.call(call, answer, changed);
                true
            }
        }
    }

    fn verdict(word: String, changed: bool) -> (Answer, bool) {
        (Answer::Items(vec![word]), changed)
    }

    fn id(&mut self) -> String {
        format!("m{}", self.rng.u32(0..IDS))
    }

    /// Makes a new push, or repeats an unanswered one after other pushes.
    fn push(&mut self) {
        let (id, delay_ms, until_ms) = if !self.repeated.is_empty() && self.rng.u32(0..15) == 0 {
            self.repeated
                .swap_remove(self.rng.usize(..self.repeated.len()))
        } else {
            (
                self.id(),
                self.rng.u64(0..400),
                self.ms + self.rng.u64(200..10_000),
            )
        };
        let call = push(&id, &format!("+{delay_ms}"), Story::server(until_ms), "");
        // Replies to pushes are lost more often than others, because a message lives for long.
        let is_lost = self.rng.bool();
        if is_lost {
            let (_, changed) = self.pushed(&id, delay_ms, until_ms);
            self.story.unanswered(call.clone(), changed);
        }
        if is_lost || !self.answer(call, |it| it.pushed(&id, delay_ms, until_ms)) {
            self.repeated.push((id, delay_ms, until_ms));
        }
    }

    fn pushed(&mut self, id: &str, delay_ms: u64, until_ms: u64) -> (Answer, bool) {
        if until_ms <= self.ms {
            return Self::verdict("EXPIRED".into(), false);
        }
        if let Some(message) = self.messages.get(id) {
            let state = match (message.dead, &message.leased) {
                (true, _) => "dead",
                (_, Some(_)) => "leased",
                _ => "scheduled",
            };
            return Self::verdict(format!("EXISTS {state}"), false);
        }
        if !self.made.insert((id.into(), until_ms)) && self.wrong != Wrong::MemoryIsIgnored {
            return Self::verdict("FINISHED".into(), false);
        }
        self.cancelled.remove(id);
        let due_ms = self.ms + delay_ms;
        let (reported_ms, leased, dead, died_ms, failures, crashes) =
            (due_ms, None, false, 0, 0, 0);
        let message = Message {
            due_ms,
            reported_ms,
            leased,
            dead,
            died_ms,
            failures,
            crashes,
        };
        if self.wrong != Wrong::PushIsForgotten || self.rng.u32(0..20) > 0 {
            self.messages.insert(id.into(), message);
        }
        Self::verdict("CREATED".into(), true)
    }

    fn claim(&mut self) {
        self.tokens += 1;
        let token = format!("{:016x}", self.tokens + (1 << 32));
        let call = Call::Claim {
            n: 3,
            token: token.clone(),
            lease_ms: LEASE_MS,
            due: true,
        };
        let (mut granted, mut started) = (Vec::new(), Vec::new());
        let answered = self.answer(call, |it| {
            let early_ms = if it.wrong == Wrong::ClaimIsEarly {
                100
            } else {
                0
            };
            let (now_ms, mut items) = (it.ms, Vec::new());
            let waits = |message: &Message| message.leased.is_none() && !message.dead;
            let due = it
                .messages
                .iter_mut()
                .filter(|(_, message)| message.due_ms <= now_ms + early_ms && waits(message));
            let overlooks = it.wrong == Wrong::ClaimOverlooks;
            let mut due: Vec<_> = due
                .filter(|_| !overlooks || it.rng.u32(0..10) > 0)
                .collect();
            due.sort_by_key(|(_, message)| message.due_ms);
            if it.wrong == Wrong::ClaimTakesTheNewest {
                due.reverse();
            }
            for (id, message) in due.into_iter().take(3) {
                message.leased = Some((token.clone(), now_ms + LEASE_MS));
                let attempt = 1 + message.failures + message.crashes;
                let due_ms = Story::server(message.reported_ms);
                items.push(ClaimedItem(
                    id.clone(),
                    1,
                    due_ms,
                    attempt,
                    100,
                    String::new(),
                ));
                granted.push((id.clone(), token.clone()));
                let id = id.clone();
                started.push(Event::Started {
                    by_hand: false,
                    queue: "q".into(),
                    id,
                    version: 1,
                    attempt,
                    due_ms,
                    started_us: 0,
                });
            }
            let changed = !items.is_empty();
            (
                Answer::Claimed {
                    deadline_ms: Story::server(now_ms + LEASE_MS),
                    items,
                    paused: false,
                },
                changed,
            )
        });
        if answered {
            self.held.append(&mut granted);
            for event in started {
                self.story.write(event);
            }
        }
    }
}
