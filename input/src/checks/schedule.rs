//! Schedules as JSON.

use std::time::{Duration, UNIX_EPOCH};

use super::check_error;
use crate::{schedule_json, schedules_json};

/// A schedule, or a list of schedules, is accepted, or the refusal gives its reason. An accepted one
/// is valid for the library too, and has the name that was asked for.
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
