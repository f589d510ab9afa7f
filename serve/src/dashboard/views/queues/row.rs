//! A row of the list: what is shown of a queue.

use std::cmp::Reverse;

use crate::dashboard::chart;
use crate::dashboard::frame::segment;
use crate::dashboard::overview::Known;
use crate::dashboard::show::{self, Markup};
use crate::dashboard::views::queues::{Counts, Listed, Trouble};

/// A row. What is not read yet is `None`.
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
    /// Messages whose time has not come.
    pub(super) waiting: Markup,
    pub(super) due: Markup,
    pub(super) leased: Markup,
    pub(super) dead: Markup,
    pub(super) has_dead: bool,
    /// The age of the oldest message that is due and not claimed.
    pub(super) overdue: Option<String>,
    pub(super) is_overdue: bool,
    pub(super) nodes: Markup,
}

/// The last minute and hour.
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

/// A lateness; a dash if no message was delivered.
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
