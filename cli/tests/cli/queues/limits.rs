//! Rates, limits of leased messages, expiry and cost: flags, lines of a file, and what is shown.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::{Value, json};

use crate::{Said, dueq};

fn succeeds(server: &Server, args: &[&str]) -> Result<String> {
    let output = dueq(server, args)?;
    anyhow::ensure!(output.status.success(), "{args:?}: {output:?}");
    Ok(output.out())
}

fn object(server: &Server, args: &[&str]) -> Result<Value> {
    let said = succeeds(server, &[args, &["--json"]].concat())?;
    serde_json::from_str(&said).context(said)
}

/// Asserts the values of some fields.
fn has(object: &Value, fields: &Value) {
    for (name, value) in fields.as_object().into_iter().flatten() {
        assert_eq!(&object[name], value, "{name} of {object}");
    }
}

#[test]
fn configure_sets_shows_and_removes_rate_and_max_leased() -> Result<()> {
    let server = Server::start(&[])?;
    let flags = [
        "--rate",
        "50/1s",
        "--burst",
        "5",
        "--max-leased",
        "32",
        "--max-throttle",
        "1h",
    ];
    succeeds(&server, &[&["configure", "q"], &flags[..]].concat())?;
    let set = json!({
        "rate": 50, "rate_window_ms": 1_000, "burst": 5, "max_leased": 32, "max_throttle_ms": 3_600_000,
    });
    for verb in ["configure", "stats"] {
        has(&object(&server, &[verb, "q"])?, &set);
        let said = succeeds(&server, &[verb, "q"])?;
        for words in [["rate", "50/1s"], ["burst", "5"], ["max_leased", "32"]] {
            let found = said
                .lines()
                .any(|line| line.split_whitespace().take(2).eq(words));
            assert!(found, "{words:?}: {said}");
        }
    }
    has(
        &object(&server, &["stats", "q"])?,
        &json!({ "full": false, "expired": 0, "throttled": 0, "snoozed": 0 }),
    );
    // Setting another limit leaves these unchanged. The default burst is 5 ms' worth of the rate: 5
    // at 1,000 a second.
    succeeds(&server, &["configure", "q", "--max-attempts", "7"])?;
    has(&object(&server, &["configure", "q"])?, &set);
    succeeds(&server, &["configure", "q", "--rate", "1000/s"])?;
    has(
        &object(&server, &["configure", "q"])?,
        &json!({ "rate": 1_000, "rate_window_ms": 1_000, "burst": 5 }),
    );
    succeeds(&server, &["configure", "q", "--no-rate", "--no-max-leased"])?;
    has(
        &object(&server, &["configure", "q"])?,
        &json!({ "rate": null, "rate_window_ms": null, "burst": null, "max_leased": null, "max_attempts": 7 }),
    );
    Ok(())
}

/// Each refusal names the option and its range. Nothing is changed, even if other flags of the call
/// are valid.
#[test]
fn wrong_limits_exit_with_2_and_change_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    let range = "1 to 1000000 starts and a window of 1ms to 30d";
    for (flags, words) in [
        (&["--rate", "0/1s"][..], &["--rate", range][..]),
        (&["--rate", "1/36500d"], &["--rate", range]),
        (&["--rate", "1/100years"], &["--rate", range]),
        (&["--rate", "50"], &["--rate", range]),
        (
            &["--rate", "50/1s", "--burst", "51"],
            &["--burst 51", "1 to 50"],
        ),
        (&["--rate", "50/1s", "--burst", "0"], &["--burst", "1.."]),
        (&["--burst", "5"], &["--rate <N/WINDOW>"]),
        (&["--rate", "5/s", "--no-rate"], &["--no-rate", "--rate"]),
        (&["--max-leased", "0"], &["--max-leased", "1..=1000000"]),
        (
            &["--max-leased", "1000001"],
            &["--max-leased", "1..=1000000"],
        ),
        (
            &["--max-leased", "5", "--no-max-leased"],
            &["--no-max-leased"],
        ),
        (
            &["--max-throttle", "0s"],
            &["--max-throttle", "longer than 0"],
        ),
        (
            &["--max-throttle", "900000h"],
            &["--max-throttle", "100 years"],
        ),
    ] {
        for more in [&[][..], &["--max-attempts", "7"]] {
            let output = dueq(&server, &[&["configure", "q"], flags, more].concat())?;
            let said = output.err();
            assert_eq!(output.code(), Some(2), "{flags:?}: {said}");
            for word in words {
                assert!(said.contains(word), "{flags:?}: {said}");
            }
        }
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    // A rate applies to all partitions together.
    succeeds(&server, &["partitions", "p", "4"])?;
    let before = object(&server, &["configure", "p"])?;
    for flags in [["--rate", "3/s"], ["--max-leased", "3"]] {
        let output = dueq(
            &server,
            &[&["configure", "p", "--max-attempts", "7"], &flags[..]].concat(),
        )?;
        let said = output.err();
        assert_eq!(output.code(), Some(2), "{flags:?}: {said}");
        assert!(
            said.contains("4 partitions") && said.contains("4 or more"),
            "{said}"
        );
    }
    assert_eq!(object(&server, &["configure", "p"])?, before);
    Ok(())
}

