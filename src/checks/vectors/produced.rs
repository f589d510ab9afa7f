//! Vectors of what producers send, and of what they make of results and errors.

use std::time::Duration;

use serde_json::{Value, json};

use super::shared::{NOW_US, fault, outcome, with};
use crate::batch::{BatchVerb, Tries, Verdict};
use crate::model::due::Due;
use crate::model::message::Message;
use crate::model::push_rules::{OnConflict, OnExpire};
use crate::partition::producers::push_item;
use crate::partition::verbs;
use crate::protocol::results::settle;
use crate::protocol::verbs::Verb;
use crate::server::failure;
use crate::server::patience::Repeat;

pub(super) fn errors() -> Vec<Value> {
    let script = "script: 5f1b, on @user_script:1.";
    let lacks =
        format!("The user executing the script can't run this command or subcommand {script}");
    let acl = format!("ACL failure in script: No permissions to access a key {script}");
    let wrong_type = format!("Operation against a key holding the wrong kind of value {script}");
    let broken = format!("value is not an integer or out of range {script}");
    let replies = [
        ("BADKEYS", "the ten keys of one queue"),
        ("BADARGS", "push takes id, due, payload, options"),
        ("HELD", "an earlier claim"),
        ("BADNOW", "this queue is not for tests"),
        ("REMAPPED", "this partition has epoch 7"),
        ("BEHIND", "this partition has an old map"),
        ("MOVING", "the message is on its way"),
        ("LAYOUT", "this queue has layout 6"),
        ("WRONGTYPE", &wrong_type),
        ("OOM", "command not allowed"),
        ("NOSCRIPT", "No matching script."),
        ("ERR", "Function not found"),
        ("LOADING", "loading the dataset"),
        ("BUSY", "a script is running"),
        ("MASTERDOWN", "Link with MASTER is down"),
        ("READONLY", "a read only replica"),
        ("MISCONF", "cannot persist"),
        ("NOREPLICAS", "not enough replicas"),
        ("TRYAGAIN", "Multiple keys request"),
        ("CLUSTERDOWN", "The cluster is down"),
        ("MOVED", "3999 127.0.0.1:6381"),
        ("ASK", "3999 127.0.0.1:6381"),
        ("CROSSSLOT", "Keys in request don't hash to the same slot"),
        ("NOAUTH", "Authentication required."),
        ("WRONGPASS", "invalid username-password pair"),
        ("NOPERM", "User x has no permissions"),
        ("NOPERM", &acl),
        ("ERR", &lacks),
        ("ERR", &acl),
        ("ERR", &broken),
        ("ERR", "max number of clients reached"),
        ("ERR", "unknown command 'EVALSHA'"),
        ("UNBLOCKED", "force unblock"),
        ("NEW", "a code of a later release"),
    ];
    replies
        .iter()
        .map(|(code, detail)| {
            let error = redis::make_extension_error((*code).into(), Some((*detail).into()));
            with(
                json!({"reply": format!("{code} {detail}")}),
                fault(&failure::of_call("here", error)),
            )
        })
        .collect()
}

