//! The history charts of a queue: lateness, handler times, counts.

use crate::dashboard::chart::{self, Counter, Flow, Lines, PERCENTILES, Slice};
use crate::dashboard::show::{self, Clock, Markup};
use crate::dashboard::views::queue::due::Choice;
use crate::dashboard::views::queue::late::{Late, note};
use crate::wire::causes::LateMinute;
use crate::wire::overview::{History, HistoryTimes, Point};
use crate::work::poll::ended;

/// A history of at most this age is shown by minutes.
const YOUNG_MS: u64 = 3 * 3_600_000;

/// How far back the charts reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Range {
    Hour,
    Day,
    Week,
    Quarter,
}

impl Range {
    const ALL: [Self; 4] = [Self::Hour, Self::Day, Self::Week, Self::Quarter];

    /// The range of this name.
    pub(super) fn named(word: Option<&str>) -> Option<Self> {
        let named = |word| Self::ALL.into_iter().find(|range| range.word() == word);
        word.and_then(named)
    }

    /// The range that a queue with this history of a day is shown in: a young one would be a single
    /// bar at the edge of a day.
    pub(super) fn fit(day: &History) -> Self {
        let first = day.points.iter().flatten().next();
        let age_ms = first.map_or(0, |point| day.now_ms.saturating_sub(point.start_ms));
        if age_ms > YOUNG_MS {
            Self::Day
        } else {
            Self::Hour
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Quarter => "90d",
        }
    }

    /// The call that reads the range, relative to the path of the queue.
    pub(super) fn call(self) -> &'static str {
        match self {
            Self::Hour => "history?range=60m",
            Self::Day => "history?range=24h",
            Self::Week => "history?range=168h",
            Self::Quarter => "history?range=90d",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hour => "60 min",
            Self::Day => "24 h",
            Self::Week => "7 days",
            Self::Quarter => "90 days",
        }
    }

    pub(super) fn choices(self, address: &str, tab: &str) -> Vec<Choice> {
        let names = ["Hour", "Day", "Week", "90 days"];
        let ranges = Self::ALL.into_iter().zip(names);
        ranges
            .map(|(range, name)| Choice {
                name,
                address: format!("{address}?due={tab}&range={}#lateness", range.word()),
                is_current: range == self,
            })
            .collect()
    }
}

/// The charts of one range.
pub(super) struct Histories {
    pub(super) lateness: Markup,
    pub(super) handling: Markup,
    pub(super) flow: Markup,
    pub(super) late: Late,
    /// The cancelled share of all messages that ended; `None` if none ended.
    pub(super) cancelled: Option<Cancelled>,
}

pub(super) struct Cancelled {
    pub(super) share: String,
    pub(super) cancelled: String,
    pub(super) ended: String,
}

impl Histories {
    pub(super) fn new(history: &History, clock: &Clock) -> Self {
        Self {
            lateness: lines(
                "lateness-chart",
                "Lateness: from the due time to the start of the handler",
                history,
                |point| &point.lateness,
                &history.late,
                clock,
            ),
            handling: lines(
                "handling-chart",
                "Handling: how long handlers ran",
                history,
                |point| &point.handling,
                &[],
                clock,
            ),
            flow: flow("Events", history, clock),
            late: Late::new(history, clock),
            cancelled: history.sum.as_ref().and_then(cancelled),
        }
    }
}

/// The begin and the end of each slot. The last slot has not ended yet.
fn slots(history: &History) -> Vec<(u64, u64)> {
    let count = u64::try_from(history.points.len()).unwrap_or(u64::MAX);
    let begin = |place| {
        let after = history.slot_ms.saturating_mul(place);
        history.from_ms.saturating_add(after)
    };
    (0..count)
        .map(|place| (begin(place), begin(place + 1)))
        .collect()
}

fn lines(
    id: &str,
    caption: &str,
    history: &History,
    of: impl Fn(&Point) -> &HistoryTimes,
    late: &[LateMinute],
    clock: &Clock,
) -> Markup {
    let points = slots(history).into_iter().zip(&history.points);
    let slices = points.map(|((from_ms, before_ms), point)| {
        let times = point.as_ref().map(&of);
        Slice {
            from_ms,
            before_ms,
            count: times.map_or(0, |times| times.count),
            times_us: times.and_then(HistoryTimes::percentiles_us).map(Vec::from),
            note: note(late, from_ms, before_ms),
        }
    });
    let all = history.sum.as_ref().map(&of);
    chart::lines(&Lines {
        id,
        caption,
        names: PERCENTILES,
        slices: &slices.collect::<Vec<_>>(),
        of_all: all.and_then(HistoryTimes::percentiles_us).map(Vec::from),
        clock,
    })
}

/// A counter: its name, whether it counts trouble, and how to read it from a point.
type Counted = (&'static str, bool, fn(&Point) -> u64);

const COUNTED: [Counted; 7] = [
    ("pushed", false, |point| point.pushed),
    ("delivered", false, |point| point.claimed),
    ("acked", false, |point| point.acked),
    ("cancelled", false, |point| point.cancelled),
    ("retried", false, |point| point.retried),
    ("crashed", true, |point| point.crashed),
    ("died", true, |point| point.died),
];

fn flow(caption: &str, history: &History, clock: &Clock) -> Markup {
    let counters = COUNTED.map(|(name, is_bad, of)| Counter {
        name,
        is_bad,
        counts: history
            .points
            .iter()
            .map(|point| point.as_ref().map(of))
            .collect(),
    });
    chart::flow(&Flow {
        caption,
        slots: &slots(history),
        counters: &counters,
        clock,
    })
}

fn cancelled(sum: &Point) -> Option<Cancelled> {
    let ended = ended(sum.acked, sum.cancelled, sum.died, sum.expired);
    (ended > 0).then(|| Cancelled {
        share: show::percent(sum.cancelled, ended),
        cancelled: show::number(sum.cancelled),
        ended: show::number(ended),
    })
}

/// p99 of the lateness over the whole history, and the number of messages.
pub(super) fn late(history: &History) -> Option<(String, String)> {
    let late = &history.sum.as_ref()?.lateness;
    let p99 = match late.percentiles_us()?[2] {
        u64::MAX => "over 12.7 d".to_owned(),
        us => show::micros(us),
    };
    Some((p99, show::number(late.count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_share_equals_that_in_the_list_of_queues() {
        for (acked, cancels, died, expired, expected) in [
            (0, 0, 0, 0, None),
            (0, 10, 0, 10, Some("50.0 %")),
            (0, 10, 10, 10, Some("50.0 %")),
            (30, 10, 0, 0, Some("25.0 %")),
            (u64::MAX, 1, 1, 0, Some("0.0 %")),
        ] {
            let mut sum = Point::new(&dueq::inspect::HistoryPoint::default());
            (sum.acked, sum.cancelled, sum.died, sum.expired) = (acked, cancels, died, expired);
            let share = cancelled(&sum).map(|cancelled| cancelled.share);
            let counts = [acked, cancels, died, expired];
            assert_eq!(share.as_deref(), expected, "{counts:?}");
        }
    }
}
