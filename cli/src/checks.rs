//! What must hold for any bytes that the program is given, as functions that panic if it does not.
//!
//! A test holds them to the files of `fuzz/corpus` and to mutations of those; `make fuzz` goes on for longer.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Due, Message, OnConflict};
use jiff::civil::DateTime;
use jiff::fmt::temporal::{Pieces, PiecesOffset};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};
use serde_json::value::RawValue;

use crate::import::codec::Codec;
use crate::import::frame;
use crate::ndjson::{Defaults, Lines};
use crate::shown::{guarded, guarded_json, steers, visible};
use crate::time;
use crate::when::When;

/// Panics if these bytes are not taken as they should.
pub(crate) type Check = fn(&[u8]);

/// A check, by the name of its folder in `fuzz/corpus`.
pub(crate) const CHECKS: [(&str, Check); 5] = [
    ("delay", delay),
    ("moment", moment),
    ("ndjson", ndjson),
    ("shown", shown),
    ("redisson", redisson),
];

/// Why something is refused: in words, of bounded length, that a terminal can be shown.
fn check_reason(reason: &str, given: &str) {
    assert!(
        !reason.is_empty() && reason.len() < 400 + 8 * given.len(),
        "{reason:?}"
    );
    assert!(!reason.contains(steers), "{reason:?}");
}

/// A delay: what is taken is what was written, and has a length; what is refused says why.
pub(crate) fn delay(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let read = time::delay(text);
    if let Some(expected) = plain_delay(text) {
        assert_eq!(read, Ok(expected), "{text:?}");
    }
    match read {
        Ok(delay) => {
            assert!(!text.trim().is_empty());
            assert!(
                text.contains(|c: char| c.is_ascii_digit()),
                "{text:?} is {delay:?}"
            );
            let span: Span = text.parse().expect("what was taken can be taken apart");
            assert_eq!(
                (span.get_years(), span.get_months()),
                (0, 0),
                "{text:?} has no fixed length"
            );
            let again = format!("PT{}.{:09}S", delay.as_secs(), delay.subsec_nanos());
            // As many seconds as the format has; in hours and minutes beside each other there may be more.
            if delay.as_secs() <= 631_107_417_600 {
                assert_eq!(time::delay(&again), Ok(delay), "{text:?}");
            }
            let _ = Due::from(delay);
        }
        Err(reason) => check_reason(&reason, text),
    }
}

/// A number of up to nine digits and one unit, read by other means.
fn plain_delay(text: &str) -> Option<Duration> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    let number: u32 = Some(number)
        .filter(|number| number.len() <= 6)?
        .parse()
        .ok()?;
    let ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(ms * u64::from(number)))
}

/// 2026-10-24T22:00:00Z, a day before clocks are put back in Europe.
const NOW: i64 = 1_792_879_200;

/// A moment: clocks in its zone show what was written then, and at no other time; what is refused says why. The first byte names
/// the zone of `--tz`.
pub(crate) fn moment(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    let name = [
        "Asia/Shanghai",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "UTC",
    ];
    let zone = name
        .get(usize::from(which % 8))
        .map(|name| time::zone(name).expect("a zone"));
    let now = Timestamp::from_second(NOW).expect("a moment");
    match time::moment(text, zone.as_ref(), now) {
        Ok(at) => {
            let at = Timestamp::try_from(at).expect("what was a timestamp is one");
            if let Some((day, clock)) = text
                .split_once(' ')
                .filter(|(day, _)| matches!(*day, "today" | "tomorrow"))
            {
                let zone = zone.expect("a day by itself is in no zone");
                let today = now.to_zoned(zone.clone()).date();
                let date = if day == "today" {
                    today
                } else {
                    today.tomorrow().expect("a day")
                };
                let time = clock.trim().parse().expect("a time of day");
                check_shown_once(at, &zone, date.to_datetime(time));
                return;
            }
            if let Ok(ms) = text.parse::<i64>() {
                assert_eq!(at.as_millisecond(), ms, "{text:?}");
                return;
            }
            let pieces = Pieces::parse(text).expect("what was taken can be taken apart");
            let written = pieces
                .date()
                .to_datetime(pieces.time().expect("a time of day"));
            let named = pieces.to_time_zone().ok().flatten();
            match (pieces.offset(), named) {
                // The zone only says where it is shown.
                (Some(PiecesOffset::Zulu), _) => {
                    assert_eq!(
                        TimeZone::UTC.to_timestamp(written).ok(),
                        Some(at),
                        "{text:?}"
                    )
                }
                (Some(_), Some(zone)) => {
                    let (told, offset) = (
                        pieces.to_numeric_offset().expect("an offset"),
                        zone.to_offset(at),
                    );
                    // Long ago offsets had seconds, which need not be written.
                    assert!(
                        (told.seconds() - offset.seconds()).abs() < 60,
                        "{text:?}: zone and offset disagree"
                    );
                    assert_eq!(offset.to_timestamp(written).ok(), Some(at), "{text:?}");
                }
                (Some(_), None) => {
                    let told = pieces.to_numeric_offset().expect("an offset");
                    assert_eq!(told.to_timestamp(written).ok(), Some(at), "{text:?}");
                }
                (None, named) => check_shown_once(at, &named.or(zone).expect("a zone"), written),
            }
        }
        Err(reason) => check_reason(&reason, text),
    }
    if let Err(reason) = time::zone(text) {
        check_reason(&reason, text);
    }
}

