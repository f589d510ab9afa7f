//! The rate of a queue and its `max_leased`, judged from the grants that answers prove.
//!
//! Grants of unanswered claims do not count: such a claim may have granted nothing.
//!
//! | excuse | reason |
//! |---|---|
//! | a grant that a failover undid counts for neither | the new master has not charged it |
//! | no window contains a step back of the server's clock, and leases before it do not count | the same times come twice, and leases may have run out by the later clock |
//! | a lease counts until its deadline, or until a settlement may have been applied | then a reap may have ended it |

use std::collections::{HashMap, VecDeque};

use crate::check::collect::Collection;
use crate::check::context::Epoch;
use crate::check::record::{Record, Settled, What};
use crate::check::verdict::{Kind, Verdict};
use crate::history::Verb;

/// A rate: the most starts in any window, and the most at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    starts: u64,
    window_us: u64,
    burst: u64,
}

impl Rate {
    /// Parses `N/W/B`, or an empty text for no rate.
    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('/').map(|number| number.parse::<u64>().ok());
        Some(Self {
            starts: numbers.next()??,
            window_us: numbers.next()??.checked_mul(1_000)?,
            burst: numbers.next()??,
        })
    }
}

/// The value of a setting, and the `seq` from which on it holds in its epoch.
#[derive(Debug, Clone, Copy)]
struct Since<T> {
    epoch: u16,
    seq: u64,
    value: Option<T>,
}

/// The answered settings of one queue.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    rates: Vec<Since<Rate>>,
    max_leased: Vec<Since<u64>>,
}

impl Limits {
    pub(crate) fn configured(&mut self, args: &[String], record: &Record) {
        let (epoch, seq) = (record.epoch, record.seq());
        for pair in args.chunks_exact(2) {
            match pair[0].as_str() {
                "rate" => self.rates.push(Since {
                    epoch,
                    seq,
                    value: Rate::parse(&pair[1]),
                }),
                "max_leased" => self.max_leased.push(Since {
                    epoch,
                    seq,
                    value: pair[1].parse().ok(),
                }),
                _ => {}
            }
        }
    }

    pub(crate) fn has_rate(&self) -> bool {
        self.rates.iter().any(|since| since.value.is_some())
    }

    pub(crate) fn has_max_leased(&self) -> bool {
        self.max_leased.iter().any(|since| since.value.is_some())
    }

    fn is_empty(&self) -> bool {
        self.rates.is_empty() && self.max_leased.is_empty()
    }
}

/// The setting that certainly held at a claim, and the `seq` of that setting.
fn holding<T: Copy>(all: &[Since<T>], claim: &Record, epoch: &Epoch) -> Option<(u64, T)> {
    let before = all.iter().filter(|since| {
        since.epoch == claim.epoch && since.seq < claim.seq() && !epoch.is_void(since.seq)
    });
    let last = before.max_by_key(|since| since.seq)?;
    Some((last.seq, last.value?))
}

/// Judges all grants. `records` are without undone ones.
pub(crate) fn judge(
    all: &Collection,
    records: &[Record],
    unknown: &[Record],
    verdict: &mut Verdict,
) {
    let is_limited = |record: &&Record| {
        let queue = &all.queues[usize::from(all.queue_of[record.id as usize])];
        !queue.operators.limits.is_empty()
            && matches!(record.what, What::Claim { .. } | What::Settle { .. })
    };
    let mut limited: Vec<&Record> = records.iter().filter(is_limited).collect();
    limited.sort_by_key(|record| (record.epoch, record.order));
    let unsettled = perhaps_settled(unknown.iter().filter(is_limited));
    for records in limited.chunk_by(|one, other| one.epoch == other.epoch) {
        let Some(first) = records.first() else {
            continue;
        };
        let epoch = &all.epochs[usize::from(first.epoch)];
        let queue = &all.queues[usize::from(epoch.queue)];
        let limits = &queue.operators.limits;
        judge_rate((&queue.name, limits, epoch), records, verdict);
        judge_leased((&queue.name, limits, epoch), records, &unsettled, verdict);
    }
}

/// For each id and token: when its first unanswered settlement was sent.
fn perhaps_settled<'a>(unknown: impl Iterator<Item = &'a Record>) -> HashMap<(u32, u64), u64> {
    let mut first = HashMap::new();
    for record in unknown {
        if let What::Settle { verb, token, .. } = record.what
            && verb != Verb::Extend
        {
            let asked_us = first.entry((record.id, token)).or_insert(u64::MAX);
            *asked_us = record.asked_us.min(*asked_us);
        }
    }
    first
}

