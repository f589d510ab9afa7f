use std::time::UNIX_EPOCH;

use super::*;

/// A Friday, 2026-11-20T12:00:00Z.
const NOW_MS: u64 = 1_795_176_000_000;
const HOUR_MS: u64 = 3_600_000;

fn read(json: &str) -> Result<Message, Error> {
    message(json.as_bytes(), &Defaults::fields(NOW_MS))
}

#[test]
fn every_field_of_an_object_takes_effect() {
    let json = r#"{
        "payload": "te\u0078t", "id": "a", "delay": "1h", "spread_ms": 9, "expires": "2h", "on_expire": "drop",
        "cost": 2, "max_attempts": 3, "traceparent": "00-x", "on_conflict": "replace", "window": "1m",
        "max_wait": "5s", "reuse": true, "revive": true
    }"#;
    let expected = Message::new("text")
        .id("a")
        .due(Duration::from_secs(3_600))
        .spread(Duration::from_millis(9))
        .expires_after(Duration::from_secs(7_200))
        .on_expire(OnExpire::Drop)
        .cost(2)
        .max_attempts(3)
        .trace_parent("00-x")
        .on_conflict(OnConflict::Replace)
        .window(Duration::from_secs(60))
        .max_wait(Duration::from_secs(5))
        .reuse()
        .revive();
    assert_eq!(read(json), Ok(expected));
}

