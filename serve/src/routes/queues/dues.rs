//! When the messages of a queue are due.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::edge::path::Query;
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::wire::overview::{Dues, Slot};
use crate::wire::queues::unread;
use crate::work::Shared;

/// The most times in one call.
const MAX_TIMES: u64 = 60;
/// The default: one time each minute, for an hour.
const STEP_MS: u64 = 60_000;
/// The latest allowed time: the end of the year 9999.
const MAX_MS: u64 = 253_402_300_799_999;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Times {
    /// 1 to 60 times in Unix milliseconds, ascending, separated by commas
    #[param(
        format = "ascending-times",
        pattern = "^[0-9]{1,15}(,[0-9]{1,15}){0,59}$"
    )]
    times: Option<String>,
    /// Instead of `times`: the first time in Unix milliseconds; without it the present time of Redis
    #[param(maximum = 253_402_300_799_999_u64)]
    from: Option<u64>,
    /// How many milliseconds each next time is later
    #[param(default = 60_000, minimum = 1, maximum = 3_155_760_000_000_u64)]
    step_ms: Option<u64>,
    /// How many times there are
    #[param(default = 60, minimum = 1, maximum = 60)]
    count: Option<u64>,
}

/// Count the scheduled messages by due time
///
/// Between `times`, or between `count` times from `from` on, each `step_ms` later than the one before.
/// Ready messages, whose time has come, do not count.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/dues",
    tag = "queues",
    params(Times),
    responses(
        (status = 200, body = Dues),
        (status = 404),
    )
)]
pub(super) async fn dues(
    State(app): State<Shared>,
    name: QueueName,
    Query(times): Query<Times>,
) -> Result<Json<Dues>, Problem> {
    let wanted = times.read()?;
    let queue = app.client.queue(name.as_str())?;
    let times = match wanted {
        Wanted::Times(times) => times,
        Wanted::Steps { from, step, count } => {
            let from = match from {
                Some(from) => from,
                None => queue.dues_reached(&[]).await?.value.now_ms,
            };
            (0..count)
                .map(|number| from.saturating_add(step.saturating_mul(number)))
                .collect()
        }
    };
    let reached = queue.dues_reached(&times).await?;
    let dues = &reached.value;
    if dues.last_ms.is_none() && reached.unread.is_empty() {
        app.existing(&name).await?;
    }
    let from = std::iter::once(None).chain(times.iter().copied().map(Some));
    let before = times.iter().copied().map(Some).chain(std::iter::once(None));
    let slots = from.zip(before).zip(&dues.counts);
    Ok(Json(Dues {
        queue: name.as_str().to_owned(),
        now_ms: dues.now_ms,
        last_ms: dues.last_ms,
        slots: slots
            .map(|((from_ms, before_ms), count)| Slot {
                from_ms,
                before_ms,
                count: *count,
            })
            .collect(),
        unread: unread(&reached),
    }))
}

/// The times that a call asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Times(Vec<u64>),
    Steps {
        from: Option<u64>,
        step: u64,
        count: u64,
    },
}

#[cfg(any(test, feature = "harness"))]
pub(crate) fn check(uri: &axum::http::Uri) -> Result<(), Problem> {
    let Query(times) = Query::<Times>::read(uri)?;
    let times = match times.read()? {
        Wanted::Times(times) => times,
        Wanted::Steps { from, step, count } => vec![from.unwrap_or(0), step, count],
    };
    assert!((1..=60).contains(&times.len()) && times.iter().all(|time| *time <= MAX_MS));
    Ok(())
}

impl Times {
    fn read(&self) -> Result<Wanted, Problem> {
        let wrong = |detail: String| Err(Problem::new(Code::InvalidInput, detail));
        let Some(times) = &self.times else {
            let (step, count) = (
                self.step_ms.unwrap_or(STEP_MS),
                self.count.unwrap_or(MAX_TIMES),
            );
            if !(1..=MAX_TIMES).contains(&count) || !(1..=3_155_760_000_000).contains(&step) {
                return wrong(format!(
                    "count {count}, step_ms {step}: count is 1 to {MAX_TIMES}, and step_ms 1 ms to 100 years"
                ));
            }
            if self.from.is_some_and(|from| from > MAX_MS) {
                return wrong("from: the time is after the year 9999".to_owned());
            }
            let from = self.from;
            return Ok(Wanted::Steps { from, step, count });
        };
        if self.from.is_some() || self.step_ms.is_some() || self.count.is_some() {
            return wrong("name either times, or from, step_ms and count".to_owned());
        }
        let mut read: Vec<u64> = Vec::new();
        for text in times.split(',').take(61) {
            let is_number =
                (1..=15).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
            match text.parse() {
                Ok(time) if is_number && time <= MAX_MS => read.push(time),
                _ => {
                    return wrong("times: write Unix milliseconds, separated by commas".to_owned());
                }
            }
        }
        if read.len() > 60 {
            return wrong(format!("times: there are more than {MAX_TIMES}"));
        }
        if read.windows(2).any(|pair| pair[0] >= pair[1]) {
            return wrong("times: each must be later than the one before".to_owned());
        }
        Ok(Wanted::Times(read))
    }
}
