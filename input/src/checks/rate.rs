//! Checks the readers of rates, of ids in paths, and of schedules as JSON.

use std::time::{Duration, UNIX_EPOCH};

use super::check_error;
use crate::path_id::is_stable;
use crate::{id_path, schedule_json, schedules_json, time};

/// The bytes are a rate as in `--rate`. An accepted rate is in its range, and has the written
/// number of starts and window. A refusal gives its reason.
pub fn rate(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match crate::rate(text) {
        Ok(rate) => {
            assert!((1..=1_000_000).contains(&rate.starts), "{text:?}");
            assert!(rate.window <= Duration::from_secs(2_592_000), "{text:?}");
            assert!(rate.window > Duration::ZERO, "{text:?}");
            let parts = text.split_once('/').or_else(|| text.split_once(" per "));
            let (starts, window) = parts.expect("two parts");
            assert_eq!(starts.trim().parse(), Ok(rate.starts), "{text:?}");
            let window = window.trim();
            // A window may be a unit without a number.
            let whole = time::delay(window).or_else(|_| time::delay(&format!("1{window}")));
            assert_eq!(whole, Ok(rate.window), "{text:?}");
            let again = format!("{}/{:?}", rate.starts, rate.window);
            assert_eq!(crate::rate(&again), Ok(rate), "{text:?}");
        }
        Err(error) => check_error(&error),
    }
}

/// The bytes are an id and a path segment. Each id is read back from its path, also if a client has
/// percent-encoded it. An accepted segment names one id. A refusal gives its reason.
pub fn path_id(bytes: &[u8]) {
    if !bytes.is_empty() {
        check_path_of(bytes);
    }
    let Ok(segment) = std::str::from_utf8(bytes) else {
        return;
    };
    match crate::path_id(segment) {
        Ok(id) => {
            assert!(!id.is_empty(), "{segment:?}");
            check_path_of(&id);
            if !segment.contains('%') && !segment.starts_with('~') {
                assert_eq!(id, segment.as_bytes());
            }
            assert!(id.len() <= segment.len());
        }
        Err(error) => check_error(&error),
    }
}

fn check_path_of(id: &[u8]) {
    let path = id_path(id);
    assert!(path.bytes().all(is_stable), "{path}");
    assert!(!matches!(path.as_str(), "" | "." | ".."), "{path}");
    assert_eq!(crate::path_id(&path).as_deref(), Ok(id), "{path}");
    if std::str::from_utf8(id).is_ok() {
        let encoded: String = id.iter().map(|byte| format!("%{byte:02X}")).collect();
        assert_eq!(crate::path_id(&encoded).as_deref(), Ok(id), "{encoded}");
    }
}

/// The bytes are a schedule or a list of schedules. An accepted schedule is valid for the library
/// too, and has the requested name. A refusal gives its reason.
pub fn schedule(bytes: &[u8]) {
    let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    match schedule_json(bytes, "nightly", now) {
        Ok(declared) => {
            assert_eq!(declared.name, "nightly");
            assert!(declared.payload_bytes <= bytes.len().saturating_mul(25));
            assert!(
                declared.schedule.check(now).is_ok(),
                "{:?}",
                declared.schedule
            );
        }
        Err(error) => check_error(&error),
    }
    match schedules_json(bytes, now) {
        Ok(list) => {
            assert!(list.len() <= bytes.len());
            for (declared, other) in list.iter().zip(list.iter().skip(1)) {
                assert!(declared.place < other.place && declared.name != other.name);
                assert!(
                    declared.schedule.check(now).is_ok(),
                    "{:?}",
                    declared.schedule
                );
            }
        }
        Err(error) => check_error(&error),
    }
}
