//! The due time in a request: `delay` or `at`, with `within` and `tz`.

use dueq::{Client, Due};
use dueq_input::{When, Wording};
use jiff::Timestamp;

use crate::edge::problem::{Code, Problem};
use crate::routes::messages::Reader;

/// The fields of a due time, not yet parsed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing<'a> {
    pub(super) delay: Option<&'a str>,
    pub(super) at: Option<&'a str>,
    pub(super) within: Option<&'a str>,
    pub(super) tz: Option<&'a str>,
}

impl Timing<'_> {
    /// Whether one of the fields gives a time.
    pub(super) fn has_time(self) -> bool {
        self.delay.is_some() || self.at.is_some() || self.within.is_some()
    }

    /// The due time. Business hours alone mean their next opening. Only for business hours it asks
    /// Redis for its clock, once for all times of `reader`.
    pub(super) async fn due(self, client: &Client, reader: &Reader) -> Result<Due, Problem> {
        let refused =
            |error: dueq_input::Error| Problem::new(Code::InvalidInput, error.to_string());
        let fields = Wording::Fields;
        let when = When::read(self.delay, self.at, self.within, self.tz, fields);
        let timing = when
            .map_err(refused)?
            .timing(None, Timestamp::now(), fields);
        let timing = timing.map_err(refused)?;
        let now_ms = match timing.hours {
            Some(_) => reader.now_ms(client).await?,
            None => 0, // the clock is needed only for business hours
        };
        let due = timing.resolve_at(now_ms).map_err(refused)?;
        Ok(due.unwrap_or(Due::AfterMs(0)))
    }
}
