//! `--metrics`: the pages of a worker.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::cluster::Cluster;

use crate::work::support::{Dueq, command, queue, stats, until};

/// A worker with pages, at this address.
pub(crate) struct Observed {
    worker: Dueq,
    address: String,
    /// Kept open: the worker writes its log there.
    _log: BufReader<ChildStderr>,
}

impl Observed {
    pub(crate) fn start(url: &str, args: &[&str]) -> Result<Self> {
        let mut worker = command(url, &[&["work", "--metrics", "0"], args].concat());
        worker.env("RUST_LOG", "warn").stderr(Stdio::piped());
        let mut worker = Dueq::run(&mut worker)?;
        let mut log = BufReader::new(worker.stderr().context("its log")?);
        let mut line = String::new();
        log.read_line(&mut line)?;
        let address = line.trim().strip_prefix("dueq: metrics at http://");
        let address = address.and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.with_context(|| line.clone())?.to_owned();
        Ok(Self {
            worker,
            address,
            _log: log,
        })
    }

    /// The status and the body of a page.
    pub(crate) fn page(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        let host = &self.address;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("a body")?;
        let status = head.split(' ').nth(1).context("a status")?;
        Ok((status.parse()?, body.to_owned()))
    }

    /// Kills the worker, like `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.worker.signal("KILL")?;
        self.worker.wait()?;
        Ok(())
    }

    async fn until_ready(&self, status: u16) -> Result<()> {
        until("readiness", async || {
            Ok((self.page("/readyz")?.0 == status).then_some(()))
        })
        .await
    }
}

#[tokio::test]
async fn metrics_have_counts_by_queue_and_never_an_id() -> Result<()> {
    let name = "it's \"a\" \\ 🦀";
    let (server, hostile) = queue(name).await?;
    for id in ["order:42", "order:43"] {
        hostile.push("secret").id(id).await?;
    }
    let observed = Observed::start(&server.url(), &[name, "--exec", "true"])?;
    stats(&hostile, "2 acks", |stats| stats.acked == 2).await?;
    observed.until_ready(200).await?;
    assert_eq!(observed.page("/healthz")?.0, 200);
    let label = "{queue=\"it's \\\"a\\\" \\\\ 🦀\"}";
    // The worker updates the number of free handlers each second.
    let page = until("two acks, and all handlers free", async || {
        let page = observed.page("/metrics")?.1;
        let is_done = page.contains(&format!("dueq_acked_total{label} 2\n"))
            && page.contains("\ndueq_free_handlers 64\n");
        Ok(is_done.then_some(page))
    })
    .await?;
    for line in [
        &*format!("dueq_lateness_seconds_count{label} 2"),
        &*format!("dueq_handling_seconds_count{label} 2"),
        "dueq_redis_up 1",
        "dueq_queues_omitted 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}: {page}");
    }
    assert!(
        !page.contains("order:4") && !page.contains("secret"),
        "{page}"
    );
    Ok(())
}

#[tokio::test]
async fn worker_is_alive_and_not_ready_while_the_server_is_away() -> Result<()> {
    // Nothing listens on the port of a server that has gone.
    let url = queue("orders").await?.0.url();
    let observed = Observed::start(&url, &["orders", "--print"])?;
    assert_eq!(observed.page("/healthz")?.0, 200);
    assert_eq!(observed.page("/readyz")?.0, 503);
    let (status, page) = observed.page("/metrics")?;
    assert!(
        status == 200 && page.contains("dueq_redis_up 0\n"),
        "{page}"
    );
    Ok(())
}

#[tokio::test]
async fn worker_of_no_queue_yet_is_ready_while_the_server_answers() -> Result<()> {
    let (mut server, _) = queue("mails").await?;
    let observed = Observed::start(&server.url(), &["orders*", "--print"])?;
    observed.until_ready(200).await?;
    assert!(observed.page("/metrics")?.1.contains("dueq_redis_up 1\n"));
    server.kill()?;
    observed.until_ready(503).await?;
    assert!(observed.page("/metrics")?.1.contains("dueq_redis_up 0\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_is_not_ready_without_the_master_of_a_queue() -> Result<()> {
    let options = ["--cluster-require-full-coverage", "no"];
    let mut cluster = Cluster::start_with(3, &options).await?;
    let (_, gone) = cluster.place("orders").await?;
    let mut there = None;
    for number in 0.. {
        let name = format!("mails-{number}");
        if cluster.place(&name).await?.1 != gone {
            there = Some(name);
            break;
        }
    }
    let there = there.context("a queue on another master")?;
    let url = cluster.url();
    let both = Observed::start(&url, &["orders", &there, "--print"])?;
    let other = Observed::start(&url, &[&there, "--print"])?;
    both.until_ready(200).await?;
    other.until_ready(200).await?;
    cluster.masters[gone].kill()?;
    both.until_ready(503).await?;
    other.until_ready(200).await?;
    cluster.masters[gone].restart()?;
    both.until_ready(200).await?;
    Ok(())
}

#[tokio::test]
async fn stopping_worker_is_not_ready_and_still_has_metrics() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    orders.push("x").await?;
    let script = "echo started; exec sleep 60";
    let mut observed = Observed::start(&server.url(), &["orders", "--exec", script])?;
    assert_eq!(observed.worker.says()?, "started");
    observed.until_ready(200).await?;
    observed.worker.signal("TERM")?;
    observed.until_ready(503).await?;
    let page = observed.page("/metrics")?.1;
    assert!(
        page.contains("dueq_handlers_running{queue=\"orders\"} 1\n"),
        "{page}"
    );
    observed.worker.signal("TERM")?;
    assert!(observed.worker.wait()?.success());
    Ok(())
}
