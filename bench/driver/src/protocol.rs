//! The line protocol.

use serde::{Deserialize, Serialize};

/// One request to a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Use a new queue.
    Open {
        /// Its name: letters and digits.
        queue: String,
    },
    /// Push by single calls, so many at a time, each awaited.
    Push {
        /// How many.
        n: u64,
        /// How many calls at a time.
        concurrency: usize,
        /// When they are due.
        due: Dues,
    },
    /// Push as fast as the system can, by its own way of pushing many.
    Bulk {
        /// How many.
        n: u64,
        /// Push so many in a call, one call after the other; 0 for the system's best number.
        batch: usize,
        /// When they are due.
        due: Dues,
    },
    /// Push at a steady rate, each by its own call, without waiting for earlier answers.
    Pace {
        /// How many.
        n: u64,
        /// How many a second.
        per_s: u64,
        /// How far ahead each is due; up to 96 ms are added, so that all intervals differ.
        delay_ms: u64,
    },
    /// Start a worker that acknowledges its deliveries.
    Work {
        /// How many handlers at a time; 0 for the system's best number.
        concurrency: usize,
    },
    /// Wait until so many messages were handled and acknowledged since the queue was opened.
    Drain {
        /// How many.
        n: u64,
        /// Give up after this time.
        limit_ms: u64,
        /// Whether to return the lateness of each.
        late: bool,
    },
    /// Stop the worker and leave the queue.
    Close,
}

/// When the messages of a push are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dues {
    /// Unix milliseconds; 0 for at once.
    pub at_ms: u64,
    /// Spread evenly over so many milliseconds from then on.
    pub spread_ms: u64,
    /// The order in which they are pushed.
    pub order: Order,
}

/// The relation between the order of the pushes and that of the due times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The first pushed is the first due.
    #[default]
    Forward,
    /// The last pushed is the first due.
    Backward,
    /// Neither order.
    Shuffled,
}

impl Dues {
    /// When message `i` of `n` is due; `None` for at once.
    pub fn of(&self, i: u64, n: u64) -> Option<u64> {
        if self.at_ms == 0 {
            return None;
        }
        let place = match self.order {
            Order::Forward => i,
            Order::Backward => n - 1 - i,
            // A prime that is no factor of a round number: every index comes once.
            Order::Shuffled => {
                u64::try_from(u128::from(i) * 7_368_787 % u128::from(n)).unwrap_or(0)
            }
        };
        Some(self.at_ms + place * self.spread_ms / n)
    }
}

/// One reply of a driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reply {
    /// Why the request failed.
    pub error: Option<String>,
    /// Start, in Unix microseconds.
    pub from_us: u64,
    /// End, in Unix microseconds.
    pub to_us: u64,
    /// How many messages: pushed, or handled and acknowledged.
    pub n: u64,
    /// How late each handler started, in microseconds; negative is early.
    pub late_us: Vec<i64>,
}

impl Reply {
    /// From start to end, in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_us.saturating_sub(self.from_us) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_that_the_readme_shows() {
        let request = Request::Bulk {
            n: 5,
            batch: 100,
            due: Dues {
                at_ms: 7,
                spread_ms: 1,
                order: Order::Shuffled,
            },
        };
        let line =
            r#"{"do":"bulk","n":5,"batch":100,"due":{"at_ms":7,"spread_ms":1,"order":"shuffled"}}"#;
        assert_eq!(serde_json::to_string(&request).expect("JSON"), line);
        assert_eq!(
            serde_json::from_str::<Request>(line).expect("a request"),
            request
        );
        assert_eq!(
            serde_json::from_str::<Reply>(r#"{"n":3}"#)
                .expect("a reply")
                .n,
            3
        );
    }

    #[test]
    fn every_order_has_each_due_time_once() {
        for order in [Order::Forward, Order::Backward, Order::Shuffled] {
            let dues = Dues {
                at_ms: 1_000,
                spread_ms: 100,
                order,
            };
            let mut all: Vec<_> = (0..100).filter_map(|i| dues.of(i, 100)).collect();
            assert_eq!(all.is_sorted(), order == Order::Forward, "{order:?}");
            all.sort_unstable();
            assert_eq!(all, (1_000..1_100).collect::<Vec<_>>(), "{order:?}");
        }
        assert_eq!(Dues::default().of(3, 10), None);
    }
}
