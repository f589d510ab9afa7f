//! Runs each producer of `examples/clients/` as a user would. The library must then claim exactly
//! the pushed bytes.
//!
//! The test skips a language without toolchain or client package and names it on stderr. It
//! installs packages once, into `target/clients/`.

mod install;
mod partitions;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dueq::{Client, OnExpire, Queue};
use dueq_testkit::Server;

use install::Skipped;

const QUEUE: &str = "die größte, Nr. 1: \"orders\"";
const LIMIT: Duration = Duration::from_secs(60);

/// A producer with a server of its own.
struct Producer<'a> {
    start: &'a (dyn Fn() -> Command + Sync),
    server: Server,
}

impl Producer<'_> {
    /// Pushes a message with this payload, given as an argument or on standard input.
    fn push(&self, id: &str, delay_ms: &str, payload: Payload<'_>) -> Result<Output> {
        let (argument, input) = match payload {
            Payload::Argument(text) => (text, &b""[..]),
            Payload::Input(bytes) => ("-", bytes),
        };
        let mut child = (self.start)()
            .args([QUEUE, id, delay_ms, argument])
            .env("REDIS_URL", self.server.url())
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // A producer that exits before reading all input reports its own error.
        let _ = child.stdin.take().context("its input")?.write_all(input);
        Ok(child.wait_with_output()?)
    }

    /// Pushes a message with options, each an argument.
    fn push_with(&self, id: &str, options: &[&str]) -> Result<()> {
        let output = (self.start)()
            .args([QUEUE, id, "3600000", "x"])
            .args(options)
            .env("REDIS_URL", self.server.url())
            .env("LC_ALL", "C.UTF-8")
            .output()?;
        ensure!(output.status.success(), "{id}: {output:?}");
        Ok(())
    }

    fn succeeds(&self, id: &str, payload: Payload<'_>, says: &str) -> Result<()> {
        let output = self.push(id, "0", payload).with_context(|| id.to_owned())?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && said == format!("{says}\n"),
            "{id}: {output:?}"
        );
        Ok(())
    }

    fn fails(&self, id: &str, delay_ms: &str, why: &str) -> Result<()> {
        let output = self.push(id, delay_ms, Payload::Argument("x"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1) && said.contains(why),
            "{why}: {output:?}"
        );
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Payload<'a> {
    Argument(&'a str),
    Input(&'a [u8]),
}

/// The folder of today's producers, which users copy.
const TODAY: &str = "examples/clients";
/// The folder of the producers of release 0.1, which keep running beside newer workers.
const FROZEN: &str = "tests/compat/0.1/clients";

/// Checks everything that a producer must do, or prints why this language was skipped. `prepare`
/// makes the program that runs the producer of a folder.
async fn check<S: Fn() -> Command + Sync>(
    language: &str,
    prepare: impl Fn(&str) -> Result<Result<S, Skipped>>,
) -> Result<()> {
    let start = match prepare(TODAY)? {
        Ok(start) => start,
        Err(Skipped(why)) => {
            // The harness hides output of `println!` from passing tests, so write to stderr
            // directly.
            writeln!(
                std::io::stderr(),
                "SKIPPED: the producer in {language}: {why}"
            )?;
            return Ok(());
        }
    };
    let began = Instant::now();
    let producer = Producer {
        start: &start,
        server: Server::start(&[])?,
    };
    producer.fails("early", "0", "Function not found")?;
    let client = Client::connect(&producer.server.url()).await?;
    client.load_functions().await?;
    let queue = client.queue(QUEUE)?;

    let mebibyte: Vec<u8> = (0..1_048_576_u32)
        .map(|place| (place * 7 + place / 256) as u8)
        .collect();
    let messages: [(&str, Payload<'_>); 7] = [
        ("order:42", Payload::Argument("{\"order\": \"42\"}")),
        ("a b  c", Payload::Argument("für 😀 $HOME `x` 'y'")),
        ("größe:😀", Payload::Input(b"\0NUL\0\r\n\0")),
        (" : ", Payload::Input(b"\xff\xfe\x80 no UTF-8 \xc3\n\n")),
        ("1 MiB", Payload::Input(&mebibyte)),
        ("empty", Payload::Argument("")),
        ("empty input", Payload::Input(b"")),
    ];
    for (id, payload) in messages {
        producer.succeeds(id, payload, &format!("created {id}"))?;
    }
    producer.succeeds(
        "empty",
        Payload::Argument("other"),
        "empty was pushed before",
    )?;
    producer.fails("negative", "-5", "INVALID due")?;

    let mut found = claim_all(&queue, messages.len()).await?;
    for (id, payload) in messages {
        let expected = match payload {
            Payload::Argument(text) => text.as_bytes(),
            Payload::Input(bytes) => bytes,
        };
        let place = found
            .iter()
            .position(|(found, _)| found == id.as_bytes())
            .with_context(|| id.to_owned())?;
        ensure!(
            found.swap_remove(place).1 == expected,
            "{id}: another payload"
        );
    }
    producer.succeeds(
        "empty input",
        Payload::Argument("acked"),
        "created empty input",
    )?;
    ensure!(queue.stats().await?.pushed == messages.len() as u64 + 1);

    producer.push_with("options", &["expires=+7200000", "on_expire=drop"])?;
    let stored = queue.get("options").await?.context("the message")?;
    ensure!(
        stored.expires_after_ms == Some(7_200_000) && stored.on_expire == OnExpire::Drop,
        "{stored:?}"
    );

    let elsewhere = Producer {
        start: &start,
        server: Server::start(&[])?,
    };
    let client = Client::connect(&elsewhere.server.url()).await?;
    client.load_functions().await?;
    partitions::check(&elsewhere).context("several partitions")?;

    let Ok(frozen) = prepare(FROZEN)? else {
        bail!("{language}: the producer of 0.1 was skipped, although today's was not");
    };
    let producer = Producer {
        start: &frozen,
        server: producer.server,
    };
    producer.succeeds("from 0.1", Payload::Argument("{}"), "created from 0.1")?;
    producer.succeeds(
        "empty input",
        Payload::Argument("x"),
        "empty input was pushed before",
    )?;
    let mut found = claim_all(&queue, 2).await?;
    found.sort();
    ensure!(
        found[1] == (b"from 0.1".to_vec(), b"{}".to_vec()),
        "{found:?}"
    );
    println!("{language}: {:?}", began.elapsed());
    Ok(())
}

/// Claims and acks this many messages and returns their ids and payloads.
async fn claim_all(queue: &Queue, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (start, mut found) = (Instant::now(), Vec::new());
    while found.len() < count {
        ensure!(
            start.elapsed() < LIMIT,
            "{} of {count}: {:?}",
            found.len(),
            queue.stats().await
        );
        for delivery in queue.claim(count, LIMIT).await? {
            found.push((delivery.id_bytes().to_vec(), delivery.payload().to_vec()));
            assert_eq!(delivery.ack().await?, dueq::outcomes::SettleOutcome::Done);
        }
    }
    Ok(found)
}

/// Path of a producer's source file.
fn source(folder: &str, name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(folder)
        .join(name);
    path.to_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn shell_producer_pushes_exact_bytes() -> Result<()> {
    let prepare = |folder: &str| {
        let script = source(folder, "push.sh");
        Ok(install::redis_cli().map(|()| move || with("sh", &[&script])))
    };
    check("shell", prepare).await
}

#[tokio::test]
async fn python_producer_pushes_exact_bytes() -> Result<()> {
    let prepare = |folder: &str| {
        let script = source(folder, "push.py");
        let python = install::python("redis==7.0.1");
        Ok(python.map(|python| move || with(&python, &[&script])))
    };
    check("Python", prepare).await
}

#[tokio::test]
async fn javascript_producer_pushes_exact_bytes() -> Result<()> {
    let prepare = |folder: &str| {
        let script = install::node("ioredis@6.0.0", &source(folder, "push.js"));
        Ok(script.map(|script| move || with("node", &[&script])))
    };
    check("JavaScript", prepare).await
}

#[tokio::test]
async fn go_producer_pushes_exact_bytes() -> Result<()> {
    let prepare = |folder: &str| {
        let program = install::go(
            "github.com/redis/go-redis/v9@v9.17.3",
            &source(folder, "push.go"),
        )?;
        Ok(program.map(|program| move || with(&program, &[])))
    };
    check("Go", prepare).await
}

#[tokio::test]
async fn java_producer_pushes_exact_bytes() -> Result<()> {
    let prepare = |folder: &str| {
        let classes = install::java(
            "redis.clients",
            "jedis",
            "7.0.0",
            &source(folder, "Push.java"),
        )?;
        Ok(classes.map(|path| move || with("java", &["-cp", &path, "Push"])))
    };
    check("Java", prepare).await
}

fn with(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
