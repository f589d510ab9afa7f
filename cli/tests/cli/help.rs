//! The help texts, compared with tests/help.txt. To rewrite this file:
//! `DUEQ_BLESS=1 cargo test -p dueq-cli --test cli help`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{DUEQ, Said};

const VERBS: [&str; 33] = [
    "push",
    "work",
    "cancel",
    "reschedule",
    "schedule",
    "run-now",
    "show",
    "ls",
    "stats",
    "workers",
    "nodes",
    "history",
    "queues",
    "pause",
    "resume",
    "requeue",
    "end-lease",
    "bury",
    "purge",
    "delete-queue",
    "configure",
    "partitions",
    "move",
    "doctor",
    "acl",
    "functions",
    "keys",
    "import",
    "bench",
    "serve",
    "healthcheck",
    "dev",
    "completions",
];

/// The commands of `dueq schedule`.
const OF_SCHEDULE: [&str; 11] = [
    "schedule apply",
    "schedule ls",
    "schedule show",
    "schedule next",
    "schedule trigger",
    "schedule backfill",
    "schedule pause",
    "schedule resume",
    "schedule recompute",
    "schedule rm",
    "schedule keep",
];

/// The commands of `dueq serve`.
const OF_SERVE: [&str; 1] = ["serve token"];

#[test]
fn help_matches_the_approved_texts() -> Result<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help.txt");
    let verbs = VERBS.into_iter().chain(OF_SCHEDULE).chain(OF_SERVE);
    let lines = verbs.map(|verb| format!("dueq {verb} --help"));
    let mut texts = Vec::new();
    for line in ["dueq --help".to_owned()].into_iter().chain(lines) {
        let mut command = Command::new(DUEQ);
        // The URL leads to no server: printing help makes no call.
        let output = command
            .args(line.split(' ').skip(1))
            .env("REDIS_URL", "redis://127.0.0.1:1/")
            .output()?;
        assert_eq!(output.code(), Some(0), "{line}");
        texts.push(format!("$ {line}\n{}", output.out()));
    }
    let help = texts.join("\n");
    if std::env::var_os("DUEQ_BLESS").is_some() {
        fs::write(&file, &help)?;
    }
    let approved = fs::read_to_string(&file)
        .with_context(|| format!("{}: DUEQ_BLESS=1 writes it", file.display()))?;
    for text in &texts {
        assert!(
            approved.contains(text),
            "this help changed; read it, then DUEQ_BLESS=1 keeps it:\n{text}"
        );
    }
    assert!(help == approved, "{} has more", file.display());
    Ok(())
}

#[test]
fn every_command_has_an_approved_help() -> Result<()> {
    let help = Command::new(DUEQ).arg("--help").output()?.out();
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .context("commands")?;
    let listed: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, [&VERBS[..], &["help"]].concat());
    Ok(())
}

#[test]
fn completions_name_every_command() -> Result<()> {
    for shell in ["bash", "zsh", "fish"] {
        let script = Command::new(DUEQ)
            .args(["completions", shell])
            .output()?
            .out();
        for verb in VERBS {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
    }
    Ok(())
}