/// Clocks are put back by up to three hours.
fn check_shown_once(at: Timestamp, zone: &TimeZone, written: DateTime) {
    assert_eq!(zone.to_datetime(at), written, "{at} in {zone:?}");
    for minutes in (-180..=180).step_by(30).filter(|minutes| *minutes != 0) {
        if let Ok(other) = at.checked_add(SignedDuration::from_mins(minutes)) {
            assert_ne!(
                zone.to_datetime(other),
                written,
                "{written} is shown at {at}, and at {other} too"
            );
        }
    }
}

/// Lines of messages: each line is a message, is blank or is refused with a reason, whatever the size of the reads.
pub(crate) fn ndjson(bytes: &[u8]) {
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
    // A line is left out only if nothing is on it.
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
        .filter(|(place, text)| !blank(text, *place == 0));
    let numbers: Vec<u64> = whole.iter().map(|(number, _)| *number).collect();
    assert_eq!(
        numbers,
        written
            .map(|(place, _)| place as u64 + 1)
            .collect::<Vec<_>>()
    );
    // Begun later, the lines are the same; stopped at the first bad one, those before it are.
    let later: Vec<_> = whole
        .iter()
        .filter(|(number, _)| *number >= 2)
        .cloned()
        .collect();
    assert_eq!(lines(bytes, 2, true, 16).0, later);
    let first_bad = whole
        .iter()
        .position(|(_, line)| line.is_err())
        .map_or(whole.len(), |place| place + 1);
    assert_eq!(lines(bytes, 1, false, 16).0, whole[..first_bad]);
}

/// A line's number and what is on it.
type Line = (u64, Result<String, String>);

