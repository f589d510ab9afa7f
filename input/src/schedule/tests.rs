use std::time::{Duration, UNIX_EPOCH};

use super::*;

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn refusal(text: &str) -> String {
    let refused = schedule_json(text.as_bytes(), "nightly", now());
    refused.expect_err(text).to_string()
}

#[test]
fn schedules_are_read_from_json() {
    let all = r#"{"name": "nightly", "cron": "0 2 * * *", "zone": "Europe/Paris", "payload_json": {"b": [1, null], "a": 2.5},
        "missed": "all", "max": 7, "within": "1h", "overlap": "skip", "jitter": "30s", "start": "2027-01-01T00:00:00Z",
        "end": "2027-12-01T00:00:00+01:00", "limit": 100, "max_attempts": 5, "expires": "2h", "on_expire": "drop"}"#;
    let declared = schedule_json(all.as_bytes(), "nightly", now()).expect("a schedule");
    assert_eq!(declared.payload_bytes, r#"{"a":2.5,"b":[1,null]}"#.len());
    for (payload, bytes) in [
        (r#""payload": "\u00e4""#, 2),
        (r#""payload_base64": "/8M=""#, 2),
        (r#""payload_json": "x""#, 3),
        (r#""payload_json": null"#, 4),
        (r#""payload_json": 18446744073709551615"#, 20),
        (r#""limit": 1"#, 0),
    ] {
        let text = format!("{{\"every\": \"15m\", {payload}}}");
        let declared = schedule_json(text.as_bytes(), "sync", now()).expect(payload);
        assert_eq!((&*declared.name, declared.payload_bytes), ("sync", bytes));
    }
}

#[test]
fn faults_of_json_name_the_key_and_what_to_write() {
    for (fields, reason) in [
        (
            "",
            "it has no rule: write \"every\": \"15m\", or \"cron\": \"0 2 * * *\" and \"zone\": \"Europe/Paris\"",
        ),
        (
            r#""every": 15"#,
            "every is a number: write a number and a unit in quotes",
        ),
        (r#""every": null"#, "every is null"),
        (r#""every": "5ms""#, "10 ms to 100 years"),
        (
            r#""every": "1h", "every": "2h""#,
            "duplicate field \"every\"",
        ),
        (
            r#""every": "1h", "jiter": "1s""#,
            "there is no key \"jiter\": did you mean jitter?",
        ),
        (r#""every": "1h", "max": 5"#, "without \"missed\": \"all\""),
        (r#""every": "1h", "limit": 0"#, "limit is 0"),
        (
            r#""every": "1h", "limit": 1e3"#,
            "limit is a number: write a number without quotes",
        ),
        (r#""every": "1h", "limit": -1"#, "limit is -1"),
        (
            r#""every": "1h", "limit": 1e400"#,
            "limit: the number is too large",
        ),
        (r#""every": "1h", "limit": NaN"#, "no JSON value"),
        (
            r#""every": "1h", "name": "other""#,
            "name: the object has another name than \"nightly\"",
        ),
        (r#""every": "1h", "name": 5"#, "another name"),
        (
            r#""every": "1h", "payload": {}"#,
            "payload is a table: write it in quotes",
        ),
        (
            r#""every": "1h", "payload": "", "payload_json": 1"#,
            "payload and payload_json",
        ),
        (
            r#""every": "1h", "payload_base64": "x""#,
            "payload_base64 is not base64",
        ),
        (r#""cron": "61 * * * *", "zone": "UTC""#, "61"),
        (
            r#""cron": "0 0 30 2 *", "zone": "UTC""#,
            "does not fire within ten years",
        ),
        (
            r#""cron": "0 2 * * *", "zone": "Europe/Pariss""#,
            "Europe/Pariss",
        ),
        (r#""cron": "0 2 * * *""#, "needs a time zone"),
        (
            r#""cron": "0 2 * * *", "zone": "UTC", "every": "1h""#,
            "it has every and cron",
        ),
    ] {
        let refused = refusal(&format!("{{{fields}}}"));
        assert!(refused.contains(reason), "{fields}: {refused}");
    }
    for text in ["", "[]", "5", "null", "\"x\"", "{", "{}x", "{\"a\": [}"] {
        refusal(text);
    }
    let two = refusal(r#"{"every": "1h", "limit": 0, "max_attempts": 0}"#);
    assert!(
        two.contains("limit is 0") && two.contains("; max_attempts is 0"),
        "{two}"
    );
}

#[test]
fn faults_of_a_list_name_the_schedule() {
    let read = |list: &str| schedules_json(format!("{{\"schedules\": {list}}}").as_bytes(), now());
    let places = |list| -> Vec<usize> {
        let read = read(list).expect(list);
        read.iter().map(|declared| declared.place).collect()
    };
    assert!(places("[]").is_empty());
    assert_eq!(
        places(r#"[{"name": "a", "every": "1h"}, {"name": "b", "every": "1h"}]"#),
        [1, 2]
    );
    for (list, reason) in [
        (
            r#"[{"every": "1h"}]"#,
            "schedule 1 of the list: the schedule has no name",
        ),
        (
            r#"[{"name": "a", "every": "1h"}, 5]"#,
            "schedule 2 of the list: it is a number: write an object",
        ),
        (
            r#"[{"name": "a", "every": "1h"}, {"name": "a", "every": "2h"}]"#,
            "schedule \"a\": schedule 1 of the list has this name",
        ),
        (r#"[{"name": "a b", "every": "1h"}]"#, "1 to 100 letters"),
        (
            r#"[{"name": "a\u0000", "every": "1h"}]"#,
            "1 to 100 letters",
        ),
        (r#"{"name": "a"}"#, "schedules: write a list"),
        ("5", "schedules: write a list"),
        ("[[[[[[]]]]]]", "it is an array"),
    ] {
        let refused = read(list).expect_err(list).to_string();
        assert!(refused.contains(reason), "{list}: {refused}");
    }
    let many = read(&format!("[{}]", vec!["5"; 1_000].join(","))).expect_err("numbers");
    assert!(many.to_string().ends_with("and 995 more"), "{many}");
    for text in [
        "{}",
        r#"{"schedule": []}"#,
        r#"{"schedules": [], "set": "a"}"#,
        "[]",
    ] {
        assert!(schedules_json(text.as_bytes(), now()).is_err(), "{text}");
    }
    let deep = format!(
        "{{\"schedules\": [{{\"payload_json\": {}1{}}}]}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    assert!(schedules_json(deep.as_bytes(), now()).is_err());
}
