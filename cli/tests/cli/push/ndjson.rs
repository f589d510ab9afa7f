//! `dueq push --ndjson`: files of messages, good and bad, interrupted and repeated.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::{Said, dueq, text};

pub(crate) fn file(server: &Server, content: impl AsRef<[u8]>) -> Result<String> {
    let path: PathBuf = server.folder().join("lines.ndjson");
    fs::write(&path, content)?;
    Ok(path.display().to_string())
}

pub(crate) fn json(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes).with_context(|| text(bytes))
}

pub(crate) fn push(server: &Server, path: &str, flags: &[&str]) -> Result<Output> {
    dueq(
        server,
        &[&["push", "q", "--json", "--ndjson", path], flags].concat(),
    )
}

pub(crate) fn scheduled(server: &Server) -> Result<u64> {
    json(&dueq(server, &["stats", "q", "--json"])?.stdout)?["scheduled"]
        .as_u64()
        .context("a number")
}

#[test]
fn file_lines_accept_every_field() -> Result<()> {
    let server = Server::start(&[])?;
    let lines = "\u{feff}{\"payload\": \"a\\u0000b\", \"id\": \"one\", \"at\": \"2026-12-01T20:00:00+08:00\"}\r\n\
        \n\
        {\"payload_base64\": \"AP8K\", \"id\": \"für 2\", \"at\": \"2026-12-01 21:00\", \"max_attempts\": 3}\n\
        {\"payload\": \"\", \"id\": \"three\", \"delay\": \"48h\"}\n\
        {\"payload\": \"no newline at the end\"}";
    let path = file(&server, lines)?;
    let output = push(&server, &path, &["--tz", "Asia/Shanghai", "--delay", "1h"])?;
    let report = json(&output.stdout).with_context(|| output.err())?;
    assert_eq!(
        (&report["outcome"], &report["created"], &report["line"]),
        (&"pushed".into(), &4.into(), &5.into())
    );
    let show = |id: &str| json(&dueq(&server, &["show", "q", id, "--json"])?.stdout);
    let (one, two) = (show("one")?, show("für 2")?);
    assert_eq!(
        (&one["payload_base64"], &one["due_ms"]),
        (&"YQBi".into(), &1_796_126_400_000_u64.into())
    );
    assert_eq!(
        (&two["payload_base64"], &two["due_ms"]),
        (&"AP8K".into(), &1_796_130_000_000_u64.into())
    );
    assert_eq!(two["max_attempts"], 3);
    assert_eq!(show("three")?["payload_base64"], "");
    Ok(())
}

#[test]
fn line_without_spread_ms_takes_the_spread_flag() -> Result<()> {
    let server = Server::start(&[])?;
    let at = 1_796_126_400_000_u64;
    let lines = format!(
        "{{\"payload\":\"x\",\"id\":\"flag\",\"at\":\"{at}\"}}\n\
         {{\"payload\":\"x\",\"id\":\"own\",\"at\":\"{at}\",\"spread_ms\":9}}\n\
         {{\"payload\":\"x\",\"id\":\"none\",\"at\":\"{at}\",\"spread_ms\":0}}\n"
    );
    let path = file(&server, &lines)?;
    push(&server, &path, &["--spread", "30s"])?;
    let later = |id: &str| -> Result<u64> {
        let shown = json(&dueq(&server, &["show", "q", id, "--json"])?.stdout)?;
        Ok(shown["due_ms"].as_u64().context("a due time")? - at)
    };
    // zlib: crc32(b"spreadflag") is 1,711,692,131, crc32(b"spreadown") is 961,557,535.
    assert_eq!(later("flag")?, 1_711_692_131 % 30_001);
    assert_eq!(later("own")?, 961_557_535 % 10);
    assert_eq!(later("none")?, 0);
    Ok(())
}

