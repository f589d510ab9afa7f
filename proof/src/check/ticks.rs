//! Schedules: which ticks may exist, and whether every fire is accounted for.
//!
//! No process pushes a tick: the claim that reaches a schedule's timer makes it. So an id of a tick
//! begins as a message that waits from its fire on, if a call declared a schedule with that fire or
//! may have triggered it. From then on it is judged like every other message.

mod again;
mod late;
mod law;

use std::collections::{BTreeSet, HashMap, HashSet};

use super::collect::Collection;
use super::context::{Context, Epoch};
use super::record::{Record, What};
use super::verdict::{Kind, Verdict};
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::message::options::Expiry;
use crate::history::{Answer, Call, ClaimedItem};
use crate::queues::TICKS;

use crate::kit::law::{Spec, tick as parts};
pub(super) use law::judge;

/// The calls about schedules with one name.
#[derive(Debug, Default)]
struct Named {
    specs: BTreeSet<Spec>,
    /// Whether a call was made that may have removed the schedule.
    removed: bool,
    /// When unanswered triggers for the present time were sent, by the clock of the processes.
    lost_triggers_us: Vec<u64>,
    /// Whether an unanswered call may have paused the schedule.
    lost_pause: bool,
    /// When a tick of the schedule was made, or granted for the first time: epoch and `seq`.
    births: Vec<(u16, u64)>,
}

/// An answered call that declares or removes schedules.
#[derive(Debug)]
struct Told {
    epoch: u16,
    seq: u64,
    call: Call,
    words: Vec<String>,
    /// The time of the call: by the server's clock in ms, and by that of the processes in us.
    at: (u64, u64),
}

/// A schedule that remains at the end of the run.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) state: String,
    /// next, last, since, made, missed, overlapped, paused, triggered, resumed, version
    pub(super) numbers: [u64; 10],
    pub(super) spec: String,
    pub(super) pattern: String,
}

#[derive(Debug, Default)]
pub(super) struct Ticks {
    named: HashMap<String, Named>,
    /// By id of a tick: the calls that made it by hand, or may have.
    triggered: HashMap<String, Vec<ByHand>>,
    backfilled: u64,
    /// The number of lists that were refilled; below, of those that had run dry before.
    refilled: u64,
    dry: u64,
    has_crons: bool,
    /// When a refill listed a fire of a schedule, by the clock of the processes; `u64::MAX` if it
    /// was not answered.
    listed_us: HashMap<(String, u64), u64>,
    told: Vec<Told>,
    /// When unanswered calls that declare, pause or remove schedules were sent.
    lost_us: Vec<u64>,
    pub(super) stored: Vec<Stored>,
}

/// A trigger that made a certain tick, or may have.
#[derive(Debug, Clone, Copy)]
enum ByHand {
    /// Where its answer was, and the server's time: the tick was due then.
    Made { epoch: u16, seq: u64, now_ms: u64 },
    /// It got no answer.
    Perhaps { asked_us: u64 },
}

/// What the checker knows of a tick's id before its first record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tick<'a> {
    start: Hypothesis,
    /// Whether another message may have this id later.
    again: Again,
    by_hand: &'a [ByHand],
    /// The ticks of the schedule, if it removes waiting ticks when it makes another.
    replaced_by: &'a [(u16, u64)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Never,
    /// The schedule was removed, and was created again after the server's clock had gone back.
    AfterStep,
    /// A trigger or backfill made the tick with this id, or may have. The schedule makes it again
    /// once the earlier message is gone.
    Once,
}

/// The schedules that a call declares: name, spec, and all arguments.
fn declared(args: &[String]) -> impl Iterator<Item = (&str, &str, &[String])> {
    let items = args.get(3..).unwrap_or_default().chunks_exact(6);
    items.map(|item| (&*item[0], &*item[1], item))
}

/// Whether a call of `schedule` only checks: a large set is checked before it is declared.
pub(super) fn is_dry_run(args: &[String]) -> bool {
    args.get(2).is_some_and(|words| words.contains("dry_run"))
}

