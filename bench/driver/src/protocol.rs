//! The requests and replies between `dueq-bench` and a driver, one JSON line each.

use serde::{Deserialize, Serialize};

/// One request to a driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Use a new queue from now on.
    Open {
        /// The name of the queue: letters and digits.
        queue: String,
    },
    /// Push by single calls; `concurrency` of them are in flight at a time.
    Push {
        /// The number of messages.
        n: u64,
        /// The number of calls in flight.
        concurrency: usize,
        /// When the messages are due.
        due: Dues,
    },
    /// Push as fast as the system can, by its own way of pushing many.
    Bulk {
        /// The number of messages.
        n: u64,
        /// The messages of one call; the calls follow one another. 0 for the system's best number.
        batch: usize,
        /// When the messages are due.
        due: Dues,
    },
    /// Push at a steady rate, each by its own call, without waiting for earlier answers.
    Pace {
        /// The number of messages.
        n: u64,
        /// The number of messages per second.
        per_s: u64,
        /// How far ahead each message is due, in ms. Up to 96 ms are added, so that all intervals
        /// differ.
        delay_ms: u64,
    },
    /// Start a worker that acknowledges its deliveries.
    Work {
        /// The number of concurrent handlers; 0 for the system's best number.
        concurrency: usize,
    },
    /// Wait until this number of messages was handled and acknowledged since the queue was opened.
    Drain {
        /// The number of messages.
        n: u64,
        /// The longest wait.
        limit_ms: u64,
        /// Whether to return the lateness of each message.
        late: bool,
    },
    /// Stop the worker and leave the queue.
    Close,
}

/// When the messages of a push are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dues {
    /// The first due time in Unix milliseconds; 0 for at once.
    pub at_ms: u64,
    /// The due times are spread evenly over this number of milliseconds, from `at_ms` on.
    pub spread_ms: u64,
    /// The order in which the messages are pushed.
    pub order: Order,
}

/// The relation between the order of the pushes and that of the due times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The message that is pushed first is due first.
    #[default]
    Forward,
    /// The message that is pushed last is due first.
    Backward,
    /// The order of the pushes and that of the due times are unrelated.
    Shuffled,
}

impl Dues {
    /// The due time of message `i` of `n`; `None` for at once.
    pub fn of(&self, i: u64, n: u64) -> Option<u64> {
        if self.at_ms == 0 {
            return None;
        }
        let place = match self.order {
            Order::Forward => i,
            Order::Backward => n - 1 - i,
            // The prime has no factor in common with a round number, so every index occurs once.
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
    /// The start of the request's work, in Unix microseconds.
    pub from_us: u64,
    /// The end of the request's work, in Unix microseconds.
    pub to_us: u64,
    /// The number of messages that were pushed, or handled and acknowledged.
    pub n: u64,
    /// The lateness of each handler's start, in microseconds; negative if it was early.
    pub late_us: Vec<i64>,
}

impl Reply {
    /// The time from start to end, in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_us.saturating_sub(self.from_us) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_lines_equal_those_in_the_readme() {
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