/// Each line's number and what is on it, messages as their debug text; and how many bytes were read.
fn lines(bytes: &[u8], from: u64, skip_bad: bool, size: usize) -> (Vec<Line>, u64) {
    let (due, when) = (
        Some(Due::AfterMs(7)),
        When {
            delay: None,
            at: None,
            tz: Some(TimeZone::UTC),
        },
    );
    let (on_conflict, source) = (OnConflict::Keep, "file".to_owned());
    let defaults = Defaults {
        source,
        due,
        when,
        max_attempts: None,
        on_conflict,
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

/// The message that another reader of JSON finds on the line.
fn check_message(text: &[u8], message: &str) {
    // Raw: a payload may be a number that no type of ours holds.
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
    let mut expected = Message::new(payload)
        .due(Due::AfterMs(7))
        .on_conflict(OnConflict::Keep);
    if let Some(parent) = field("traceparent") {
        expected = expected.trace_parent(parent);
    }
    if let Some(delay) = field("delay") {
        expected = expected.due(time::delay(delay).expect("a delay"));
    }
    if let Some(at) = field("at") {
        let moment = time::moment(at, Some(&TimeZone::UTC), Timestamp::now()).expect("a moment");
        // What is told by the day depends on when it is read.
        if at.starts_with("to") {
            return;
        }
        expected = expected.due(moment.max(UNIX_EPOCH));
    }
    if let Some(limit) = raw
        .get("max_attempts")
        .and_then(|value| serde_json::from_str(value.get()).ok())
    {
        expected = expected.max_attempts(limit);
    }
    let id = match field("id") {
        Some(id) => id.as_bytes().to_vec(),
        // Made of the line; only its form is known here.
        None => {
            let made = message
                .split("id: [")
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

/// Beside control characters, what Unicode has to turn the direction of writing, to end lines, and to annotate.
const INVISIBLE: &str = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\
    \u{2066}\u{2067}\u{2068}\u{2069}\u{206a}\u{206b}\u{206c}\u{206d}\u{206e}\u{206f}\u{fff9}\u{fffa}\u{fffb}";

/// What is printed: nothing in it steers a terminal, nothing harmless is changed, and JSON means what it meant.
pub(crate) fn shown(bytes: &[u8]) {
    let seen = visible(bytes);
    assert!(
        !seen.contains(|c: char| c.is_control() || INVISIBLE.contains(c)),
        "{seen:?}"
    );
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(steers) {
        assert_eq!(seen, text);
    }
    let kept: String = text.chars().filter(|c| !steers(*c)).collect();
    assert!(
        kept.chars().all(|c| seen.contains(c)),
        "{kept:?} of {seen:?}"
    );
    assert!(!guarded(&text).contains(|c| c != '\n' && steers(c)));
    assert_eq!(
        guarded(&text).lines().count(),
        text.split_inclusive('\n').count()
    );

    let value = serde_json::json!({ "text": text, (text.as_ref()): [text] });
    let json = guarded_json(&value.to_string()).into_owned();
    assert!(!json.contains(steers), "{json:?}");
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&json).expect("JSON"),
        value
    );

    let word = dueq::shell_word(bytes);
    assert!(!word.contains(steers), "{word:?}");
    assert_eq!(unquoted(&word), bytes, "{word}");
}

/// The one word that a shell makes of this, if it is one.
fn unquoted(word: &str) -> Vec<u8> {
    if let Some(format) = word
        .strip_prefix("\"$(printf '")
        .and_then(|word| word.strip_suffix("')\""))
    {
        assert!(!format.contains(['\'', '"', '`', '$', '!']), "{word}");
        let (mut bytes, mut rest) = (Vec::new(), format.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            let (byte, length) = match first {
                b'%' => (after[0], 2),
                b'\\' => {
                    let octal = std::str::from_utf8(&after[..3]).expect("digits");
                    (u8::from_str_radix(octal, 8).expect("octal"), 4)
                }
                byte => (*byte, 1),
            };
            assert!(*first != b'%' || byte == b'%', "{word}");
            bytes.push(byte);
            rest = &rest[length..];
        }
        return bytes;
    }
    if let Some(quoted) = word
        .strip_prefix('\'')
        .and_then(|word| word.strip_suffix('\''))
    {
        let parts: Vec<&str> = quoted.split(r"'\''").collect();
        assert!(parts.iter().all(|part| !part.contains('\'')), "{word}");
        return parts.join("'").into_bytes();
    }
    assert!(
        !word.contains(|c: char| !c.is_alphanumeric() && !"_-.:/@%+,".contains(c)),
        "{word}"
    );
    word.as_bytes().to_vec()
}

/// Elements of Redisson: a frame is taken only whole, and what is freed of types is JSON still.
pub(crate) fn redisson(bytes: &[u8]) {
    if let Some(found) = frame::parse(bytes) {
        let length = (found.value.len() as u64).to_le_bytes();
        let current = [&[found.id.len() as u8], found.id, &length, found.value].concat();
        let old = [found.id, &length, found.value].concat();
        assert!(
            bytes == current || bytes == old && found.id.len() == 8,
            "{found:?}"
        );
    }
    assert_eq!(Codec::Raw.payload(bytes).as_deref(), Ok(bytes));
    match Codec::String.payload(bytes) {
        Ok(payload) => assert!(payload == bytes && std::str::from_utf8(bytes).is_ok()),
        Err(reason) => check_reason(&reason, ""),
    }
    match Codec::Json.payload(bytes) {
        Ok(payload) => {
            let _: &RawValue = serde_json::from_slice(&payload).expect("JSON");
            let read = |bytes| serde_json::from_slice::<serde_json::Value>(bytes);
            // Numbers beyond all limits are JSON, and no value.
            let (Ok(plain), Ok(typed)) = (read(&payload), read(bytes)) else {
                return;
            };
            // Types are taken away, nothing is added; what had none is the same.
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

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_and_its_mutations_hold() {
        for (name, check) in super::CHECKS {
            dueq_testkit::fuzz(name, check);
        }
    }
}
