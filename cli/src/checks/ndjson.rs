//! Files of messages.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{BusinessHours, Due, Message, OnConflict, OnExpire};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;

use crate::expiry::Expiry;
use crate::ndjson::{Defaults, Lines};
use crate::shown::{steers, visible};
use crate::time;
use crate::unique::UniqueFlags;
use crate::when::When;

/// `push --ndjson`: each line is a message, is blank or is refused with a reason, for every size of
/// the reads.
pub fn ndjson(bytes: &[u8]) {
    let (whole, read) = lines(bytes, 1, true, 1 << 16);
    assert_eq!(read, bytes.len() as u64, "every byte was read");
    assert_eq!(
        lines(bytes, 1, true, 1),
        (whole.clone(), read),
        "reads of one byte"
    );
    for (number, line) in &whole {
        let text = bytes
            .split(|byte| *byte == b'\n')
            .nth(*number as usize - 1)
            .expect("a line");
        let text = text
            .strip_prefix(b"\xef\xbb\xbf")
            .filter(|_| *number == 1)
            .unwrap_or(text)
            .trim_ascii();
        match line {
            Ok(message) => check_message(text, message),
            Err(reason) => {
                assert!(!reason.is_empty() && !visible(reason.as_bytes()).contains(steers));
                assert!(reason.len() < 400 + 8 * text.len(), "{reason}");
            }
        }
    }
    // Only blank lines are left out.
    let blank = |text: &[u8], first: bool| {
        text.strip_prefix(b"\xef\xbb\xbf")
            .filter(|_| first)
            .unwrap_or(text)
            .trim_ascii()
            .is_empty()
    };
    let written = bytes
        .split(|byte| *byte == b'\n')
        .enumerate()
        .filter(|(index, text)| !blank(text, *index == 0));
    let numbers: Vec<u64> = whole.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        numbers,
        written
            .map(|(index, _)| index as u64 + 1)
            .collect::<Vec<_>>()
    );
    // A later start, and a stop at the first bad line, yield the same lines.
    let later: Vec<_> = whole
        .iter()
        .filter(|(number, _)| *number >= 2)
        .cloned()
        .collect();
    assert_eq!(lines(bytes, 2, true, 16).0, later);
    let first_bad = whole
        .iter()
        .position(|(_, line)| line.is_err())
        .map_or(whole.len(), |index| index + 1);
    assert_eq!(lines(bytes, 1, false, 16).0, whole[..first_bad]);
}

/// A Friday, 2026-11-20T12:00:00Z.
const NOW_MS: u64 = 1_795_176_000_000;

/// A line's number, and its message as debug text or the reason of its refusal.
type Line = (u64, Result<String, String>);

/// All lines, and how many bytes were read.
fn lines(bytes: &[u8], from: u64, skip_bad: bool, size: usize) -> (Vec<Line>, u64) {
    let when = When {
        delay: Some(Duration::from_millis(7)),
        at: None,
        within: None,
        tz: Some(TimeZone::UTC),
    };
    let timing = when.default_timing().expect("a delay");
    let (on_conflict, source) = (OnConflict::Keep, "file".to_owned());
    let defaults = Defaults {
        source,
        when,
        timing,
        now_ms: Box::new(|| Ok(NOW_MS)),
        spread: None,
        expiry: Expiry::default(),
        last: None,
        cost: None,
        max_attempts: None,
        on_conflict,
        unique: UniqueFlags::default(),
        traceparent: None,
    };
    let mut lines = Lines::new(
        BufReader::with_capacity(size, bytes),
        defaults,
        from,
        skip_bad,
    );
    let (mut found, mut read) = (Vec::new(), 0);
    while let Some(chunk) = lines.chunk().expect("memory can be read") {
        found.extend(
            chunk
                .messages
                .into_iter()
                .map(|(number, message)| (number, Ok(format!("{message:?}")))),
        );
        let stops = !chunk.bad.is_empty() && !skip_bad;
        found.extend(
            chunk
                .bad
                .into_iter()
                .map(|(number, reason)| (number, Err(reason))),
        );
        read += chunk.bytes;
        if stops {
            break;
        }
    }
    found.sort_by_key(|(number, _)| *number);
    (found, read)
}

