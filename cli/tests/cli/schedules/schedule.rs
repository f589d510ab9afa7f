//! `dueq schedule`: declared, shown, changed and kept schedules.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::{Said, Work, command, dueq};

pub(crate) const DAILY: &str = "\
[[schedule]]
name = \"nightly\"
cron = \"30 2 * * *\"
zone = \"Europe/Paris\"
payload = '{\"report\": \"sales\"}'
overlap = \"skip\"

[[schedule]]
name = \"beat\"
every = \"50ms\"
";

/// Applies this text as the set `billing` of the queue `reports`.
pub(crate) fn apply(server: &Server, toml: &str, flags: &[&str]) -> Result<Output> {
    let path = server.folder().join("schedules.toml");
    fs::write(&path, toml)?;
    let file = path.to_str().context("a path")?;
    let args = ["schedule", "apply", "reports", file, "--set", "billing"];
    dueq(server, &[&args[..], flags].concat())
}

/// The standard output of `dueq schedule ARGS`, which must succeed.
pub(crate) fn schedule(server: &Server, args: &[&str]) -> Result<String> {
    let output = dueq(server, &[&["schedule"], args].concat())?;
    assert!(output.status.success(), "{args:?}: {}", output.err());
    Ok(output.out())
}

pub(crate) fn objects(lines: &str) -> Result<Vec<Value>> {
    lines
        .lines()
        .map(|line| serde_json::from_str(line).context(line.to_owned()))
        .collect()
}

/// The first word and the last one of each line.
fn words(output: &Output) -> Vec<String> {
    let shown = output.out();
    let ends = shown.lines().map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        format!("{} {}", words[0], words[words.len() - 1])
    });
    ends.collect()
}

#[test]
fn apply_prints_the_outcome_of_each_schedule() -> Result<()> {
    let server = Server::start(&[])?;
    let output = apply(&server, DAILY, &["--revision", "42", "--dry-run"])?;
    assert_eq!(
        words(&output),
        ["created nightly", "created beat", "dry changed"]
    );
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");

    let output = apply(&server, DAILY, &["--revision", "42"])?;
    assert_eq!(
        words(&output),
        ["made reports", "created nightly", "created beat"]
    );
    let changed = DAILY
        .replace("50ms", "1h")
        .replace("nightly", "weekly")
        .replace("* * *", "* * MON");
    let output = apply(
        &server,
        &changed,
        &["--revision", "43", "--prune", "--json"],
    )?;
    let lines = objects(&output.out())?;
    let outcomes: Vec<_> = lines
        .iter()
        .map(|line| (line["schedule"].as_str(), line["outcome"].as_str()))
        .collect();
    assert_eq!(
        outcomes,
        [
            (Some("weekly"), Some("created")),
            (Some("beat"), Some("changed")),
            (Some("nightly"), Some("removed")),
        ]
    );
    assert!(lines[0]["next_ms"].is_u64(), "{}", lines[0]);
    let output = apply(&server, &changed, &["--revision", "43"])?;
    assert_eq!(words(&output), ["kept weekly", "kept beat"]);
    Ok(())
}

#[test]
fn older_revision_is_refused_with_exit_code_1() -> Result<()> {
    let server = Server::start(&[])?;
    assert!(
        apply(&server, DAILY, &["--revision", "42"])?
            .status
            .success()
    );
    let before = schedule(&server, &["ls", "reports", "--json"])?;
    let output = apply(&server, "schedule = []", &["--revision", "41", "--prune"])?;
    let said = output.err();
    assert_eq!(output.code(), Some(1), "{said}");
    assert!(
        said.contains("has revision 42, and this call has 41"),
        "{said}"
    );
    let names = |lines: &str| -> Result<Vec<Value>> {
        Ok(objects(lines)?
            .into_iter()
            .map(|mut line| line["name"].take())
            .collect())
    };
    let after = schedule(&server, &["ls", "reports", "--json"])?;
    assert_eq!(names(&before)?, names(&after)?);
    for revision in ["v42", "-1", "1.5", "9007199254740993", ""] {
        let flag = format!("--revision={revision}");
        let output = apply(&server, DAILY, &[&flag])?;
        assert_eq!(output.code(), Some(2), "{revision}");
        let said = output.err();
        assert!(said.contains("is no revision"), "{said}");
    }
    Ok(())
}

#[test]
fn live_worker_of_an_older_release_stops_the_first_apply() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "reports", "x", "--delay", "1h"])?;
    // A node whose beat lies in the far future counts as live.
    server.command(&["ZADD", "dueq:{reports}:nodes", "99999999999999", "elder"])?;
    let output = apply(&server, DAILY, &[])?;
    let said = output.err();
    assert_eq!(output.code(), Some(1), "{said}");
    assert!(
        said.contains("such as \"elder\"") && said.contains("--allow-older"),
        "{said}"
    );
    assert_eq!(
        server.command(&["HGET", "dueq:{reports}:meta", "layout"])?,
        "1"
    );
    assert!(apply(&server, DAILY, &["--allow-older"])?.status.success());
    assert_eq!(
        server.command(&["HGET", "dueq:{reports}:meta", "layout"])?,
        "4"
    );
    Ok(())
}

