//! The limits of a queue that an operator sets.

use std::time::Duration;

use crate::error::Error;
use crate::model::due::ceil_ms;
use crate::model::rate::Rate;
use crate::model::stats::QueueStats;

mod lives;

/// The most starts that a rate may allow in its window.
const MAX_STARTS: u32 = 1_000_000;
/// The longest window of a rate: 30 days.
const MAX_WINDOW_MS: u64 = 2_592_000_000;
/// The largest limit of remembered ids in a partition.
const MAX_REMEMBERED: u64 = 1_000_000_000_000_000;

/// Limits of a queue, to be set with [`Queue::configure`](crate::Queue::configure). Limits that are
/// not set stay as they are.
///
/// ```
/// let limits = dueq::QueueLimits::new().max_attempts(5).max_payload_bytes(4 * 1024 * 1024);
/// # let _ = limits;
/// ```
#[derive(Debug, Clone, Default)]
pub struct QueueLimits {
    /// The names and values of the arguments of `configure`, except the rate.
    pairs: Vec<(&'static str, String)>,
    rate: RateSetting,
    burst: Option<u32>,
}

/// What a call of `configure` does with the queue's rate.
#[derive(Debug, Clone, Copy, Default)]
enum RateSetting {
    #[default]
    AsItIs,
    None,
    Starts(u32, Duration),
}

impl QueueLimits {
    /// A set of limits that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// After how many failed attempts a message without a limit of its own is dead: 1 to 1,000,000,
    /// 20 unless set. The limit also applies to messages that wait already.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.with("max_attempts", max_attempts.to_string())
    }

    /// How many crashes (expired leases) a message survives: 0 to 1,000,000, 5 unless set.
    #[must_use]
    pub fn max_crashes(self, max_crashes: u32) -> Self {
        self.with("max_crashes", max_crashes.to_string())
    }

    /// How many messages the queue may hold, in all states together; `None`, the default, for no
    /// limit.
    #[must_use]
    pub fn max_messages(self, max_messages: Option<u64>) -> Self {
        self.with(
            "max_messages",
            max_messages
                .map(|number| number.to_string())
                .unwrap_or_default(),
        )
    }

    /// The largest payload that the queue takes, in bytes: 1 to 16 MiB, 1 MiB unless set.
    #[must_use]
    pub fn max_payload_bytes(self, max_payload_bytes: u32) -> Self {
        self.with("max_payload_bytes", max_payload_bytes.to_string())
    }

    /// How long dead messages are kept: 1 ms to 100 years, 30 days unless set.
    #[must_use]
    pub fn keep_dead_for(self, time: Duration) -> Self {
        self.with("dead_keep_ms", ceil_ms(time).to_string())
    }

    /// How many dead messages are kept at most; the newest are kept. At least 1; 100,000 unless
    /// set.
    #[must_use]
    pub fn keep_dead(self, number: u64) -> Self {
        self.with("dead_keep", number.to_string())
    }

    /// How many messages may start in any window of this length: 1 to 1,000,000 in 1 ms to 30 days,
    /// by the server's clock. No rate unless set.
    ///
    /// Each claim counts, retries too, and a message counts for its [`cost`](crate::Message::cost).
    /// Starts are evenly spaced but for a [`burst`](QueueLimits::burst) of B; with a backlog, `N -
    /// B + 1` start in each window. When no start is left, the queue is closed until the next
    /// message may start. Messages keep their order and their due times, and workers make no calls
    /// meanwhile.
    ///
    /// Workers and clients of release 0.1 do not obey it.
    ///
    /// ```
    /// use dueq::QueueLimits;
    /// use std::time::Duration;
    ///
    /// let limits = QueueLimits::new().rate(100, Duration::from_secs(1)).burst(10);
    /// # let _ = limits;
    /// ```
    #[must_use]
    pub fn rate(mut self, starts: u32, window: Duration) -> Self {
        self.rate = RateSetting::Starts(starts, window);
        self
    }

    /// How many messages of the [`rate`](QueueLimits::rate) may start at once: 1 to the rate's
    /// starts. Set together with a rate. The default is 1; at a rate above 200 per second, the
    /// starts of 5 ms.
    #[must_use]
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// Removes the rate.
    #[must_use]
    pub fn no_rate(mut self) -> Self {
        self.rate = RateSetting::None;
        self
    }

    /// How many messages may be leased at the same time, over all workers: 1 to 1,000,000. No limit
    /// unless set. The message of a worker that crashed counts until its lease ends.
    ///
    /// Workers and clients of release 0.1 do not obey it.
    #[must_use]
    pub fn max_leased(self, max_leased: u32) -> Self {
        self.with("max_leased", max_leased.to_string())
    }

    /// Removes the limit of leased messages.
    #[must_use]
    pub fn no_max_leased(self) -> Self {
        self.with("max_leased", String::new())
    }

