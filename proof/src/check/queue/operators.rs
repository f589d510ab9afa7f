//! The actions of operators on a queue: limits, purges, requeues and audits.
//!
//! A purge names no ids. So it explains a missing message only if the message existed just before
//! it and was gone just after, and all purges together explain no more messages than they reported.

use crate::check::collect::Collection;
use crate::check::context::Context;
use crate::check::excuses::UNDER_WAY_US;
use crate::check::message::hypothesis::{Gone, Hypothesis, Status};
use crate::check::queue::limits::Limits;
use crate::check::queue::pauses::Pauses;
use crate::check::record::Record;
use crate::check::verdict::{Cause, Kind, Verdict};
use crate::history::{Answer, Call, Verb};

/// An answered call: its epoch, and its `seq` there.
#[derive(Debug, Clone, Copy)]
struct Told {
    epoch: u16,
    seq: u64,
    now_us: u64,
}

/// A call that takes messages of one state without naming them.
#[derive(Debug)]
struct Sweep {
    asked_us: u64,
    told: Option<Told>,
    takes_dead: bool,
    /// The most messages that the call took.
    count: u64,
}

impl Sweep {
    /// Whether the call may have happened between the last change of a hypothesis and a record.
    fn is_between(&self, life: &Hypothesis, record: &Record, context: &Context<'_>) -> bool {
        match self.told {
            // An unanswered call: at most once, in its time, and by a change that no answered call
            // made.
            None => {
                let gaps = context.epoch.gaps(life.seq, record.seq());
                gaps.iter()
                    .any(|gap| gap.fits(self.asked_us, self.asked_us + UNDER_WAY_US))
            }
            Some(told) => {
                told.epoch == record.epoch
                    && life.seq < told.seq
                    && told.seq <= record.seq()
                    && !context.epoch.is_void(told.seq)
            }
        }
    }
}

/// The actions of operators on one queue.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    purges: Vec<Sweep>,
    revivals: Vec<Sweep>,
    pub(crate) pauses: Pauses,
    pub(crate) limits: Limits,
    /// When `max_messages` was first set; and when a push was first refused because the queue was
    /// full.
    limited_us: Option<u64>,
    full_us: Option<u64>,
    /// Answers that the protocol does not have, or that a correct queue does not give.
    wrong: Vec<(Kind, String)>,
}

impl Operators {
    pub(crate) fn asked(&mut self, asked_us: u64, call: &Call) {
        if let Call::Other { verb, args } = call
            && verb == "configure"
            && args
                .chunks_exact(2)
                .any(|pair| pair[0] == "max_messages" && !pair[1].is_empty())
        {
            self.limited_us = Some(
                self.limited_us
                    .map_or(asked_us, |known| known.min(asked_us)),
            );
        }
    }

    pub(crate) fn full(&mut self, answered_us: u64) {
        self.full_us = Some(
            self.full_us
                .map_or(answered_us, |known| known.min(answered_us)),
        );
    }

