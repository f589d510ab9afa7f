//! All queues that the caller may use, and their order.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::dashboard::api::Failure;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::show::Markup;
use crate::dashboard::views::queues::trouble::{Trouble, is_idle};
use crate::dashboard::{chart, show};
use crate::edge::problem::Code;
use crate::wire::queues::{Counts, Listed, Queues};
use crate::work::poll::{Known, Lately};

/// The most pages of `/v1/queues`: the server knows at most 10,000 queues.
const MAX_PAGES: usize = 11;

/// All queues that the caller may use.
pub(in crate::dashboard::views) struct All {
    pub(in crate::dashboard::views) queues: Vec<Listed>,
    /// Whether the server knows the names of all queues.
    pub(in crate::dashboard::views) is_complete: bool,
}

/// How long a page waits for new counts after the poller's pause: long enough for a few queues.
/// With many queues the page shows the counts from before the pause.
const WAIT_MS: u64 = 30;
/// The longest wait that `/v1/queues` allows.
const MAX_WAIT_MS: u64 = 2_000;

impl All {
    /// Reads the list from the poller's snapshot: that costs no call of Redis.
    pub(in crate::dashboard::views) async fn read(page: &Page) -> Result<Self, Failure> {
        match Self::read_within(page, WAIT_MS).await {
            // There are no counts yet: wait for the first ones.
            Err(failure) if failure.code() == Code::RedisUnavailable.word() => {
                Self::read_within(page, MAX_WAIT_MS).await
            }
            all => all,
        }
    }

    async fn read_within(page: &Page, wait_ms: u64) -> Result<Self, Failure> {
        let mut all = Self {
            queues: Vec::new(),
            is_complete: true,
        };
        let mut path = format!("/v1/queues?limit=1000&wait_ms={wait_ms}");
        for _ in 0..MAX_PAGES {
            let found: Queues = page.api.get(&path).await?;
            all.is_complete = found.complete;
            all.queues.extend(found.queues);
            match (found.next, all.queues.last()) {
                (Some(_), Some(last)) => {
                    let after = utf8_percent_encode(&last.queue, NON_ALPHANUMERIC);
                    path = format!("/v1/queues?limit=1000&wait_ms=0&after={after}");
                }
                _ => break,
            }
        }
        Ok(all)
    }
}

/// The order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Trouble,
    Name,
}

/// A queue of the list, with what is known of its last minutes.
pub(super) struct Ranked {
    pub(super) listed: Listed,
    pub(super) trouble: Trouble,
    pub(super) is_idle: bool,
}

impl Ranked {
    pub(super) fn new(listed: Listed, lately: Option<&Lately>) -> Self {
        Self {
            trouble: Trouble::of(&listed, lately.map(|lately| &lately.recent)),
            is_idle: is_idle(&listed, lately),
            listed,
        }
    }
}

/// Sorts the queues whose names contain `filter`, ignoring case.
pub(super) fn sorted(mut queues: Vec<Ranked>, filter: &str, order: Order) -> Vec<Ranked> {
    if !filter.is_empty() {
        let filter = filter.to_lowercase();
        queues.retain(|ranked| ranked.listed.queue.to_lowercase().contains(&filter));
    }
    queues.sort_by(|one, other| {
        let names = one.listed.queue.cmp(&other.listed.queue);
        match order {
            Order::Name => names,
            Order::Trouble => one.trouble.cmp(&other.trouble).then(names),
        }
    });
    queues
}

/// A row of the list. `None`: the value is not read yet.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) segment: String,
    pub(super) error: Option<String>,
    pub(super) counts: Option<Shown>,
    pub(super) trouble: Trouble,
    pub(super) due: Option<(Markup, u64)>,
    pub(super) lately: Option<Rows>,
    pub(super) cancelled: Option<String>,
}

/// The counts of a queue.
pub(super) struct Shown {
    pub(super) paused: bool,
    /// Messages that are not due yet.
    pub(super) waiting: u64,
    pub(super) due: u64,
    pub(super) leased: u64,
    pub(super) dead: u64,
    /// For how long the oldest due message has not been claimed.
    pub(super) overdue: Option<String>,
    pub(super) nodes: u64,
}