    /// For how long a [throttle](crate::Delivery::throttle) closes the queue at most: 1 ms to 100
    /// years, 15 minutes unless set. A receiver may answer with any `Retry-After`.
    #[must_use]
    pub fn max_throttle(self, time: Duration) -> Self {
        self.with("max_throttle_ms", ceil_ms(time).to_string())
    }

    /// How many ids the queue remembers before pushes with a [`window`](crate::Message::window)
    /// fail with [`ErrorKind::Full`](crate::ErrorKind::Full): 1 to 10^15, 1,000,000 unless set. The
    /// calls of the last 12 s, which the queue also remembers, count towards this limit:
    /// [`QueueStats::recent`](crate::QueueStats::recent). An id takes about 100 bytes of Redis's
    /// memory.
    ///
    /// ```
    /// let limits = dueq::QueueLimits::new().max_remembered(5_000_000);
    /// # let _ = limits;
    /// ```
    #[must_use]
    pub fn max_remembered(self, ids: u64) -> Self {
        self.with("max_remembered", ids.to_string())
    }

    /// Raises the queue to layout 3, which [`OnConflict::Next`](crate::OnConflict::Next) needs.
    /// This cannot be undone.
    ///
    /// Releases before 0.2 refuse a queue with layout 3: their workers stop, and their producers get
    /// errors. So set it only when every client and worker of the queue has release 0.2 or newer.
    /// `dueq doctor QUEUE` names live workers that may be older, if messages of the queue expire or
    /// it has a rate or `max_leased`.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// use dueq::{OnConflict, QueueLimits};
    ///
    /// orders.configure(QueueLimits::new().layout3()).await?;
    /// orders.push("index").id("doc:7").on_conflict(OnConflict::Next).await?;
    /// # });
    /// ```
    #[must_use]
    pub fn layout3(self) -> Self {
        self.with("layout", "3".to_owned())
    }

    /// The limits that these stats report. A limit that is divided among partitions is multiplied
    /// by `factor`.
    pub(crate) fn of_stats(stats: &QueueStats, factor: u64) -> Self {
        let small = |limit: u64| u32::try_from(limit).unwrap_or(u32::MAX);
        let max_messages = stats.max_messages.saturating_mul(factor);
        let mut limits = Self::new();
        if let Some(rate) = stats.rate {
            let rate = rate.of_queue(factor);
            limits = limits
                .rate(small(rate.starts), rate.window)
                .burst(small(rate.burst));
        } else {
            limits = limits.no_rate();
        }
        limits = match stats.max_leased.saturating_mul(factor) {
            0 => limits.no_max_leased(),
            most => limits.max_leased(small(most)),
        };
        limits
            .keep_life_as(stats)
            .max_throttle(Duration::from_millis(stats.max_throttle_ms))
            .max_attempts(small(stats.max_attempts))
            .max_crashes(small(stats.max_crashes))
            .max_messages((max_messages > 0).then_some(max_messages))
            .max_payload_bytes(small(stats.max_payload_bytes))
            .keep_dead_for(Duration::from_millis(stats.keep_dead_ms))
            .keep_dead(stats.keep_dead.saturating_mul(factor))
            .max_remembered(
                stats
                    .max_remembered
                    .saturating_mul(factor)
                    .clamp(1, MAX_REMEMBERED),
            )
    }

    /// Whether a limit is divided among partitions, so that a map with too many partitions is
    /// refused.
    pub(crate) fn needs_partitions(&self) -> bool {
        let has_leased = self
            .pairs
            .iter()
            .any(|(name, value)| *name == "max_leased" && !value.is_empty());
        has_leased || matches!(self.rate, RateSetting::Starts(..))
    }

    /// The arguments of `configure` at each partition of a queue: names and values.
    ///
    /// # Errors
    /// `InvalidInput` if no limit is set, the rate is out of its range, or a partition would get no start of it, or
    /// none of `max_leased`.
    pub(crate) fn of_partition(&self, partitions: usize) -> Result<Vec<Vec<u8>>, Error> {
        let partitions = partitions as u64;
        let mut pairs = Vec::new();
        for (name, value) in &self.pairs {
            let value = match (*name, value.parse::<u64>()) {
                ("max_messages" | "dead_keep" | "max_remembered", Ok(total)) => {
                    total.div_ceil(partitions).to_string()
                }
                ("max_leased", Ok(total)) if total > 0 && total < partitions => {
                    return Err(Error::invalid(format!(
                        "max_leased is {total}, and the queue has {partitions} partitions, which share it: it must be {partitions} or more"
                    )));
                }
                ("max_leased", Ok(total)) => (total / partitions).to_string(),
                _ => value.clone(),
            };
            pairs.push((*name, value));
        }
        match self.rate {
            RateSetting::Starts(starts, window) => {
                let rate = checked_rate(starts, window, self.burst)?;
                let share = rate.of_partition(partitions).ok_or_else(|| {
                    Error::invalid(format!(
                        "rate is {starts} starts, and the queue has {partitions} partitions, which share it: it must be {partitions} or more; \
                         a rate of {} in a window {partitions} times as long is as fast",
                        u64::from(starts) * partitions
                    ))
                })?;
                pairs.push(("rate", share.encode()));
            }
            RateSetting::None => pairs.push(("rate", String::new())),
            RateSetting::AsItIs if self.burst.is_some() => {
                return Err(Error::invalid(
                    "burst is set without a rate: set both together",
                ));
            }
            RateSetting::AsItIs if pairs.is_empty() => {
                return Err(Error::invalid(
                    "no limit is set: set one or more, such as `QueueLimits::new().max_attempts(20)`",
                ));
            }
            RateSetting::AsItIs => {}
        }
        let pair = |(name, value): (&str, String)| [name.as_bytes().to_vec(), value.into_bytes()];
        Ok(pairs.into_iter().flat_map(pair).collect())
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.pairs.push((name, value));
        self
    }
}

