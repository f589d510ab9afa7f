//! Checks the reader of messages as JSON objects.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{BusinessHours, Due, Message, OnConflict, OnExpire};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;

use super::check_error;
use crate::{Defaults, When, Wording, time};

/// A Friday, 2026-11-20T12:00:00Z.
const NOW_MS: u64 = 1_795_176_000_000;

/// The bytes are a message as a JSON object. An independent JSON reader finds equal fields in an
/// accepted message, both with the defaults of a server and with those of flags. A refusal gives
/// its reason.
pub fn message(bytes: &[u8]) {
    let fields = Defaults::fields(NOW_MS);
    check(bytes, &fields);

    let now = Timestamp::from_millisecond(NOW_MS as i64).expect("a moment");
    let (clock, server_clock) = (Box::new(move || now), Box::new(|| Ok(NOW_MS)));
    let mut flags = Defaults::new(Wording::Flags, clock, server_clock);
    flags.when = When {
        delay: Some(Duration::from_millis(7)),
        tz: Some(TimeZone::UTC),
        ..When::default()
    };
    flags.timing = flags
        .when
        .default_timing(now, Wording::Flags)
        .expect("a delay");
    flags.on_conflict = OnConflict::Replace;
    check(bytes, &flags);
}

fn check(bytes: &[u8], defaults: &Defaults) {
    match crate::message(bytes, defaults) {
        Ok(message) => assert_eq!(message, expected(bytes, defaults)),
        Err(error) => check_error(&error),
    }
}

/// The message that an independent JSON reader finds.
fn expected(text: &[u8], defaults: &Defaults) -> Message {
    // Raw values: a payload may be a number that no Rust type holds.
    let raw: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(text).expect("an object");
    let texts: BTreeMap<&str, String> = raw
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), serde_json::from_str(value.get()).ok()?)))
        .collect();
    let field = |name: &str| texts.get(name).map(String::as_str);
    let number = |name: &str| {
        let value = raw.get(name)?;
        serde_json::from_str::<u64>(value.get()).ok()
    };
    let is_set = |name: &str| raw.get(name).is_some_and(|value| value.get() == "true");
    let written = raw
        .get("payload")
        .map(|payload| payload.get())
        .filter(|payload| *payload != "null");
    let payload = match (written, field("payload_base64")) {
        (Some(json), None) => field("payload").unwrap_or(json).as_bytes().to_vec(),
        (None, Some(payload)) => STANDARD.decode(payload).expect("base64"),
        other => panic!("{other:?}"),
    };
    let zone = field("tz").map(|name| time::zone(name).expect("a zone"));
    let zone = zone.or_else(|| defaults.when.tz.clone());
    let moment = |text: &str| {
        let moment = time::moment(text, zone.as_ref(), (defaults.now)(), defaults.wording);
        moment.expect("a moment").max(UNIX_EPOCH)
    };
    let mut due = defaults.when.delay.map(Due::from);
    if let Some(delay) = field("delay") {
        due = Some(time::delay(delay).expect("a delay").into());
    }
    if let Some(at) = field("at") {
        due = Some(moment(at).into());
    }
    if let Some(within) = field("within") {
        let name = zone.as_ref().and_then(TimeZone::iana_name);
        let hours = BusinessHours::parse(within, name.expect("a zone")).expect("hours");
        let from = due.unwrap_or(Due::AfterMs(0));
        due = Some(from.within(&hours, NOW_MS).expect("an opening"));
    }
    let mut message = Message::new(payload).due(due.unwrap_or(Due::AfterMs(0)));
    if let Some(time) = field("expires") {
        message = message.expires_after(time::period(time).expect("a period"));
    }
    if let Some(at) = field("expires_at") {
        let since = moment(at).duration_since(UNIX_EPOCH).unwrap_or_default();
        message = message.expires_at(since.as_millis() as u64);
    }
    if let Some(fate) = field("on_expire") {
        assert!(field("expires").or(field("expires_at")).is_some());
        message = message.on_expire(match fate {
            "drop" => OnExpire::Drop,
            "dead" => OnExpire::Dead,
            other => panic!("{other}"),
        });
    }
    message = message.on_conflict(match field("on_conflict") {
        None => defaults.on_conflict,
        Some("keep") => OnConflict::Keep,
        Some("reschedule") => OnConflict::Reschedule,
        Some("replace") => OnConflict::Replace,
        Some("next") => OnConflict::Next,
        Some(other) => panic!("{other}"),
    });
    if let Some(parent) = field("traceparent") {
        message = message.trace_parent(parent);
    }
    if let Some(window) = field("window") {
        message = message.window(time::delay(window).expect("a window"));
    }
    if let Some(max_wait) = field("max_wait") {
        message = message.max_wait(time::delay(max_wait).expect("a limit"));
    }
    if is_set("reuse") {
        message = message.reuse();
    }
    if is_set("revive") {
        message = message.revive();
    }
    if let Some(ms) = number("undo_ms") {
        message = message.undo(ms);
    }
    if let Some(limit) = number("max_attempts") {
        message = message.max_attempts(limit.try_into().expect("an accepted limit"));
    }
    if let Some(cost) = number("cost") {
        message = message.cost(cost.try_into().expect("an accepted cost"));
    }
    if let Some(ms) = number("spread_ms") {
        message = message.spread(Duration::from_millis(ms));
    }
    match field("id") {
        Some(id) => message.id(id),
        None => message,
    }
}
