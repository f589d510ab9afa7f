//! Vectors of what replicas confirm, and of declared schedules.

use std::time::{Duration, UNIX_EPOCH};

use redis::Value as Raw;
use serde_json::{Value, json};

use super::shared::{NOW_US, with};
use crate::batch::BatchVerb;
use crate::model::durability::Durability;
use crate::model::push_rules::OnExpire;
use crate::model::schedule::{MissedPolicy, OverlapPolicy, Schedule, option_words};
use crate::partition::verbs;
use crate::server::durable::shortfall;

/// Which results a caller gets only once replicas or disks have confirmed them.
pub(super) fn changes() -> Vec<Value> {
    fn line<V: BatchVerb>(text: &str) -> Value {
        let result = V::decode(text, NOW_US).expect("a result of the verb");
        json!({"verb": V::VERB.name(), "result": text, "is_change": V::is_change(&result)})
    }
    let pushed = ["CREATED", "EXISTS dead", "MOVED", "NEXT"];
    let not_pushed = ["REMEMBERED 1700000000000", "FINISHED"];
    let plain = ["LEASED", "DEAD", "ABSENT"];
    let mut lines = Vec::new();
    for word in pushed.iter().chain(&not_pushed) {
        lines.extend([line::<verbs::Push>(word), line::<verbs::Upsert>(word)]);
    }
    for word in ["CANCELLED", "CANCELLED earlier", "CANCELLED next"] {
        lines.push(line::<verbs::Cancel>(word));
    }
    for word in ["MOVED 1700000000000", "CONFLICT 1700000000000"] {
        lines.push(line::<verbs::Reschedule>(word));
    }
    for word in ["MOVED", "ALREADY"] {
        lines.push(line::<verbs::MakeDue>(word));
    }
    for word in plain {
        lines.push(line::<verbs::Cancel>(word));
        lines.push(line::<verbs::Reschedule>(word));
        lines.push(line::<verbs::MakeDue>(word));
    }
    lines
}

/// Whether the answer to WAIT or WAITAOF confirms a change.
pub(super) fn waits() -> Vec<Value> {
    let timeout = Duration::from_secs(1);
    let mut lines = Vec::new();
    for (replicas, have) in [(1, 0), (1, 1), (2, 1), (2, 3)] {
        let durability = Durability::Replicated { replicas, timeout };
        let confirmed = shortfall(durability, &Raw::Int(have)).is_none();
        lines.push(json!({"replicas": replicas, "answer": have, "confirmed": confirmed}));
    }
    for (local, replicas) in [(true, 0), (false, 1), (true, 1)] {
        for (own, others) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let durability = Durability::Fsynced {
                local,
                replicas,
                timeout,
            };
            let answer = Raw::Array(vec![Raw::Int(own), Raw::Int(others)]);
            let confirmed = shortfall(durability, &answer).is_none();
            lines.push(json!({"local": local, "replicas": replicas, "answer": [own, others], "confirmed": confirmed}));
        }
    }
    lines
}

/// The arguments of declared schedules: name, spec, pattern, options, fires and payload.
pub(super) fn schedules() -> Vec<Value> {
    let every = |ms| Schedule::every(Duration::from_millis(ms)).name("sync");
    let all = [
        (json!({"every_us": 10_000}), every(10)),
        (
            json!({"every_us": 900_000_000_u64, "payload": "{}", "missed": "skip", "within_us": 10_000_000}),
            every(900_000)
                .payload("{}")
                .missed(MissedPolicy::Skip)
                .within(Duration::from_secs(10)),
        ),
        (
            json!({"every_us": 60_000_000, "anchor_ms": 1_700_000_000_000_u64, "missed": "all", "max": 5}),
            every(60_000)
                .anchor(UNIX_EPOCH + Duration::from_millis(1_700_000_000_000))
                .missed(MissedPolicy::All { max: 5 }),
        ),
        (
            json!({"every_us": 60_000_000, "missed": "all", "max": 1_000}),
            every(60_000).missed(MissedPolicy::All { max: 1_000 }),
        ),
        (
            json!({"every_us": 60_000_000, "overlap": "replace", "jitter_us": 5_000_000, "limit": 3,
                "start_ms": 1_700_000_000_000_u64, "end_ms": 1_800_000_000_000_u64}),
            every(60_000)
                .overlap(OverlapPolicy::Replace)
                .jitter(Duration::from_secs(5))
                .limit(3)
                .start(UNIX_EPOCH + Duration::from_millis(1_700_000_000_000))
                .end(UNIX_EPOCH + Duration::from_millis(1_800_000_000_000)),
        ),
        (
            json!({"every_us": 60_000_000, "overlap": "skip", "max_attempts": 5,
                "expires_after_us": 30_000_000, "on_expire": "drop"}),
            every(60_000)
                .overlap(OverlapPolicy::Skip)
                .max_attempts(5)
                .expires_after(Duration::from_secs(30))
                .on_expire(OnExpire::Drop),
        ),
    ];
    let encode = |(options, schedule): (Value, Schedule)| {
        schedule.check_at(0).expect("a good schedule");
        let payload = String::from_utf8_lossy(&schedule.payload);
        let arguments = [
            &schedule.name,
            &schedule.spec_words(None),
            schedule.pattern(),
            &option_words(&schedule),
            "",
            &payload,
        ];
        let line = json!({"name": "sync", "options": options});
        with(line, json!({"arguments": arguments}))
    };
    all.into_iter().map(encode).collect()
}
