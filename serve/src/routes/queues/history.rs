//! What a queue has done in each minute, hour or day.

use axum::Json;
use axum::extract::State;
use dueq::inspect::HistoryResolution;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::edge::path::Query;
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::wire::overview::{History, Point};
use crate::wire::queues::unread;
use crate::work::Shared;

/// The default range.
const RANGE: &str = "60m";

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// How many minutes, hours or days, with the present one: `1m` to `60m`, `1h` to `168h`, `1d` to
    /// `90d`
    #[param(
        pattern = "^(([1-9]|[1-5][0-9]|60)m|([1-9]|[1-9][0-9]|1[0-5][0-9]|16[0-8])h|([1-9]|[1-8][0-9]|90)d)$",
        default = "60m"
    )]
    range: Option<String>,
}

/// Read the history of a queue
///
/// What it has done in each of the last minutes, hours or days, whoever did it. Workers report it
/// every 5 s, so what happens in the last 6 s of a slot may count in the next one. While no worker
/// runs, nothing is recorded: the first point after a gap has the counts of the gap too.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/history",
    tag = "queues",
    params(Wanted),
    responses(
        (status = 200, body = History),
        (status = 404),
    )
)]
pub(super) async fn history(
    State(app): State<Shared>,
    name: QueueName,
    Query(wanted): Query<Wanted>,
) -> Result<Json<History>, Problem> {
    let range = wanted.range.as_deref().unwrap_or(RANGE);
    let range = Range::read(range).ok_or_else(|| {
        let detail = format!(
            "range: {}; write 1m to 60m, 1h to 168h or 1d to 90d",
            quoted(range)
        );
        Problem::new(Code::InvalidInput, detail)
    })?;
    let queue = app.client.queue(name.as_str())?;
    let reached = queue.history_reached(range.resolution).await?;
    let history = &reached.value;
    if history.points.is_empty() && reached.unread.is_empty() {
        app.existing(&name).await?;
    }
    let slots = range.slots(history.now_ms);
    let from_ms = slots.first().copied().unwrap_or_default();
    let mut points: Vec<_> = slots.iter().map(|_| None).collect();
    for point in &history.points {
        if let Ok(at) = slots.binary_search(&point.start_ms) {
            points[at] = Some(Point::new(point));
        }
    }
    let (late, watched_since_ms) = app.poller.late(name.as_str());
    let sum = history.sum(from_ms..u64::MAX);
    Ok(Json(History {
        queue: name.as_str().to_owned(),
        now_ms: history.now_ms,
        from_ms,
        slot_ms: range.resolution.slot_ms(),
        points,
        sum: sum.as_ref().map(Point::new),
        late,
        watched_since_ms,
        unread: unread(&reached),
    }))
}

/// A number of slots of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    resolution: HistoryResolution,
    count: u64,
}

impl Range {
    fn read(text: &str) -> Option<Self> {
        let unit = text.chars().next_back()?;
        let (resolution, most) = match unit {
            'm' => (HistoryResolution::Minutes, 60),
            'h' => (HistoryResolution::Hours, 168),
            'd' => (HistoryResolution::Days, 90),
            _ => return None,
        };
        let digits = text.strip_suffix(unit)?;
        let is_number =
            (1..=3).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
        let is_number = is_number && !digits.starts_with('0');
        let count = digits.parse().ok().filter(|_| is_number)?;
        (1..=most)
            .contains(&count)
            .then_some(Self { resolution, count })
    }

    /// The begin of each slot.
    fn slots(self, now_ms: u64) -> Vec<u64> {
        let slot_ms = self.resolution.slot_ms();
        let present = now_ms / slot_ms;
        let first = present.saturating_sub(self.count - 1);
        (first..=present).map(|slot| slot * slot_ms).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_accepted_up_to_its_limits() {
        for (text, resolution, count) in [
            ("1m", HistoryResolution::Minutes, 1),
            ("60m", HistoryResolution::Minutes, 60),
            ("168h", HistoryResolution::Hours, 168),
            ("7d", HistoryResolution::Days, 7),
            ("90d", HistoryResolution::Days, 90),
        ] {
            assert_eq!(
                Range::read(text),
                Some(Range { resolution, count }),
                "{text}"
            );
        }
        for text in [
            "",
            "m",
            "0m",
            "007d",
            "61m",
            "169h",
            "91d",
            "1s",
            "60",
            "+5m",
            "-5m",
            "5 m",
            "1e1m",
            "NaN",
            "0001m",
            "5M",
            "5m5m",
            "5\u{fc}",
            "99999999999999999999m",
        ] {
            assert_eq!(Range::read(text), None, "{text}");
        }
    }

    #[test]
    fn last_slot_contains_the_present() {
        let range = Range::read("3h").expect("a range");
        assert_eq!(
            range.slots(10 * 3_600_000 + 5),
            [8, 9, 10].map(|hour| hour * 3_600_000)
        );
        assert_eq!(range.slots(0), [0]);
    }
}
