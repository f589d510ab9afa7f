//! Hostile text in messages, names, files and servers cannot control the terminal. JSON output
//! keeps the text.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Due, Message};
use dueq_testkit::Server;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::{DUEQ, Said, command, dueq};

/// An id or a queue's name: turns the text red by the second set of control characters, and
/// reverses the direction of writing.
pub(crate) const NAME: &str = "\u{9b}31m\u{202e}--\u{2066}it's $(x)";
/// A payload or an error: clears the screen, sets the title, rings the bell, and moves to the start
/// of the line.
const TEXT: &str = "\x1b[2J\x1b]0;title\x07\r\x7f\u{9b}31m\u{202e}\0end";

/// A list of its own, independent of the program's.
fn steers(c: char) -> bool {
    let bidirectional = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
    matches!(c as u32, 0..=9 | 11..=31 | 127..=159 | 0x2028 | 0x2029) || bidirectional.contains(c)
}

pub(crate) fn harmless(what: &str, output: &Output) -> Result<()> {
    for bytes in [&output.stdout, &output.stderr] {
        let said = std::str::from_utf8(bytes)
            .with_context(|| format!("{what}: {}", bytes.escape_ascii()))?;
        ensure!(!said.contains(steers), "{what}: {said:?}");
    }
    Ok(())
}

/// Runs the command once with text output and once with JSON, and returns the JSON objects.
pub(crate) fn both(server: &Server, args: &[&str]) -> Result<Vec<Value>> {
    let what = format!("{args:?}");
    harmless(&what, &dueq(server, args)?)?;
    let output = dueq(server, &[&["--json", "--log", "json"], args].concat())?;
    harmless(&what, &output)?;
    output
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| what.clone()))
        .collect()
}

/// Makes a queue with a hostile name and a hostile message in each state.
pub(crate) async fn planted(server: &Server) -> Result<dueq::Delivery> {
    let queue = Client::connect(&server.url()).await?.queue(NAME)?;
    let claim = async || loop {
        if let Some(delivery) = queue
            .claim(1, std::time::Duration::from_secs(3_600))
            .await?
            .pop()
        {
            return Ok::<_, dueq::Error>(delivery);
        }
    };
    queue
        .push_message(Message::new(TEXT).id(format!("dead{NAME}")))
        .await?;
    assert_eq!(
        claim().await?.bury(TEXT).await?,
        dueq::outcomes::SettleOutcome::Done
    );
    queue
        .push_message(Message::new(TEXT).id(format!("leased{NAME}")))
        .await?;
    let leased = claim().await?;
    queue
        .push_message(
            Message::new(TEXT)
                .id(NAME)
                .due(Due::at_ms(1_796_126_400_000)),
        )
        .await?;
    Ok(leased)
}

#[tokio::test]
async fn operator_commands_escape_terminal_controls() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = planted(&server).await?;
    let (dead, leased) = (format!("dead{NAME}"), format!("leased{NAME}"));
    let known = |objects: Vec<Value>, field: &str, expected: &str| {
        assert!(
            objects.iter().any(|object| object[field] == expected),
            "{objects:#?}"
        );
    };
    known(both(&server, &["show", NAME, NAME])?, "id", NAME);
    known(both(&server, &["show", NAME, &dead])?, "error", TEXT);
    for (state, id) in [("scheduled", NAME), ("leased", &leased), ("dead", &dead)] {
        known(both(&server, &["ls", NAME, "--state", state])?, "id", id);
    }
    known(both(&server, &["stats"])?, "queue", NAME);
    known(both(&server, &["stats", NAME])?, "queue", NAME);
    known(both(&server, &["queues"])?, "queue", NAME);
    for verb in [
        &["pause", NAME][..],
        &["resume", NAME],
        &["configure", NAME, "--max-attempts", "3"],
    ] {
        known(both(&server, verb)?, "queue", NAME);
    }
    for verb in [
        &["push", NAME, TEXT.trim_end_matches("\0end"), "--id", NAME][..],
        &["reschedule", NAME, NAME, "--delay", "1h"],
        &["reschedule", NAME, &leased, "--delay", "1h"],
        &["cancel", NAME, &leased, &dead],
        &["run-now", NAME, &leased, "absent\u{202e}"],
        &["requeue", NAME, NAME, &leased],
        &["end-lease", NAME, NAME, &leased],
        &["bury", NAME, NAME, "absent\u{202e}"],
        &["show", NAME, "absent\u{202e}"],
    ] {
        assert!(!both(&server, verb)?.is_empty(), "{verb:?}");
    }
    // Refusals go to standard error.
    for verb in [
        &["purge", NAME, "--state", "dead"][..],
        &["delete-queue", NAME],
        &["show", NAME, "absent\u{202e}", "--payload"],
        &["show", NAME, TEXT.trim_end_matches("\0end")],
        &["push", TEXT.trim_end_matches("\0end"), "x"],
        &["push", NAME, "x", "--delay", "\x1b[2J"],
        &["push", NAME, "x", "--at", "\x1b[2J\u{202e}"],
        &["push", NAME, "x", "--at", "soon", "--tz", "\u{9b}31m"],
        &["push", NAME, "--ndjson", "/absent/\x1b[2J"],
        &["ls", NAME, "--cursor", "\x1b[2J"],
        &["work", NAME, "--http", "http://\u{9b}31m/"],
        &["stats", "--cacert", "/absent/\u{202e}"],
        &["\x1b[2J\u{9b}31m"],
        &["stats", "--\u{202e}"],
    ] {
        let output = command(&server).args(verb).output()?;
        harmless(&format!("{verb:?}"), &output)?;
        assert!(
            !output.status.success() && !output.stderr.is_empty(),
            "{verb:?}"
        );
        harmless(
            &format!("{verb:?}"),
            &command(&server)
                .args(["--log", "json"])
                .args(verb)
                .output()?,
        )?;
    }
    Ok(())
}