/// Compares a message with the one that another JSON reader finds on the line.
fn check_message(text: &[u8], message: &str) {
    // Raw values: a payload may be a number that no Rust type holds.
    let raw: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(text).expect("an object");
    let texts: BTreeMap<&str, String> = raw
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), serde_json::from_str(value.get()).ok()?)))
        .collect();
    let field = |name: &str| texts.get(name).map(String::as_str);
    let written = raw
        .get("payload")
        .map(|payload| payload.get())
        .filter(|payload| *payload != "null");
    let payload = match (written, field("payload_base64")) {
        (Some(json), None) => field("payload").unwrap_or(json).as_bytes().to_vec(),
        (None, Some(payload)) => STANDARD.decode(payload).expect("base64"),
        other => panic!("{other:?}"),
    };
    let mut due = Due::AfterMs(7);
    let zone = field("tz").unwrap_or("UTC");
    if let Some(delay) = field("delay") {
        due = time::delay(delay).expect("a delay").into();
    }
    if let Some(at) = field("at") {
        let zone = time::zone(zone).expect("a zone");
        let moment = time::moment(at, Some(&zone), Timestamp::now()).expect("a moment");
        // These depend on the time of the call.
        if at.starts_with("to") || at == "now" {
            return;
        }
        due = moment.max(UNIX_EPOCH).into();
    }
    let mut expected = Message::new(payload).on_conflict(OnConflict::Keep);
    if let Some(time) = field("expires") {
        expected = expected.expires_after(time::period(time).expect("a period"));
    }
    if let Some(at) = field("expires_at") {
        if at.starts_with("to") || at == "now" {
            return;
        }
        let zone = time::zone(zone).expect("a zone");
        let moment = time::moment(at, Some(&zone), Timestamp::now()).expect("a moment");
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        expected = expected.expires_at(since.as_millis() as u64);
    }
    if let Some(fate) = field("on_expire") {
        assert!(field("expires").or(field("expires_at")).is_some());
        expected = match fate {
            "drop" => expected.on_expire(OnExpire::Drop),
            fate => {
                assert_eq!(fate, "dead");
                expected
            }
        };
    }
    if let Some(within) = field("within") {
        let hours = BusinessHours::parse(within, zone).expect("hours");
        due = due.within(&hours, NOW_MS).expect("an opening");
    }
    expected = expected.due(due);
    if let Some(parent) = field("traceparent") {
        expected = expected.trace_parent(parent);
    }
    if let Some(window) = field("window") {
        expected = expected.window(time::delay(window).expect("a window"));
    }
    if let Some(max_wait) = field("max_wait") {
        expected = expected.max_wait(time::delay(max_wait).expect("a limit"));
    }
    let is_set = |name: &str| raw.get(name).is_some_and(|value| value.get() == "true");
    if is_set("reuse") {
        expected = expected.reuse();
    }
    if is_set("revive") {
        expected = expected.revive();
    }
    if let Some(limit) = raw
        .get("max_attempts")
        .and_then(|value| serde_json::from_str(value.get()).ok())
    {
        expected = expected.max_attempts(limit);
    }
    if let Some(cost) = raw
        .get("cost")
        .and_then(|value| serde_json::from_str(value.get()).ok())
    {
        expected = expected.cost(cost);
    }
    if let Some(ms) = raw
        .get("spread_ms")
        .and_then(|value| serde_json::from_str(value.get()).ok())
    {
        expected = expected.spread(Duration::from_millis(ms));
    }
    let id = match field("id") {
        Some(id) => id.as_bytes().to_vec(),
        // The id is computed from the line; this checks its form.
        None => {
            let made = message
                .split("id: Some([")
                .nth(1)
                .and_then(|rest| rest.split(']').next())
                .expect("an id");
            let made: Vec<u8> = made
                .split(", ")
                .map(|byte| byte.parse().expect("a byte"))
                .collect();
            assert!(made.starts_with(b"line:") && made.len() == 32, "{made:?}");
            made
        }
    };
    assert_eq!(message, format!("{:?}", expected.id(id)));
}
