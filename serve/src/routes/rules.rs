//! Rules over several fields of a body, as JSON Schema, which the types alone cannot express. The
//! parsers refuse bodies that break a rule; `scripts/conformance` compares parsers and schemas. A
//! null field counts as absent.
//!
//! Rules that depend on the content of a text are stated only in words, in the descriptions of the
//! fields.

use serde_json::{Map, Value, json};

use crate::routes::settlements::ACTIONS;

/// The rules of one schema.
pub(super) struct Rules {
    /// All of these conditions must hold.
    all_of: Vec<Value>,
    /// Whether no field may be null.
    is_without_null: bool,
}

/// All schemas with rules, by name.
pub(super) fn all() -> Vec<(&'static str, Rules)> {
    let rules = |all_of| Rules {
        all_of,
        is_without_null: false,
    };
    let schedule = Rules {
        all_of: new_schedule(),
        is_without_null: true,
    };
    vec![
        ("NewMessage", rules(new_message())),
        ("Change", rules(change())),
        ("LimitsChange", rules(limits())),
        ("NewOperation", rules(new_operation())),
        ("NewSchedule", schedule),
    ]
}

impl Rules {
    pub(super) fn apply(mut self, schema: &mut Value) {
        if self.is_without_null {
            let fields = schema["properties"].as_object_mut();
            fields
                .into_iter()
                .flatten()
                .for_each(|(_, field)| without_null(field));
        }
        if !self.all_of.is_empty() {
            let own = schema["allOf"].as_array().cloned();
            self.all_of.splice(0..0, own.unwrap_or_default());
            schema["allOf"] = self.all_of.into();
        }
    }
}

/// Gives each action of a settlement its own schema, so that generated clients know its fields.
pub(super) fn settlements(schemas: &mut Map<String, Value>) {
    let Some(all) = schemas.remove("NewSettlement") else {
        return;
    };
    let (mut choices, mut mapping) = (Vec::new(), Map::new());
    for (action, name, fields, description) in ACTIONS {
        let field = |name: &&str| ((*name).to_owned(), all["properties"][*name].clone());
        let mut own: Map<_, _> = ["handle"].iter().chain(fields).map(field).collect();
        own.insert(
            "action".to_owned(),
            json!({ "type": "string", "enum": [action] }),
        );
        let mut required = vec!["handle", "action"];
        if let Some(time) = own.get_mut("for_ms") {
            without_null(time);
            required.push("for_ms");
        }
        let reference = format!("#/components/schemas/{name}");
        choices.push(json!({ "$ref": reference }));
        mapping.insert(
            own["action"]["enum"][0]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            reference.into(),
        );
        schemas.insert(name.to_owned(), json!({
            "type": "object", "description": description, "properties": own, "required": required, "additionalProperties": false,
        }));
    }
    let one = json!({
        "description": all["description"], "oneOf": choices,
        "discriminator": { "propertyName": "action", "mapping": mapping },
    });
    schemas.insert("NewSettlement".to_owned(), one);
}

/// The payload of a listed message is absent unless the call asked for it. The macros say instead
/// that the message may be null.
pub(super) fn listed_payload(schemas: &mut Map<String, Value>) {
    let parts = schemas["ListedMessage"]["allOf"].as_array_mut();
    for part in parts.into_iter().flatten() {
        if let Some(payload) = part["oneOf"].get(0).cloned() {
            *part = any([payload, json!({ "not": is_there("payload_bytes") })]);
        }
    }
}

pub(super) fn without_null(field: &mut Value) {
    if let Some(types) = field.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|one| one != "null");
        if let [only] = &types[..] {
            field["type"] = only.clone();
        }
    }
    if let Some(choices) = field.get_mut("oneOf").and_then(Value::as_array_mut) {
        choices.retain(|one| one["type"] != "null");
        if let [only] = &mut choices[..] {
            *field = only.take();
        }
    }
    if let Some(words) = field.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !word.is_null());
    }
}