#[test]
fn moments_and_hours_use_the_given_clock_and_zone() {
    let at = |ms| Message::new("x").due(UNIX_EPOCH + Duration::from_millis(ms));
    for (fields, ms) in [
        (r#""at": "now""#, NOW_MS),
        (r#""at": "1796126400000""#, 1_796_126_400_000),
        // In Tokyo it is past 20:00, by one hour.
        (
            r#""at": "today 20:00", "tz": "Asia/Tokyo""#,
            NOW_MS - HOUR_MS,
        ),
        (
            r#""within": "Fri 15:00-16:00", "tz": "UTC""#,
            NOW_MS + 3 * HOUR_MS,
        ),
        (
            r#""delay": "4h", "within": "Mon-Sun 00:00-24:00", "tz": "UTC""#,
            NOW_MS + 4 * HOUR_MS,
        ),
    ] {
        let json = format!("{{\"payload\": \"x\", {fields}}}");
        assert_eq!(read(&json), Ok(at(ms)), "{json}");
    }
    let expiring = read(r#"{"payload": "x", "expires_at": "tomorrow 00:00", "tz": "UTC"}"#);
    let midnight = NOW_MS + 12 * HOUR_MS;
    assert_eq!(expiring, Ok(Message::new("x").expires_at(midnight)));
}

#[test]
fn on_conflict_of_an_object_replaces_the_default() {
    let mut defaults = Defaults::fields(NOW_MS);
    defaults.on_conflict = OnConflict::Next;
    let conflict = |json: &str| {
        let message = message(json.as_bytes(), &defaults);
        message.map(|message| message.conflict())
    };
    for (word, expected) in [
        ("keep", OnConflict::Keep),
        ("reschedule", OnConflict::Reschedule),
        ("replace", OnConflict::Replace),
        ("next", OnConflict::Next),
    ] {
        let json = format!(r#"{{"payload": "x", "on_conflict": "{word}"}}"#);
        assert_eq!(conflict(&json), Ok(expected));
    }
    assert_eq!(conflict(r#"{"payload": "x"}"#), Ok(OnConflict::Next));
    let error = conflict(r#"{"payload": "x", "on_conflict": "Keep"}"#).expect_err("a capital");
    assert!(error.to_string().contains("`reschedule`"), "{error}");
}

#[test]
fn wrong_object_is_refused_with_the_name_of_the_field() {
    for (json, field, reason) in [
        ("", None, "the text is empty"),
        ("nonsense", None, "the only words"),
        ("7", None, "and an object such as"),
        ("[\"x\"]", None, "the object is a list"),
        ("{\"payload\":\"x\"", None, "ends too early"),
        ("{\"payload\":\"x\"}{}", None, "more text follows"),
        ("{\n\"payload\":\n}", None, "line 3, column 1"),
        (
            r#"{"payload":"x","dealy":"1h"}"#,
            None,
            "unknown field `dealy`",
        ),
        (
            r#"{"payload":"x","id":"a","id":"a"}"#,
            None,
            "duplicate field `id`",
        ),
        (
            r#"{"payload":"x","payload":"x"}"#,
            None,
            "duplicate field `payload`",
        ),
        (r#"{"id":"a"}"#, None, "neither payload nor payload_base64"),
        (
            r#"{"payload":null}"#,
            None,
            "neither payload nor payload_base64",
        ),
        (
            r#"{"payload":"x","payload_base64":""}"#,
            None,
            "both payload and",
        ),
        (
            r#"{"payload_base64":"?"}"#,
            Some("payload_base64"),
            "not base64 with padding: Invalid",
        ),
        (r#"{"payload":"\ud800"}"#, Some("payload"), "go in pairs"),
        (r#"{"payload":"x","id":1}"#, Some("id"), "number `1`"),
        (
            r#"{"payload":"x","delay":"soon"}"#,
            Some("delay"),
            "\"soon\" is no delay",
        ),
        (
            r#"{"payload":"x","delay":"1h","at":"now"}"#,
            None,
            "both delay and at",
        ),
        (
            r#"{"payload":"x","at":"2026-12-01 20:00"}"#,
            Some("at"),
            "add tz, such as \"tz\"",
        ),
        (
            r#"{"payload":"x","tz":"Mars"}"#,
            Some("tz"),
            "\"Mars\" is no time zone",
        ),
        (
            r#"{"payload":"x","tz":"UTC"}"#,
            None,
            "tz UTC has no effect without at or within",
        ),
        (
            r#"{"payload":"x","at":"now","tz":"UTC"}"#,
            None,
            "tz UTC has no effect on at \"now\"",
        ),
        (
            r#"{"payload":"x","within":"Mon 09:00-18:00"}"#,
            Some("within"),
            "add tz",
        ),
        (
            r#"{"payload":"x","within":"Mo","tz":"UTC"}"#,
            Some("within"),
            "Mo",
        ),
        (
            r#"{"payload":"x","expires":"0s"}"#,
            Some("expires"),
            "longer than 0",
        ),
        (
            r#"{"payload":"x","expires_at":"soon"}"#,
            Some("expires_at"),
            "no moment",
        ),
        (
            r#"{"payload":"x","expires":"1h","expires_at":"now"}"#,
            None,
            "both expires and",
        ),
        (
            r#"{"payload":"x","on_expire":"drop"}"#,
            None,
            "on_expire has no effect",
        ),
        (
            r#"{"payload":"x","on_expire":"keep"}"#,
            Some("on_expire"),
            "`drop` or `dead`",
        ),
        (
            r#"{"payload":"x","window":"x"}"#,
            Some("window"),
            "no delay",
        ),
        (
            r#"{"payload":"x","max_wait":"-1s"}"#,
            Some("max_wait"),
            "negative",
        ),
        (r#"{"payload":"x","cost":-1}"#, Some("cost"), "`-1`"),
        (
            r#"{"payload":"x","reuse":1}"#,
            Some("reuse"),
            "true or false",
        ),
    ] {
        let error = read(json).expect_err(json);
        assert_eq!(error.field(), field, "{json}: {error}");
        assert!(error.reason().contains(reason), "{json}: {error}");
    }
    // With two wrong values, the error names one of the fields.
    let error = read(r#"{"payload":"x","reuse":1,"revive":1}"#).expect_err("numbers");
    assert!(matches!(error.field(), Some("reuse" | "revive")), "{error}");
    let text = message(b"{\"payload\":\"\xff\"}", &Defaults::fields(NOW_MS));
    assert!(text.is_err(), "not UTF-8");
}

#[test]
fn names_of_unknown_fields_are_printable_and_cut() {
    let steering = read("{\"\\u001b[2J\u{202e}\": 1}").expect_err("unknown");
    assert!(
        !steering.to_string().contains(crate::checks::steers),
        "{steering}"
    );
    let long = read(&format!("{{\"{}\": 1}}", "x".repeat(1_000_000))).expect_err("unknown");
    assert!(long.to_string().len() < 1_100, "{long}");
}

#[test]
fn depth_and_size_of_a_message_are_bounded() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("{{\"payload\": {open}{close}}}")
    };
    assert!(read(&nested(MAX_DEPTH)).is_ok());
    let error = read(&nested(MAX_DEPTH + 1)).expect_err("too deep");
    assert!(
        error
            .to_string()
            .contains("payload: arrays and objects nest 129 deep"),
        "{error}"
    );
    // The parser does not recurse, so such a text does not use the stack.
    assert!(read(&nested(1_000_000)).is_err());
    assert!(read(&format!("{{\"id\": {}", "[".repeat(1_000_000))).is_err());
    // Brackets within strings do not count as nesting.
    let text = format!(r#"{{"payload": {{"a": "{}\"["}}}}"#, "[".repeat(500));
    assert!(read(&text).is_ok());

    let long = vec![b'x'; MAX_BYTES + 1];
    let error = message(&long, &Defaults::fields(NOW_MS)).expect_err("too long");
    assert!(error.to_string().contains("has 104857601 bytes"), "{error}");
}

#[test]
fn elements_of_an_array_are_messages() {
    let json = r#"[ {"payload": 4.20} , {"payload": "x", "id": "b"}, [], 7 ]"#;
    let elements: Vec<&RawValue> = serde_json::from_str(json).expect("an array");
    let defaults = Defaults::fields(NOW_MS);
    let read: Vec<_> = elements
        .iter()
        .map(|element| message_of(element, &defaults))
        .collect();
    assert_eq!(read[0], Ok(Message::new("4.20")));
    assert_eq!(read[1], Ok(Message::new("x").id("b")));
    assert!(read[2].is_err() && read[3].is_err());
}