/// What happened in a queue in the last ten minutes and the last hour.
pub(super) struct Rows {
    pub(super) p99: String,
    pub(super) died: u64,
    pub(super) crashed: u64,
    /// Messages pushed and ended; `None` if no worker ran that could count them.
    pub(super) hour: Option<(u64, u64)>,
}

impl Row {
    pub(super) fn new(ranked: &Ranked, known: &Known) -> Self {
        let listed = &ranked.listed;
        Self {
            name: show::text(&listed.queue),
            segment: segment(&listed.queue),
            error: listed.error.as_deref().map(show::text),
            counts: listed.counts.as_ref().map(Shown::new),
            trouble: ranked.trouble,
            due: known.due.as_ref().map(|(due, _)| {
                let hour = due.hour();
                let label = format!("due within an hour, each 5 minutes: {}", numbers(&hour));
                (chart::spark(&hour, &label), hour.iter().sum())
            }),
            lately: known.lately.as_ref().map(|(lately, _)| Rows {
                p99: time(lately.recent.p99_us),
                died: lately.recent.died,
                crashed: lately.recent.crashed,
                hour: (!lately.minutes.is_empty()).then_some((lately.pushed, lately.ended)),
            }),
            cancelled: known
                .day
                .as_ref()
                .map(|(day, _)| show::percent(day.cancelled, day.ended)),
        }
    }

    /// The number of crashes of the last ten minutes.
    pub(super) fn crashed(&self) -> u64 {
        self.lately.as_ref().map_or(0, |lately| lately.crashed)
    }

    /// The state in which a message that crashes is looked for: mostly a handler has it.
    pub(super) fn crashing(&self) -> &'static str {
        match self.counts.as_ref().is_some_and(|counts| counts.leased > 0) {
            true => "leased",
            false => "scheduled",
        }
    }

    /// The number of messages that died in the last ten minutes.
    pub(super) fn died(&self) -> u64 {
        self.lately.as_ref().map_or(0, |lately| lately.died)
    }
}

impl Shown {
    fn new(counts: &Counts) -> Self {
        Self {
            paused: counts.paused,
            waiting: counts.scheduled.saturating_sub(counts.due),
            due: counts.due.saturating_add(counts.ready),
            leased: counts.leased,
            dead: counts.dead,
            overdue: (counts.overdue_ms > 0).then(|| show::duration(counts.overdue_ms)),
            nodes: counts.nodes,
        }
    }

    /// Whether messages wait, and nobody will take them when they are due.
    pub(super) fn is_unattended(&self) -> bool {
        self.nodes == 0 && (self.waiting > 0 || self.due > 0)
    }
}

/// A cell with a number: a zero is quiet.
pub(super) fn cell(label: &str, count: u64) -> Markup {
    let class = if count == 0 { " class=\"zero\"" } else { "" };
    let count = show::short(count);
    Markup::of(format!("<td{class} data-label=\"{label}\">{count}</td>"))
}

/// Formats a lateness; a dash if no message was delivered.
fn time(us: Option<u64>) -> String {
    match us {
        None => "–".to_owned(),
        Some(u64::MAX) => "over 12 d".to_owned(),
        Some(us) => show::micros(us),
    }
}

fn numbers(counts: &[u64]) -> String {
    let numbers: Vec<_> = counts.iter().map(|count| show::number(*count)).collect();
    numbers.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str) -> Ranked {
        let listed = Listed {
            queue: name.to_owned(),
            counts: Some(Counts::default()),
            ..Listed::default()
        };
        Ranked::new(listed, None)
    }

    #[test]
    fn queues_are_sorted_and_filtered_by_name() {
        let all = || ["a-late", "C-later", "b"].map(listed).into_iter().collect();
        let names = |queues: Vec<Ranked>| -> Vec<_> {
            queues
                .into_iter()
                .map(|ranked| ranked.listed.queue)
                .collect()
        };
        assert_eq!(
            names(sorted(all(), "", Order::Name)),
            ["C-later", "a-late", "b"]
        );
        assert_eq!(
            names(sorted(all(), "LATE", Order::Name)),
            ["C-later", "a-late"]
        );
        assert!(sorted(all(), "none", Order::Trouble).is_empty());
    }
}