    /// Notes an answered call. `record` has its time.
    pub(crate) fn answered(&mut self, call: &Call, answer: &Answer, record: &Record) {
        let (epoch, seq) = (record.epoch, record.seq());
        let told = Some(Told {
            epoch,
            seq,
            now_us: record.now_us,
        });
        match (call, answer) {
            (Call::Claim { .. }, Answer::Claimed { items, .. }) if !items.is_empty() => {
                self.pauses.granted(record);
            }
            (
                Call::Settle {
                    verb: Verb::Throttle,
                    items,
                },
                Answer::Items(verdicts),
            ) => {
                let longest = items.iter().zip(verdicts);
                let longest = longest.filter(|(_, word)| word.starts_with("OK "));
                if let Some(wait_ms) = longest.filter_map(|(item, _)| item.2.parse().ok()).max() {
                    self.pauses.throttled(wait_ms, record);
                }
            }
            (Call::Other { verb, args }, answer) => match (verb.as_str(), answer) {
                // The answer to a close is `OK 0` if the queue does not exist.
                ("throttle", Answer::Other(words)) if words != &["OK 0"] => {
                    if let Some(wait_ms) = args.get(1).and_then(|ms| ms.parse().ok()) {
                        self.pauses.throttled(wait_ms, record);
                    }
                }
                ("pause", Answer::Other(words)) if self.pauses.paused(args, words, record) => {}
                ("resume", Answer::Other(words)) if words == &["OK"] => {
                    self.pauses.resumed(record);
                }
                ("configure", Answer::Other(words)) if words == &["OK"] => {
                    self.limits.configured(args, record);
                }
                ("purge" | "requeue", Answer::Other(words)) => match numbers(words) {
                    Some([count, _]) => self.swept(
                        verb,
                        args,
                        Sweep {
                            told,
                            count,
                            ..sweep(args, record.asked_us)
                        },
                    ),
                    None => self.lie(verb, answer),
                },
                ("verify", Answer::Other(found)) => self.found(verb, found),
                ("audit", Answer::Other(words)) if words.len() > 1 => self.found(verb, &words[2..]),
                (
                    "pause" | "resume" | "configure" | "purge" | "requeue" | "verify" | "audit",
                    _,
                ) => {
                    self.lie(verb, answer);
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Judges the findings of an audit. A correct queue has none, except that beats or wake-up
    /// tokens may be missing for a while.
    fn found(&mut self, verb: &str, found: &[String]) {
        for finding in found
            .iter()
            .filter(|finding| !finding.starts_with("silent "))
        {
            self.wrong
                .push((Kind::TwoStates, format!("{verb} found {finding}")));
        }
    }

    fn lie(&mut self, verb: &str, answer: &Answer) {
        self.wrong.push((
            Kind::ApiLies,
            format!("this is no answer to {verb}: {answer:?}"),
        ));
    }

    fn swept(&mut self, verb: &str, args: &[String], sweep: Sweep) {
        if sweep.count > limit(args) {
            self.wrong.push((
                Kind::ApiLies,
                format!("{verb} {args:?} took {}", sweep.count),
            ));
        }
        if sweep.count == 0 {
            return;
        }
        if verb == "purge" {
            self.purges.push(sweep)
        } else {
            self.revivals.push(sweep)
        }
    }

    pub(crate) fn unknown(&mut self, asked_us: u64, call: &Call) {
        let (verb, args) = match call {
            Call::Other { verb, args } => (verb, args),
            Call::Settle {
                verb: Verb::Throttle,
                items,
            } => {
                let waits = items.iter().filter_map(|item| item.2.parse().ok());
                return self.pauses.lost_throttle(waits.max(), asked_us);
            }
            _ => return,
        };
        match verb.as_str() {
            "throttle" => {
                let wait_ms = args.get(1).and_then(|ms| ms.parse().ok());
                self.pauses.lost_throttle(wait_ms, asked_us);
            }
            "resume" => self.pauses.lost_resume(asked_us),
            "pause" => self.pauses.lost_pause(args, asked_us),
            "purge" => self.purges.push(sweep(args, asked_us)),
            "requeue" => self.revivals.push(sweep(args, asked_us)),
            _ => {}
        }
    }

    /// When the first purge was sent that may have taken a message.
    pub(crate) fn first_purge_us(&self) -> Option<u64> {
        self.purges.iter().map(|purge| purge.asked_us).min()
    }

    /// Whether a purge may have taken a message before this record.
    pub(crate) fn may_purge(
        &self,
        life: &Hypothesis,
        record: &Record,
        context: &Context<'_>,
    ) -> bool {
        let fits = |purge: &Sweep| purge.takes_dead == (life.status == Status::Dead);
        let may = matches!(life.status, Status::Dead | Status::Waiting);
        may && self
            .purges
            .iter()
            .any(|purge| fits(purge) && purge.is_between(life, record, context))
    }

    /// Adds the states to which a bulk requeue may have led a dead message before this record.
    pub(crate) fn revived(
        &self,
        life: &Hypothesis,
        record: &Record,
        context: &Context<'_>,
        lives: &mut Vec<Hypothesis>,
    ) {
        for revival in self
            .revivals
            .iter()
            .filter(|revival| revival.is_between(life, record, context))
        {
            let mut life = *life;
            match revival.told {
                Some(told) => {
                    life.wait_until(told.now_us / 1_000);
                    (life.seq, life.now_ms) = (told.seq, told.now_us / 1_000);
                }
                None => life.wait_at_least(life.now_ms),
            }
            life.count_anew(Some(Cause::Requeue));
            life.requeued(revival.told.map(|told| told.now_us / 1_000), lives);
        }
    }
}

/// Parses the numbers of messages taken and left. If a purge also reports the timers that it
/// passed, they count as left.
fn numbers(words: &[String]) -> Option<[u64; 2]> {
    match words {
        [one, other] | [one, other, _] => Some([one.parse().ok()?, other.parse().ok()?]),
        _ => None,
    }
}

/// The limit in the arguments: `state, limit` of a purge; `oldest, limit, before` of a bulk
/// requeue.
fn limit(args: &[String]) -> u64 {
    args.get(1)
        .and_then(|limit| limit.parse().ok())
        .unwrap_or(0)
}

/// The sweep of an unanswered call.
fn sweep(args: &[String], asked_us: u64) -> Sweep {
    let takes_dead = args
        .first()
        .is_some_and(|word| word == "dead" || word == "oldest");
    Sweep {
        asked_us,
        told: None,
        takes_dead,
        count: limit(args),
    }
}

impl Hypothesis {
    /// The state after a purge took the message.
    pub(crate) fn purged(mut self, record: &Record) -> Self {
        self.leave(Gone::Purged);
        self.swept += 1;
        self.remember(0, u64::MAX, record.seq());
        self
    }
}

/// Judges the purges. `swept`: the number of messages that vanished by a purge.
pub(crate) fn judge(all: &Collection, swept: u64, verdict: &mut Verdict) {
    for queue in &all.queues {
        let (name, operators) = (&queue.name, &queue.operators);
        for (kind, what) in &operators.wrong {
            verdict.found(*kind, || format!("queue {name}: {what}"));
        }
        if operators.full_us.is_some_and(|full_us| {
            operators
                .limited_us
                .is_none_or(|since_us| full_us < since_us)
        }) {
            verdict.found(Kind::ApiLies, || {
                format!("queue {name} refused a push as full, without a limit")
            });
        }
        operators.pauses.judge(all, name, verdict);
    }
    let room: u64 = all
        .queues
        .iter()
        .flat_map(|queue| &queue.operators.purges)
        .map(|purge| purge.count)
        .sum();
    if swept > room {
        let words = || {
            format!(
                "{swept} messages are gone that only a purge can have taken, and all purges took {room}"
            )
        };
        verdict.found(Kind::Lost, words);
    }
}