#[test]
fn ticks_name_their_schedule_and_nominal_time() -> Result<()> {
    let server = Server::start(&[])?;
    apply(&server, DAILY, &["--now"])?;
    let mut work = Work::start(&server, "reports")?;
    for _ in 0..4 {
        let delivery = work.delivery()?;
        let name = delivery["schedule"].as_str().context("a schedule")?;
        let nominal_ms = delivery["nominal_ms"].as_u64().context("a time")?;
        assert_eq!(delivery["id"], format!("{name}@{nominal_ms}"));
    }
    assert_eq!(work.stop()?, Some(0));

    schedule(&server, &["rm", "reports", "beat"])?;
    schedule(&server, &["trigger", "reports", "nightly"])?;
    let mut child = command(&server)
        .args([
            "work",
            "reports",
            "--exec",
            "echo $DUEQ_SCHEDULE $DUEQ_NOMINAL_MS $DUEQ_ID",
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
    let line = lines.find(|line| {
        line.as_ref()
            .map_or(true, |line| line.starts_with("nightly"))
    });
    let line = line.context("a line")??;
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()?;
    child.wait()?;
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!(words[2], format!("{}@{}", words[0], words[1]), "{line}");
    Ok(())
}

#[test]
fn ls_show_and_stats_have_the_state_of_schedules() -> Result<()> {
    let server = Server::start(&[])?;
    apply(&server, DAILY, &[])?;
    let table = schedule(&server, &["ls", "reports"])?;
    assert!(table.contains("30 2 * * * in Europe/Paris"), "{table}");
    assert!(table.contains("every 50ms"), "{table}");
    assert_eq!(
        schedule(&server, &["ls", "reports", "--set", "other", "--json"])?,
        ""
    );
    let shown = schedule(&server, &["show", "reports", "nightly"])?;
    for line in ["512 fires", "skip", "{\"report\": \"sales\"}", "tzdata"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let shown = objects(&schedule(
        &server,
        &["show", "reports", "nightly", "--json"],
    )?)?;
    assert_eq!(shown[0]["cron"], "30 2 * * *");
    assert_eq!(shown[0]["payload"], "{\"report\": \"sales\"}");
    let stats = dueq(&server, &["stats", "reports", "--json"])?.json()?;
    for (name, value) in [("schedules", 2), ("low_lists", 0), ("dry_lists", 0)] {
        assert_eq!(stats[name], value, "{name} of {stats}");
    }
    let output = dueq(&server, &["schedule", "show", "reports", "nihgtly"])?;
    assert_eq!(
        (output.code(), output.out()),
        (Some(1), "absent nihgtly\n".to_owned())
    );
    let output = dueq(&server, &["schedule", "ls", "repotrs"])?;
    assert_eq!(output.code(), Some(1));
    assert!(output.err().contains("did you mean reports?"));
    Ok(())
}

#[test]
fn schedule_next_shows_both_times_and_clock_changes() -> Result<()> {
    let server = Server::start(&[])?;
    apply(&server, DAILY, &[])?;
    let from = ["--from", "2027-03-27T00:00:00+01:00", "-n", "3"];
    let shown = schedule(
        &server,
        &[&["next", "reports", "nightly"][..], &from].concat(),
    )?;
    let lines: Vec<_> = shown.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "Sat 2027-03-27 02:30:00 +01:00  2027-03-27T01:30:00Z",
            "Sun 2027-03-28 03:00:00 +02:00  2027-03-28T01:00:00Z  02:30 does not exist that day: 03:00",
            "Mon 2027-03-29 02:30:00 +02:00  2027-03-29T00:30:00Z",
        ]
    );
    // Without a server the output is the same.
    let rule = [
        "schedule",
        "next",
        "--redis",
        "redis://127.0.0.1:1/",
        "--cron",
        "30 2 * * *",
        "--zone",
        "Europe/Paris",
    ];
    let preview = dueq(&server, &[&rule[..], &from].concat())?;
    assert_eq!(preview.out(), shown);
    let json = dueq(&server, &[&rule[..], &from, &["--json"]].concat())?;
    let lines = objects(&json.out())?;
    assert_eq!(lines[1]["local"], "2027-03-28T03:00:00+02:00[Europe/Paris]");
    assert_eq!(lines[1]["remark"], "02:30 does not exist that day: 03:00");
    // Without --from the command shows the fires that the queue has listed.
    let shown = objects(&schedule(
        &server,
        &["next", "reports", "nightly", "-n", "600", "--json"],
    )?)?;
    assert_eq!(shown.len(), 600);
    for (args, reason) in [
        (
            &["--cron", "0 0 30 2 *", "--zone", "UTC"][..],
            "does not fire within ten years",
        ),
        (&["--cron", "0 0 * * *", "--zone", "CET"], "abbreviations"),
        (
            &["--cron", "61 * * * *", "--zone", "UTC"],
            "no cron pattern",
        ),
        (&["--every", "9ms"], "10 ms to 100 years"),
        (&["--cron", "0 0 * * *"], "--zone"),
        (&["reports"], "<NAME>"),
    ] {
        let output = dueq(&server, &[&["schedule", "next"], args].concat())?;
        assert_eq!(output.code(), Some(2), "{args:?}");
        assert!(output.err().contains(reason), "{args:?}: {}", output.err());
    }
    Ok(())
}
