//! Finds out whether a queue delivers its due messages, and if not, why.

use std::time::Duration;

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::dueq;
use crate::model::stats::Stats;

/// A message that has been due for longer is late: a live worker claims it within 1 s even if every
/// hint is lost.
const LATE: Duration = Duration::from_secs(2);

/// Whether the oldest unclaimed message is late.
pub(crate) fn is_late(stats: &Stats) -> bool {
    u128::from(stats.overdue_ms) > LATE.as_millis()
}

impl Checkup {
    /// Adds findings for due messages that are not delivered. `is_silent`: whether the finding
    /// `silent` already reports that no worker is alive.
    pub(crate) fn deliveries(&mut self, queue: &str, stats: &Stats, is_silent: bool) {
        let name = queue.as_bytes();
        let waiting = stats.due + stats.ready;
        let nodes = stats.nodes;
        self.fact("paused", stats.paused);
        self.fact("overdue_ms", stats.overdue_ms);
        self.fact("nodes", nodes);
        let due = format!(
            "{waiting} messages are due, the oldest for {} ms",
            stats.overdue_ms
        );
        if stats.paused && waiting > 0 {
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
        } else if is_late(stats) && nodes > 0 {
            let problem = format!(
                "{due}, although {nodes} workers are alive, holding {} messages",
                stats.leased
            );
            let consequence = "messages are late: every handler is busy, or the workers cannot claim (see their logs)";
            let remedy = format!(
                "{} lists what they hold; start more workers, or raise --concurrency",
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
                "they are not delivered until an operator requeues them",
                remedy,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the findings and of the remarks.
    fn of(stats: Stats, is_silent: bool) -> (Vec<&'static str>, Vec<&'static str>) {
        let mut checkup = Checkup::default();
        checkup.deliveries("q", &stats, is_silent);
        let codes = |findings: &[crate::doctor::checkup::Finding]| {
            findings.iter().map(|finding| finding.code).collect()
        };
        (codes(&checkup.findings), codes(&checkup.remarks))
    }

    #[test]
    fn each_cause_of_lateness_has_its_code() {
        let late = || Stats {
            ready: 3,
            overdue_ms: 2_001,
            ..Stats::default()
        };
        assert_eq!(of(late(), false), (vec!["overdue"], vec![]));
        assert_eq!(
            of(late(), true),
            (vec![], vec![]),
            "the finding silent reports it"
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