#[test]
fn trace_of_a_line_overrides_the_flag() -> Result<()> {
    let server = Server::start(&[])?;
    let [ours, flag] = [
        "0af7651916cd43dd8448eb211c80319c",
        "4bf92f3577b34da6a3ce929d0e0e4736",
    ]
    .map(|trace| format!("00-{trace}-b7ad6b7169203331-01"));
    let lines = format!(
        "{{\"payload\":\"\",\"id\":\"a\",\"traceparent\":\"{ours}\"}}\n{{\"payload\":\"\",\"id\":\"b\"}}\n"
    );
    let path = file(&server, lines)?;
    let output = push(&server, &path, &["--delay", "1h", "--traceparent", &flag])?;
    assert_eq!(output.code(), Some(0), "{}", output.err());
    dueq(
        &server,
        &[
            "push",
            "q",
            "x",
            "--id",
            "c",
            "--delay",
            "1h",
            "--traceparent",
            &flag,
        ],
    )?;
    dueq(&server, &["push", "q", "x", "--id", "d", "--delay", "1h"])?;
    let trace = |id: &str| {
        anyhow::Ok(
            json(&dueq(&server, &["show", "q", id, "--json"])?.stdout)?["traceparent"].clone(),
        )
    };
    assert_eq!(
        (trace("a")?, trace("b")?),
        (ours.into(), flag.clone().into())
    );
    assert_eq!((trace("c")?, trace("d")?), (flag.into(), Value::Null));
    let refused = dueq(
        &server,
        &["push", "q", "x", "--id", "e", "--traceparent", "00-x"],
    )?;
    assert_eq!(refused.code(), Some(2));
    assert!(
        refused.err().contains("trace parent \"00-x\""),
        "{}",
        refused.err()
    );
    assert_eq!(
        dueq(&server, &["show", "q", "e"])?.code(),
        Some(1),
        "nothing was pushed"
    );
    Ok(())
}

#[test]
fn bad_line_stops_the_push_or_is_skipped() -> Result<()> {
    let server = Server::start(&[])?;
    let good = "{\"payload\":\"x\",\"delay\":\"1h\"}";
    for (bad, reason) in [
        ("nonsense", "the only words"),
        ("{\"payload\":\"x\"", "ends too early"),
        ("[1]", "is a list"),
        ("{\"payload\":\"x\",\"id\":1}", "id: the number `1`"),
        ("{\"payload\":\"x\",\"dealy\":\"1h\"}", "dealy"),
        ("{\"id\":\"x\"}", "neither payload"),
        (
            "{\"payload\":\"x\",\"payload_base64\":\"\"}",
            "both payload",
        ),
        ("{\"payload_base64\":\"?\"}", "payload_base64"),
        ("{\"payload\":\"x\",\"delay\":\"soon\"}", "no delay"),
        (
            "{\"payload\":\"x\",\"delay\":\"1h\",\"at\":\"2026-12-01T12:00:00Z\"}",
            "both delay and at",
        ),
        ("{\"payload\":\"x\",\"at\":\"2026-12-01 20:00\"}", "no zone"),
        ("{\"payload\":\"x\",\"id\":\"\"}", "id"),
        ("{\"payload\":\"x\",\"delay\":\"900000h\"}", "100 years"),
        ("{\"payload\":\"x\",\"max_attempts\":0}", "max_attempts"),
        ("{\"payload\":\"x\",\"spread_ms\":-1}", "`-1`"),
        (
            "{\"payload\":\"x\",\"spread_ms\":3155760000001}",
            "100 years",
        ),
    ] {
        let path = file(&server, format!("{good}\n{bad}\n{good}\n"))?;
        let output = push(&server, &path, &["--idempotency-key", "k"])?;
        let said = output.err();
        assert_eq!(output.code(), Some(1), "{bad}");
        assert!(
            said.contains("line 2: ") && said.contains(reason) && said.contains("--skip-bad"),
            "{bad}: {said}"
        );
        let output = push(&server, &path, &["--skip-bad", "--idempotency-key", "k"])?;
        assert_eq!(output.code(), Some(0), "{bad}");
        assert!(output.err().contains("skipped line 2: "), "{bad}");
        let report = json(&output.stdout)?;
        assert_eq!(
            (&report["skipped"], &report["line"]),
            (&1.into(), &3.into()),
            "{bad}: {report}"
        );
    }
    assert_eq!(
        scheduled(&server)?,
        2,
        "the good lines are the same each time"
    );
    let invalid = file(&server, b"{\"payload\":\"\xff\"}\n")?;
    assert!(push(&server, &invalid, &[])?.err().contains("line 1: "));
    let folder = push(&server, "/tmp", &[])?;
    assert!(
        folder.err().contains("cannot read /tmp: is a directory"),
        "{}",
        folder.err()
    );
    let missing = push(&server, "/nowhere", &[])?;
    assert!(
        missing.err().contains("cannot read /nowhere"),
        "{}",
        missing.err()
    );
    Ok(())
}

