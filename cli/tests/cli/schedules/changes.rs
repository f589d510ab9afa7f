//! `dueq schedule`: changes of single schedules, and `keep`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::schedules::schedule::{DAILY, apply, objects, schedule};
use crate::{Said, command, dueq, words};

#[test]
fn pause_resume_and_rm_report_absent_schedules() -> Result<()> {
    let server = Server::start(&[])?;
    apply(&server, DAILY, &[])?;
    for (verb, word) in [
        ("pause", "paused"),
        ("resume", "resumed"),
        ("rm", "removed"),
    ] {
        let output = dueq(&server, &["schedule", verb, "reports", "beat", "none"])?;
        assert_eq!(output.code(), Some(1), "{verb}");
        assert_eq!(output.out(), format!("{word} beat\nabsent none\n"));
        let output = dueq(&server, &["schedule", "next", "reports", "beat", "--json"])?;
        let said = output.err();
        match verb {
            "pause" => assert!(
                said.contains("paused") && output.stdout.is_empty(),
                "{said}"
            ),
            "resume" => assert_eq!(output.out().lines().count(), 10, "{said}"),
            _ => assert_eq!(output.code(), Some(1), "{said}"),
        }
    }
    Ok(())
}

#[test]
fn trigger_names_its_tick_and_backfill_counts_its_ticks() -> Result<()> {
    let server = Server::start(&[])?;
    apply(&server, DAILY, &[])?;
    let output = schedule(&server, &["trigger", "reports", "nightly"])?;
    assert!(output.starts_with("created nightly@"), "{output}");
    let output = dueq(
        &server,
        &["schedule", "trigger", "reports", "nightly", "--json"],
    )?;
    assert_eq!(output.code(), Some(1));
    assert_eq!(objects(&output.out())?[0]["outcome"], "overlaps");
    let days = [
        "--from",
        "2026-03-28 00:00",
        "--to",
        "2026-04-01 00:00",
        "--tz",
        "Europe/Paris",
    ];
    let backfill = [&["backfill", "reports", "nightly"][..], &days].concat();
    for (created, existing) in [(4, 0), (0, 4)] {
        let output = schedule(&server, &backfill)?;
        assert_eq!(
            output,
            format!("backfilled ({created} ticks created, {existing} existing) nightly\n")
        );
    }
    let output = dueq(
        &server,
        &words("schedule backfill reports nightly --from 1796126400000 --to 1796126300000"),
    )?;
    assert_eq!(output.code(), Some(2));
    let output = dueq(
        &server,
        &[&["schedule", "backfill", "reports", "none"][..], &days].concat(),
    )?;
    assert_eq!(output.out(), "absent none\n");
    Ok(())
}

#[test]
fn keep_refills_an_empty_list_and_names_it() -> Result<()> {
    let server = Server::start(&[])?;
    apply(&server, DAILY, &[])?;
    let output = schedule(&server, &["keep", "reports", "--once"])?;
    assert_eq!(output, "refilled 0 lists (0 fires) reports\n");
    let output = dueq(
        &server,
        &["schedule", "keep", "none", "reports", "--once", "--json"],
    )?;
    assert_eq!(output.code(), Some(1));
    assert_eq!(objects(&output.out())?[0]["queue"], "reports");
    assert!(output.err().contains("there is no queue none"));
    Ok(())
}

#[test]
fn keep_runs_until_the_signal() -> Result<()> {
    let server = Server::start(&[])?;
    // An apply of 300 crons fills each list with only 64 of 512 fires.
    let names = 0..300;
    let many: String = names
        .map(|n| {
            format!(
                "[[schedule]]\nname = \"c{n}\"\ncron = \"{} 2 * * *\"\nzone = \"UTC\"\n",
                n % 60
            )
        })
        .collect();
    assert!(apply(&server, &many, &[])?.status.success());
    let mut keep = command(&server)
        .args(["schedule", "keep", "reports"])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(keep.stdout.take().context("its output")?).read_line(&mut line)?;
    assert_eq!(line, "refilled 300 lists (153600 fires) reports\n");
    Command::new("kill")
        .args(["-INT", &keep.id().to_string()])
        .status()?;
    assert_eq!(keep.wait()?.code(), Some(0));
    Ok(())
}
