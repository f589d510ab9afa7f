//! The limits of a queue: the flags for the limits of starts, and the rows that `stats` and
//! `configure` print.

use std::time::Duration;

use clap::Args;
use dueq::{QueueLimits, QueueStats};
use dueq_input::{Rate, rate};
use serde_json::Value;

use crate::output::Usage;
use crate::time;

/// The longest --max-throttle: 100 years of 365.25 days.
const MAX_THROTTLE: Duration = Duration::from_secs(3_155_760_000);

/// The flags that limit how many messages start.
#[derive(Args)]
pub(crate) struct Starts {
    /// At most N messages start in any window of this length, over all workers: 50/1s, 500/s,
    /// 100/min; N is 1 to 1000000, the window 1ms to 30d [default: none]
    #[arg(long, value_name = "N/WINDOW", value_parser = rate)]
    rate: Option<Rate>,
    /// How many of the starts of --rate may come at once, 1 to its N [default: 1; of a rate above
    /// 200 a second as many as 5 ms hold]
    #[arg(long, value_name = "N", requires = "rate", value_parser = clap::value_parser!(u32).range(1..))]
    burst: Option<u32>,
    /// Remove the rate
    #[arg(long, conflicts_with = "rate")]
    no_rate: bool,
    /// At most N messages have a handler at the same time, over all workers: 1 to 1000000 [default:
    /// none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_leased: Option<u32>,
    /// Remove the limit of --max-leased
    #[arg(long, conflicts_with = "max_leased")]
    no_max_leased: bool,
    /// A break that a receiver asks for closes the queue for this time at most: 1ms to 100 years
    /// [default: 15m]
    #[arg(long, value_name = "TIME", value_parser = longest_break)]
    max_throttle: Option<Duration>,
}

fn longest_break(text: &str) -> Result<Duration, String> {
    let time = time::period(text).map_err(|error| error.to_string())?;
    if time > MAX_THROTTLE {
        return Err(format!("{text:?} is too long: write 1ms to 100 years"));
    }
    Ok(time)
}

impl Starts {
    pub(crate) fn are_none(&self) -> bool {
        let Self {
            rate,
            burst,
            no_rate,
            max_leased,
            no_max_leased,
            max_throttle,
        } = self;
        rate.is_none()
            && burst.is_none()
            && !no_rate
            && max_leased.is_none()
            && !no_max_leased
            && max_throttle.is_none()
    }

    /// Adds the limits of these flags to `limits`.
    pub(crate) fn add_to(&self, mut limits: QueueLimits) -> Result<QueueLimits, Usage> {
        if let Some(Rate { starts, window }) = self.rate {
            limits = limits.rate(starts, window);
            if let Some(burst) = self.burst.filter(|burst| *burst > starts) {
                return Err(Usage(format!(
                    "--burst {burst} is above the {starts} starts of --rate: write 1 to {starts}"
                )));
            }
        }
        if let Some(burst) = self.burst {
            limits = limits.burst(burst);
        }
        if self.no_rate {
            limits = limits.no_rate();
        }
        if let Some(max_leased) = self.max_leased {
            limits = limits.max_leased(max_leased);
        }
        if self.no_max_leased {
            limits = limits.no_max_leased();
        }
        if let Some(time) = self.max_throttle {
            limits = limits.max_throttle(time);
        }
        Ok(limits)
    }
}

/// A limit of a queue as it is printed.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The limit as text, in the notation of the flags.
    pub(crate) shown: String,
    pub(crate) meaning: &'static str,
    /// The fields of the JSON object.
    pub(crate) fields: Vec<(&'static str, Value)>,
}

