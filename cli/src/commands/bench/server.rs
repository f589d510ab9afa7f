//! The capacity of the measured server: memory and CPU time per message.

use dueq::{Client, Error};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// Values of INFO, read from one server at one time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server {
    used_bytes: u64,
    /// The memory of the data, without connections, buffers and the replication backlog.
    data_bytes: u64,
    /// `maxmemory`; 0 if it is not set.
    most_bytes: u64,
    /// Processor time of the thread that runs scripts.
    cpu_us: u64,
}

/// The memory of one waiting message. The value is rounded as printed, so that a reader can compute
/// the other figures from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    message_bytes: u64,
    used_bytes: u64,
    most_bytes: u64,
}

/// Redis's CPU time for one message at some rate, in tenths of a microsecond.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    per_s: u64,
    tenths_us: u64,
}

impl Server {
    /// Reads INFO. `None` for a cluster, whose servers share the load, and if the user has no right
    /// to INFO.
    pub(super) async fn read(client: &Client) -> Result<Option<Self>, Error> {
        let facts = client.examine().await?.facts;
        let number = |wanted: &str| {
            let (_, value) = facts.iter().find(|(name, _)| *name == wanted)?;
            value.parse().ok()
        };
        if number("masters").is_some() {
            return Ok(None);
        }
        let server = || {
            Some(Self {
                used_bytes: number("used_memory")?,
                data_bytes: number("used_memory_dataset")?,
                most_bytes: number("maxmemory")?,
                cpu_us: number("main_thread_cpu_us")?,
            })
        };
        Ok(server())
    }

    /// The memory per message of `messages` that were pushed after `before` and wait.
    pub(super) fn waiting(self, before: Self, messages: u64) -> Option<Waiting> {
        let bytes = self.data_bytes.checked_sub(before.data_bytes)?;
        Some(Waiting {
            message_bytes: bytes.checked_div(messages)?.max(1),
            used_bytes: before.used_bytes,
            most_bytes: self.most_bytes,
        })
    }

    /// The CPU time per message of `messages` since `before`, at this rate.
    pub(super) fn cost(self, before: Self, messages: u64, per_s: u64) -> Option<Cost> {
        let us = self.cpu_us.checked_sub(before.cpu_us)?;
        let tenths_us = (us * 10).checked_div(messages)?.max(1);
        Some(Cost { per_s, tenths_us })
    }
}

impl Waiting {
    fn per_gib(self) -> u64 {
        GIB / self.message_bytes
    }

    /// The number of messages that fit into `maxmemory`; `None` if it is not set.
    fn until_full(self) -> Option<u64> {
        (self.most_bytes > 0)
            .then(|| self.most_bytes.saturating_sub(self.used_bytes) / self.message_bytes)
    }

    pub(super) fn json(self) -> Value {
        json!({
            "message_bytes": self.message_bytes,
            "messages_per_gib": self.per_gib(),
            "used_memory_bytes": self.used_bytes,
            "maxmemory_bytes": (self.most_bytes > 0).then_some(self.most_bytes),
            "messages_until_maxmemory": self.until_full(),
        })
    }

    pub(super) fn text(self, payload_bytes: usize) -> String {
        let holds = format!(
            "a waiting message of {payload_bytes} bytes takes {} bytes: 1 GiB holds {}",
            self.message_bytes,
            grouped(self.per_gib())
        );
        let room = match self.until_full() {
            Some(messages) => format!(
                "maxmemory leaves {} of {} bytes: {} more messages",
                grouped(self.most_bytes.saturating_sub(self.used_bytes)),
                grouped(self.most_bytes),
                grouped(messages)
            ),
            None => "maxmemory is not set: the memory of the machine is the limit".to_owned(),
        };
        format!("{holds}\n{room}")
    }
}

impl Cost {
    fn us(self) -> f64 {
        self.tenths_us as f64 / 10.0
    }

    fn core_percent(self) -> f64 {
        (self.us() * self.per_s as f64 / 1e3).round() / 10.0
    }

    /// The number of messages per second that would use one whole core.
    fn full_core_per_s(self) -> u64 {
        10_000_000 / self.tenths_us
    }

    pub(super) fn json(self) -> Value {
        json!({
            "per_s": self.per_s,
            "redis_us_per_message": self.us(),
            "core_percent": self.core_percent(),
            "full_core_per_s": self.full_core_per_s(),
        })
    }

    pub(super) fn text(self) -> String {
        format!(
            "at {} a second a message costs {:.1} us of Redis: {:.1} % of one core, which is full at {} a second",
            grouped(self.per_s),
            self.us(),
            self.core_percent(),
            grouped(self.full_core_per_s())
        )
    }
}

/// Formats a number with a comma before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    groups
        .map(String::from_utf8_lossy)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Server = Server {
        used_bytes: 1_000_000,
        data_bytes: 50_000,
        most_bytes: 0,
        cpu_us: 7_000,
    };

    #[test]
    fn printed_capacity_follows_from_the_printed_figures() {
        let after = Server {
            data_bytes: 4_170_999,
            most_bytes: 5_120_000,
            ..BEFORE
        };
        let waiting = after.waiting(BEFORE, 10_000).expect("figures");
        assert_eq!(
            waiting.text(100),
            "a waiting message of 100 bytes takes 412 bytes: 1 GiB holds 2,606,169\n\
             maxmemory leaves 4,120,000 of 5,120,000 bytes: 10,000 more messages"
        );
        assert_eq!(waiting.json()["messages_until_maxmemory"], 10_000);
        let after = Server {
            cpu_us: 617_000,
            ..BEFORE
        };
        let cost = after.cost(BEFORE, 10_000, 5_000).expect("figures");
        assert_eq!(
            cost.text(),
            "at 5,000 a second a message costs 61.0 us of Redis: 30.5 % of one core, \
             which is full at 16,393 a second"
        );
    }

    #[test]
    fn capacity_is_unknown_without_maxmemory_or_messages() {
        let waiting = Server {
            data_bytes: 90_000,
            ..BEFORE
        };
        let waiting = waiting.waiting(BEFORE, 100).expect("figures");
        assert_eq!(waiting.json()["maxmemory_bytes"], Value::Null);
        assert_eq!(waiting.json()["messages_until_maxmemory"], Value::Null);
        assert!(waiting.text(100).contains("maxmemory is not set"));
        assert!(BEFORE.waiting(BEFORE, 0).is_none() && BEFORE.cost(BEFORE, 0, 1).is_none());
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let shown = [0, 999, 1_000, 12_345_678].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,345,678"]);
    }
}
