//! Errors name their cause and remedy; ids, times and payloads have a readable form.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::{DUEQ, Said, command, dueq};

#[test]
fn unreachable_default_server_is_explained() -> Result<()> {
    if TcpStream::connect(("127.0.0.1", 6379)).is_ok() {
        return Ok(()); // This machine has a server at the default address.
    }
    let output = Command::new(DUEQ)
        .arg("stats")
        .env_remove("REDIS_URL")
        .output()?;
    let complaint = output.err();
    assert!(
        complaint.contains("neither --redis nor REDIS_URL is set"),
        "{complaint}"
    );
    assert!(
        complaint.contains("`dueq dev` runs a server"),
        "{complaint}"
    );
    let named = Command::new(DUEQ)
        .args(["stats", "--redis", "redis://127.0.0.1:1/"])
        .output()?;
    assert!(!named.err().contains("neither"), "{}", named.err());
    Ok(())
}

#[test]
fn port_of_an_http_server_is_explained() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("redis://{}/", listener.local_addr()?);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    let output = Command::new(DUEQ)
        .args(["stats", "--redis", &url])
        .output()?;
    let complaint = output.err();
    assert!(
        complaint.contains("does not speak Redis's protocol"),
        "{complaint}"
    );
    Ok(())
}

#[test]
fn repeated_call_logs_its_reason_at_once() -> Result<()> {
    let replica = Server::start(&["--replicaof", "127.0.0.1", "1"])?;
    let mut push = command(&replica)
        .env_remove("RUST_LOG")
        .args(["push", "q", "x"])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("dueq push")?;
    let mut line = String::new();
    BufReader::new(push.stderr.take().context("its stderr")?)
        .lines()
        .try_for_each(|next| {
            line = next?;
            // Skip the warning about a server without an append-only file.
            if line.contains("READONLY") {
                Err(std::io::Error::other("found"))
            } else {
                Ok(())
            }
        })
        .unwrap_or_default();
    let still_runs = push.try_wait()?.is_none();
    push.kill()?;
    push.wait()?;
    assert!(line.contains("it is repeated for up to 10 s"), "{line}");
    assert!(line.contains("ROLE"), "{line}");
    assert!(still_runs, "the line comes before the end of the call");
    Ok(())
}

#[test]
fn wrong_type_and_full_queue_name_the_command_to_run() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["configure", "q", "--max-messages", "1"])?;
    dueq(&server, &["push", "q", "x"])?;
    let full = dueq(&server, &["push", "q", "x"])?.err();
    for words in [
        "FULL",
        "may hold 1 messages",
        "dueq configure q --max-messages N",
    ] {
        assert!(full.contains(words), "{words}: {full}");
    }
    server.command(&["DEL", "dueq:{q}:attrs"])?;
    server.command(&["SET", "dueq:{q}:attrs", "x"])?;
    let wrong = dueq(&server, &["push", "q", "x", "--max-attempts", "1"])?.err();
    assert!(wrong.contains("dueq doctor"), "{wrong}");
    server.command(&["DEL", "dueq:{q}:ready"])?;
    let broken = dueq(&server, &["stats", "q"])?;
    assert!(broken.err().contains("dueq doctor q"), "{}", broken.err());
    Ok(())
}

#[test]
fn wrong_password_is_reported_as_wrongpass() -> Result<()> {
    let server = Server::start(&["--requirepass", "right"])?;
    let url = format!("redis://:wrong@127.0.0.1:{}/", server.port());
    let output = Command::new(DUEQ)
        .args(["stats", "--redis", &url])
        .output()?;
    assert!(output.err().contains("WRONGPASS"), "{}", output.err());
    Ok(())
}

#[test]
fn text_payload_is_text_in_json() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(
        &server,
        &["push", "q", "it's \"so\"", "--id", "a", "--delay", "1h"],
    )?;
    let shown = dueq(&server, &["show", "q", "a", "--json"])?.json()?;
    assert_eq!(shown["payload"], "it's \"so\"");
    let mut push = command(&server)
        .args(["push", "q", "-", "--id", "b"])
        .stdin(Stdio::piped())
        .spawn()?;
    push.stdin.take().context("its input")?.write_all(b"\xff")?;
    push.wait()?;
    let shown = dueq(&server, &["show", "q", "b", "--json"])?.json()?;
    assert_eq!(
        (shown.get("payload"), &shown["payload_base64"]),
        (None, &"/w==".into())
    );
    Ok(())
}

#[test]
fn binary_ids_are_listed_ready_to_paste() -> Result<()> {
    let server = Server::start(&[])?;
    let id = "$'\\xff'";
    let script = format!("exec {DUEQ} push q x --delay 1h --id {id}");
    let pushed = Command::new("bash")
        .args(["-c", &script])
        .env("REDIS_URL", server.url())
        .output()?;
    let word = pushed
        .out()
        .trim()
        .strip_prefix("created ")
        .context("an id")?
        .to_owned();
    assert!(dueq(&server, &["ls", "q"])?.out().contains(&word), "{word}");
    let script = format!("exec {DUEQ} cancel q {word}");
    let cancelled = Command::new("bash")
        .args(["-c", &script])
        .env("REDIS_URL", server.url())
        .output()?;
    assert_eq!(cancelled.code(), Some(0), "{}", cancelled.out());
    Ok(())
}

#[test]
fn at_accepts_unix_milliseconds() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(
        &server,
        &["push", "q", "x", "--id", "a", "--at", "1796126400000"],
    )?;
    let shown = dueq(&server, &["show", "q", "a", "--json"])?.json()?;
    assert_eq!(shown["due_ms"], 1_796_126_400_000_u64);
    Ok(())
}

#[test]
fn retry_min_above_retry_max_is_wrong_usage() -> Result<()> {
    let inverted = Command::new(DUEQ)
        .args([
            "work",
            "q",
            "--print",
            "--retry-min",
            "2m",
            "--retry-max",
            "1m",
        ])
        .output()?;
    assert_eq!(inverted.code(), Some(2), "{}", inverted.err());
    assert!(
        inverted
            .err()
            .contains("--retry-min must not be above --retry-max")
    );
    Ok(())
}