#[test]
fn push_flags_set_expiry_and_cost() -> Result<()> {
    let server = Server::start(&[])?;
    succeeds(
        &server,
        &["configure", "q", "--rate", "50/1s", "--burst", "5"],
    )?;
    let at = "2099-12-01T22:00:00Z";
    let at_ms = 4_099_845_600_000_u64;
    let push = |id: &str, flags: &[&str]| {
        succeeds(&server, &[&["push", "q", "x", "--id", id], flags].concat())
    };
    let due = ["--at", "2099-12-01T20:00:00Z"];
    push(
        "after",
        &[
            &due[..],
            &["--expires", "2h", "--on-expire", "drop", "--cost", "3"],
        ]
        .concat(),
    )?;
    push("at", &[&due[..], &["--expires-at", at]].concat())?;
    let zoned = ["--expires-at", "2099-12-01 23:00", "--tz", "Europe/Paris"];
    push("zoned", &[&due[..], &zoned].concat())?;
    push("none", &due)?;
    for (id, fields) in [
        (
            "after",
            json!({ "expires_at_ms": at_ms, "expires_after_ms": 7_200_000, "on_expire": "drop", "cost": 3 }),
        ),
        (
            "at",
            json!({ "expires_at_ms": at_ms, "expires_after_ms": null, "on_expire": "dead", "cost": 1 }),
        ),
        ("zoned", json!({ "expires_at_ms": at_ms, "snoozes": 0 })),
        (
            "none",
            json!({ "expires_at_ms": null, "expires_after_ms": null, "on_expire": "dead", "cost": 1 }),
        ),
    ] {
        has(&object(&server, &["show", "q", id])?, &fields);
    }
    let said = succeeds(&server, &["show", "q", "after"])?;
    assert!(
        said.contains("2099-12-01T22:00:00Z (4099845600000), removed then"),
        "{said}"
    );
    let said = succeeds(&server, &["show", "q", "none"])?;
    assert!(said.contains("never"), "{said}");
    Ok(())
}

#[test]
fn wrong_expiry_or_cost_exits_with_2_and_writes_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    for (flags, word) in [
        (&["--expires", "0s"][..], "longer than 0"),
        (&["--expires", "-1h"], "--expires"),
        (&["--expires", "soon"], "--expires"),
        (&["--expires", "900000h"], "100 years"),
        (&["--expires", "1h", "--expires-at", "now"], "--expires-at"),
        (&["--expires-at", "2099-12-01 22:00"], "no zone"),
        (&["--expires-at", "2020-12-01T22:00:00Z"], "ahead"),
        (
            &["--expires-at", "4099845600000", "--tz", "UTC"],
            "no effect on --expires-at",
        ),
        (&["--on-expire", "drop"], "--expires or --expires-at"),
        (&["--expires", "1h", "--on-expire", "keep"], "drop, dead"),
        (&["--cost", "0"], "1..=1000000"),
        (&["--cost", "1000001"], "1..=1000000"),
    ] {
        let output = dueq(&server, &[&["push", "q", "x"], flags].concat())?;
        let said = output.err();
        assert_eq!(output.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(word), "{flags:?}: {said}");
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}