/// The options of a message by their names, and the arguments of the push.
pub(super) fn messages() -> Vec<Value> {
    let ms = Duration::from_millis;
    let named = |id: &str| Message::new("rate it").id(id);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let all = [
        (json!({}), named("a")),
        (
            json!({"delay_us": 1}),
            named("a").delay(Duration::from_micros(1)),
        ),
        (json!({"delay_us": 2_000_000}), named("a").delay(ms(2_000))),
        (
            json!({"due_ms": 1_795_258_721_448_u64}),
            named("a").due(Due::at_ms(1_795_258_721_448)),
        ),
        (
            json!({"id": "order:42", "delay_us": 60_000_000, "spread_us": 10_000_000}),
            named("order:42").delay(ms(60_000)).spread(ms(10_000)),
        ),
        (
            json!({"max_attempts": 5, "trace_parent": parent}),
            named("a").max_attempts(5).trace_parent(parent),
        ),
        (
            json!({"expires_after_us": 1, "on_expire": "drop"}),
            named("a")
                .expires_after(Duration::from_micros(1))
                .on_expire(OnExpire::Drop),
        ),
        (
            json!({"expires_at_ms": 1_795_258_721_448_u64, "cost": 3}),
            named("a").expires_at(1_795_258_721_448).cost(3),
        ),
        (
            json!({"cost": 1, "window_us": 3_600_000_000_u64, "reuse": true}),
            named("a").cost(1).window(ms(3_600_000)).reuse(),
        ),
        (
            json!({"on_conflict": "reschedule"}),
            named("a").on_conflict(OnConflict::Reschedule),
        ),
        (
            json!({"on_conflict": "replace", "delay_us": 5_000_000, "max_wait_us": 60_000_000}),
            named("a").debounce(ms(5_000)).max_wait(ms(60_000)),
        ),
        (
            json!({"on_conflict": "next", "revive": true}),
            named("a").on_conflict(OnConflict::Next).revive(),
        ),
        (
            json!({"undo_ms": 1_795_258_721_448_u64}),
            named("a").undo(1_795_258_721_448),
        ),
        (json!({"id": ""}), named("")),
        (json!({"id": "größe 🦀"}), named("größe 🦀")),
        (json!({"id": "a\nb"}), named("a\nb")),
        (json!({"id": "a\0b"}), named("a\0b")),
        (json!({"id": "a\r\nb"}), named("a\r\nb")),
        (json!({"id": "a\u{7f}"}), named("a\u{7f}")),
        (json!({"id": "x".repeat(201)}), named(&"x".repeat(201))),
        (json!({"max_attempts": 0}), named("a").max_attempts(0)),
        (json!({"cost": 1_000_001}), named("a").cost(1_000_001)),
        (
            json!({"on_expire": "drop"}),
            named("a").on_expire(OnExpire::Drop),
        ),
        (
            json!({"trace_parent": "00-x"}),
            named("a").trace_parent("00-x"),
        ),
        (json!({"revive": true}), named("a").revive()),
        (json!({"max_wait_us": 1_000}), named("a").max_wait(ms(1))),
        (
            json!({"window_us": 2_592_000_001_000_u64}),
            named("a").window(ms(2_592_000_001)),
        ),
        (
            json!({"delay_us": 3_155_760_000_001_000_u64}),
            named("a").delay(ms(3_155_760_000_001)),
        ),
    ];
    let encode = |(options, message): (Value, Message)| {
        let made = push_item(message);
        let line = json!({"options": options});
        with(
            line,
            match made {
                Ok(item) => json!({
                    "arguments": item.args().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>(),
                    "repeatable": item.repeat == Repeat::Harmless,
                }),
                Err(error) => json!({"error": fault(&error)}),
            },
        )
    };
    all.into_iter().map(encode).collect()
}

pub(super) fn results() -> Vec<Value> {
    let words = [
        "CREATED",
        "EXISTS scheduled",
        "EXISTS ready",
        "EXISTS leased",
        "EXISTS dead",
        "EXISTS other",
        "MOVED",
        "MOVED 1700000000000",
        "NEXT",
        "REMEMBERED 1700000000000",
        "FINISHED",
        "FINISHED 1700000000000.250",
        "USED",
        "FULL at 7",
        "INVALID payload has 7 bytes",
        "INVALID due",
        "OK",
        "OK 1700000000000",
        "SCHEDULED 1700000000000",
        "DEAD",
        "DROPPED",
        "GONE",
        "LOST",
        "CANCELLED",
        "CANCELLED earlier",
        "CANCELLED next",
        "LEASED",
        "ABSENT",
        "CONFLICT 1700000000000",
        "ALREADY",
        "CREATED later word",
        "NEWWORD",
    ];
    let mut lines = Vec::new();
    for word in words {
        let decoded = [
            (
                "push",
                outcome(verbs::Push::decode(word, NOW_US).and_then(|result| result.outcome())),
            ),
            (
                "cancel",
                outcome(verbs::Cancel::decode(word, NOW_US).map(|(outcome, _)| outcome)),
            ),
            (
                "reschedule",
                outcome(verbs::Reschedule::decode(word, NOW_US)),
            ),
            (
                verbs::MakeDue::VERB.name(),
                outcome(verbs::MakeDue::decode(word, NOW_US)),
            ),
            ("ack", outcome(settle::settled(Verb::Ack, word))),
            ("retry", outcome(settle::retried(Verb::Retry, word))),
            ("snooze", outcome(settle::snoozed(word))),
            ("throttle", outcome(settle::throttled(word))),
            ("extend", outcome(settle::extended(word))),
        ];
        for (verb, decoded) in decoded {
            lines.push(with(json!({"verb": verb, "result": word}), decoded));
        }
    }
    lines
}

/// What a client does with the result of a push: the caller gets it, the item is sent again as a
/// new call, or it is unknown whether the first try was applied.
pub(super) fn verdicts() -> Vec<Value> {
    let words = [
        "CREATED",
        "EXISTS leased",
        "REMEMBERED 1700000000000",
        "FINISHED",
        "FINISHED 1700000000000.250",
        "EXPIRED",
    ];
    let mut lines = Vec::new();
    for word in words {
        for repeated in [false, true] {
            for latest_start_us in [NOW_US - 1, NOW_US, NOW_US + 1] {
                let tries = Tries {
                    repeated,
                    latest_start_us,
                };
                let result = verbs::Push::decode(word, NOW_US).expect("a result of push");
                let then = match verbs::Push::verdict(&result, &tries) {
                    Verdict::Final => "final",
                    Verdict::SendAgain => "again",
                    Verdict::Fail(_) => "unknown",
                };
                lines.push(json!({"result": word, "repeated": repeated, "latest_start_us": latest_start_us, "then": then}));
            }
        }
    }
    lines
}
