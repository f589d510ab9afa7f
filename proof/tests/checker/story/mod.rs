//! Writes histories step by step.

mod calls;
mod steps;

use std::collections::HashMap;

pub(crate) use calls::{change, claim_without_answer, push, settle};
use calls::{changes, due_ms, words};
use dueq_proof::check::{Kind, Verdict, check_events};
use dueq_proof::history::{
    Answer, Call, ClaimedItem, Event, LeftItem, Phase, Role, Share, State, Verb,
};

/// The server's clock and that of the processes at the beginning of a story.
const SERVER_MS: u64 = 1_000_000_000;
const LOCAL_US: u64 = 5_000_000;

pub(crate) struct Story {
    ms: u64,
    /// By how much the server's clock was set, forward or back.
    pub(crate) server_step_ms: i64,
    pub(crate) seq: u64,
    pub(crate) incarnation: &'static str,
    /// The master that answers, on a cluster.
    pub(crate) master: &'static str,
    /// The epoch of the queue's map.
    pub(crate) epoch: u64,
    /// Whether its calls may create nothing.
    pub(crate) probes: bool,
    pub(crate) queue: &'static str,
    call: u64,
    token: u64,
    /// The lease that claims get, in ms; a second by default.
    pub(crate) lease_ms: u64,
    asked_ms: u64,
    /// For each id: its score, or its time of death.
    times: HashMap<String, u64>,
    /// For each id: its options in a claim.
    options: HashMap<String, String>,
    events: Vec<(u64, Event)>,
}

/// The token of a claim.
pub(crate) type Token = String;

impl Story {
    /// A story of a worker that serves `q` with many handlers.
    pub(crate) fn new() -> Self {
        let mut story = Self::of(Role::Worker);
        story.serves_under(0);
        story
    }

    /// Sets the lease of the worker's node, in ms; claims with other leases are by hand.
    pub(crate) fn serves_under(&mut self, lease_ms: u64) -> &mut Self {
        let queues = vec![Share {
            queue: "q".into(),
            weight: 1,
            reserve: 0,
            max: 1_000,
        }];
        self.write(Event::Serves {
            concurrency: 1_000,
            lease_ms,
            queues,
        })
    }

    /// The worker begins to serve these queues.
    pub(crate) fn serves(&mut self, concurrency: u32, queues: Vec<Share>) -> &mut Self {
        self.write(Event::Serves {
            concurrency,
            lease_ms: 0,
            queues,
        })
    }

    /// A story of a process with this role.
    pub(crate) fn of(role: Role) -> Self {
        let begin = Event::Begin {
            role,
            process: "one".into(),
            pid: 1,
        };
        let events = vec![(LOCAL_US, begin)];
        let (times, options) = (HashMap::new(), HashMap::new());
        Self {
            ms: 0,
            server_step_ms: 0,
            seq: 0,
            incarnation: "b1",
            master: "",
            epoch: 0,
            probes: false,
            queue: "q",
            call: 0,
            token: 0,
            lease_ms: 1_000,
            asked_ms: 1_000,
            times,
            options,
            events,
        }
    }

    /// Moves the time on to `ms` after the start.
    pub(crate) fn at(&mut self, ms: u64) -> &mut Self {
        self.ms = ms;
        self
    }

    /// The server's time `ms` after the start.
    pub(crate) fn server(ms: u64) -> u64 {
        SERVER_MS + ms
    }