impl Ticks {
    pub(super) fn invoked(&mut self, call: &Call) {
        let Call::Other { verb, args } = call else {
            return;
        };
        match (verb.as_str(), &args[..]) {
            ("schedule", args) if is_dry_run(args) => {}
            ("schedule", args) => {
                for (name, spec, item) in declared(args) {
                    let named = self.named.entry(name.to_owned()).or_default();
                    let spec = Spec::read(spec, &item[2]);
                    self.has_crons |= spec.is_some_and(|spec| spec.is_cron);
                    named.specs.extend(spec);
                }
                if args.get(2).is_some_and(|words| words.contains("prune")) {
                    let kept: HashSet<_> = declared(args).map(|(name, ..)| name).collect();
                    let gone = |name: &String| !kept.contains(name.as_str());
                    let pruned = self.named.iter_mut().filter(|(name, _)| gone(name));
                    pruned.for_each(|(_, named)| named.removed = true);
                }
            }
            ("amend", [change, names @ ..]) if change == "remove" => {
                for name in names {
                    self.named.entry(name.clone()).or_default().removed = true;
                }
            }
            _ => {}
        }
    }

    /// Notes an answered call. `place` has the epoch and the `seq`; `at` has the server's time in
    /// ms, and that of the processes in us.
    pub(super) fn answered(
        &mut self,
        call: &Call,
        answer: &Answer,
        place: (u16, u64),
        at: (u64, u64),
    ) {
        match (call, answer) {
            // Also counts ticks that `held` shows: their claim got no answer.
            (_, Answer::Claimed { items, .. }) => {
                for ClaimedItem(id, _, _, attempt, ..) in items {
                    if let (Some((name, _)), 1) = (parts(id), *attempt) {
                        self.born(name, place);
                    }
                }
            }
            (Call::Other { verb, args }, Answer::Other(words)) => match verb.as_str() {
                "trigger" => {
                    let made = ByHand::Made {
                        epoch: place.0,
                        seq: place.1,
                        now_ms: at.0,
                    };
                    for id in words
                        .iter()
                        .filter_map(|word| word.strip_prefix("CREATED "))
                    {
                        self.triggered.entry(id.to_owned()).or_default().push(made);
                        self.backfilled += u64::from(args[1] != "now");
                        self.born(&args[0], place);
                    }
                }
                "refill" => {
                    let lists = args.chunks_exact(4).zip(words);
                    for (list, _) in lists.filter(|(_, word)| word.starts_with("OK ")) {
                        let is_over = list[2].parse().is_ok_and(|last: u64| last < at.0);
                        self.listed(list, at.1);
                        self.refilled += 1;
                        self.dry += u64::from(is_over);
                    }
                }
                "schedule" if is_dry_run(args) => {}
                "schedule" | "amend" => self.told.push(Told {
                    epoch: place.0,
                    seq: place.1,
                    call: call.clone(),
                    words: words.clone(),
                    at,
                }),
                _ => {}
            },
            _ => {}
        }
    }

    pub(super) fn unknown(&mut self, asked_us: u64, call: &Call) {
        let Call::Other { verb, args } = call else {
            return;
        };
        if verb == "amend" || verb == "schedule" && !is_dry_run(args) {
            self.lost_us.push(asked_us);
        }
        match (verb.as_str(), &args[..]) {
            ("refill", lists) => {
                for list in lists.chunks_exact(4) {
                    self.listed(list, u64::MAX);
                }
            }
            ("trigger", [name, now]) if now == "now" => {
                let named = self.named.entry(name.clone()).or_default();
                named.lost_triggers_us.push(asked_us);
            }
            ("amend", [change, names @ ..]) if change == "pause" => {
                for name in names {
                    self.named.entry(name.clone()).or_default().lost_pause = true;
                }
            }
            ("trigger", [name, times @ ..]) => {
                for id in times.iter().map(|time| format!("{name}@{time}")) {
                    let calls = self.triggered.entry(id).or_default();
                    calls.push(ByHand::Perhaps { asked_us });
                }
            }
            _ => {}
        }
    }

