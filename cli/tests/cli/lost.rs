//! Errors say whether the call took effect, when a proxy loses a reply, a script stops halfway, or
//! a wait ends.

use std::fs;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::{Proxy, Server};
use serde_json::Value;
use sha1_smol::Sha1;

use crate::queues::operator::one_in_each_state;
use crate::{DUEQ, Said, dueq, words};

pub(crate) const PUSH: &str = include_str!("../../../lua/dist/push.lua");
pub(crate) const UNKNOWN: &str = "it may have been done";

/// The name of a script for EVALSHA.
pub(crate) fn sha(script: &str) -> String {
    Sha1::from(script).digest().to_string()
}

pub(crate) fn through(proxy: &Proxy, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(DUEQ);
    command
        .env("REDIS_URL", proxy.url())
        .env("RUST_LOG", "error")
        .stdin(Stdio::null());
    command.args(args).output().context("dueq")
}

/// The proxy cuts the replies of calls that the client does not repeat. The server has executed
/// each call.
#[tokio::test]
async fn lost_reply_is_reported_as_maybe_applied() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = one_in_each_state(&server).await?;
    let lua = |verb: &str| {
        fs::read_to_string(format!(
            "{}/../lua/dist/{verb}.lua",
            env!("CARGO_MANIFEST_DIR")
        ))
    };
    for verb in ["upsert", "reschedule", "run_now", "requeue", "purge"] {
        server.command(&["SCRIPT", "LOAD", &lua(verb)?])?;
    }
    let proxy = Proxy::start(server.port())?;
    for (verb, args, look) in [
        (
            "upsert",
            &words("push q new --id waits --on-conflict replace --delay 1h")[..],
            "dueq show q waits",
        ),
        (
            "upsert",
            &words("push q new --id 'w 2' --on-conflict reschedule"),
            "dueq show q 'w 2'",
        ),
        (
            "reschedule",
            &["reschedule", "q", "waits", "--delay", "2h"],
            "dueq show q waits",
        ),
        ("run_now", &["run-now", "q", "waits"], "dueq show q waits"),
        ("requeue", &["requeue", "q", "dead"], "dueq show q dead"),
        ("requeue", &["requeue", "q", "--all"], "dueq stats q"),
        (
            "purge",
            &["purge", "q", "--state", "scheduled", "--yes"],
            "dueq stats q",
        ),
    ] {
        let cuts = proxy.cuts();
        proxy.cut_reply_of(sha(&lua(verb)?));
        let output = through(&proxy, args)?;
        let said = output.err();
        assert_eq!(
            (output.code(), proxy.cuts()),
            (Some(1), cuts + 1),
            "{args:?}: {said}"
        );
        assert!(
            said.contains(UNKNOWN) && said.contains(look),
            "{args:?}: {said}"
        );
    }
    proxy.cut_reply_of("UNLINK");
    let output = through(&proxy, &["delete-queue", "q", "--yes", "--log", "json"])?;
    let said: Value = serde_json::from_slice(&output.stderr).with_context(|| output.err())?;
    assert_eq!(said["applied"], "unknown", "{said}");
    assert!(
        said["message"]
            .as_str()
            .is_some_and(|message| message.contains(UNKNOWN)),
        "{said}"
    );
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n", "it was done");
    Ok(())
}

