//! Why the queue was late in the last hour, as the server saw it.

use crate::dashboard::chart::span;
use crate::dashboard::show::{self, Clock, Markup};
use crate::wire::causes::{LateMinute, WaitCause};
use crate::wire::overview::History;

const MINUTE_MS: u64 = 60_000;
/// The most spans that are shown at once; the others are folded.
const MAX_OPEN: usize = 6;

/// What the page says about the last hour.
pub(super) struct Late {
    /// The latest spans, and the others: the latest first.
    pub(super) spans: Vec<Span>,
    pub(super) folded: Vec<Span>,
    /// Since when the server has watched; `None` if it does not yet.
    pub(super) since: Option<Markup>,
}

/// Minutes after each other with the same causes.
pub(super) struct Span {
    pub(super) time: String,
    pub(super) causes: String,
    /// The greatest delay that was seen; `None` if none was.
    pub(super) overdue: Option<String>,
}

impl Late {
    pub(super) fn new(history: &History, clock: &Clock) -> Self {
        let follow = |one: &LateMinute, next: &LateMinute| {
            one.start_ms + MINUTE_MS == next.start_ms && one.causes == next.causes
        };
        let spans = history.late.chunk_by(follow).rev();
        let mut spans: Vec<_> = spans.map(|minutes| Span::new(minutes, clock)).collect();
        let folded = spans.split_off(spans.len().min(MAX_OPEN));
        Self {
            spans,
            folded,
            since: history.watched_since_ms.map(|ms| clock.time(ms)),
        }
    }
}

impl Span {
    fn new(minutes: &[LateMinute], clock: &Clock) -> Self {
        let from_ms = minutes.first().map_or(0, |minute| minute.start_ms);
        let last_ms = minutes.last().map_or(0, |minute| minute.start_ms);
        let overdue_ms = minutes.iter().map(|minute| minute.overdue_ms).max();
        let overdue_ms = overdue_ms.filter(|ms| *ms > 0);
        Self {
            time: match last_ms + MINUTE_MS > clock.now_ms() {
                true => format!("since {}", clock.format(from_ms, "%Y-%m-%d %H:%M %Z")),
                false => span(clock, from_ms, last_ms + MINUTE_MS),
            },
            causes: sentences(minutes),
            overdue: overdue_ms.map(show::duration),
        }
    }
}

/// The causes of the minutes from `from_ms` to before `before_ms` in words; `None` if none is known.
pub(super) fn note(late: &[LateMinute], from_ms: u64, before_ms: u64) -> Option<String> {
    let first = late.partition_point(|minute| minute.start_ms < from_ms);
    let end = late.partition_point(|minute| minute.start_ms < before_ms);
    let minutes = late.get(first..end).filter(|minutes| !minutes.is_empty());
    minutes.map(sentences)
}

/// The causes of these minutes, each once.
fn sentences(minutes: &[LateMinute]) -> String {
    let causes = minutes
        .iter()
        .flat_map(|minute| minute.causes.iter().copied());
    let mut causes: Vec<_> = causes.collect();
    causes.sort_unstable();
    causes.dedup();
    let sentences: Vec<_> = causes.into_iter().map(sentence).collect();
    sentences.join(" ")
}

fn sentence(cause: WaitCause) -> &'static str {
    match cause {
        WaitCause::Paused => "The queue was paused.",
        WaitCause::Closed => "The queue was closed for some time.",
        WaitCause::Rate => "The rate was used up.",
        WaitCause::Full => "As many messages were leased as max_leased allows.",
        WaitCause::NoWorker => "No worker was alive.",
        WaitCause::Drained => "All live workers were drained.",
        WaitCause::Parked => "No worker looked at the queue: it had been empty for long.",
        WaitCause::Unclaimed => "Workers were alive, and claimed nothing.",
        WaitCause::Busy => "All handlers were busy.",
        WaitCause::Unread => "Redis, or a part of the queue, did not answer.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    const NOW: u64 = 1_796_299_200_000;

    fn minute(number: u64, overdue_ms: u64, causes: &[WaitCause]) -> LateMinute {
        LateMinute {
            start_ms: NOW + number * MINUTE_MS,
            overdue_ms,
            causes: causes.to_vec(),
        }
    }

    #[test]
    fn minutes_with_the_same_causes_are_one_span() {
        let late = vec![
            minute(0, 3_000, &[WaitCause::Busy]),
            minute(1, 5_000, &[WaitCause::NoWorker]),
            minute(2, 65_000, &[WaitCause::NoWorker]),
            minute(4, 0, &[WaitCause::Unread]),
        ];
        let note = |from, before| note(&late, NOW + from * MINUTE_MS, NOW + before * MINUTE_MS);
        assert_eq!(note(3, 4), None);
        assert_eq!(note(1, 2).as_deref(), Some("No worker was alive."));
        let both = "No worker was alive. All handlers were busy.";
        assert_eq!(note(0, 3).as_deref(), Some(both));
        let history = History {
            queue: "orders".to_owned(),
            now_ms: NOW,
            from_ms: NOW,
            slot_ms: MINUTE_MS,
            points: Vec::new(),
            sum: None,
            late,
            watched_since_ms: None,
            unread: Vec::new(),
        };
        let late = Late::new(
            &history,
            &Clock::now(Zone::default()).at(NOW + 4 * MINUTE_MS + 1),
        );
        let spans = late.spans.iter();
        let spans: Vec<_> = spans
            .map(|span| {
                (
                    span.time.as_str(),
                    span.causes.as_str(),
                    span.overdue.as_deref(),
                )
            })
            .collect();
        let unread = "Redis, or a part of the queue, did not answer.";
        assert_eq!(
            spans,
            [
                ("since 2026-12-03 12:04 UTC", unread, None),
                (
                    "2026-12-03 12:01 – 12:03 UTC",
                    "No worker was alive.",
                    Some("1 min 5 s")
                ),
                (
                    "2026-12-03 12:00 – 12:01 UTC",
                    "All handlers were busy.",
                    Some("3 s")
                ),
            ]
        );
    }
}
