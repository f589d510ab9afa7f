//! The counters of `/metrics` equal what clients and workers did, also if a worker is killed and
//! Redis restarts or fails over meanwhile.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use dueq::outcomes::{CancelOutcome, RetryOutcome};
use dueq::{Client, Message, Queue};
use dueq_testkit::{Failover, Server};

use crate::serving::serve::Serve;
use crate::work::metrics::Observed;
use crate::work::support::{Folder, LIMIT, command, stats, stored, until};

/// What a worker does: `again` fails once, `die` always, `bury` is hopeless, and `hang` runs until
/// the file exists, or for ten minutes.
const HANDLER: &str = r#"case $DUEQ_ID in
again*) [ "$DUEQ_ATTEMPT" -gt 1 ];;
die*) exit 1;;
bury*) exit 65;;
hang) for n in $(seq 6000); do [ -e "$0" ] && break; sleep 0.1; done;;
esac"#;

type Counts = BTreeMap<String, u64>;

/// The values of `PREFIX...COUNT_total` of the queue, by the names of the counts.
fn counts(page: &str, prefix: &str) -> Counts {
    let count = |line: &str| {
        let (name, value) = line.split_once("_total{queue=\"orders\"} ")?;
        Some((name.strip_prefix(prefix)?.to_owned(), value.parse().ok()?))
    };
    page.lines().filter_map(count).collect()
}

struct Work<'a> {
    url: &'a str,
    queue: Queue,
    handler: String,
}

impl<'a> Work<'a> {
    async fn new(url: &'a str, release: &str) -> Result<Self> {
        Ok(Self {
            url,
            queue: Client::connect(url).await?.queue("orders")?,
            handler: HANDLER.replace("$0", release),
        })
    }

    /// Its leases are so long that none runs out while the machine stands still.
    fn worker(&self) -> Result<Observed> {
        let args = ["orders", "--exec", &self.handler, "--lease", "6h"];
        Observed::start(
            self.url,
            &[&args[..], &["--retry-min", "1ms", "--retry-max", "1ms"]].concat(),
        )
    }

    /// Pushes 12 messages: 10 end by 13 deliveries, and 2 are cancelled.
    async fn push(&self, round: u64) -> Result<()> {
        for (kind, count) in [("ok", 5), ("again", 2), ("die", 1), ("bury", 2)] {
            for n in 0..count {
                let message = Message::new("x").id(format!("{kind}:{round}:{n}"));
                let pushed = self.queue.push_message(message.max_attempts(2)).await?;
                assert!(pushed.is_created());
            }
        }
        for n in 0..2 {
            let id = format!("cancel:{round}:{n}");
            let later = Message::new("x").id(&*id).due(LIMIT);
            assert!(self.queue.push_message(later).await?.is_created());
            assert_eq!(self.queue.cancel(&id).await?, CancelOutcome::Cancelled);
        }
        Ok(())
    }

    async fn until_handled(&self, acked: u64, died: u64) -> Result<()> {
        let is_handled = |stats: &dueq::QueueStats| (stats.acked, stats.died) == (acked, died);
        stats(&self.queue, "all handled", is_handled).await?;
        Ok(())
    }
}

/// Works before and after `interrupt`, during which no worker lives and a lease is open.
async fn counters_are_exact(
    name: &str,
    url: &str,
    interrupt: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let folder = Folder::new(name)?;
    let release = folder.path().join("release");
    let work = Work::new(url, release.to_str().context("a path")?).await?;
    let mut serve = command(url, &["serve", "--json"]);
    let serve = Serve::start_by(serve.env("DUEQ_SERVE_LISTEN", "127.0.0.1:0"))?;

    let mut first = work.worker()?;
    work.push(1).await?;
    work.until_handled(7, 3).await?;
    let hang = Message::new("x").id("hang");
    assert!(work.queue.push_message(hang).await?.is_created());
    let leased = stored(&work.queue, "hang", |stored| stored.lease.is_some()).await?;
    let lease = leased.lease.context("its lease")?.name;
    // The reply of Redis reaches the worker after the lease is visible to others.
    let life = until("the first worker has the message", async || {
        let life = counts(&first.page("/metrics")?.1, "dueq_");
        Ok((life.get("claimed") == Some(&14)).then_some(life))
    })
    .await?;
    first.kill()?;
    std::fs::write(&release, "")?;
    interrupt()?;

    let second = work.worker()?;
    work.push(2).await?;
    let ended = work.queue.end_lease("hang", &lease).await?;
    assert!(matches!(ended, RetryOutcome::Scheduled(_)), "{ended:?}");
    work.until_handled(15, 6).await?;
    let in_redis = until("serve has read the last count", async || {
        let page = serve.ask("GET /metrics", "")?;
        let found = counts(&page, "dueq_queue_");
        let is_last = (found.get("acked"), found.get("died")) == (Some(&15), Some(&6));
        Ok(is_last.then_some(found))
    })
    .await?;
    let done = [
        ("pushed", 25),
        ("claimed", 28),
        ("acked", 15),
        ("retried", 6),
        ("died", 6),
        ("crashed", 1),
        ("cancelled", 4),
    ];
    let done: Counts = done.map(|(name, count)| (name.to_owned(), count)).into();
    let counted: Counts = in_redis
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(counted, done, "the counters in Redis");

    // The counters of each worker process begin at 0. Those of a killed process are known only as of
    // the last request to its /metrics.
    let lives = until("the second worker knows of its last ack", async || {
        let mut lives = counts(&second.page("/metrics")?.1, "dueq_");
        for (name, count) in &life {
            *lives.entry(name.clone()).or_default() += count;
        }
        Ok((lives.get("acked") == Some(&15)).then_some(lives))
    })
    .await?;
    let of = |name| lives.get(name).copied().unwrap_or_default();
    assert_eq!(
        [
            of("claimed"),
            of("acked"),
            of("retried"),
            of("died") + of("buried")
        ],
        [28, 15, 6, 6],
        "{lives:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_exact_over_restarts_of_worker_and_redis() -> Result<()> {
    let mut server = Server::start(&["--appendonly", "yes"])?;
    let url = server.url();
    counters_are_exact("restart", &url, || server.restart()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_exact_over_a_failover() -> Result<()> {
    let mut servers = tokio::task::spawn_blocking(|| Failover::start(1, &[])).await??;
    let url = servers.url();
    counters_are_exact("failover", &url, || {
        let old = servers.master()?.context("a master")?;
        // Redis acknowledges before its replica has the write: a count on its way would be lost.
        servers.wait("the replica to have all", || {
            let info = servers.servers[old].command(&["INFO", "replication"])?;
            let field = |name| info.split_once(name)?.1.split([',', '\r']).next();
            let sent = field("master_repl_offset:");
            Ok(sent.is_some() && sent == field(",offset="))
        })?;
        servers.servers[old].kill()?;
        servers.wait("another master", || {
            Ok(servers.master()?.is_some_and(|new| new != old))
        })
    })
    .await
}
