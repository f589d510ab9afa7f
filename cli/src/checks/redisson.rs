//! Checks the readers of Redisson's elements and of files of schedules.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::value::RawValue;

use super::check_reason;
use crate::commands::import::codec::RedissonCodec;
use crate::commands::import::frame;
use crate::commands::schedule::read_file;
use crate::shown::visible;

/// The bytes are an element of Redisson: only a complete frame is accepted, and its JSON is still
/// JSON after Java's types are removed.
pub fn redisson(bytes: &[u8]) {
    if let Some(found) = frame::parse(bytes) {
        let length = (found.value.len() as u64).to_le_bytes();
        let current = [&[found.id.len() as u8], found.id, &length, found.value].concat();
        let old = [found.id, &length, found.value].concat();
        assert!(
            bytes == current || bytes == old && found.id.len() == 8,
            "{found:?}"
        );
    }
    assert_eq!(RedissonCodec::Raw.payload(bytes).as_deref(), Ok(bytes));
    match RedissonCodec::String.payload(bytes) {
        Ok(payload) => assert!(payload == bytes && std::str::from_utf8(bytes).is_ok()),
        Err(reason) => check_reason(&reason, ""),
    }
    match RedissonCodec::Json.payload(bytes) {
        Ok(payload) => {
            let _: &RawValue = serde_json::from_slice(&payload).expect("JSON");
            let read = |bytes| serde_json::from_slice::<serde_json::Value>(bytes);
            // JSON allows numbers that are too large for `Value`.
            let (Ok(plain), Ok(typed)) = (read(&payload), read(bytes)) else {
                return;
            };
            // The codec removes types and adds nothing. Without types the JSON is unchanged.
            assert!(size(&plain) <= size(&typed));
            assert!(!mentions_class(&plain));
            if !bytes.contains(&b'.') && !mentions_class(&typed) && !bytes.contains(&b'[') {
                assert_eq!(plain, typed);
            }
        }
        Err(reason) => assert!(!visible(reason.as_bytes()).is_empty()),
    }
}

fn size(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        serde_json::Value::Object(properties) => 1 + properties.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

fn mentions_class(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Array(items) => items.iter().any(mentions_class),
        serde_json::Value::Object(properties) => {
            properties.contains_key("@class") || properties.values().any(mentions_class)
        }
        _ => false,
    }
}

/// The bytes are a file of schedules: it is accepted, or each fault has a line number and a reason.
pub fn schedules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let Err(faults) = read_file(text, now) else {
        return;
    };
    assert!(!faults.is_empty(), "{text:?}");
    let lines = 1 + text.matches('\n').count();
    for fault in faults {
        let line = fault.place;
        assert!((1..=lines).contains(&line), "{line} of {lines}: {text:?}");
        check_reason(&fault.reason, text);
    }
}