    fn listed(&mut self, list: &[String], at_us: u64) {
        let fires = list[3].lines().nth(1).unwrap_or_default().split(' ');
        let fires = fires.filter_map(|fire| fire.parse().ok());
        self.listed_us
            .extend(fires.map(|fire| ((list[0].clone(), fire), at_us)));
    }

    /// Why the run proves nothing about lists of fires.
    pub(super) fn doubt(&self) -> Option<&'static str> {
        let is_unseen = self.has_crons && self.refilled == 0;
        is_unseen.then_some("crons were declared, and none of their lists was refilled")
    }

    fn born(&mut self, name: &str, place: (u16, u64)) {
        let named = self.named.entry(name.to_owned()).or_default();
        named.births.push(place);
    }

    /// Called after the last history has been read.
    pub(super) fn settle(&mut self) {
        for named in self.named.values_mut() {
            named.births.sort_unstable();
        }
    }

    /// What is known of this tick; `None` if no call can have made it.
    pub(super) fn tick(&self, id: &str, records: &[Record]) -> Option<Tick<'_>> {
        let (name, nominal_ms) = parts(id)?;
        let named = self.named.get(name)?;
        let dues: BTreeSet<_> = named
            .specs
            .iter()
            .filter(|spec| spec.has_fire(nominal_ms))
            .map(|spec| spec.due_ms(id, nominal_ms))
            .collect();
        let known_us = records
            .first()
            .map_or(u64::MAX, |record| record.answered_us);
        let by_hand = self.triggered.get(id).map_or(&[][..], |calls| calls);
        let may_be_triggered = !by_hand.is_empty()
            || named
                .lost_triggers_us
                .iter()
                .any(|asked_us| *asked_us < known_us);
        let earliest_ms = match dues.first() {
            Some(due_ms) if !may_be_triggered => *due_ms,
            _ if may_be_triggered => nominal_ms,
            _ => return None,
        };
        let mut start = Hypothesis::NONE;
        start.wait_at_least(earliest_ms);
        start.due_ms = (dues.len() == 1 && !may_be_triggered).then_some(earliest_ms);
        // The first delivery gives the payload and the options: all others must equal them.
        let of_claim = records.iter().find_map(|record| match record.what {
            What::Claim {
                version,
                bytes,
                options,
                expiry,
                ..
            } => Some((version, bytes, options, expiry)),
            _ => None,
        });
        // `held` does not show the options.
        let of_held = || {
            records.iter().find_map(|record| match record.what {
                What::Held { version, bytes, .. } => Some((version, bytes, 0, Expiry::NONE)),
                _ => None,
            })
        };
        if let Some((version, bytes, options, expiry)) = of_claim.or_else(of_held) {
            start.version = u16::try_from(version).unwrap_or(u16::MAX);
            (start.bytes, start.options, start.expiry) = (bytes, options, expiry);
        }
        let again = match (may_be_triggered && !dues.is_empty(), named.removed) {
            (true, _) => Again::Once,
            (_, true) => Again::AfterStep,
            _ => Again::Never,
        };
        let replaces = named.specs.iter().any(|spec| spec.replaces);
        let replaced_by = if replaces { &named.births[..] } else { &[] };
        Some(Tick {
            start,
            again,
            by_hand,
            replaced_by,
        })
    }
}

impl Tick<'_> {
    /// The states before the first record. After a FLUSHALL a tick may be settled that is not made
    /// again.
    pub(super) fn starts(tick: Option<Self>) -> Vec<Hypothesis> {
        let made = tick.map(|tick| tick.start);
        made.into_iter().chain([Hypothesis::NONE]).collect()
    }
}

/// The names of the ids of the queue of schedules, by number.
pub(super) fn names(all: &Collection) -> HashMap<u32, &str> {
    let queues = all.queues.iter().zip(&all.ids);
    let ids = queues.filter(|(queue, _)| queue.name == TICKS);
    ids.flat_map(|(_, ids)| ids.iter().map(|(name, number)| (*number, &**name)))
        .collect()
}
