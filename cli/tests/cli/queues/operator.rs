//! The commands of an operator, as a script uses them: words, JSON and exit codes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::{Said, command, dueq, words};

/// Runs the command and asserts its exit code and output.
pub(crate) fn says(server: &Server, args: &[&str], code: i32, expected: &str) -> Result<()> {
    let output = dueq(server, args)?;
    assert_eq!(output.out(), expected, "{args:?}: {}", output.err());
    assert_eq!(output.code(), Some(code), "{args:?}: {}", output.err());
    Ok(())
}

pub(crate) fn json(server: &Server, args: &[&str]) -> Result<Vec<Value>> {
    let output = dueq(server, &[args, &["--json"]].concat())?;
    output
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}

/// Creates a dead, a leased and a scheduled message. The returned delivery holds the lease.
pub(crate) async fn one_in_each_state(server: &Server) -> Result<dueq::Delivery> {
    let queue = dueq::Client::connect(&server.url()).await?.queue("q")?;
    queue
        .push_message(dueq::Message::new("d").id("dead"))
        .await?;
    let buried = claim(&queue).await?.bury("no \x1b[31muse").await?;
    assert_eq!(buried, dueq::outcomes::SettleOutcome::Done);
    queue
        .push_message(dueq::Message::new("l").id("leased"))
        .await?;
    let leased = claim(&queue).await?;
    queue
        .push_message(
            dueq::Message::new("s")
                .id("waits")
                .due(dueq::Due::at_ms(1_796_126_400_000)),
        )
        .await?;
    Ok(leased)
}

/// Claims the message that was just pushed. It is due within a millisecond.
async fn claim(queue: &dueq::Queue) -> Result<dueq::Delivery> {
    loop {
        if let Some(delivery) = queue
            .claim(1, std::time::Duration::from_secs(3_600))
            .await?
            .pop()
        {
            return Ok(delivery);
        }
    }
}

#[tokio::test]
async fn refusals_print_their_word_and_exit_with_1() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = one_in_each_state(&server).await?;
    says(
        &server,
        &words("reschedule q waits --at 2026-12-01T13:00:00Z --expected 7"),
        1,
        "conflict (due 2026-12-01T12:00:00Z) waits\n",
    )?;
    says(
        &server,
        &words("reschedule q waits --at '2026-12-01 21:00' --tz Asia/Shanghai"),
        0,
        "moved (due 2026-12-01T13:00:00Z) waits\n",
    )?;
    says(
        &server,
        &["reschedule", "q", "leased", "--delay", "1h"],
        1,
        "leased leased\n",
    )?;
    says(
        &server,
        &["reschedule", "q", "dead", "--delay", "1h", "--json"],
        1,
        "{\"due_ms\":null,\"id\":\"dead\",\"outcome\":\"dead\"}\n",
    )?;
    says(
        &server,
        &["reschedule", "q", "none", "--delay", "1h"],
        1,
        "absent none\n",
    )?;
    says(
        &server,
        &["requeue", "q", "waits", "none"],
        1,
        "not_dead (scheduled) waits\nabsent none\n",
    )?;
    says(&server, &["run-now", "q", "waits"], 0, "moved waits\n")?;
    says(&server, &["run-now", "q", "waits"], 0, "already waits\n")?;
    says(
        &server,
        &["run-now", "q", "leased", "dead", "none"],
        1,
        "leased leased\ndead dead\nabsent none\n",
    )?;
    says(
        &server,
        &["cancel", "q", "waits", "leased", "dead", "none"],
        1,
        "cancelled waits\nleased leased\ndead dead\nabsent none\n",
    )?;
    says(&server, &["show", "q", "none"], 1, "absent none\n")?;
    says(&server, &["requeue", "q", "dead"], 0, "requeued dead\n")?;
    says(
        &server,
        &["cancel", "q", "dead", "--json"],
        0,
        "{\"id\":\"dead\",\"outcome\":\"cancelled\"}\n",
    )?;
    Ok(())
}

#[tokio::test]
async fn show_and_ls_print_messages_with_controls_escaped() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = one_in_each_state(&server).await?;
    let shown = json(&server, &["show", "q", "dead"])?;
    assert_eq!(
        (&shown[0]["state"], &shown[0]["payload_base64"]),
        (&"dead".into(), &"ZA==".into())
    );
    assert!(shown[0]["died_ms"].is_u64(), "{shown:?}");
    assert_eq!(
        json(&server, &["show", "q", "waits"])?[0]["due_ms"],
        1_796_126_400_000_u64
    );
    says(&server, &["show", "q", "waits", "--payload"], 0, "s")?;
    for args in [&["show", "q", "dead"][..], &["ls", "q", "--state", "dead"]] {
        let output = dueq(&server, args)?.out();
        assert!(
            output.contains("\\u{1b}[31m") && !output.contains('\x1b'),
            "{output}"
        );
    }
    assert_eq!(
        json(&server, &["ls", "q", "--state", "leased"])?[0]["id"],
        "leased"
    );
    assert_eq!(
        json(&server, &["ls", "q", "--state", "ready"])?,
        Vec::<Value>::new()
    );
    Ok(())
}

