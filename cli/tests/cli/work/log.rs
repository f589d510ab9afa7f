//! The log of `dueq work` on standard error: its start, failed attempts, outages.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, Stdio};

use anyhow::{Context, Result};
use dueq::Message;
use dueq_testkit::Server;

use crate::work::support::{command, queue, signal, stats, stored};

/// A running `dueq work` whose standard error is read.
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStderr>>,
    said: Vec<String>,
}

impl Worker {
    fn start(url: &str, args: &[&str]) -> Result<Self> {
        let mut child = command(url, &[&["work"], args].concat())
            .env_remove("RUST_LOG")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("dueq work")?;
        let lines = BufReader::new(child.stderr.take().context("its stderr")?).lines();
        Ok(Self {
            child,
            lines,
            said: Vec::new(),
        })
    }

    /// Reads the log until a line contains these words.
    fn says(&mut self, words: &str) -> Result<String> {
        loop {
            let line = self
                .lines
                .next()
                .with_context(|| format!("no {words:?} in {:#?}", self.said))??;
            self.said.push(line.clone());
            if line.contains(words) {
                return Ok(line);
            }
        }
    }

    /// Stops the worker by SIGINT. Returns its exit code and its whole output.
    fn stop(mut self) -> Result<(Option<i32>, Vec<String>)> {
        signal("INT", &self.child.id().to_string())?;
        for line in self.lines.by_ref() {
            self.said.push(line?);
        }
        Ok((self.child.wait()?.code(), std::mem::take(&mut self.said)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn work_logs_its_start_and_failed_attempts() -> Result<()> {
    let (server, queue) = queue("orders").await?;
    let mut worker = Worker::start(
        &server.url(),
        &["orders", "--exec", "exit 3", "--retry-min", "1h"],
    )?;
    let started = worker.says("working")?;
    assert!(
        started.contains(&format!(
            "working orders at 127.0.0.1:{}: 64 at once, lease 30s",
            server.port()
        )),
        "{started}"
    );
    let before = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_millis();
    queue.push_message(Message::new("").id("order:42")).await?;
    let failed = worker.says("an attempt failed")?;
    for words in ["WARN", "order:42", "attempt=1", "exit status 3"] {
        assert!(failed.contains(words), "{words}: {failed}");
    }
    let message = stored(&queue, "order:42", |message| message.failures == 1).await?;
    // Jitter subtracts up to half of the delay.
    assert!(
        u128::from(message.time_ms) > before + 1_700_000,
        "--retry-min holds: {} {before}",
        message.time_ms
    );
    assert_eq!(worker.stop()?.0, Some(0));
    Ok(())
}

#[tokio::test]
async fn log_level_error_omits_start_and_failed_attempts() -> Result<()> {
    let (server, queue) = queue("orders").await?;
    let worker = Worker::start(
        &server.url(),
        &["orders", "--exec", "exit 3", "--log-level", "error"],
    )?;
    queue.push_message(Message::new("")).await?;
    stats(&queue, "a failed attempt", |stats| stats.retried > 0).await?;
    let (code, said) = worker.stop()?;
    assert_eq!((code, said), (Some(0), Vec::new()));
    Ok(())
}

#[tokio::test]
async fn each_error_of_an_outage_and_its_end_has_one_line() -> Result<()> {
    let (mut server, _queue) = queue("orders").await?;
    let mut worker = Worker::start(&server.url(), &["orders", "--print", "--log", "json"])?;
    worker.says("working")?;
    server.kill()?;
    worker.says("cannot reach")?;
    server.restart()?;
    worker.says("works again")?;
    let (code, said) = worker.stop()?;
    assert_eq!(code, Some(0));
    let lines = said
        .iter()
        .map(|line| serde_json::from_str(line).with_context(|| line.clone()));
    let lines: Vec<serde_json::Value> = lines.collect::<Result<_>>()?;
    let errors: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["error"].as_str())
        .collect();
    let distinct: HashSet<&str> = errors.iter().copied().collect();
    assert_eq!(errors.len(), distinct.len(), "each error once: {said:#?}");
    assert_eq!(
        said.iter()
            .filter(|line| line.contains("works again"))
            .count(),
        1,
        "{said:#?}"
    );
    Ok(())
}

#[tokio::test]
async fn work_waits_for_an_unreachable_server_at_its_start() -> Result<()> {
    let mut server = Server::start(&[])?;
    let url = server.url();
    server.kill()?;
    let mut worker = Worker::start(&url, &["orders", "--exec", "true"])?;
    worker.says("not started yet")?;
    server.restart()?;
    worker.says("working orders")?;
    let queue = dueq::Client::connect(&url).await?.queue("orders")?;
    queue.push_message(Message::new("")).await?;
    stats(&queue, "an ack", |stats| stats.acked == 1).await?;
    assert_eq!(worker.stop()?.0, Some(0));

    server.kill()?;
    let mut waiting = Worker::start(&url, &["orders", "--exec", "true"])?;
    waiting.says("not started yet")?;
    assert_eq!(waiting.stop()?.0, Some(0), "Ctrl-C ends the wait");
    Ok(())
}
