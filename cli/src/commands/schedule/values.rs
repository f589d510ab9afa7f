//! The values of a file of schedules: each reader returns the reason why a value is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde_json::{Map, Value};
use toml::de::DeValue;

use crate::time;

/// What a value is, for an error.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

pub(super) fn text<'a>(key: &str, value: &'a DeValue<'_>) -> Result<&'a str, String> {
    match value {
        DeValue::String(text) => Ok(text),
        other => Err(format!("{key} is {}: write it in quotes", kind(other))),
    }
}

pub(super) fn duration(key: &str, value: &DeValue<'_>) -> Result<Duration, String> {
    let DeValue::String(text) = value else {
        return Err(format!(
            "{key} is {}: write a number and a unit in quotes, such as \"15m\" or \"50ms\"",
            kind(value)
        ));
    };
    time::period(text).map_err(|error| format!("{key}: {error}"))
}

pub(super) fn count(key: &str, value: &DeValue<'_>) -> Result<u64, String> {
    let DeValue::Integer(number) = value else {
        return Err(format!(
            "{key} is {}: write a number without quotes",
            kind(value)
        ));
    };
    u64::from_str_radix(number.as_str(), number.radix())
        .map_err(|_| format!("{key} is {number}: write a number from 1"))
}

/// A moment: RFC 3339, in quotes or as TOML's offset date-time.
pub(super) fn moment(key: &str, value: &DeValue<'_>) -> Result<SystemTime, String> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        other => {
            return Err(format!(
                "{key} is {}: write a time such as 2026-12-01T20:00:00+01:00",
                kind(other)
            ));
        }
    };
    let moment: Timestamp = text.parse().map_err(|_| {
        format!(
            "{key} is {text:?}: write a time with its offset, such as 2026-12-01T20:00:00+01:00 or 2026-12-01T19:00:00Z"
        )
    })?;
    let moment = SystemTime::from(moment);
    if moment < UNIX_EPOCH {
        return Err(format!("{key} is {text:?}, which is before 1970"));
    }
    Ok(moment)
}

/// One of some words.
pub(super) fn word<T: Copy>(
    key: &str,
    value: &DeValue<'_>,
    words: &[(&str, T)],
) -> Result<T, String> {
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let expected = || format!("write one of \"{}\"", names.join("\", \""));
    let DeValue::String(text) = value else {
        return Err(format!("{key} is {}: {}", kind(value), expected()));
    };
    let found = words.iter().find(|(word, _)| word == text);
    let reason = || format!("{key} is {text:?}: {}", expected());
    found.map(|(_, value)| *value).ok_or_else(reason)
}

/// A value as JSON.
pub(super) fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Boolean(is) => (*is).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Integer(number) => {
            let (digits, radix) = (number.as_str(), number.radix());
            let signed = i64::from_str_radix(digits, radix).map(Value::from);
            let wide = || u64::from_str_radix(digits, radix).map(Value::from);
            let reason = |_| format!("{number} has more than 64 bits: write it in quotes");
            signed.or_else(|_| wide()).map_err(reason)?
        }
        DeValue::Float(number) => {
            let float: Option<f64> = number.as_str().parse().ok();
            let value = float.and_then(serde_json::Number::from_f64);
            let value = value.ok_or_else(|| format!("JSON has no number {number}"))?;
            value.into()
        }
        DeValue::Array(items) => {
            let items = items.iter().map(|item| json(item.get_ref()));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        DeValue::Table(entries) => {
            let mut object = Map::new();
            for (name, value) in entries {
                object.insert(name.get_ref().to_string(), json(value.get_ref())?);
            }
            object.into()
        }
    })
}
