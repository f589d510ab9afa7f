//! The push that makes a message again as it was.

use serde_json::{Value, json};

use crate::edge::shown::moment;

/// The fields of the push that makes this message of `/v1` again, without id and payload.
pub(crate) fn push_again(fields: &Value) -> Value {
    let number = |name: &str| fields[name].as_u64();
    let mut body = json!({});
    let mut set = |name: &str, value: Value| body[name] = value;
    if let Some(due_ms) = number("due_ms") {
        set("at", moment(due_ms).into());
    }
    let (at, after) = (number("expires_at_ms"), number("expires_after_ms"));
    let is_of_due =
        at.is_none() || at == number("due_ms").zip(after).map(|(due, after)| due + after);
    match (at, after) {
        (_, Some(after)) if is_of_due => set("expires", format!("{after}ms").into()),
        (Some(at), _) => set("expires_at", moment(at).into()),
        _ => {}
    }
    if at.or(after).is_some() {
        set("on_expire", fields["on_expire"].clone());
    }
    for name in ["max_attempts", "traceparent"] {
        if !fields[name].is_null() {
            set(name, fields[name].clone());
        }
    }
    if number("cost").is_some_and(|cost| cost > 1) {
        set("cost", fields["cost"].clone());
    }
    if let Some(window_ms) = number("window_ms") {
        set("window", format!("{window_ms}ms").into());
    }
    body
}
