//! The faults of a run, and which claims each may delay.
//!
//! A fault excuses a late claim only if it keeps every worker from the queue. So the death of a
//! producer excuses nothing, and that of one worker nothing while another one can claim.

use std::collections::{BTreeMap, BTreeSet};

use crate::check::collect::Collection;
use crate::check::verdict::Verdict;
use crate::history::Phase;
use crate::queues::PARKING;

/// Faults that delay no claim: a running node still finds due messages.
const HARMLESS: [&str; 20] = [
    "producer_kill",
    "mover_kill",
    "mover_stop",
    "canceller_kill",
    "operator_kill",
    "serve_kill",
    "serve_stop",
    "consumer_kill",
    "purge_beside",
    "storm",
    "idle_connections",
    "script_flush",
    "function_flush",
    "max_memory",
    "node_clock",
    "queue_remove",
    "kill_subscribers",
    "kill_blocked",
    "kill_everyone",
    "slow_subscriber",
];
/// Faults of one process, which their details name.
const OF_PROCESS: [&str; 7] = [
    "worker_kill",
    "worker_stop",
    "poison",
    "net_delay",
    "net_cut",
    "net_half_open",
    "net_drop",
];
/// Faults during which the only server of a run answers no beat.
const SERVER_OUTAGES: [&str; 7] = [
    "server_kill",
    "server_stop",
    "aof_truncate",
    "failover",
    "disk_full",
    "answers_dropped",
    "rights_taken",
];
/// Faults that cut no subscription of a worker.
const KEEP_SUBSCRIPTIONS: [&str; 16] = [
    "producer_kill",
    "mover_kill",
    "mover_stop",
    "canceller_kill",
    "operator_kill",
    "serve_kill",
    "serve_stop",
    "consumer_kill",
    "purge_beside",
    "storm",
    "idle_connections",
    "script_flush",
    "function_flush",
    "disk_full",
    "max_memory",
    "node_clock",
];
/// How long after a fault a message may still wait: connections are reopened, processes start,
/// another node becomes leader.
const AFTERMATH_US: u64 = 3_000_000;
/// How long a message may wait after a pause: the fallback interval.
const RESUMED_US: u64 = 1_000_000;
/// How long after a fault a message may wait in a queue that is parked, or whose limits may delay
/// claims.
const SETTLE_US: u64 = 10_000_000;

/// A time span, from and until, by the clock of the processes.
pub(crate) type Span = (u64, u64);

#[derive(Debug, Default)]
struct Fault {
    name: String,
    detail: String,
    begun: bool,
    traced: bool,
    begun_us: u64,
    ended_us: Option<u64>,
}

impl Fault {
    fn span(&self) -> Span {
        (self.begun_us, self.ended_us.unwrap_or(u64::MAX))
    }

    /// The places of the fault's processes: `w2` for the process `w2.3`.
    fn places(&self) -> impl Iterator<Item = &str> {
        let of = |process| str::split(process, |c: char| !c.is_ascii_alphanumeric()).next();
        self.detail.split(", ").filter_map(of)
    }

    /// By how much the fault set the server's clock back: what is closed then stays closed for that
    /// much longer.
    fn set_back_us(&self) -> u64 {
        let step_ms = self
            .detail
            .strip_prefix('-')
            .filter(|_| self.name == "clock_back");
        let step_ms = step_ms.and_then(|rest| rest.split(' ').next()?.parse().ok());
        step_ms.map_or(0, |ms: u64| ms * 1_000)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    all: BTreeMap<u64, Fault>,
    /// The spans in which the machine did not schedule the harness.
    pub(crate) stalls: Vec<Span>,
    /// The places of all workers.
    workers: BTreeSet<String>,
}

impl Faults {
    pub(crate) fn worker(&mut self, process: &str) {
        let place = process.split('.').next().unwrap_or(process);
        self.workers.insert(place.to_owned());
    }

    pub(crate) fn take(
        &mut self,
        t_us: u64,
        (name, number): (String, u64),
        phase: Phase,
        detail: String,
        verdict: &mut Verdict,
    ) {
        let fault = self.all.entry(number).or_default();
        match phase {
            Phase::Begin => {
                (fault.begun, fault.begun_us, fault.detail) = (true, t_us, detail);
                *verdict.faults.entry(name.clone()).or_default() += 1;
            }
            Phase::End => {
                fault.ended_us = Some(t_us);
                // The detail of a clock fault has no place, but a step.
                if !detail.is_empty() {
                    fault.detail = detail;
                }
            }
            Phase::Trace => fault.traced = true,
            Phase::NotApplied => fault.begun = false,
            Phase::Recovered => {}
        }
        fault.name = name;
    }

    fn begun(&self) -> impl Iterator<Item = &Fault> {
        self.all.values().filter(|fault| fault.begun)
    }

    pub(crate) fn untraced(&self) -> impl Iterator<Item = String> {
        let numbered = self
            .all
            .iter()
            .filter(|(_, fault)| fault.begun && !fault.traced);
        numbered.map(|(number, fault)| format!("fault {number}, {}, left no trace", fault.name))
    }

    /// The spans in which the harness had changed the server's clock. The next claims may still use
    /// the wrong time.
    pub(crate) fn of_clocks(&self) -> Vec<Span> {
        let clocks = self.begun().filter(|fault| fault.name.contains("clock"));
        clocks.map(Fault::span).collect()
    }

    /// When movers were killed or frozen: then their batches wait until others end them.
    pub(crate) fn of_movers_us(&self) -> impl Iterator<Item = u64> {
        let movers = self
            .begun()
            .filter(|fault| fault.name.starts_with("mover_"));
        movers.map(|fault| fault.begun_us)
    }