/// The limits of the queue, in the order of the table.
pub(crate) fn rows(stats: &QueueStats) -> Vec<Row> {
    let number = |name, value: Option<u64>, meaning| Row {
        name,
        shown: value.map_or("none".to_owned(), |value| value.to_string()),
        meaning,
        fields: vec![(name, value.into())],
    };
    let limited = |most: u64| Some(most).filter(|most| *most > 0);
    let rate = stats.rate;
    let window_ms = rate.map(|rate| u64::try_from(rate.window.as_millis()).unwrap_or(u64::MAX));
    vec![
        number(
            "max_attempts",
            Some(stats.max_attempts),
            "limit: failed attempts until a message is dead",
        ),
        number(
            "max_crashes",
            Some(stats.max_crashes),
            "limit: crashes that a message survives",
        ),
        number(
            "max_messages",
            limited(stats.max_messages),
            "limit: messages in all states",
        ),
        number(
            "max_payload_bytes",
            Some(stats.max_payload_bytes),
            "limit: the largest payload",
        ),
        number(
            "keep_dead_ms",
            Some(stats.keep_dead_ms),
            "limit: how long dead messages are kept",
        ),
        number(
            "keep_dead",
            Some(stats.keep_dead),
            "limit: how many dead messages are kept",
        ),
        Row {
            name: "rate",
            shown: rate.map_or("none".to_owned(), |rate| {
                format!("{}/{:?}", rate.starts, rate.window)
            }),
            meaning: "limit: messages that start in a window of this length",
            fields: vec![
                ("rate", rate.map(|rate| rate.starts).into()),
                ("rate_window_ms", window_ms.into()),
            ],
        },
        number(
            "burst",
            rate.map(|rate| rate.burst),
            "limit: of the rate, how many start at once",
        ),
        number(
            "max_leased",
            limited(stats.max_leased),
            "limit: messages with a handler at the same time",
        ),
        number(
            "max_throttle_ms",
            Some(stats.max_throttle_ms),
            "limit: the longest break that a receiver causes",
        ),
        number(
            "max_remembered",
            Some(stats.max_remembered),
            "limit: remembered ids and calls",
        ),
        number(
            "keep_life_ms",
            stats.keep_life_ms,
            "limit: how long a life is kept after its end",
        ),
    ]
}

/// Why the queue delivers nothing at this moment, as one word.
pub(crate) fn stop(stats: &QueueStats) -> Option<&'static str> {
    let is_of_rate = |closed_ms: u64| {
        // The rate closes a queue for at most one window. If it is closed for longer, the cause is
        // another.
        let window = stats.rate.map(|rate| rate.window);
        window.is_some_and(|window| Duration::from_millis(closed_ms) <= window)
    };
    match *stats {
        _ if stats.is_paused_in_part() => Some("paused in part"),
        QueueStats { paused: true, .. } => Some("paused"),
        QueueStats { full: true, .. } => Some("full"),
        _ if stats.nodes > 0 && stats.drained_nodes >= stats.nodes => Some("drained"),
        QueueStats { closed_ms: 0, .. } => None,
        QueueStats { closed_ms, .. } if is_of_rate(closed_ms) => Some("rate"),
        _ => Some("closed"),
    }
}

/// The line below the counts that explains why the queue delivers nothing; empty if it does.
pub(crate) fn stop_line(name: &str, stats: &QueueStats) -> String {
    let resume = format!("`dueq resume {}`", dueq::admin::shell_word(name.as_bytes()));
    let open = Duration::from_millis(stats.closed_ms);
    match (stop(stats), stats.rate) {
        (Some("drained"), _) => format!(
            "drained: nothing is claimed until `dueq workers {} --resume PROCESS`, or another worker starts\n",
            dueq::admin::shell_word(name.as_bytes())
        ),
        (Some("paused"), _) => format!("paused: nothing is claimed until {resume}\n"),
        (Some("paused in part"), _) => format!(
            "paused in part: {} of {} partitions; `dueq pause` or {resume} does the rest\n",
            stats.paused_partitions, stats.partitions
        ),
        (Some("full"), _) => format!(
            "full: {} messages are leased, and max_leased is {}: each further one starts when one of these is settled\n",
            stats.leased, stats.max_leased
        ),
        (Some("rate"), Some(rate)) => format!(
            "closed by the rate of {}/{:?}: the next message starts in {open:?} at the earliest\n",
            rate.starts, rate.window
        ),
        (Some(_), _) => format!(
            "closed: nothing is claimed for {open:?}, or until {resume}: it was paused for some time, or a receiver asked \
             for a break\n"
        ),
        (None, _) => String::new(),
    }
}
