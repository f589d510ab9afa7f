//! The JSON schema of a declared schedule for the OpenAPI document. `dueq_input` parses schedules.

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
    #[schema(pattern = "^[A-Za-z0-9._:/-]+$", min_length = 1, max_length = 100)]
    name: Option<String>,
    /// The time between two fires: `15m`, 10 ms to 100 years.
    #[schema(format = "interval", min_length = 1)]
    every: Option<String>,
    /// A pattern: minute, hour, day, month, day of the week; before them a second.
    #[schema(format = "cron", min_length = 1)]
    cron: Option<String>,
    /// The time zone of the pattern: an IANA name.
    #[schema(format = "time-zone", min_length = 1)]
    zone: Option<String>,
    /// A fire of `every`, from which the others are counted: RFC 3339; 1970 without it.
    #[schema(format = "date-time")]
    anchor: Option<String>,
    /// The payload of each tick.
    payload: Option<String>,
    /// A value whose JSON is the payload. Its numbers are within the range of a double.
    payload_json: Option<Value>,
    /// The bytes of the payload.
    #[schema(format = "byte")]
    payload_base64: Option<String>,
    /// What becomes of fires that no worker took: `one`, as without it, `skip` or `all`.
    #[schema(inline)]
    missed: Option<MissedWord>,
    /// A fire that is later makes no tick: `1h`.
    #[schema(format = "period", min_length = 1)]
    within: Option<String>,
    /// The most ticks of `missed` `all`.
    #[schema(minimum = 1, maximum = 100_000)]
    max: Option<u64>,
    /// While an earlier tick waits or runs: `allow`, as without it, `skip` or `replace`.
    #[schema(inline)]
    overlap: Option<OverlapWord>,
    /// Each tick is due up to this much later: `30s`.
    #[schema(format = "jitter", min_length = 1)]
    jitter: Option<String>,
    /// The first time of a fire: RFC 3339.
    #[schema(format = "date-time")]
    start: Option<String>,
    /// The last time of a fire: RFC 3339.
    #[schema(format = "date-time")]
    end: Option<String>,
    /// It ends after so many ticks.
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_u64)]
    limit: Option<u64>,
    /// After how many failed attempts a tick is dead.
    #[schema(minimum = 1, maximum = 1_000_000)]
    max_attempts: Option<u32>,
    /// How long after its due time a tick expires: `2h`.
    #[schema(format = "period", min_length = 1)]
    expires: Option<String>,
    /// What becomes of it then: `dead` or `drop`.
    #[schema(inline)]
    on_expire: Option<FateWord>,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum MissedWord {
    One,
    Skip,
    All,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum OverlapWord {
    Allow,
    Skip,
    Replace,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum FateWord {
    Dead,
    Drop,
}

/// The schedules of a set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct NewSchedules {
    #[schema(max_items = 1_000)]
    schedules: Vec<NewSchedule>,
}