type OfQueue<'a> = (&'a str, &'a Limits, &'a Epoch);

fn judge_rate((name, limits, epoch): OfQueue<'_>, records: &[&Record], verdict: &mut Verdict) {
    let (mut window, mut starts, mut last) = (VecDeque::new(), 0, (0, 0));
    for claim in records.chunk_by(|one, other| one.seq() == other.seq()) {
        let costs = claim.iter().filter_map(|record| match record.what {
            What::Claim { cost, .. } => Some(u64::from(cost)),
            _ => None,
        });
        let (costs, Some(first)) = (costs.collect::<Vec<_>>(), claim.first()) else {
            continue;
        };
        if costs.is_empty() {
            continue;
        }
        let Some((since, rate)) = holding(&limits.rates, first, epoch) else {
            continue;
        };
        let (seq, now_us) = (first.seq(), first.now_us);
        if last.0 != since || epoch.stepped(last.1, seq) {
            window.clear();
            starts = 0;
        }
        last = (since, seq);
        while let Some((then_us, cost)) = window.front().copied()
            && then_us + rate.window_us <= now_us
        {
            window.pop_front();
            starts -= cost;
        }
        let cost = costs.iter().map(|cost| (*cost).min(rate.burst)).sum();
        window.push_back((now_us, cost));
        starts += cost;
        verdict.limits.under_rate += costs.len() as u64;
        verdict.limits.most_in_window = verdict.limits.most_in_window.max(starts);
        if starts > rate.starts {
            let from_us = window.front().map_or(now_us, |first: &(u64, u64)| first.0);
            verdict.found(Kind::OverRate, || {
                format!(
                    "queue {name}: claims from {from_us} to {now_us} us, seq {seq}, started {starts}; {rate:?}"
                )
            });
        }
    }
}

fn judge_leased(
    (name, limits, epoch): OfQueue<'_>,
    records: &[&Record],
    unsettled: &HashMap<(u32, u64), u64>,
    verdict: &mut Verdict,
) {
    if limits.max_leased.is_empty() {
        return;
    }
    // For each leased id: the token of its claim, and the deadline.
    let mut leased: HashMap<u32, (u64, u64)> = HashMap::new();
    let mut last = 0;
    for call in records.chunk_by(|one, other| one.order == other.order) {
        let Some(first) = call.first() else { continue };
        if epoch.stepped(last, first.seq()) {
            leased.clear();
        }
        last = first.seq();
        let mut granted = 0;
        for record in call {
            match record.what {
                What::Claim {
                    token, lease_ms, ..
                } => {
                    let deadline_ms = record.now_up() + u64::from(lease_ms);
                    leased.insert(record.id, (token, deadline_ms));
                    granted += 1;
                }
                What::Settle {
                    verb,
                    verdict,
                    token,
                    answered_ms,
                    ..
                } => {
                    let of_token = leased.get_mut(&record.id).filter(|held| held.0 == token);
                    match (of_token, verb, verdict) {
                        (None, ..) | (_, _, Settled::Refused | Settled::Unknown) => {}
                        (Some(held), Verb::Extend, Settled::Done) => {
                            held.1 = held.1.max(answered_ms)
                        }
                        (Some(_), ..) => drop(leased.remove(&record.id)),
                    }
                }
                _ => {}
            }
        }
        let holding = holding(&limits.max_leased, first, epoch);
        let (Some((_, most)), 1..) = (holding, granted) else {
            continue;
        };
        leased.retain(|id, (token, deadline_ms)| {
            let settled_us = unsettled.get(&(*id, *token));
            first.now() < *deadline_ms
                && settled_us.is_none_or(|asked_us| *asked_us > first.answered_us)
        });
        let count = leased.len() as u64;
        verdict.limits.under_max_leased += granted;
        verdict.limits.most_leased = verdict.limits.most_leased.max(count);
        if count > most {
            verdict.found(Kind::OverLeased, || {
                format!(
                    "queue {name}: after a claim at {} us, seq {}, {count} messages are leased, of {most} at most",
                    first.now_us, last
                )
            });
        }
    }
}
