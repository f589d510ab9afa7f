//! Rules that concern several fields of a body, in JSON Schema. The readers of the bodies refuse what
//! breaks them; `scripts/conformance` compares the two. A field that is null counts as absent.
//!
//! Rules that depend on what a text says are in words only, in the descriptions of the fields.

use serde_json::{Value, json};

/// The rules of each schema that has some.
pub(super) fn all() -> Vec<(&'static str, Vec<Value>)> {
    vec![("NewMessage", new_message()), ("Change", change())]
}

fn new_message() -> Vec<Value> {
    let is_changed = json!({
        "required": ["on_conflict"],
        "properties": { "on_conflict": { "enum": ["reschedule", "replace", "next"] } },
    });
    vec![
        exactly_one("payload", "payload_base64"),
        any([lacks("delay"), lacks("at")]),
        any([lacks("expires"), lacks("expires_at")]),
        any([lacks("on_expire"), has("expires"), has("expires_at")]),
        any([lacks("within"), has("tz")]),
        any([lacks("tz"), has("within"), has("at"), has("expires_at")]),
        any([lacks("max_wait"), is_changed]),
    ]
}

fn change() -> Vec<Value> {
    let others = ["delay", "at", "within", "tz", "expected_due_ms"];
    let now = json!({
        "required": ["run_now"],
        "properties": { "run_now": { "const": true } },
        "allOf": others.map(lacks),
    });
    let later = json!({
        "properties": { "run_now": { "enum": [false, null] } },
        "allOf": [
            any([has("delay"), has("at"), has("within")]),
            any([lacks("delay"), lacks("at")]),
            any([lacks("within"), has("tz")]),
            any([lacks("tz"), has("within"), has("at")]),
        ],
    });
    vec![any([now, later])]
}

/// The field is there.
fn has(field: &str) -> Value {
    json!({ "required": [field], "properties": { field: { "not": { "type": "null" } } } })
}

fn lacks(field: &str) -> Value {
    json!({ "properties": { field: { "type": "null" } } })
}

fn any<const N: usize>(rules: [Value; N]) -> Value {
    json!({ "anyOf": rules.to_vec() })
}

fn exactly_one(one: &str, other: &str) -> Value {
    let only = |one, other| json!({ "allOf": [has(one), lacks(other)] });
    json!({ "oneOf": [only(one, other), only(other, one)] })
}
