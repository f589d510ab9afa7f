//! Vectors of whole replies: of a claim, and of a get.

use std::time::Instant;

use redis::Value as Resp;
use serde_json::{Value, json};

use super::shared::{NOW_US, fault, with};
use crate::error::Error;
use crate::protocol::replies::Reply;
use crate::protocol::results::claim::Claim;
use crate::protocol::results::inspect;
use crate::protocol::verbs::Verb;

fn resp(value: &Value) -> Resp {
    match value {
        Value::Array(parts) => Resp::Array(parts.iter().map(resp).collect()),
        Value::Number(number) => Resp::Int(number.as_i64().unwrap_or_default()),
        Value::String(text) => Resp::BulkString(text.as_bytes().to_vec()),
        _ => Resp::Nil,
    }
}

pub(super) fn replies() -> Vec<Value> {
    let header = json!([NOW_US, "8d08fb2e882fc5d9", 5, -1, 1_700_000_030_000_u64, 0]);
    let mapped = json!([
        NOW_US,
        "8d08fb2e882fc5d9",
        5,
        1_700_000_000_500_u64,
        -1,
        1,
        7,
        "later"
    ]);
    let parent = "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let claims = [
        json!([header, 0, -1, [], [], []]),
        json!([
            header,
            2,
            1_700_000_030_000_u64,
            ["a", "b"],
            ["x", ""],
            ["1700000000000 1 "],
            20
        ]),
        json!([
            mapped,
            0,
            1_700_000_030_000_u64,
            ["a", "b", "c"],
            ["x", "y", "z"],
            [
                format!("1700000000000 3 max_attempts=2 {parent} crashes=1"),
                "1699999999999 1 expires=+5 on_expire=drop cost=3 window=7 later=1",
                "1699999999999 2 expires=+5 expires_by=1700000000007 snoozes=4 tick",
            ],
            2,
            "later"
        ]),
        json!([header, 0, 1_700_000_030_000_u64, ["a"], [], ["1 1 "], 20]),
        json!([header, 0]),
        json!("OK"),
    ];
    let gets = [
        json!([header, []]),
        json!([
            header,
            [],
            "finished",
            1_700_000_000_000_u64,
            1_700_000_060_000_u64
        ]),
        json!([header, [], "cancelled", 1_700_000_000_000_u64, 0]),
        json!([
            header,
            [
                "state",
                "scheduled",
                "time_ms",
                1_700_000_000_500_u64,
                "failures",
                1,
                "crashes",
                2,
                "options",
                "max_attempts=5 cost=2",
                "error",
                "timeout",
                "payload",
                "x"
            ]
        ]),
        json!([
            header,
            [
                "state",
                "leased",
                "time_ms",
                1_700_000_000_500_u64,
                "failures",
                0,
                "crashes",
                0,
                "options",
                "",
                "error",
                "",
                "payload",
                "x",
                "next_due",
                1_700_000_000_900_u64,
                "lease",
                "0123456789abcdef abcD123"
            ]
        ]),
        json!([
            header,
            [
                "state", "other", "time_ms", 1, "failures", 0, "crashes", 0, "options", "",
                "error", "", "payload", "x"
            ]
        ]),
    ];
    let read = |verb: Verb, reply: &Value| Reply::decode(verb, resp(reply), Instant::now());
    let claim = |reply: &Value| {
        let claim = Claim::decode(read(Verb::Claim, reply)?, [7; 16])?;
        let header = &claim.header;
        let granted = claim.granted.iter().map(|granted| json!({
            "id": String::from_utf8_lossy(&granted.id), "payload": String::from_utf8_lossy(&granted.payload),
            "due_ms": granted.due_ms, "attempt": granted.attempt, "crashes": granted.crashes,
            "is_last_attempt": granted.is_last_attempt, "trace_parent": granted.trace_parent,
            "expires_at_ms": granted.expires_at_ms, "cost": granted.cost, "snoozes": granted.snoozes,
        }));
        Ok::<_, Error>(json!({
            "header": {"now_us": header.now_us, "incarnation": header.incarnation, "seq": header.seq, "head_ms": header.head_ms,
                "deadline_ms": header.lease_deadline_ms, "paused": header.paused, "epoch": header.epoch},
            "left": claim.left, "granted": granted.collect::<Vec<_>>(),
        }))
    };
    let get = |reply: &Value| {
        let mut reply = read(Verb::Get, reply)?;
        let stored = inspect::stored(&mut reply.body)?;
        let end = if stored.is_none() {
            inspect::end(&mut reply.body)?
        } else {
            None
        };
        let stored = stored.map(|stored| json!({
            "state": stored.state.as_str(), "time_ms": stored.time_ms, "failures": stored.failures, "crashes": stored.crashes,
            "max_attempts": stored.max_attempts, "cost": stored.cost, "error": stored.error,
            "payload": String::from_utf8_lossy(&stored.payload), "next_due_ms": stored.next_due_ms,
        }));
        let end = end.map(|end| {
            json!({"kind": end.kind.as_str(), "ended_at_ms": end.ended_at_ms,
            "remembered_until_ms": end.remembered_until_ms})
        });
        Ok::<_, Error>(json!({"stored": stored, "end": end}))
    };
    let shown = |result: Result<Value, Error>| {
        result.unwrap_or_else(|error| json!({"error": fault(&error)}))
    };
    let claims = claims.iter().map(|reply| {
        with(
            json!({"verb": "claim", "reply": reply}),
            shown(claim(reply)),
        )
    });
    let gets = gets
        .iter()
        .map(|reply| with(json!({"verb": "get", "reply": reply}), shown(get(reply))));
    claims.chain(gets).collect()
}