/// Refuses a rate that the script `configure` would refuse.
fn checked_rate(starts: u32, window: Duration, burst: Option<u32>) -> Result<Rate, Error> {
    let window_ms = ceil_ms(window);
    if !(1..=MAX_STARTS).contains(&starts) {
        return Err(Error::invalid(format!(
            "rate is {starts} starts, it must be 1 to {MAX_STARTS}"
        )));
    }
    if !(1..=MAX_WINDOW_MS).contains(&window_ms) {
        return Err(Error::invalid(format!(
            "the window of the rate is {window:?}, it must be 1 ms to 30 days"
        )));
    }
    let window = Duration::from_millis(window_ms);
    let starts = u64::from(starts);
    let burst = burst.map_or_else(|| Rate::default_burst(starts, window), u64::from);
    if !(1..=starts).contains(&burst) {
        return Err(Error::invalid(format!(
            "burst is {burst}, it must be 1 to the starts of the rate, {starts}"
        )));
    }
    Ok(Rate {
        starts,
        window,
        burst,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn words(limits: &QueueLimits, partitions: usize) -> Result<String, Error> {
        let words = limits.of_partition(partitions)?;
        let words: Vec<_> = words
            .iter()
            .map(|word| String::from_utf8_lossy(word))
            .collect();
        Ok(words.join(" "))
    }

    #[test]
    fn a_rate_is_divided_among_partitions_and_rounded_down() {
        let limits = QueueLimits::new().rate(103, SECOND).burst(9).max_leased(7);
        assert_eq!(
            words(&limits, 1).expect("valid"),
            "max_leased 7 rate 103/1000/9"
        );
        assert_eq!(
            words(&limits, 4).expect("valid"),
            "max_leased 1 rate 25/1000/2"
        );
        assert_eq!(
            words(&limits, 7).expect("valid"),
            "max_leased 1 rate 14/1000/1"
        );
        let error = words(&limits, 8).expect_err("max_leased is below it");
        assert!(error.to_string().contains("max_leased is 7"), "{error}");
        let error = words(&QueueLimits::new().rate(3, SECOND), 4).expect_err("below it");
        assert!(error.to_string().contains("rate is 3 starts"), "{error}");
    }

    #[test]
    fn rates_out_of_range_and_no_limits_are_refused() {
        let rate = |starts, window| QueueLimits::new().rate(starts, window);
        for (limits, problem) in [
            (rate(0, SECOND), "rate is 0"),
            (rate(1_000_001, SECOND), "rate is 1000001"),
            (rate(1, Duration::ZERO), "window"),
            (rate(1, 30 * 86_400 * SECOND + SECOND), "window"),
            (rate(5, SECOND).burst(0), "burst is 0"),
            (rate(5, SECOND).burst(6), "burst is 6"),
            (QueueLimits::new().burst(2), "without a rate"),
            (QueueLimits::new(), "no limit is set"),
        ] {
            let error = words(&limits, 1).expect_err(problem);
            assert!(error.to_string().contains(problem), "{error}");
        }
        let longest = rate(1_000_000, 30 * 86_400 * SECOND).burst(1_000_000);
        assert!(words(&longest, 1).is_ok());
        assert_eq!(
            words(&QueueLimits::new().no_rate().no_max_leased(), 3).expect("valid"),
            "max_leased  rate "
        );
    }

    #[test]
    fn limits_read_from_stats_are_divided_again() {
        let stats = QueueStats {
            rate: Rate::parse("25/1000/2"),
            max_leased: 3,
            max_throttle_ms: 900_000,
            ..QueueStats::default()
        };
        let text = words(&QueueLimits::of_stats(&stats, 4), 2).expect("valid");
        assert!(
            text.contains("rate 50/1000/4") && text.contains("max_leased 6"),
            "{text}"
        );
        let text = words(&QueueLimits::of_stats(&QueueStats::default(), 4), 2).expect("valid");
        assert!(text.ends_with("rate "), "{text}");
    }
}
