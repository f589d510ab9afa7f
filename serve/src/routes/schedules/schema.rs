//! The JSON of a schedule, as the OpenAPI document describes it. `dueq_input` reads it.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A schedule to declare, with the keys of the files of `dueq schedule apply`. It has `every`, or
/// `cron` and `zone`; and `payload`, `payload_json`, `payload_base64`, or an empty payload.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct NewSchedule {
    /// 1 to 100 letters, digits and `. _ - : /`. In the call that has the name in its path it may be
    /// left out.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// The time between two fires: `15m`, 10 ms to 100 years.
    every: Option<String>,
    /// A pattern: minute, hour, day, month, day of the week; before them a second.
    cron: Option<String>,
    /// The time zone of the pattern: an IANA name.
    zone: Option<String>,
    /// A fire of `every`, from which the others are counted: RFC 3339; 1970 without it.
    anchor: Option<String>,
    /// The payload of each tick.
    payload: Option<String>,
    /// A value whose JSON is the payload.
    payload_json: Option<Value>,
    /// The bytes of the payload.
    payload_base64: Option<String>,
    /// What becomes of fires that no worker took: `one`, as without it, `skip` or `all`.
    missed: Option<String>,
    /// A fire that is later makes no tick: `1h`.
    within: Option<String>,
    /// The most ticks of `missed` `all`.
    #[schema(minimum = 1, maximum = 100_000)]
    max: Option<u64>,
    /// While an earlier tick waits or runs: `allow`, as without it, `skip` or `replace`.
    overlap: Option<String>,
    /// Each tick is due up to this much later: `30s`.
    jitter: Option<String>,
    /// The first time of a fire: RFC 3339.
    start: Option<String>,
    /// The last time of a fire: RFC 3339.
    end: Option<String>,
    /// It ends after so many ticks.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    limit: Option<u64>,
    /// After how many failed attempts a tick is dead.
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_attempts: Option<u32>,
    /// How long after its due time a tick expires: `2h`.
    expires: Option<String>,
    /// What becomes of it then: `dead` or `drop`.
    on_expire: Option<String>,
}

/// The schedules of a set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct NewSchedules {
    #[schema(max_items = 1_000)]
    schedules: Vec<NewSchedule>,
}