#[test]
fn line_without_expiry_or_cost_takes_the_flags() -> Result<()> {
    let server = Server::start(&[])?;
    succeeds(
        &server,
        &["configure", "q", "--rate", "50/1s", "--burst", "5"],
    )?;
    let path = server.folder().join("lines.ndjson");
    let lines = [
        r#"{"payload":"x","id":"flags","at":"2099-12-01T20:00:00Z"}"#,
        r#"{"payload":"x","id":"own","at":"2099-12-01T20:00:00Z","expires":"1h","on_expire":"dead","cost":2}"#,
        r#"{"payload":"x","id":"at","at":"2099-12-01 20:00","expires_at":"2099-12-01 21:00","tz":"Asia/Tokyo"}"#,
        r#"{"payload":"x","id":"both","expires":"1h","expires_at":"4099845600000"}"#,
        r#"{"payload":"x","id":"zero","expires":"0s"}"#,
        r#"{"payload":"x","id":"number","expires":3600}"#,
        r#"{"payload":"x","id":"fate","on_expire":"keep"}"#,
        r#"{"payload":"x","id":"past","expires_at":"1796126400"}"#,
        r#"{"payload":"x","id":"dear","cost":6}"#,
        r#"{"payload":"x","id":"free","cost":0}"#,
    ];
    fs::write(&path, lines.join("\n"))?;
    let path = path.display().to_string();
    let flags = [
        "--expires-at",
        "2099-12-01T22:00:00Z",
        "--on-expire",
        "drop",
        "--cost",
        "5",
    ];
    let args = [
        &["push", "q", "--json", "--skip-bad", "--ndjson", &path],
        &flags[..],
    ]
    .concat();
    let output = dueq(&server, &args)?;
    let said = output.err();
    assert_eq!(output.code(), Some(0), "{said}");
    for (line, word) in [
        (4, "both expires and expires_at"),
        (5, "expires: "),
        (6, "a text is expected"),
        (7, "`drop` or `dead`"),
        (8, "expires_at: "),
        (9, "cost must be 1 to 5"),
        (10, "cost is 0, it must be 1 to 1000000"),
    ] {
        let skipped = format!("skipped line {line}: ");
        let found = said.lines().find(|text| text.contains(&skipped));
        assert!(
            found.is_some_and(|text| text.contains(word)),
            "{word}: {said}"
        );
    }
    let at_ms = 4_099_845_600_000_u64;
    for (id, fields) in [
        (
            "flags",
            json!({ "expires_at_ms": at_ms, "on_expire": "drop", "cost": 5 }),
        ),
        (
            "own",
            json!({ "expires_after_ms": 3_600_000, "on_expire": "dead", "cost": 2 }),
        ),
        (
            "at",
            json!({ "expires_at_ms": at_ms - 10 * 3_600_000, "on_expire": "drop" }),
        ),
    ] {
        has(&object(&server, &["show", "q", id])?, &fields);
    }
    // A line with on_expire needs an expiry, in the line or by a flag.
    fs::write(&path, r#"{"payload":"x","on_expire":"drop"}"#)?;
    let output = dueq(&server, &["push", "q", "--ndjson", &path])?;
    let said = output.err();
    assert!(said.contains("line 1: on_expire has no effect"), "{said}");
    Ok(())
}

#[tokio::test]
async fn stats_say_whether_the_rate_or_max_leased_stops_the_queue() -> Result<()> {
    let server = Server::start(&[])?;
    let queue = dueq::Client::connect(&server.url()).await?.queue("q")?;
    succeeds(
        &server,
        &["configure", "q", "--rate", "1/1h", "--max-leased", "1"],
    )?;
    for id in ["a", "b"] {
        succeeds(&server, &["push", "q", "x", "--id", id])?;
    }
    let mut held = Vec::new();
    while held.is_empty() {
        held = queue.claim(2, Duration::from_secs(3_600)).await?;
    }
    assert_eq!(held.len(), 1);
    let said = succeeds(&server, &["stats", "q"])?;
    assert!(
        said.contains("full: 1 messages are leased, and max_leased is 1"),
        "{said}"
    );
    has(&object(&server, &["stats", "q"])?, &json!({ "full": true }));
    let last_word = |said: String| said.split_whitespace().last().map(str::to_owned);
    assert_eq!(
        last_word(succeeds(&server, &["stats"])?).as_deref(),
        Some("full")
    );

    let _ = held.pop().context("a delivery")?.ack().await?;
    let said = succeeds(&server, &["stats", "q"])?;
    assert!(
        said.contains("closed by the rate of 1/3600s: the next message starts in "),
        "{said}"
    );
    assert_eq!(
        last_word(succeeds(&server, &["stats"])?).as_deref(),
        Some("rate")
    );

    succeeds(&server, &["configure", "q", "--no-rate", "--no-max-leased"])?;
    succeeds(&server, &["resume", "q"])?;
    succeeds(&server, &["pause", "q", "--for", "1h"])?;
    let said = succeeds(&server, &["stats", "q"])?;
    assert!(said.contains("or a receiver asked for a break"), "{said}");
    assert_eq!(
        last_word(succeeds(&server, &["stats"])?).as_deref(),
        Some("closed")
    );
    Ok(())
}