#[test]
fn file_contents_are_escaped_in_errors() -> Result<()> {
    let server = Server::start(&[])?;
    let file = server.folder().join("\u{9b}31m.ndjson");
    std::fs::write(
        &file,
        "{\"payload\":\"x\",\"\u{9b}31m\u{202e}\":1}\n{\"payload\":\"x\",\"delay\":\"\u{9b}31m\"}\n\u{1b}[2J\n",
    )?;
    let file = file.display().to_string();
    for args in [
        &["push", "q", "--ndjson", &file][..],
        &["push", "q", "--ndjson", &file, "--skip-bad"],
    ] {
        let output = command(&server).args(args).output()?;
        harmless(&file, &output)?;
        assert!(output.err().contains("line 1"), "{}", output.err());
        both(&server, args)?;
    }
    Ok(())
}

#[test]
fn imported_elements_are_escaped_in_reports() -> Result<()> {
    let server = Server::start(&[])?;
    let name = format!("q{}", NAME.replace("--", ""));
    server.command(&["RPUSH", &format!("redisson_delay_queue:{{{name}}}"), TEXT])?;
    server.command(&[
        "ZADD",
        &format!("redisson_delay_queue_timeout:{{{name}}}"),
        "5",
        TEXT,
    ])?;
    for codec in ["raw", "json", "string"] {
        let report = both(&server, &["import", "redisson", &name, "--codec", codec])?;
        assert!(report.iter().any(|line| {
            line["unreadable"]["key"]
                .as_str()
                .is_some_and(|key| key.contains(&name))
        }));
    }
    harmless(
        "absent",
        &command(&server)
            .args(["import", "redisson", "\x1b[2J", "--into", "q"])
            .output()?,
    )?;
    Ok(())
}

/// The server refuses every call with a hostile text.
#[test]
fn server_errors_are_escaped() -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("redis://127.0.0.1:{}/", listener.local_addr()?.port());
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                while matches!(stream.read(&mut request), Ok(1..)) {
                    let refusal = "-EVIL\u{202e} \x1b[2J\u{9b}31m of course\x07\r\n".repeat(8);
                    let _ = stream.write_all(refusal.as_bytes());
                }
            });
        }
    });
    for args in [
        &["stats", "q"][..],
        &["push", "q", "x"],
        &["work", "q", "--print"],
        &["doctor"],
        &["queues"],
    ] {
        for log in ["text", "json"] {
            let mut command = Command::new(DUEQ);
            command
                .args(["--redis", &url, "--log", log])
                .args(args)
                .env("RUST_LOG", "debug");
            let output = command.output()?;
            harmless(&format!("{args:?}"), &output)?;
            let said = output.err();
            assert!(
                !output.status.success() && said.contains("of course"),
                "{args:?}: {said}"
            );
            if log == "json" {
                for line in said.lines() {
                    serde_json::from_str::<Value>(line).with_context(|| line.to_owned())?;
                }
            }
        }
    }
    Ok(())
}

/// Runs the program on a terminal, and returns what it writes.
fn on_terminal(server: &Server, args: &[&str]) -> Result<Vec<u8>> {
    let mut ours = File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?);
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = i32::try_from(OFlags::NOCTTY.bits())?;
    let terminal = File::options()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(name.to_str()?)?;
    let mut child = {
        let (out, error) = (terminal.try_clone()?, terminal);
        command(server)
            .args(args)
            .stdout(out)
            .stderr(error)
            .spawn()?
    };
    // On Linux a read fails once the last process has closed the terminal.
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = ours.read(&mut chunk) {
        said.extend_from_slice(&chunk[..read]);
    }
    child.wait()?;
    Ok(said)
}

#[tokio::test]
async fn payload_is_raw_in_a_file_and_escaped_on_a_terminal() -> Result<()> {
    let server = Server::start(&[])?;
    let _leased = planted(&server).await?;
    let raw = command(&server)
        .args(["show", NAME, NAME, "--payload"])
        .output()?;
    assert_eq!(raw.stdout, TEXT.as_bytes(), "byte for byte");
    let seen = on_terminal(&server, &["show", NAME, NAME, "--payload"])?;
    let seen = std::str::from_utf8(&seen)?;
    assert!(
        seen.contains("\\u{1b}[2J") && seen.contains("end"),
        "{seen:?}"
    );
    // A terminal adds a carriage return before each line end.
    assert!(!seen.replace("\r\n", "\n").contains(steers), "{seen:?}");
    for args in [
        &["ls", NAME][..],
        &["show", NAME, NAME],
        &["show", NAME, NAME, "--json"],
        &["queues"],
        &["doctor"],
    ] {
        let seen = on_terminal(&server, args)?;
        assert!(
            !std::str::from_utf8(&seen)?
                .replace("\r\n", "\n")
                .contains(steers),
            "{args:?}: {}",
            seen.escape_ascii()
        );
    }
    Ok(())
}
