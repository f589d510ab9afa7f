//! Parses the values of a schedule. Each function returns the reason why a value is refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::error::quoted;
use crate::schedule::GivenValue;
use crate::time;

pub(super) fn text<'a>(key: &str, value: &'a GivenValue) -> Result<&'a str, String> {
    match value {
        GivenValue::Text(text) => Ok(text),
        other => Err(format!("{key} is {}: write it in quotes", other.kind())),
    }
}

pub(super) fn duration(key: &str, value: &GivenValue) -> Result<Duration, String> {
    let GivenValue::Text(text) = value else {
        return Err(format!(
            "{key} is {}: write a number and a unit in quotes, such as \"15m\" or \"50ms\"",
            value.kind()
        ));
    };
    time::period(text).map_err(|error| format!("{key}: {error}"))
}

pub(super) fn count(key: &str, value: &GivenValue) -> Result<u64, String> {
    let GivenValue::Integer(number, text) = value else {
        return Err(format!(
            "{key} is {}: write a number without quotes",
            value.kind()
        ));
    };
    u64::try_from(*number).map_err(|_| format!("{key} is {text}: write a number from 1"))
}

/// Parses a moment: RFC 3339 in quotes, or TOML's offset date-time.
pub(super) fn moment(key: &str, value: &GivenValue) -> Result<SystemTime, String> {
    let (GivenValue::Text(text) | GivenValue::Time(text)) = value else {
        return Err(format!(
            "{key} is {}: write a time such as 2026-12-01T20:00:00+01:00",
            value.kind()
        ));
    };
    let shown = quoted(text);
    let moment: Timestamp = text.parse().map_err(|_| {
        format!(
            "{key} is {shown}: write a time with its offset, such as 2026-12-01T20:00:00+01:00 or 2026-12-01T19:00:00Z"
        )
    })?;
    let moment = SystemTime::from(moment);
    if moment < UNIX_EPOCH {
        return Err(format!("{key} is {shown}, which is before 1970"));
    }
    Ok(moment)
}

/// Parses one of several words.
pub(super) fn word<T: Copy>(
    key: &str,
    value: &GivenValue,
    words: &[(&str, T)],
) -> Result<T, String> {
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let expected = || format!("write one of \"{}\"", names.join("\", \""));
    let GivenValue::Text(text) = value else {
        return Err(format!("{key} is {}: {}", value.kind(), expected()));
    };
    let found = words.iter().find(|(word, _)| word == text);
    let reason = || format!("{key} is {}: {}", quoted(text), expected());
    found.map(|(_, value)| *value).ok_or_else(reason)
}

pub(super) fn base64(key: &str, value: &GivenValue) -> Result<Vec<u8>, String> {
    let text = text(key, value)?;
    let reason = |error: base64::DecodeError| {
        let error = error.to_string();
        let reason = error.trim_end_matches('.');
        format!("{key} is not base64 with padding: {reason}")
    };
    STANDARD.decode(text).map_err(reason)
}

/// Converts a value to JSON.
pub(super) fn json(value: &GivenValue) -> Result<Value, String> {
    Ok(match value {
        GivenValue::Null => Value::Null,
        GivenValue::Text(text) | GivenValue::Time(text) => text.clone().into(),
        GivenValue::Is(is) => (*is).into(),
        GivenValue::Integer(number, text) => {
            let signed = i64::try_from(*number).map(Value::from);
            let wide = || u64::try_from(*number).map(Value::from);
            let reason = |_| format!("{text} has more than 64 bits: write it in quotes");
            signed.or_else(|_| wide()).map_err(reason)?
        }
        GivenValue::Number(number) => {
            let float: Option<f64> = number.parse().ok();
            let value = float.and_then(serde_json::Number::from_f64);
            let value = value.ok_or_else(|| format!("JSON has no number {}", quoted(number)))?;
            value.into()
        }
        GivenValue::List(items) => {
            let items = items.iter().map(|item| json(&item.value));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        GivenValue::Table(entries) => {
            let mut object = Map::new();
            for (name, (_, value)) in entries {
                object.insert(name.clone(), json(&value.value)?);
            }
            object.into()
        }
    })
}
