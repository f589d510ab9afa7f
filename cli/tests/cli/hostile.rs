//! Whatever a message, a name, a file or a server says: it does not steer the terminal of whoever
//! looks at it, and programs get it as it is.

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

use crate::{DUEQ, command, text};

/// As an id, or a name of a queue: red by the other set of control characters, and the direction of
/// writing turned around.
const NAME: &str = "\u{9b}31m\u{202e}--\u{2066}it's $(x)";
/// As a payload, an error: clears the screen, sets the title, rings, goes to the start of the line.
const TEXT: &str = "\x1b[2J\x1b]0;title\x07\r\x7f\u{9b}31m\u{202e}\0end";

/// Written here anew, so that what the program forgets is not forgotten here, too.
fn steers(c: char) -> bool {
    let bidirectional = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
    matches!(c as u32, 0..=9 | 11..=31 | 127..=159 | 0x2028 | 0x2029) || bidirectional.contains(c)
}

fn harmless(what: &str, output: &Output) -> Result<()> {
    for bytes in [&output.stdout, &output.stderr] {
        let said = std::str::from_utf8(bytes)
            .with_context(|| format!("{what}: {}", bytes.escape_ascii()))?;
        ensure!(!said.contains(steers), "{what}: {said:?}");
    }
    Ok(())
}

/// Runs it for people and for programs; the objects that programs get.
fn both(server: &Server, args: &[&str]) -> Result<Vec<Value>> {
    let what = format!("{args:?}");
    harmless(&what, &command(server).args(args).output()?)?;
    let output = command(server)
        .args(["--json", "--log", "json"])
        .args(args)
        .output()?;
    harmless(&what, &output)?;
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| what.clone()))
        .collect()
}

/// A queue of a hostile name, with a hostile message in each state.
async fn planted(server: &Server) -> Result<dueq::Delivery> {
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
        .push(Message::new(TEXT).id(format!("dead{NAME}")))
        .await?;
    claim().await?.bury(TEXT).await?;
    queue
        .push(Message::new(TEXT).id(format!("leased{NAME}")))
        .await?;
    let leased = claim().await?;
    queue
        .push(
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
        &["show", NAME, "absent\u{202e}"],
    ] {
        assert!(!both(&server, verb)?.is_empty(), "{verb:?}");
    }
    // What is refused is told on standard error.
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

#[tokio::test]
async fn doctor_remedies_for_hostile_ids_can_be_pasted() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    let _leased = planted(&server).await?;
    let zset = format!("dueq:{{{NAME}}}:scheduled");
    assert_eq!(server.command(&["ZREM", &zset, NAME])?, ":1\r\n");
    // What no client of ours can have pushed.
    server.command(&[
        "HSET",
        &format!("dueq:{{{NAME}}}:messages"),
        "\x1b[2J\n",
        "x",
    ])?;
    let found = both(&server, &["doctor", NAME])?;
    assert!(
        found
            .iter()
            .any(|line| line["finding"] == "unplaced" && line["id"] == NAME),
        "{found:#?}"
    );
    let remedy = found
        .iter()
        .find(|line| line["id"] == NAME)
        .and_then(|line| line["remedy"].as_str())
        .context("it")?;
    let (repair, then) = remedy
        .split_once("; then it is dead: ")
        .context(remedy.to_owned())?;
    let requeue = then
        .strip_suffix(", if it was not handled")
        .context(remedy.to_owned())?;
    let program = std::path::Path::new(DUEQ).parent().context("a folder")?;
    let path = format!(
        "{}:{}",
        program.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    for (line, expected) in [(repair, 1), (requeue, 0)] {
        let output = Command::new("sh")
            .args(["-c", line])
            .env("PATH", &path)
            .env("REDIS_URL", server.url())
            .output()?;
        harmless(line, &output)?;
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{line}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }
    let queue = Client::connect(&server.url()).await?.queue(NAME)?;
    let state = queue.get(NAME).await?.context("the message")?.state;
    assert!(
        matches!(state, dueq::State::Scheduled | dueq::State::Ready),
        "requeued by what the doctor said: {state}"
    );
    Ok(())
}

#[tokio::test]
async fn doctor_remedies_for_names_with_dashes_can_be_pasted() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    let queue = Client::connect(&server.url()).await?.queue("-q")?;
    queue
        .push(
            Message::new("x")
                .id("--all")
                .due(Due::at_ms(1_796_126_400_000)),
        )
        .await?;
    server.command(&["ZREM", "dueq:{-q}:scheduled", "--all"])?;
    let found = both(&server, &["doctor", "--", "-q"])?;
    let remedy = found
        .iter()
        .find(|line| line["id"] == "--all")
        .context("it")?["remedy"]
        .clone();
    assert_eq!(
        remedy,
        "dueq doctor --repair -- -q; then it is dead: dueq requeue -- -q --all, if it was not handled"
    );
    assert_eq!(
        command(&server)
            .args(["doctor", "--repair", "--", "-q"])
            .output()?
            .status
            .code(),
        Some(1)
    );
    assert_eq!(
        command(&server)
            .args(["requeue", "--", "-q", "--all"])
            .output()?
            .status
            .code(),
        Some(0)
    );
    Ok(())
}

