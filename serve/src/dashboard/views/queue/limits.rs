//! The limits of a queue: shows them, and changes them by a form.

use serde_json::{Map, Value, json};

use crate::dashboard::form::Form;
use crate::dashboard::show;
use crate::edge::problem::{Code, Problem};
use crate::wire::queues::Queue;

/// The syntax of a limit's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    /// A number, or empty for no limit.
    Optional,
    /// A duration, such as 30d.
    Time,
    /// A duration, 0, or empty for no limit.
    OptionalTime,
    /// A number per duration, such as 5 per second. Empty: no limit.
    Rate,
    /// The burst: a number that is set together with the rate.
    Burst,
}

/// Each limit: field, label, hint, kind.
const LIMITS: [(&str, &str, &str, Kind); 12] = [
    (
        "rate",
        "Rate",
        "how many messages start in a time, such as 5 per second or 100/min; empty: any number",
        Kind::Rate,
    ),
    (
        "burst",
        "Burst",
        "how many of the rate may start at once; empty: as usual",
        Kind::Burst,
    ),
    (
        "max_leased",
        "Leased at once",
        "empty: any number",
        Kind::Optional,
    ),
    (
        "max_attempts",
        "Attempts",
        "after so many failures a message is dead, unless it has its own limit",
        Kind::Number,
    ),
    (
        "max_crashes",
        "Crashes",
        "how many a message survives",
        Kind::Number,
    ),
    (
        "max_messages",
        "Messages",
        "how many the queue may hold; empty: any number",
        Kind::Optional,
    ),
    (
        "max_payload_bytes",
        "Bytes of a payload",
        "at most",
        Kind::Number,
    ),
    (
        "keep_dead_ms",
        "Dead messages are kept for",
        "such as 30d",
        Kind::Time,
    ),
    (
        "keep_dead",
        "Dead messages kept",
        "how many, the newest",
        Kind::Number,
    ),
    (
        "max_throttle_ms",
        "Longest break",
        "for how long a receiver can close the queue, such as 15m",
        Kind::Time,
    ),
    (
        "max_remembered",
        "Remembered ids",
        "how many ids and calls the queue remembers",
        Kind::Number,
    ),
    (
        "keep_life_ms",
        "Lives of messages are kept for",
        "what happened to each, for so long after its end, such as 1h or 0; empty: not at all; older clients refuse such a queue",
        Kind::OptionalTime,
    ),
];

/// A limit and its value.
pub(super) struct Limit {
    pub(super) field: &'static str,
    pub(super) label: &'static str,
    pub(super) hint: &'static str,
    /// The value in the form field; empty for none.
    pub(super) value: String,
    /// The value as text.
    pub(super) shown: String,
}

impl Limit {
    /// The id of the element that has the hint.
    pub(super) fn hint_id(&self) -> String {
        format!("hint-{}", self.field)
    }
}

pub(super) fn limits(stats: &Queue) -> Vec<Limit> {
    // Look the limits up by their names in the JSON.
    let fields = serde_json::to_value(&stats.limits).unwrap_or_default();
    let number = |field: &str| fields[field].as_u64();
    let limit = |(field, label, hint, kind)| {
        let found = number(field);
        let (value, shown) = match (found, kind) {
            (None, _) => (String::new(), "none".to_owned()),
            (Some(0), Kind::OptionalTime) => ("0".to_owned(), "until its end".to_owned()),
            (Some(ms), Kind::Time | Kind::OptionalTime) => (compact(ms), show::duration(ms)),
            (Some(starts), Kind::Rate) => {
                let window = stats.limits.rate_window_ms.unwrap_or(1_000);
                (
                    format!("{starts}/{}", compact(window)),
                    format!("{} per {}", show::number(starts), per(window)),
                )
            }
            (Some(number), _) => (number.to_string(), show::number(number)),
        };
        Limit {
            field,
            label,
            hint,
            value,
            shown,
        }
    };
    LIMITS.into_iter().map(limit).collect()
}

/// The window of a rate, as one says it: per second.
fn per(window_ms: u64) -> String {
    match window_ms {
        1_000 => "second".to_owned(),
        60_000 => "minute".to_owned(),
        3_600_000 => "hour".to_owned(),
        ms => show::duration(ms),
    }
}

/// A duration in its largest whole unit, in the syntax of inputs: 30d.
fn compact(ms: u64) -> String {
    let units = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ];
    let whole = units
        .into_iter()
        .find(|(length, _)| ms > 0 && ms.is_multiple_of(*length));
    match whole {
        Some((length, unit)) => format!("{}{unit}", ms / length),
        None => format!("{ms}ms"),
    }
}

/// The body of the call that sets the limits of the form; `None` if none changed. It leaves out
/// limits that this form did not change: another operator may have changed them meanwhile.
pub(super) fn change(form: &Form) -> Result<Option<Value>, Problem> {
    let mut body = Map::new();
    let value = |field: &str| form.get(field).map(str::trim);
    let is_changed = |field: &str| {
        let was = form.get(&format!("was_{field}")).unwrap_or_default();
        value(field).is_some_and(|value| value != was)
    };
    for (field, _, _, kind) in LIMITS {
        let text = value(field).unwrap_or_default();
        match kind {
            Kind::Rate if is_changed("rate") || is_changed("burst") => {
                rate(&mut body, text, value("burst").unwrap_or_default())?;
            }
            Kind::Rate | Kind::Burst => {}
            _ if !is_changed(field) => {}
            Kind::Optional | Kind::OptionalTime if text.is_empty() => {
                body.insert(field.to_owned(), Value::Null);
            }
            Kind::OptionalTime if text == "0" => {
                body.insert(field.to_owned(), json!(0));
            }
            Kind::Time | Kind::OptionalTime => {
                let time = dueq_input::period(text).map_err(|error| wrong(field, &error))?;
                let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                body.insert(field.to_owned(), json!(ms));
            }
            Kind::Number | Kind::Optional => {
                body.insert(field.to_owned(), json!(number(field, text)?));
            }
        }
    }
    Ok((!body.is_empty()).then_some(Value::Object(body)))
}

/// Adds rate, window and burst to the body, because they are set together.
fn rate(body: &mut Map<String, Value>, rate: &str, burst: &str) -> Result<(), Problem> {
    if rate.is_empty() {
        body.insert("rate".to_owned(), Value::Null);
        return Ok(());
    }
    let rate = dueq_input::rate(rate).map_err(|error| wrong("rate", &error))?;
    let window_ms = u64::try_from(rate.window.as_millis()).unwrap_or(u64::MAX);
    body.insert("rate".to_owned(), json!(rate.starts));
    body.insert("rate_window_ms".to_owned(), json!(window_ms));
    if !burst.is_empty() {
        body.insert("burst".to_owned(), json!(number("burst", burst)?));
    }
    Ok(())
}

/// Parses a number with or without commas.
fn number(field: &str, text: &str) -> Result<u64, Problem> {
    let digits = text.replace(',', "");
    digits.parse().map_err(|_| {
        wrong(
            field,
            &format!("{} is no whole number", crate::edge::shown::quoted(text)),
        )
    })
}

fn wrong(field: &str, reason: &dyn std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidInput, format!("{field}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_durations_are_read_back_unchanged() {
        for (ms, text) in [
            (2_592_000_000, "30d"),
            (900_000, "15m"),
            (1_000, "1s"),
            (1_500, "1500ms"),
            (90_000_000, "25h"),
        ] {
            assert_eq!(compact(ms), text);
            let read = dueq_input::period(text).expect("a time");
            assert_eq!(u128::from(ms), read.as_millis(), "{text}");
        }
    }
}
