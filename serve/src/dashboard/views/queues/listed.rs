//! All queues that the caller may use, and their order.

use std::cmp::Reverse;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::dashboard::api::Failure;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::show::Markup;
use crate::dashboard::{chart, show};
use crate::edge::problem::Code;
use crate::wire::queues::{Counts, Listed, Queues};
use crate::work::poll::Known;

/// The most pages of `/v1/queues`: the server knows at most 10,000 queues.
const MAX_PAGES: usize = 11;
/// A queue is in trouble if a message is overdue by more than this: a live worker takes it within
/// milliseconds.
const OVERDUE_MS: u64 = 1_000;

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

/// The trouble of a queue. The variants are in order of badness, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    Unreadable,
    /// The time by which the oldest message is overdue; the longest sorts first.
    Overdue(Reverse<u64>),
    Paused,
    Dead,
    None,
}

impl Trouble {
    pub(super) fn of(queue: &Listed) -> Self {
        let Some(counts) = queue.counts.as_ref().filter(|_| queue.error.is_none()) else {
            return match queue.error {
                Some(_) => Self::Unreadable,
                None => Self::None, // the counts are not read yet
            };
        };
        match counts {
            counts if counts.overdue_ms > OVERDUE_MS => Self::Overdue(Reverse(counts.overdue_ms)),
            counts if counts.paused => Self::Paused,
            counts if counts.dead > 0 => Self::Dead,
            _ => Self::None,
        }
    }
}

/// The order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Trouble,
    Name,
}

/// Sorts the queues whose names contain `filter`, ignoring case.
pub(super) fn sorted(mut queues: Vec<Listed>, filter: &str, order: Order) -> Vec<Listed> {
    if !filter.is_empty() {
        let filter = filter.to_lowercase();
        queues.retain(|listed| listed.queue.to_lowercase().contains(&filter));
    }
    match order {
        Order::Name => queues.sort_by(|one, other| one.queue.cmp(&other.queue)),
        Order::Trouble => queues.sort_by(|one, other| {
            (Trouble::of(one), &one.queue).cmp(&(Trouble::of(other), &other.queue))
        }),
    }
    queues
}

/// A row of the list. `None`: the value is not read yet.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) segment: String,
    pub(super) error: Option<String>,
    pub(super) counts: Option<Shown>,
    pub(super) is_trouble: bool,
    pub(super) due: Option<(Markup, Markup)>,
    pub(super) lately: Option<Lately>,
    pub(super) cancelled: Option<String>,
}

/// The counts of a queue.
pub(super) struct Shown {
    pub(super) paused: bool,
    /// Messages that are not due yet.
    pub(super) waiting: Markup,
    pub(super) due: Markup,
    pub(super) leased: Markup,
    pub(super) dead: Markup,
    pub(super) has_dead: bool,
    /// For how long the oldest due message has not been claimed.
    pub(super) overdue: Option<String>,
    pub(super) is_overdue: bool,
    pub(super) nodes: Markup,
}

/// What happened in a queue in the last minute and the last hour.
pub(super) struct Lately {
    pub(super) p50: String,
    pub(super) p99: String,
    pub(super) pushed: Markup,
    pub(super) ended: Markup,
}

impl Row {
    pub(super) fn new(listed: &Listed, known: &Known) -> Self {
        let trouble = Trouble::of(listed);
        Self {
            name: show::text(&listed.queue),
            segment: segment(&listed.queue),
            error: listed.error.as_deref().map(show::text),
            counts: listed
                .counts
                .as_ref()
                .map(|counts| Shown::new(counts, trouble)),
            is_trouble: matches!(trouble, Trouble::Unreadable | Trouble::Overdue(_)),
            due: known.due.as_ref().map(|(due, _)| {
                let sum = due.0.iter().sum();
                let label = format!("due within an hour, each 5 minutes: {}", numbers(&due.0));
                (chart::spark(&due.0, &label), show::short(sum))
            }),
            lately: known.lately.as_ref().map(|(lately, _)| Lately {
                p50: time(lately.p50_us),
                p99: time(lately.p99_us),
                pushed: show::short(lately.pushed),
                ended: show::short(lately.ended),
            }),
            cancelled: known
                .day
                .as_ref()
                .map(|(day, _)| show::percent(day.cancelled, day.ended)),
        }
    }
}

impl Shown {
    fn new(counts: &Counts, trouble: Trouble) -> Self {
        Self {
            paused: counts.paused,
            waiting: show::short(counts.scheduled.saturating_sub(counts.due)),
            due: show::short(counts.due.saturating_add(counts.ready)),
            leased: show::short(counts.leased),
            dead: show::short(counts.dead),
            has_dead: counts.dead > 0,
            overdue: (counts.overdue_ms > 0).then(|| show::duration(counts.overdue_ms)),
            is_overdue: matches!(trouble, Trouble::Overdue(Reverse(_))),
            nodes: show::short(counts.nodes),
        }
    }
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

    fn listed(name: &str, change: impl FnOnce(&mut Counts)) -> Listed {
        let mut counts = Counts::default();
        change(&mut counts);
        Listed {
            age_ms: None,
            queue: name.to_owned(),
            counts: Some(counts),
            error: None,
        }
    }

    fn all() -> Vec<Listed> {
        let unreadable = Listed {
            error: Some("WRONGTYPE".to_owned()),
            ..listed("z-broken", |_| {})
        };
        let unread = Listed {
            counts: None,
            ..listed("b-unread", |_| {})
        };
        vec![
            listed("a-calm", |_| {}),
            listed("a-dead", |counts| counts.dead = 1),
            listed("a-paused", |counts| {
                (counts.paused, counts.dead) = (true, 9);
            }),
            listed("a-late", |counts| counts.overdue_ms = 1_001),
            listed("C-later", |counts| {
                (counts.overdue_ms, counts.paused) = (60_000, true);
            }),
            listed("a-busy", |counts| counts.overdue_ms = 1_000),
            unread,
            unreadable,
        ]
    }

    fn names(queues: &[Listed]) -> Vec<&str> {
        queues.iter().map(|listed| listed.queue.as_str()).collect()
    }

    #[test]
    fn queues_in_the_worst_trouble_are_first() {
        let sorted = sorted(all(), "", Order::Trouble);
        assert_eq!(
            names(&sorted),
            [
                "z-broken", "C-later", "a-late", "a-paused", "a-dead", "a-busy", "a-calm",
                "b-unread"
            ]
        );
    }

    #[test]
    fn queues_are_sorted_and_filtered_by_name() {
        assert_eq!(
            names(&sorted(all(), "", Order::Name)),
            [
                "C-later", "a-busy", "a-calm", "a-dead", "a-late", "a-paused", "b-unread",
                "z-broken"
            ]
        );
        assert_eq!(
            names(&sorted(all(), "LATE", Order::Name)),
            ["C-later", "a-late"]
        );
        assert!(sorted(all(), "none", Order::Trouble).is_empty());
    }
}
