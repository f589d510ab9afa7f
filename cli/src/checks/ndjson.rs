//! Checks the reader of files of messages.

use std::io::BufReader;
use std::time::Duration;

use dueq_input::{Defaults, When, Wording};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::ndjson::Lines;
use crate::shown::{steers, visible};

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
    // The reader may skip only blank lines.
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
    // A read that starts later, or stops at the first bad line, finds the same lines.
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

/// The defaults that the flags give to lines.
fn defaults() -> Defaults {
    let now = Timestamp::from_millisecond(NOW_MS as i64).expect("a moment");
    let (clock, server_clock) = (Box::new(move || now), Box::new(|| Ok(NOW_MS)));
    let mut defaults = Defaults::new(Wording::Flags, clock, server_clock);
    defaults.when = When {
        delay: Some(Duration::from_millis(7)),
        tz: Some(TimeZone::UTC),
        ..When::default()
    };
    let timing = defaults.when.default_timing(now, Wording::Flags);
    defaults.timing = timing.expect("a delay");
    defaults
}

/// All lines, and how many bytes were read.
fn lines(bytes: &[u8], from: u64, skip_bad: bool, size: usize) -> (Vec<Line>, u64) {
    let reader = BufReader::with_capacity(size, bytes);
    let mut lines = Lines::new(reader, "key".to_owned(), defaults(), from, skip_bad);
    let (mut found, mut read) = (Vec::new(), 0);
    while let Some(chunk) = lines.chunk().expect("memory can be read") {
        found.extend(
            chunk
                .messages
                .into_iter()
                .map(|line| (line.number, Ok(format!("{:?}", line.message)))),
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

/// Compares the message that a line of a file gives with the message that the line's text gives
/// alone. The crate dueq-input checks the latter.
fn check_message(text: &[u8], message: &str) {
    let expected = dueq_input::message(text, &defaults()).expect("a message");
    let id = match expected.id_bytes() {
        Some(id) => id.to_vec(),
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