    /// The present time of the server's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        SERVER_MS
            .checked_add(self.ms)
            .and_then(|ms| ms.checked_add_signed(self.server_step_ms))
            .expect("a time")
    }

    /// The present time by the clock of the processes.
    pub(crate) fn t_us(&mut self) -> u64 {
        // Two lines never have one time.
        let t_us =
            (LOCAL_US + self.ms * 1_000).max(self.events.last().map_or(0, |(t_us, _)| t_us + 1));
        t_us.max(LOCAL_US)
    }

    pub(crate) fn write(&mut self, event: Event) -> &mut Self {
        let t_us = self.t_us();
        self.events.push((t_us, event));
        self
    }

    fn invoke(&mut self, what: Call) -> u64 {
        self.call += 1;
        let call = self.call;
        self.write(Event::Invoke {
            call,
            queue: self.queue.into(),
            master: self.master.into(),
            epoch: self.epoch,
            probes: self.probes,
            what,
        });
        call
    }

    /// A call and its answer.
    pub(crate) fn call(&mut self, what: Call, answer: Answer, changed: bool) -> &mut Self {
        let epoch = self.epoch;
        self.call_by((epoch, epoch), what, answer, changed)
    }

    /// A call by the map of one epoch, answered by a partition with the map of another.
    pub(crate) fn call_by(
        &mut self,
        (sent, epoch): (u64, u64),
        what: Call,
        answer: Answer,
        changed: bool,
    ) -> &mut Self {
        self.note_times(&what, &answer);
        let known = std::mem::replace(&mut self.epoch, sent);
        let call = self.invoke(what);
        self.epoch = known;
        self.seq += u64::from(changed);
        let now_us = i64::try_from(self.now_ms() * 1_000).expect("a time");
        self.write(Event::Ok {
            call,
            seq: self.seq,
            now_us,
            incarnation: self.incarnation.into(),
            epoch,
            answer,
        })
    }

    /// Notes the last reported time of each id, for the remaining messages.
    fn note_times(&mut self, what: &Call, answer: &Answer) {
        let Answer::Items(verdicts) = answer else {
            return;
        };
        if let Call::Push { items, .. } = what {
            const STORED: [&str; 5] = [
                "max_attempts=",
                "traceparent=",
                "expires=",
                "on_expire=",
                "cost=",
            ];
            let told = |word: &&str| STORED.iter().any(|name| word.starts_with(name));
            let told = |options: &str| {
                options
                    .split(' ')
                    .filter(told)
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            self.options
                .extend(items.iter().map(|item| (item.0.clone(), told(&item.4))));
        }
        let now_ms = self.now_ms();
        let items: Vec<(String, u64)> = match what {
            Call::Push { items, .. } => items
                .iter()
                .map(|item| (item.0.clone(), due_ms(&item.1, now_ms)))
                .collect(),
            Call::Settle { items, .. } => {
                items.iter().map(|item| (item.0.clone(), now_ms)).collect()
            }
            Call::Change { items, .. } => {
                items.iter().map(|item| (item.0.clone(), now_ms)).collect()
            }
            _ => Vec::new(),
        };
        for ((id, time_ms), verdict) in items.into_iter().zip(verdicts) {
            let died = matches!(
                what,
                Call::Settle {
                    verb: Verb::Bury | Verb::Retry | Verb::Snooze,
                    ..
                }
            ) && matches!(&**verdict, "OK" | "DEAD");
            let time_ms = match verdict.split_once(' ') {
                Some(("MOVED" | "SCHEDULED" | "OK", ms)) => ms.parse().expect("a time"),
                None if verdict == "CREATED"
                    || verdict == "MOVED"
                    || verdict == "REQUEUED"
                    || died =>
                {
                    time_ms
                }
                _ => continue,
            };
            if !matches!(
                what,
                Call::Settle {
                    verb: Verb::Extend,
                    ..
                }
            ) {
                self.times.insert(id, time_ms);
            }
        }
    }

    /// A call without an answer. `applied`: whether the server applied it.
    pub(crate) fn unanswered(&mut self, what: Call, applied: bool) -> &mut Self {
        let call = self.invoke(what);
        self.seq += u64::from(applied);
        self.write(Event::Unknown {
            call,
            error: "the connection was lost".into(),
        })
    }

    /// A call that was refused as a whole.
    pub(crate) fn refused(&mut self, what: Call) -> &mut Self {
        let call = self.invoke(what);
        self.write(Event::Refused {
            call,
            error: "OOM".into(),
        })
    }
    /// The verdict on the history so far, if no further messages remain.
    pub(crate) fn verdict(&mut self) -> Verdict {
        self.verdict_beside(&[])
    }

    /// The verdict on this history together with those of other processes.
    pub(crate) fn verdict_beside(&mut self, others: &[&Self]) -> Verdict {
        self.left(State::Scheduled, &[]);
        let others = others.iter().map(|other| other.events.clone());
        let all = std::iter::once(self.events.clone()).chain(others);
        check_events(all).expect("stories that can be told")
    }

    #[track_caller]
    pub(crate) fn is_clean(&mut self) {
        assert_clean(&self.verdict());
    }

    /// Asserts that the story has this violation, once, and no other.
    #[track_caller]
    pub(crate) fn has(&mut self, kind: Kind) {
        assert_has(&self.verdict(), kind);
    }
}

#[track_caller]
pub(crate) fn assert_clean(verdict: &Verdict) {
    assert!(verdict.is_clean(), "{:#?}", verdict.examples);
    assert_eq!(verdict.unjudged, 0);
}

/// Asserts that the verdict has this violation, once, and no other.
#[track_caller]
pub(crate) fn assert_has(verdict: &Verdict, kind: Kind) {
    let found: Vec<_> = verdict
        .violations
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, _)| *kind)
        .collect();
    assert_eq!(found, [kind], "{:#?}", verdict.examples);
}