/// If the error did not name the generated id, the user could not find the message; a second push
/// would store another one.
#[test]
fn lost_push_names_the_generated_id() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(
        &server,
        &["push", "q", "warm", "--id", "warm", "--delay", "1h"],
    )?;
    let proxy = Proxy::start(server.port())?;
    for flags in [
        &[][..],
        &["--replicas", "1", "--durability-timeout", "10ms"],
    ] {
        proxy.cut_reply_then_refuse(sha(PUSH), "NOPERM no more");
        let output = through(
            &proxy,
            &[&["push", "q", "x", "--delay", "1h"], flags].concat(),
        )?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{said}");
        let id = said
            .split("--id ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .context(said.clone())?;
        assert!(
            said.contains(UNKNOWN) && said.contains(&format!("dueq show q {id}")),
            "{said}"
        );
        assert_eq!(
            dueq(&server, &["show", "q", id])?.code(),
            Some(0),
            "it is there: {said}"
        );
    }
    // Without the replica's confirmation the user needs the id, to wait again.
    let output = dueq(
        &server,
        &words("push q x --delay 1h --replicas 1 --durability-timeout 10ms"),
    )?;
    let said = output.err();
    let id = said
        .split("--id ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .context(said.clone())?;
    assert_eq!(dueq(&server, &["show", "q", id])?.code(), Some(0), "{said}");
    Ok(())
}

#[test]
fn lost_reply_of_a_read_is_not_maybe_applied() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "q", "x", "--id", "m", "--delay", "1h"])?;
    let proxy = Proxy::start(server.port())?;
    for (verb, args) in [
        ("stats", &["stats", "q"][..]),
        ("history", &["history", "q"]),
        ("get", &["show", "q", "m"]),
        ("peek", &["ls", "q"]),
        ("nodes", &["nodes", "q"]),
    ] {
        let lua = fs::read_to_string(format!(
            "{}/../lua/dist/{verb}.lua",
            env!("CARGO_MANIFEST_DIR")
        ))?;
        server.command(&["SCRIPT", "LOAD", &lua])?;
        proxy.cut_reply_then_refuse(sha(&lua), "NOPERM no more");
        let output = through(&proxy, args)?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{args:?}: {said}");
        assert!(!said.contains("may have"), "{args:?}: {said}");
    }
    Ok(())
}

#[test]
fn script_that_stops_halfway_is_not_called_refused() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "q", "x", "--id", "a", "--delay", "1h"])?;
    server.command(&["HSET", "dueq:{q}:meta", "seq", "abc"])?;
    for (args, left) in [
        (
            &["push", "q", "y", "--id", "b", "--delay", "1h"][..],
            ":3\r\n",
        ),
        (&["cancel", "q", "a"], ":2\r\n"),
        (
            &["push", "q", "y", "--id", "b", "--on-conflict", "replace"],
            ":2\r\n",
        ),
    ] {
        let output = dueq(&server, args)?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{said}");
        assert!(
            said.contains("stopped halfway") && !said.contains("refused"),
            "{args:?}: {said}"
        );
        assert!(
            said.contains(UNKNOWN) && said.contains("dueq doctor q"),
            "{args:?}: {said}"
        );
        // The placeholder is part of the counts: the call took effect.
        assert_eq!(
            server.command(&["HLEN", "dueq:{q}:messages"])?,
            left,
            "{args:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn replace_of_a_dead_or_leased_message_is_refused() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = one_in_each_state(&server).await?;
    for conflict in ["replace", "reschedule"] {
        for (id, advice) in [
            ("dead", "dueq requeue q dead"),
            ("leased", "a worker has leased"),
        ] {
            let output = dueq(
                &server,
                &["push", "q", "new", "--id", id, "--on-conflict", conflict],
            )?;
            let said = output.err();
            assert_eq!(output.code(), Some(1), "{conflict} {id}: {said}");
            assert_eq!(output.out(), format!("exists ({id}) {id}\n"));
            assert!(
                said.contains("nothing was changed") && said.contains(advice),
                "{conflict} {id}: {said}"
            );
        }
    }
    let kept = dueq(&server, &["push", "q", "new", "--id", "dead"])?;
    assert_eq!(
        (kept.code(), kept.err().as_str()),
        (Some(0), ""),
        "a plain push is a repetition"
    );

    let path = server.folder().join("lines");
    fs::write(
        &path,
        "{\"payload\":\"new\",\"id\":\"dead\"}\n{\"payload\":\"new\",\"id\":\"waits\"}\n",
    )?;
    let path = path.display().to_string();
    let output = dueq(
        &server,
        &[
            "push",
            "q",
            "--json",
            "--ndjson",
            &path,
            "--on-conflict",
            "replace",
        ],
    )?;
    let report = output.json()?;
    assert_eq!(
        (&report["exists"], &report["moved"], output.code()),
        (&1.into(), &1.into(), Some(1))
    );
    let said = output.err();
    assert!(
        said.contains("line 1") && said.contains("nothing was changed"),
        "{said}"
    );
    Ok(())
}