#[tokio::test]
async fn ls_continues_at_its_cursor() -> Result<()> {
    let server = Server::start(&[])?;
    let queue = dueq::Client::connect(&server.url()).await?.queue("q")?;
    // More than one page of the protocol, and an id that is not UTF-8.
    let ids = (0..1_500)
        .map(|number| format!("m {number:04}").into_bytes())
        .chain([b"\xff".to_vec()]);
    for pushed in queue
        .push_many(ids.map(|id| {
            dueq::Message::new("")
                .id(id)
                .due(dueq::Due::at_ms(1_796_126_400_000))
        }))
        .await
    {
        pushed?;
    }
    let first = json(&server, &["ls", "q", "--limit", "1200"])?;
    assert_eq!(first.len(), 1_201);
    let cursor = first[1_200]["cursor"]
        .as_str()
        .context("a cursor at the end")?;
    let rest = json(&server, &["ls", "q", "--limit", "1200", "--cursor", cursor])?;
    assert_eq!(
        (rest.len(), &rest[0]["id"], &rest[299]["id"]),
        (301, &"m 1200".into(), &"m 1499".into())
    );
    assert_eq!(rest[300]["id_base64"], "/w==");
    let output = dueq(&server, &["ls", "q", "--cursor", "nonsense"])?;
    assert_eq!(output.code(), Some(2), "{}", output.err());
    Ok(())
}

#[tokio::test]
async fn pause_configure_purge_and_delete_a_queue() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = one_in_each_state(&server).await?;
    says(&server, &["pause", "q"], 0, "paused q\n")?;
    assert_eq!(json(&server, &["stats", "q"])?[0]["paused"], true);
    assert!(dueq(&server, &["stats"])?.out().contains("paused"));
    says(&server, &["resume", "q"], 0, "resumed q\n")?;
    let paused = json(&server, &["pause", "q", "--for", "1h"])?;
    assert_eq!(paused[0]["for_ms"], 3_600_000);
    let closed_ms = json(&server, &["stats", "q"])?[0]["closed_ms"].as_u64();
    assert!((3_500_000..=3_600_001).contains(&closed_ms.context("closed_ms")?));
    says(&server, &["pause", "q", "--for", "1ms"], 0, "paused q\n")?;
    says(&server, &["resume", "q"], 0, "resumed q\n")?;
    assert_eq!(json(&server, &["stats", "q"])?[0]["closed_ms"], 0);
    for bad in ["0s", "-1s", "soon", "200y", "30"] {
        let output = dueq(&server, &["pause", "q", "--for", bad])?;
        assert_eq!(output.code(), Some(2), "{bad}: {}", output.err());
    }
    dueq(&server, &["push", "other queue", "x", "--delay", "1h"])?;
    says(&server, &["queues"], 0, "other queue\nq\n")?;
    let all = json(&server, &["stats"])?;
    assert_eq!(
        (all.len(), &all[0]["queue"], &all[0]["scheduled"]),
        (2, &"other queue".into(), &1.into())
    );

    says(
        &server,
        &words("configure q --max-messages 1 --max-attempts 3"),
        0,
        "configured q\n",
    )?;
    let full = dueq(&server, &["push", "q", "one too many"])?;
    assert_eq!(full.code(), Some(1), "{}", full.out());
    says(
        &server,
        &["configure", "q", "--max-messages", "none"],
        0,
        "configured q\n",
    )?;

    for args in [
        &["purge", "q", "--state", "dead"][..],
        &["delete-queue", "q"],
    ] {
        let output = dueq(&server, args)?;
        assert_eq!(output.code(), Some(1));
        let said = output.err();
        assert!(said.contains("1 dead") && said.contains("--yes"), "{said}");
    }
    says(&server, &["requeue", "q", "--all"], 0, "requeued 1 q\n")?;
    says(
        &server,
        &["purge", "q", "--state", "scheduled", "--yes", "--json"],
        0,
        "{\"count\":2,\"outcome\":\"purged\",\"queue\":\"q\"}\n",
    )?;
    says(
        &server,
        &["purge", "q", "--state", "leased", "--yes"],
        2,
        "",
    )?;
    says(&server, &["delete-queue", "q", "--yes"], 0, "deleted q\n")?;
    says(&server, &["delete-queue", "q", "--yes"], 1, "absent q\n")?;
    says(
        &server,
        &["queues", "--json"],
        0,
        "{\"queue\":\"other queue\"}\n",
    )?;
    Ok(())
}

#[test]
fn ids_keep_every_byte() -> Result<()> {
    let server = Server::start(&[])?;
    for id in [&b"a b:c"[..], "für 你".as_bytes(), b"\xff\xfe", b"{x}/'\""] {
        let id = OsStr::from_bytes(id);
        let run = |verb: &str, rest: &[&str]| {
            let mut command = command(&server);
            if verb == "push" {
                command
                    .args(["push", "q", "x", "--delay", "1h", "--id"])
                    .arg(id)
                    .output()
            } else {
                command.args([verb, "q"]).arg(id).args(rest).output()
            }
        };
        assert!(run("push", &[])?.status.success(), "{id:?}");
        assert_eq!(run("show", &["--payload"])?.stdout, b"x", "{id:?}");
        assert!(run("cancel", &[])?.status.success(), "{id:?}");
        assert_eq!(
            run("cancel", &["--json"])?.code(),
            Some(0),
            "a repeated cancel has the same answer"
        );
    }
    Ok(())
}