#[test]
fn full_queue_stops_the_file_push_at_its_line() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["configure", "q", "--max-messages", "2"])?;
    let path = file(&server, "{\"payload\":\"x\",\"delay\":\"1h\"}\n".repeat(3))?;
    let output = push(&server, &path, &["--skip-bad"])?;
    assert_eq!(output.code(), Some(1), "a full queue is not a bad line");
    assert!(output.err().contains("line 3: "), "{}", output.err());
    Ok(())
}

#[tokio::test]
async fn lines_have_an_on_conflict_of_their_own() -> Result<()> {
    let server = Server::start(&[])?;
    let queue = dueq::Client::connect(&server.url()).await?.queue("q")?;
    let lines = |payload: &str, words: [&str; 3]| -> String {
        let line = |(id, word): (&str, &str)| {
            let word = match word {
                "" => String::new(),
                word => format!(r#","on_conflict":"{word}""#),
            };
            format!("{{\"payload\":\"{payload}\",\"id\":\"{id}\",\"delay\":\"1h\"{word}}}\n")
        };
        ["keeps", "replaces", "flags"]
            .into_iter()
            .zip(words)
            .map(line)
            .collect()
    };
    let path = file(&server, lines("old", ["", "", ""]))?;
    assert_eq!(json(&push(&server, &path, &[])?.stdout)?["created"], 3);
    file(&server, lines("new", ["keep", "replace", ""]))?;
    let report = json(&push(&server, &path, &["--on-conflict", "reschedule"])?.stdout)?;
    assert_eq!(
        (&report["exists"], &report["moved"]),
        (&1.into(), &2.into()),
        "{report}"
    );
    let payload = |id| json(&dueq(&server, &["show", "q", id, "--json"])?.stdout);
    assert_eq!(payload("keeps")?["payload"], "old");
    assert_eq!(payload("replaces")?["payload"], "new");
    assert_eq!(payload("flags")?["payload"], "old");

    // A leased message cannot be replaced. A line with `keep` does not count as refused.
    dueq(&server, &["run-now", "q", "replaces"])?;
    let mut held = Vec::new();
    while held.is_empty() {
        held = queue.claim(1, Duration::from_secs(3_600)).await?;
    }
    let kept = push(&server, &path, &["--from-line", "3"])?;
    assert_eq!(kept.code(), Some(0), "{}", kept.err());
    let refused = push(&server, &path, &["--from-line", "2"])?;
    assert_eq!(refused.code(), Some(1));
    let said = refused.err();
    assert!(said.contains("line 2: nothing was changed"), "{said}");
    Ok(())
}

#[test]
fn file_payload_may_be_any_json_value() -> Result<()> {
    let server = Server::start(&[])?;
    let lines = "{\"payload\": {\"a\": [1, \"\u{e9}\"]}, \"id\": \"object\", \"delay\": \"1h\"}\n\
        {\"payload\": 4.20, \"id\": \"number\", \"delay\": \"1h\"}\n\
        {\"payload\": \"te\\u0078t\", \"id\": \"text\", \"delay\": \"1h\"}\n";
    let output = push(&server, &file(&server, lines)?, &[])?;
    assert_eq!(json(&output.stdout)?["created"], 3, "{}", output.err());
    for (id, payload) in [
        ("object", "{\"a\": [1, \"\u{e9}\"]}"),
        ("number", "4.20"),
        ("text", "text"),
    ] {
        assert_eq!(
            json(&dueq(&server, &["show", "q", id, "--json"])?.stdout)?["payload"],
            payload,
            "{id}"
        );
    }
    Ok(())
}