#[test]
fn doctor_counts_findings_beyond_the_printed_ones() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    assert!(
        command(&server)
            .args(["push", "q", "x", "--id", "one", "--delay", "48h"])
            .output()?
            .status
            .success()
    );
    let plant = "for i = 1, 1500 do redis.call('HSET', KEYS[1], 'lost:' .. i, 'x') end";
    server.command(&["EVAL", plant, "1", "dueq:{q}:messages"])?;
    let said = text(
        &command(&server)
            .args(["doctor", "q", "--repair"])
            .output()?
            .stdout,
    );
    assert!(
        said.contains("  and 500 more, 500 repaired\n")
            && said.contains("1500 found, 1500 repaired"),
        "{said}"
    );
    let said = text(&command(&server).args(["doctor", "q"]).output()?.stdout);
    assert!(said.ends_with("nothing found, 1 remark\n"), "{said}");
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
        assert!(
            text(&output.stderr).contains("line 1"),
            "{}",
            text(&output.stderr)
        );
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
        let told = both(&server, &["import", "redisson", &name, "--codec", codec])?;
        assert!(told.iter().any(|line| {
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

/// A server that refuses everything in words of its own.
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
            let said = text(&output.stderr);
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

/// What a program writes to a terminal, until it ends.
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
    // The end of a terminal is an error where its last user has closed it.
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
    // A terminal is given a carriage return before each end of a line.
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

#[test]
fn printed_keys_and_rules_can_be_pasted() -> Result<()> {
    let server = Server::start(&[])?;
    let output = command(&server).args(["keys", NAME]).output()?;
    harmless("keys", &output)?;
    let script = format!("printf '%s\\n' {}", text(&output.stdout));
    let read = Command::new("sh").args(["-c", &script]).output()?;
    assert_eq!(
        text(&read.stdout).lines().collect::<Vec<_>>(),
        dueq::queue_keys(NAME)?
    );
    for lang in ["sh", "python", "node", "go", "java"] {
        let mut output = command(&server)
            .args(["keys", NAME, "--lang", lang])
            .output()?;
        output.stdout.retain(|byte| *byte != b'\t'); // as Go is indented
        harmless(lang, &output)?;
    }
    let name = "a\u{202e}b";
    let refused = command(&server)
        .args(["acl", "producer", name, "--user", "me"])
        .output()?;
    assert!(
        refused.stdout.is_empty() && text(&refused.stderr).contains("--json"),
        "{}",
        text(&refused.stderr)
    );
    let told = both(&server, &["acl", "producer", name, "--user", "me"])?;
    assert!(told[0]["rules"].to_string().contains(name), "{told:?}");
    Ok(())
}
