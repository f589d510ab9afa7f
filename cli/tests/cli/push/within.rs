//! `--within`: due times are moved to business hours.

use std::fs;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dueq::BusinessHours;
use dueq_testkit::Server;

use crate::{Said, dueq};

const WEEK: [&str; 4] = ["--within", "Mon-Fri 09:00-18:00", "--tz", "Europe/Paris"];
/// 2027-02-05T18:00:00+01:00, when the week ends, and the opening on Monday.
const FRIDAY_18: u64 = 1_801_846_800_000;
const MONDAY_9: u64 = FRIDAY_18 + 63 * HOUR;
const HOUR: u64 = 3_600_000;

fn due_ms(server: &Server, id: &str) -> Result<u64> {
    let shown = dueq(server, &["show", "q", id, "--json"])?;
    let shown = shown.json().context("a message")?;
    shown["due_ms"].as_u64().context("a due time")
}

fn succeeds(server: &Server, args: &[&str], flags: &[&str]) -> Result<()> {
    let output = dueq(server, &[args, flags].concat())?;
    assert!(output.status.success(), "{}", output.err());
    Ok(())
}

fn now_ms() -> Result<u64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(u64::try_from(now.as_millis())?)
}

#[test]
fn time_outside_business_hours_moves_to_the_opening() -> Result<()> {
    let server = Server::start(&[])?;
    for (id, at, due) in [
        ("inside", FRIDAY_18 - 1, FRIDAY_18 - 1),
        ("end", FRIDAY_18, MONDAY_9),
        ("weekend", FRIDAY_18 + 24 * HOUR, MONDAY_9),
        ("start", MONDAY_9, MONDAY_9),
    ] {
        let at = at.to_string();
        succeeds(&server, &["push", "q", "x", "--id", id, "--at", &at], &WEEK)?;
        assert_eq!(due_ms(&server, id)?, due, "{id}");
    }
    // Both `--at` and `--within` use the zone.
    let local = [
        "push",
        "q",
        "x",
        "--id",
        "local",
        "--at",
        "2027-02-06 10:00",
    ];
    succeeds(&server, &local, &WEEK)?;
    assert_eq!(due_ms(&server, "local")?, MONDAY_9);
    Ok(())
}

#[test]
fn delay_counts_from_the_servers_clock() -> Result<()> {
    let server = Server::start(&[])?;
    let (hours, zone) = ("Mon-Sun 00:00-00:01 12:00-12:01", "Pacific/Chatham");
    let flags = ["--within", hours, "--tz", zone];
    let hours = BusinessHours::parse(hours, zone)?;
    for (id, args, delay_ms) in [
        ("now", &[][..], 0),
        ("delay", &["--delay", "30h"], 30 * HOUR),
        ("past", &["--at", "2026-01-01T00:00:00Z"], 0),
    ] {
        let before = hours.next_open(now_ms()? + delay_ms)?;
        let push = [&["push", "q", "x", "--id", id][..], args].concat();
        succeeds(&server, &push, &flags)?;
        let after = hours.next_open(now_ms()? + delay_ms)?;
        let due = due_ms(&server, id)?;
        assert!((before..=after).contains(&due), "{id}: {due}");
    }
    Ok(())
}

#[test]
fn reschedule_moves_the_new_due_time() -> Result<()> {
    let server = Server::start(&[])?;
    succeeds(
        &server,
        &["push", "q", "x", "--id", "a"],
        &["--delay", "1h"],
    )?;
    let before = due_ms(&server, "a")?;
    let missing = dueq(&server, &[&["reschedule", "q", "a"][..], &WEEK].concat())?;
    assert_eq!(missing.code(), Some(2));
    assert!(missing.err().contains("--delay or --at"));
    assert_eq!(due_ms(&server, "a")?, before);
    let at = FRIDAY_18.to_string();
    succeeds(&server, &["reschedule", "q", "a", "--at", &at], &WEEK)?;
    assert_eq!(due_ms(&server, "a")?, MONDAY_9);
    Ok(())
}

