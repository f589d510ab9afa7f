//! Whether a queue delivers: what is due and not claimed, and why.

use std::time::Duration;

use crate::doctor::Checkup;
use crate::doctor::shell::dueq;
use crate::queue::inspect::Stats;

/// A message that has been due for longer is late: without any hint a live worker needs one second.
const LATE: Duration = Duration::from_secs(2);

/// Whether the oldest unclaimed message is late.
pub(crate) fn is_late(stats: &Stats) -> bool {
    u128::from(stats.overdue_ms) > LATE.as_millis()
}

impl Checkup {
    /// Finds why due messages are not delivered. `silent` says that another finding tells it already.
    pub(crate) fn deliveries(&mut self, queue: &str, stats: &Stats, silent: bool) {
        let (name, waiting, nodes) = (queue.as_bytes(), stats.due + stats.ready, stats.nodes);
        self.fact("paused", stats.paused);
        self.fact("overdue_ms", stats.overdue_ms);
        self.fact("nodes", nodes);
        let due = format!(
            "{waiting} messages are due, the oldest since {} ms",
            stats.overdue_ms
        );
        if stats.paused && waiting > 0 {
            let problem = format!("the queue is paused, and {due}");
            self.wrong(
                "paused",
                queue,
                problem,
                "nothing is delivered until it is resumed",
                dueq("resume", &[name]),
            );
        } else if stats.paused {
            let problem = "the queue is paused".to_owned();
            self.remark(
                "paused",
                queue,
                problem,
                "nothing will be delivered until it is resumed",
                dueq("resume", &[name]),
            );
        } else if is_late(stats) && nodes == 0 && !silent {
            let problem = format!("{due}, and no worker is alive");
            let remedy = format!("{} --exec COMMAND", dueq("work", &[name]));
            self.wrong(
                "overdue",
                queue,
                problem,
                "nothing is delivered until a worker starts",
                remedy,
            );
        } else if is_late(stats) && nodes > 0 {
            let problem = format!(
                "{due}, although {nodes} workers are alive, with {} messages in hand",
                stats.leased
            );
            let consequence = "messages are late: all handlers are busy, or the workers cannot claim (their logs say why)";
            let remedy = format!(
                "{} names what they hold; start more, or raise --concurrency",
                dueq("ls --state leased", &[name])
            );
            self.wrong("overdue", queue, problem, consequence, remedy);
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
                "they are not delivered until they are requeued",
                remedy,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the findings and of the remarks.
    fn of(stats: Stats, silent: bool) -> (Vec<&'static str>, Vec<&'static str>) {
        let mut checkup = Checkup::default();
        checkup.deliveries("q", &stats, silent);
        let codes = |findings: &[crate::doctor::Finding]| {
            findings.iter().map(|finding| finding.code).collect()
        };
        (codes(&checkup.findings), codes(&checkup.remarks))
    }

    #[test]
    fn each_reason_for_late_messages_has_its_code() {
        let late = || Stats {
            ready: 3,
            overdue_ms: 2_001,
            ..Stats::default()
        };
        assert_eq!(of(late(), false), (vec!["overdue"], vec![]));
        assert_eq!(
            of(late(), true),
            (vec![], vec![]),
            "the finding silent says it"
        );
        assert_eq!(
            of(Stats { nodes: 1, ..late() }, false),
            (vec!["overdue"], vec![])
        );
        assert_eq!(
            of(
                Stats {
                    paused: true,
                    ..late()
                },
                false
            ),
            (vec!["paused"], vec![])
        );
        assert_eq!(
            of(
                Stats {
                    paused: true,
                    ..Stats::default()
                },
                false
            ),
            (vec![], vec!["paused"])
        );
        assert_eq!(
            of(
                Stats {
                    dead: 1,
                    ..Stats::default()
                },
                false
            ),
            (vec![], vec!["dead"])
        );
        assert_eq!(
            of(
                Stats {
                    overdue_ms: 2_000,
                    ..late()
                },
                false
            ),
            (vec![], vec![])
        );
    }
}
