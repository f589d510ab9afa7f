//! Finds out whether a queue delivers its due messages, and if not, why.

use std::time::Duration;

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::model::stats::QueueStats;

/// How long a message may be due before it counts as late. A live worker claims it within 1 s even
/// if every hint is lost.
const LATE: Duration = Duration::from_secs(2);

/// The longest time for which a worker parks a queue.
const LONGEST_PARK: Duration = Duration::from_secs(60);

/// Workers also announce silences of up to this long for queues that they do not park: those beyond
/// the 64 wake-up lists of a blocking pop.
pub(crate) const SHORT_PARK: Duration = Duration::from_secs(2);

/// Whether the oldest unclaimed message is late.
pub(crate) fn is_late(stats: &QueueStats) -> bool {
    u128::from(stats.overdue_ms) > LATE.as_millis()
}

/// Whether the queue is parked. Then a message whose notice was lost may wait until the parking
/// time ends.
fn may_wait(stats: &QueueStats) -> bool {
    let parked = Duration::from_millis(stats.parked_ms);
    let waited = Duration::from_millis(stats.overdue_ms);
    stats.nodes > 0 && parked > SHORT_PARK && parked <= LONGEST_PARK && waited <= LONGEST_PARK
}

impl Checkup {
    /// Adds findings for due messages that are not delivered. `is_silent` says that the finding
    /// `silent` already reports the lack of a live worker.
    pub(crate) fn deliveries(&mut self, queue: &str, stats: &QueueStats, is_silent: bool) {
        let name = queue.as_bytes();
        let waiting = stats.due + stats.ready;
        let nodes = stats.nodes;
        self.fact("paused", stats.paused);
        self.fact("overdue_ms", stats.overdue_ms);
        self.fact("nodes", nodes);
        self.fact("drained_nodes", stats.drained_nodes);
        self.fact("parked_ms", stats.parked_ms);
        self.fact("closed_ms", stats.closed_ms);
        let due = format!(
            "{waiting} messages are due, the oldest for {} ms",
            stats.overdue_ms
        );
        if stats.is_paused_in_part() {
            let problem = format!(
                "{} of {} partitions are paused, and the others deliver",
                stats.paused_partitions, stats.partitions
            );
            self.wrong(
                "paused",
                queue,
                problem,
                "a pause, or its end, did not reach all of them",
                format!("{}, or {}", dueq("pause", &[name]), dueq("resume", &[name])),
            );
        } else if stats.paused && waiting > 0 {
            let problem = format!("the queue is paused, and {due}");
            self.wrong(
                "paused",
                queue,
                problem,
                "nothing is delivered until the queue is resumed",
                dueq("resume", &[name]),
            );
        } else if stats.paused {
            let problem = "the queue is paused".to_owned();
            self.remark(
                "paused",
                queue,
                problem,
                "nothing will be delivered until the queue is resumed",
                dueq("resume", &[name]),
            );
        } else if self.wait_for_limits(queue, stats, &due) {
            // No other known reason keeps the messages waiting.
        } else if stats.closed_ms > 0 {
            let due = if waiting > 0 {
                format!(", and {due}")
            } else {
                String::new()
            };
            let problem = format!("the queue is closed for {} ms{due}", stats.closed_ms);
            self.remark(
                "closed",
                queue,
                problem,
                "nothing is delivered until then: somebody paused it for some time, a receiver asked \
                 for a break (throttle), or the rate allows no start",
                dueq("resume", &[name]),
            );
        } else if is_late(stats) && nodes == 0 && !is_silent {
            let problem = format!("{due}, and no worker is alive");
            let remedy = format!("{} --exec COMMAND", dueq("work", &[name]));
            self.wrong(
                "overdue",
                queue,
                problem,
                "nothing is delivered until a worker starts",
                remedy,
            );
        } else if is_late(stats) && stats.drained_nodes >= nodes && nodes > 0 {
            let problem = format!("{due}, and all {nodes} live workers are drained");
            self.wrong(
                "drained",
                queue,
                problem,
                "nothing is delivered until one is resumed, or another one starts",
                format!("{} --resume PROCESS", dueq("workers", &[name])),
            );
        } else if is_late(stats) && may_wait(stats) {
            let problem = format!(
                "{due}, and the queue is parked: its worker looks again within {} ms",
                stats.parked_ms
            );
            let remedy = format!("{} publishes a notice at once", dueq("resume", &[name]));
            self.remark(
                "parked",
                queue,
                problem,
                "messages are late by the park time: the notice was lost, or a producer of release \
                 0.1 sent none",
                remedy,
            );
        } else if is_late(stats) && nodes > 0 {
            let problem = format!(
                "{due}, although {nodes} workers or servers for claims over HTTP are alive, holding {} messages",
                stats.leased
            );
            // A node does not tell whether it belongs to `dueq work` or to `dueq serve`.
            let consequence = "messages are late: every handler is busy, the consumers over HTTP claim too \
                 little, or the workers cannot claim (see their logs)";
            let remedy = format!(
                "{} lists what they hold; start more workers, or raise --concurrency; behind dueq serve, \
                 start more consumers, or claim more at once",
                dueq("ls --state leased", &[name])
            );
            self.wrong("overdue", queue, problem, consequence, remedy);
        }
        if Duration::from_millis(stats.parked_ms) > LONGEST_PARK {
            let problem = format!(
                "parked_until is {} ms ahead, which is more than 60,000 ms",
                stats.parked_ms
            );
            self.remark(
                "parked",
                "parked_until",
                problem,
                "the server's clock was set back: scripts publish more notices than needed until \
                 the next beat of a worker",
                dueq("work", &[name]),
            );
        }
        if stats.dead > 0 {
            let problem = format!("{} messages are dead", stats.dead);
            let remedy = format!(
                "{}; then {}",
                dueq("ls --state dead", &[name]),
                dueq("requeue --all", &[name])
            );
            self.remark(
                "dead",
                queue,
                problem,
                "they are not delivered until an operator requeues them",
                remedy,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the findings, and of the remarks, for these stats.
    fn of(stats: QueueStats, is_silent: bool) -> (Vec<&'static str>, Vec<&'static str>) {
        let mut checkup = Checkup::default();
        checkup.deliveries("q", &stats, is_silent);
        let codes = |findings: &[crate::doctor::checkup::Finding]| {
            findings.iter().map(|finding| finding.code).collect()
        };
        (codes(&checkup.findings), codes(&checkup.remarks))
    }

    #[test]
    fn late_message_of_a_parked_queue_is_only_a_remark() {
        let parked = |overdue_ms, parked_ms| QueueStats {
            ready: 1,
            nodes: 1,
            overdue_ms,
            parked_ms,
            ..QueueStats::default()
        };
        for (overdue_ms, parked_ms) in [(2_001, 2_001), (9_000, 10_000), (60_000, 60_000)] {
            let found = of(parked(overdue_ms, parked_ms), false);
            assert_eq!(found, (vec![], vec!["parked"]), "{overdue_ms} {parked_ms}");
        }
        // Busy queues also announce a parking time of up to 2 s, and no worker parks for longer
        // than 60 s.
        for (overdue_ms, parked_ms) in [(2_001, 0), (2_001, 2_000), (60_001, 10_000)] {
            let found = of(parked(overdue_ms, parked_ms), false);
            assert_eq!(found, (vec!["overdue"], vec![]), "{overdue_ms} {parked_ms}");
        }
        let dead = QueueStats {
            nodes: 0,
            ..parked(9_000, 10_000)
        };
        assert_eq!(of(dead, false), (vec!["overdue"], vec![]));
        assert_eq!(of(parked(0, 10_000), false), (vec![], vec![]));
    }

    #[test]
    fn a_park_time_beyond_60_s_is_a_remark() {
        let ahead = |parked_ms, overdue_ms| QueueStats {
            nodes: 1,
            parked_ms,
            overdue_ms,
            ..QueueStats::default()
        };
        assert_eq!(of(ahead(60_000, 0), false), (vec![], vec![]));
        assert_eq!(of(ahead(60_001, 0), false), (vec![], vec!["parked"]));
        let late = of(ahead(60_001, 3_000), false);
        assert_eq!(late, (vec!["overdue"], vec!["parked"]), "no excuse");
    }

    #[test]
    fn messages_that_wait_for_a_limit_are_a_remark() {
        let limited = || QueueStats {
            ready: 3,
            nodes: 1,
            overdue_ms: 60_000,
            rate: crate::model::rate::Rate::parse("100/1000/1"),
            ..QueueStats::default()
        };
        assert_eq!(of(limited(), false), (vec![], vec!["rate"]));
        let closed = |closed_ms| QueueStats {
            closed_ms,
            ..limited()
        };
        assert_eq!(of(closed(1_000), false), (vec![], vec!["rate"]));
        assert_eq!(of(closed(1_001), false), (vec![], vec!["closed"]));
        let full = QueueStats {
            full: true,
            ..limited()
        };
        assert_eq!(of(full, false), (vec![], vec!["full"]));
        let dead = QueueStats {
            nodes: 0,
            ..limited()
        };
        assert_eq!(of(dead, false), (vec!["overdue"], vec![]));
    }

    #[test]
    fn each_cause_of_lateness_has_its_code() {
        let late = || QueueStats {
            ready: 3,
            overdue_ms: 2_001,
            ..QueueStats::default()
        };
        assert_eq!(of(late(), false), (vec!["overdue"], vec![]));
        assert_eq!(
            of(late(), true),
            (vec![], vec![]),
            "the finding silent reports it"
        );
        assert_eq!(
            of(QueueStats { nodes: 1, ..late() }, false),
            (vec!["overdue"], vec![])
        );
        for (drained_nodes, code) in [(1, "overdue"), (2, "drained")] {
            let stats = QueueStats {
                nodes: 2,
                drained_nodes,
                ..late()
            };
            assert_eq!(of(stats, false), (vec![code], vec![]));
        }
        assert_eq!(
            of(
                QueueStats {
                    paused: true,
                    ..late()
                },
                false
            ),
            (vec!["paused"], vec![])
        );
        let in_part = QueueStats {
            paused: true,
            paused_partitions: 8,
            partitions: 12,
            ..QueueStats::default()
        };
        assert_eq!(of(in_part, false), (vec!["paused"], vec![]));
        let closed = |stats| QueueStats {
            closed_ms: 1,
            ..stats
        };
        assert_eq!(of(closed(late()), false), (vec![], vec!["closed"]));
        assert_eq!(
            of(closed(QueueStats::default()), false),
            (vec![], vec!["closed"])
        );
        assert_eq!(
            of(
                QueueStats {
                    paused: true,
                    ..QueueStats::default()
                },
                false
            ),
            (vec![], vec!["paused"])
        );
        assert_eq!(
            of(
                QueueStats {
                    dead: 1,
                    ..QueueStats::default()
                },
                false
            ),
            (vec![], vec!["dead"])
        );
        assert_eq!(
            of(
                QueueStats {
                    overdue_ms: 2_000,
                    ..late()
                },
                false
            ),
            (vec![], vec![])
        );
    }
}