fn new_message() -> Vec<Value> {
    let is_changed = is("on_conflict", &["reschedule", "replace", "next"]);
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

/// The fields of which each names a limit. `rate_window_ms` and `burst` are missing: they belong to
/// `rate`.
const LIMITS: [&str; 11] = [
    "max_attempts",
    "max_crashes",
    "max_messages",
    "max_payload_bytes",
    "keep_dead_ms",
    "keep_dead",
    "rate",
    "max_leased",
    "max_throttle_ms",
    "max_remembered",
    "keep_life_ms",
];

fn limits() -> Vec<Value> {
    vec![
        any(LIMITS.map(is_there)),
        any([lacks("rate"), has("rate_window_ms")]),
        any([lacks("rate_window_ms"), has("rate")]),
        any([lacks("burst"), has("rate")]),
    ]
}

fn new_operation() -> Vec<Value> {
    const OF_REQUEUE: [&str; 4] = ["error", "crashed", "canary", "canary_wait_ms"];
    const OF_TIMES: [&str; 2] = ["before_ms", "after_ms"];
    const OF_FILTER: [&str; 4] = ["error_text", "min_failures", "min_crashes", "limit"];
    const OF_CANCEL: [&str; 2] = ["ids", "dead"];
    const OF_REPARTITION: [&str; 3] = ["partitions", "abort", "gentle"];
    let of = |kinds: &[&str], lacked: &[&[&str]], rules: Vec<Value>| {
        let mut all = vec![is("kind", kinds)];
        all.extend(lacked.concat().into_iter().map(lacks));
        all.extend(rules);
        json!({ "allOf": all })
    };
    let purges = vec![
        any([lacks("after_ms"), is("state", &["dead"])]),
        any([
            is("state", &["ready", "dead"]),
            json!({ "allOf": [is("state", &["scheduled"]), has("before_ms")] }),
        ]),
    ];
    let aborts = json!({ "required": ["abort"], "properties": { "abort": { "const": true } } });
    let repartitions = any([
        json!({ "allOf": [has("partitions"), lacks("abort")] }),
        json!({ "allOf": [aborts, lacks("partitions")] }),
    ]);
    let of_ids = json!({ "allOf": [
        has("ids"), lacks("state"), lacks("before_ms"), lacks("after_ms"), lacks("error_text"),
        lacks("min_failures"), lacks("min_crashes"), lacks("limit"),
    ] });
    let of_state = json!({ "allOf": [has("state"), lacks("ids"), lacks("dead")] });
    let (state, of_others) = (&["state"], &["pace", "dry_run"]);
    vec![
        any([lacks("canary_wait_ms"), has("canary")]),
        any([
            of(&["requeue"], &[state, &OF_CANCEL, &OF_REPARTITION], vec![]),
            of(
                &["purge"],
                &[&OF_REQUEUE, &OF_CANCEL, &OF_REPARTITION],
                purges,
            ),
            of(
                &["cancel"],
                &[&OF_REQUEUE, &OF_REPARTITION],
                vec![any([of_ids, of_state])],
            ),
            of(
                &["audit", "repair"],
                &[
                    state,
                    &OF_TIMES,
                    &OF_FILTER,
                    &OF_REQUEUE,
                    &OF_CANCEL,
                    &OF_REPARTITION,
                ],
                vec![],
            ),
            of(
                &["repartition"],
                &[
                    state,
                    &OF_TIMES,
                    &OF_FILTER,
                    &OF_REQUEUE,
                    &OF_CANCEL,
                    of_others,
                ],
                vec![repartitions],
            ),
        ]),
    ]
}

fn new_schedule() -> Vec<Value> {
    let is_absent = |field: &str| json!({ "not": is_there(field) });
    vec![
        json!({ "oneOf": [is_there("every"), is_there("cron")] }),
        any([is_absent("cron"), is_there("zone")]),
        any([is_absent("zone"), is_there("cron")]),
        any([is_absent("max"), is("missed", &["all"])]),
        any([is_absent("on_expire"), is_there("expires")]),
        any([is_absent("anchor"), is_there("every")]),
    ]
}

/// The condition that the field is one of these words.
fn is(field: &str, words: &[&str]) -> Value {
    json!({ "required": [field], "properties": { field: { "enum": words } } })
}

/// The condition that the field is present; it may be null.
fn is_there(field: &str) -> Value {
    json!({ "required": [field], "properties": { field: {} } })
}

/// The condition that the field is present and not null.
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