#[test]
fn each_line_may_set_its_own_hours_and_zone() -> Result<()> {
    let server = Server::start(&[])?;
    let path = server.folder().join("lines.ndjson");
    let (saturday, sunday) = (FRIDAY_18 + 24 * HOUR, FRIDAY_18 + 48 * HOUR);
    let lines = format!(
        r#"{{"payload":"x","id":"flags","at":"{saturday}"}}
{{"payload":"x","id":"hours","at":"{saturday}","within":"Sun 18:00-20:00"}}
{{"payload":"x","id":"zone","at":"{saturday}","tz":"America/New_York"}}
{{"payload":"x","id":"both","at":"{saturday}","within":"Mon 09:00-10:00","tz":"Asia/Tokyo"}}
{{"payload":"x","id":"time","at":"2027-02-06 10:00","tz":"Asia/Tokyo"}}
{{"payload":"x","id":"none","tz":"Asia/Tokyo"}}
{{"payload":"x","id":"delay","delay":"900h"}}
"#
    );
    fs::write(&path, lines)?;
    let file = path.to_str().context("a path")?;
    let push = ["push", "q", "--ndjson", file, "--at", "2027-02-06 12:00"];
    succeeds(&server, &push, &WEEK)?;
    for (id, due) in [
        ("flags", MONDAY_9),
        ("hours", sunday),
        ("zone", MONDAY_9 + 6 * HOUR),
        ("both", MONDAY_9 - 8 * HOUR),
        ("time", MONDAY_9 - 8 * HOUR),
        ("none", MONDAY_9 - 8 * HOUR),
    ] {
        assert_eq!(due_ms(&server, id)?, due, "{id}");
    }
    let hours = BusinessHours::parse(WEEK[1], WEEK[3])?;
    assert!(hours.is_open(due_ms(&server, "delay")?));

    // Without --at and --delay the hours apply to the present time; hours require a zone.
    let push = ["push", "q", "--ndjson", file];
    fs::write(
        &path,
        r#"{"payload":"x","id":"now","within":"Mon-Sun 00:00-24:00","tz":"Asia/Tokyo"}"#,
    )?;
    succeeds(&server, &push, &[])?;
    let age = now_ms()?.abs_diff(due_ms(&server, "now")?);
    assert!(Duration::from_millis(age) < Duration::from_secs(600));
    Ok(())
}

#[test]
fn wrong_hours_and_zones_change_nothing() -> Result<()> {
    let server = Server::start(&[])?;
    let hours = "Mon-Fri 09:00-18:00";
    let push = ["push", "q", "x", "--delay", "1h"];
    for (flags, reason) in [
        (&["--within", hours][..], "--tz Europe/Paris"),
        (&["--within", hours, "--tz", "CET"], "abbreviations"),
        (&["--within", hours, "--tz", "+01:00"], "no time zone"),
        (&["--within", "", "--tz", "UTC"], "empty"),
        (&["--within", "Mon-Fri", "--tz", "UTC"], "no hours"),
        (&["--within", "09:00-18:00", "--tz", "UTC"], "no day"),
        (
            &["--within", "Mo 09:00-18:00", "--tz", "UTC"],
            "\"Mo\" is no day",
        ),
        (
            &["--within", "Mon 9-18", "--tz", "UTC"],
            "\"9-18\" is no range",
        ),
        (
            &["--within", "Mon 09:00-09:00", "--tz", "UTC"],
            "00:00-24:00",
        ),
        (
            &["--within", "Mon 09:00-12:00 10:00-11:00", "--tz", "UTC"],
            "overlap",
        ),
    ] {
        for command in [&push[..], &["reschedule", "q", "x", "--delay", "1h"]] {
            let output = dueq(&server, &[command, flags].concat())?;
            let said = output.err();
            assert_eq!(output.code(), Some(2), "{flags:?}: {said}");
            assert!(said.contains(reason), "{flags:?}: {said}");
        }
        // A line of a file with the fields that correspond to the flags.
        let [_, within, rest @ ..] = flags else {
            continue;
        };
        let zone = rest.get(1).map(|zone| format!(r#","tz":"{zone}""#));
        let line = format!(
            r#"{{"payload":"x","within":"{within}"{}}}"#,
            zone.unwrap_or_default()
        );
        let path = server.folder().join("wrong.ndjson");
        fs::write(&path, &line)?;
        let file = path.to_str().context("a path")?;
        let output = dueq(&server, &["push", "q", "--ndjson", file])?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{line}: {said}");
        assert!(
            said.contains("line 1: ") && said.contains(reason),
            "{line}: {said}"
        );
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}

#[test]
fn zone_of_a_line_without_effect_is_refused() -> Result<()> {
    let server = Server::start(&[])?;
    let path = server.folder().join("lines.ndjson");
    for (line, reason) in [
        (r#"{"payload":"x","tz":"UTC"}"#, "no effect without"),
        (
            r#"{"payload":"x","delay":"1h","tz":"UTC"}"#,
            "no effect without",
        ),
        (
            r#"{"payload":"x","at":"2027-02-06T10:00Z","tz":"UTC"}"#,
            "needs no zone",
        ),
    ] {
        fs::write(&path, line)?;
        let file = path.to_str().context("a path")?;
        let output = dueq(&server, &["push", "q", "--ndjson", file])?;
        assert!(output.err().contains(reason), "{line}: {}", output.err());
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}
