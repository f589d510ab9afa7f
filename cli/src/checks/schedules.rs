//! Files of schedules.

use std::time::{Duration, UNIX_EPOCH};

use super::check_reason;
use crate::commands::schedule::read_file;

/// A file of schedules is accepted, or each fault has a line of the file and a reason.
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
