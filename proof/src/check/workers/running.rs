//! Judges that a worker's handlers keep to the shares of its queues.
//!
//! A process writes the starts and ends of its handlers under one lock, so the lines are in the
//! order of the events. The node counts a handler from its claim until its return, and the two
//! lines lie between these. So the counts here are never above the worker's own, and a rule that
//! holds for those must hold here. No start is excused.

use std::collections::BTreeMap;

use crate::history::Share;

/// The running handlers of one worker, by queue.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// `None` until the worker has written its shares.
    serves: Option<Serves>,
    /// The number of running handlers of each queue. Negative only if the history is wrong.
    by_queue: BTreeMap<String, i64>,
}

#[derive(Debug)]
struct Serves {
    concurrency: i64,
    shares: Vec<Share>,
}

impl Running {
    /// Notes that the worker begins to serve, with these shares.
    pub(crate) fn serves(&mut self, concurrency: u32, shares: Vec<Share>) {
        self.serves = Some(Serves {
            concurrency: i64::from(concurrency),
            shares,
        });
    }

    /// Whether the shares are known, so that starts can be judged.
    pub(crate) fn is_known(&self) -> bool {
        self.serves.is_some()
    }

    pub(crate) fn ended(&mut self, queue: &str) {
        *self.by_queue.entry(queue.to_owned()).or_default() -= 1;
    }

    /// Notes that a handler has started. Describes the rule that the running handlers now break, if
    /// any.
    pub(crate) fn started(&mut self, queue: &str) -> Option<String> {
        *self.by_queue.entry(queue.to_owned()).or_default() += 1;
        let serves = self.serves.as_ref()?;
        let rules = [
            serves.beyond_concurrency(&self.by_queue),
            serves.beyond_max(queue, &self.by_queue),
            serves.beyond_reserves(&self.by_queue),
        ];
        let broken: Vec<_> = rules.into_iter().flatten().collect();
        (!broken.is_empty()).then(|| format!("a handler of {queue} started: {}", broken.join("; ")))
    }
}

impl Serves {
    fn share(&self, queue: &str) -> Option<&Share> {
        self.shares.iter().find(|share| share.queue == queue)
    }

    fn beyond_concurrency(&self, running: &BTreeMap<String, i64>) -> Option<String> {
        let all: i64 = running.values().sum();
        (all > self.concurrency).then(|| {
            format!(
                "{all} handlers run, the concurrency is {}",
                self.concurrency
            )
        })
    }

    fn beyond_max(&self, queue: &str, running: &BTreeMap<String, i64>) -> Option<String> {
        let Some(share) = self.share(queue) else {
            return Some("the worker does not serve this queue".to_owned());
        };
        let own = running.get(queue).copied().unwrap_or(0);
        (own > i64::from(share.max))
            .then(|| format!("{own} of its handlers run, its max is {}", share.max))
    }

    /// Judges the reserves: handlers that run beyond the reserve of their own queue must not use up
    /// the reserves of others. It follows from the rule for each start: a queue beyond its reserve
    /// takes a handler only if more are free than the others' unused reserves. The rule may fail
    /// after a queue with a reserve was paused, removed or added beside running handlers; no run
    /// does that.
    fn beyond_reserves(&self, running: &BTreeMap<String, i64>) -> Option<String> {
        let reserves: i64 = self
            .shares
            .iter()
            .map(|share| i64::from(share.reserve))
            .sum();
        let open = self.concurrency - reserves;
        let reserve = |queue| {
            self.share(queue)
                .map_or(0, |share| i64::from(share.reserve))
        };
        let beyond: i64 = running
            .iter()
            .map(|(queue, running)| (running - reserve(queue)).max(0))
            .sum();
        // Without reserves this rule is that of the concurrency.
        (reserves > 0 && beyond > open).then(|| {
            format!("{beyond} handlers run beyond the reserves of their queues, the reserves leave {open}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker with concurrency 4: `a` may take any free handler, `b` has a reserve of 2, `c` a
    /// max of 1.
    fn running() -> Running {
        let share = |queue: &str, reserve, max| Share {
            queue: queue.into(),
            weight: 1,
            reserve,
            max,
        };
        let mut running = Running::default();
        running.serves(
            4,
            vec![share("a", 0, 4), share("b", 2, 4), share("c", 0, 1)],
        );
        running
    }

    /// Starts a handler for each queue in turn, and returns the words about the last. The others
    /// must not break a rule.
    fn last_of(queues: &[&str]) -> Option<String> {
        let (last, first) = queues.split_last()?;
        let mut running = running();
        for queue in first {
            assert_eq!(running.started(queue), None, "{queue}");
        }
        running.started(last)
    }

    fn is_broken(queues: &[&str], rule: &str) -> bool {
        last_of(queues).is_some_and(|words| words.contains(rule))
    }

    #[test]
    fn other_queues_do_not_take_a_reserve() {
        assert_eq!(last_of(&["a", "a", "b", "b"]), None);
        assert!(is_broken(&["a", "a", "a"], "the reserves leave 2"));
        assert!(is_broken(&["a", "a", "b", "a"], "the reserves leave 2"));
        assert!(is_broken(
            &["b", "b", "b", "a", "a"],
            "the reserves leave 2"
        ));
    }

    #[test]
    fn a_queue_runs_no_more_handlers_than_its_max() {
        assert!(is_broken(&["c", "c"], "its max is 1"));
        let mut some = running();
        for _ in 0..3 {
            assert_eq!(some.started("c"), None);
            some.ended("c");
        }
    }

    #[test]
    fn a_worker_runs_no_more_handlers_than_its_concurrency() {
        assert_eq!(last_of(&["b", "b", "b", "b"]), None);
        assert!(is_broken(
            &["b", "b", "b", "b", "b"],
            "the concurrency is 4"
        ));
    }

    #[test]
    fn a_handler_of_a_queue_that_is_not_served_is_found() {
        assert!(is_broken(&["d"], "does not serve this queue"));
    }

    #[test]
    fn starts_before_the_shares_are_not_judged() {
        let mut some = Running::default();
        assert!(!some.is_known());
        assert_eq!(some.started("d"), None);
    }
}
