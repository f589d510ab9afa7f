//! Whether a worker's handlers keep to the shares of its queues.

use std::collections::HashMap;

use crate::history::Share;

/// The handlers of one worker that run, by queue.
#[derive(Debug, Default)]
pub(super) struct Running {
    concurrency: u32,
    shares: Vec<Share>,
    /// Negative only if a history is wrong.
    by_queue: HashMap<String, i64>,
}

impl Running {
    pub(super) fn new(concurrency: u32, shares: Vec<Share>) -> Self {
        Self {
            concurrency,
            shares,
            by_queue: HashMap::new(),
        }
    }

    pub(super) fn ended(&mut self, queue: &str) {
        *self.by_queue.entry(queue.to_owned()).or_default() -= 1;
    }

    /// A handler has started. Describes what is wrong with the handlers that run now.
    ///
    /// A handler records its end before it returns. So the worker runs at least the recorded ones.
    pub(super) fn started(&mut self, queue: &str) -> Option<String> {
        if self.concurrency == 0 {
            return None;
        }
        let running = self.by_queue.entry(queue.to_owned()).or_default();
        *running += 1;
        let running = *running;
        let all: i64 = self.by_queue.values().sum();
        if all > i64::from(self.concurrency) {
            return Some(format!("{all} handlers run, of {}", self.concurrency));
        }
        let own = self.shares.iter().find(|share| share.queue == queue)?;
        if running > i64::from(own.max) {
            return Some(format!(
                "{running} handlers of {queue} run, at most {}",
                own.max
            ));
        }
        // What the other queues use beyond their reserves, and what this one uses beyond its own,
        // shares the handlers that no queue has reserved.
        let free = i64::from(self.concurrency)
            - self
                .shares
                .iter()
                .map(|share| i64::from(share.reserve))
                .sum::<i64>();
        let beyond = |share: &Share| {
            let running = self.by_queue.get(&share.queue).copied().unwrap_or(0);
            (running - i64::from(share.reserve)).max(0)
        };
        let used: i64 = self.shares.iter().map(beyond).sum();
        (used > free).then(|| {
            format!("{used} handlers run beyond the reserves of their queues, and {free} are free")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running() -> Running {
        let share = |queue: &str, reserve, max| Share {
            queue: queue.into(),
            reserve,
            max,
        };
        Running::new(
            4,
            vec![share("a", 0, 4), share("b", 2, 4), share("c", 0, 1)],
        )
    }

    #[test]
    fn a_reserve_is_left_to_its_queue() {
        let mut some = running();
        assert_eq!(some.started("a"), None);
        assert_eq!(some.started("a"), None);
        assert!(
            some.started("a")
                .is_some_and(|words| words.contains("reserve"))
        );
        let mut own = running();
        for _ in 0..4 {
            assert_eq!(own.started("b"), None);
        }
        assert!(own.started("b").is_some_and(|words| words.contains("of 4")));
    }

    #[test]
    fn a_queue_runs_no_more_handlers_than_its_maximum() {
        let mut some = running();
        assert_eq!(some.started("c"), None);
        some.ended("c");
        assert_eq!(some.started("c"), None);
        assert!(
            some.started("c")
                .is_some_and(|words| words.contains("at most 1"))
        );
    }
}