    /// The spans in which the run's only server could not answer.
    fn outages(&self) -> impl Iterator<Item = Span> {
        let known = |fault: &&Fault| SERVER_OUTAGES.contains(&&*fault.name);
        self.begun().filter(known).map(Fault::span)
    }

    /// The spans in which no worker could claim from the run's only server.
    fn delays(&self) -> Vec<Span> {
        let (mut spans, mut of_places) = (Vec::new(), BTreeMap::<&str, Vec<Span>>::new());
        for fault in self
            .begun()
            .filter(|fault| !HARMLESS.contains(&&*fault.name))
        {
            if !OF_PROCESS.contains(&&*fault.name) {
                let (from_us, to_us) = fault.span();
                spans.push((from_us, to_us.saturating_add(fault.set_back_us())));
                continue;
            }
            for place in fault.places() {
                of_places.entry(place).or_default().push(fault.span());
            }
        }
        let away =
            |place: &String| after(of_places.remove(&**place).unwrap_or_default(), AFTERMATH_US);
        let away = self
            .workers
            .iter()
            .map(away)
            .reduce(|one, other| common(&one, &other));
        let mut delays = after(spans, AFTERMATH_US);
        delays.extend(away.unwrap_or_default());
        delays
    }

    /// All faults with their spans. If `parks`, a fault that may have cut a subscription lasts
    /// longer by the parking time.
    fn everything(&self, parks: bool) -> impl Iterator<Item = Span> {
        let parked_us = PARKING.as_micros() as u64;
        self.begun().map(move |fault| {
            let cuts = parks && !KEEP_SUBSCRIPTIONS.contains(&&*fault.name);
            let (from_us, to_us) = fault.span();
            (
                from_us,
                to_us.saturating_add(if cuts { parked_us } else { 0 }),
            )
        })
    }
}

/// The rule for how long a due message may wait in a queue without any claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    Named,
    /// Workers find the queue by a pattern, and park it.
    Parked,
    /// A limit may delay claims.
    Limited,
}

impl Collection {
    /// The spans in which a claim of this queue may be late, sorted; each with its aftermath.
    pub(crate) fn excused(&self, queue: u16, rule: Rule) -> Vec<Span> {
        let own = self.queues[usize::from(queue)]
            .operators
            .pauses
            .windows_us();
        let faults = &self.faults;
        let mut spans = match rule {
            Rule::Named => {
                let of_masters = self.partitions.touched_us(queue).iter().copied();
                let mut spans = after(of_masters, AFTERMATH_US);
                spans.extend(after(own, RESUMED_US));
                spans.extend(faults.delays().into_iter().filter(|_| !self.is_cluster()));
                // After a freeze, processes may need as much time again to catch up.
                let twice = |(from_us, to_us): &Span| (*from_us, to_us + (to_us - from_us));
                spans.extend(faults.stalls.iter().map(twice));
                spans
            }
            _ => {
                let all = faults.everything(rule == Rule::Parked);
                after(
                    all.chain(own).chain(faults.stalls.iter().copied()),
                    SETTLE_US,
                )
            }
        };
        spans.sort_unstable();
        spans
    }

    /// The spans in which possibly no partition of the queue is attended, sorted, without
    /// aftermath.
    pub(crate) fn unreachable(&self, queue: u16) -> Vec<Span> {
        let of_masters = self.partitions.touched_us(queue).iter().copied();
        let mut spans: Vec<_> = of_masters
            .chain(self.faults.stalls.iter().copied())
            .collect();
        spans.extend(self.faults.outages().filter(|_| !self.is_cluster()));
        spans.sort_unstable();
        spans
    }

    /// Whether calls name their masters: then a fault touches one master, and not all queues.
    fn is_cluster(&self) -> bool {
        self.masters.len() > 1
    }
}

/// The spans, each extended by the aftermath.
pub(crate) fn after(spans: impl IntoIterator<Item = Span>, aftermath_us: u64) -> Vec<Span> {
    let longer = |(from_us, to_us): Span| (from_us, to_us.saturating_add(aftermath_us));
    spans.into_iter().map(longer).collect()
}

/// The spans that are in both lists.
fn common(one: &[Span], other: &[Span]) -> Vec<Span> {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
    let both = pairs.map(|(a, b)| (a.0.max(b.0), a.1.min(b.1)));
    both.filter(|(from_us, to_us)| from_us < to_us).collect()
}

/// The length of a span outside of other spans, which are sorted.
pub(crate) fn outside_us((from_us, to_us): Span, others: &[Span]) -> u64 {
    let (mut left_us, mut free_us) = (to_us.saturating_sub(from_us), from_us);
    for (begin_us, end_us) in others {
        let (begin_us, end_us) = ((*begin_us).max(free_us), (*end_us).min(to_us));
        if begin_us < end_us {
            (left_us, free_us) = (left_us.saturating_sub(end_us - begin_us), end_us);
        }
    }
    left_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outside_of_faults_is_counted_once() {
        let second = 1_000_000;
        let faults = [(2 * second, 3 * second), (6 * second, 8 * second)];
        let faults = after(faults, 4 * second);
        assert_eq!(outside_us((0, 20 * second), &faults), 10 * second);
        assert_eq!(outside_us((0, second), &faults), second);
    }

    #[test]
    fn workers_count_as_away_only_while_all_are_away() {
        let away = common(&[(0, 10), (20, 30)], &[(5, 25), (28, 40)]);
        assert_eq!(away, [(5, 10), (20, 25), (28, 30)]);
    }
}
