//! A master that dies or freezes: its replica is promoted, and work goes on there.

use anyhow::{Context, Result};
use dueq::{Client, Durability};
use dueq_testkit::Server;
use dueq_testkit::cluster::Cluster;

use crate::faults::signal;
use crate::support::{HOUR, LIMIT, acking, stats_until, until};

/// What happens to the master of the queue.
#[derive(Clone, Copy)]
enum Fault {
    Killed,
    /// It keeps its connections and answers nothing.
    Frozen,
}

impl Fault {
    fn strike(self, server: &mut Server) -> Result<()> {
        match self {
            Self::Killed => server.kill(),
            Self::Frozen => signal("-STOP", server.pid()),
        }
    }
}

async fn work_goes_on_after(fault: Fault) -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let (_, master) = cluster.place("orders").await?;
    cluster.add_replica(master).await?;
    let client = Client::connect(&cluster.masters[(master + 1) % 3].url()).await?;
    let queue = client.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue.push("").id("before").await?;
    assert_eq!(handled.next().await?, "before");
    let copied = Durability::Replicated {
        replicas: 1,
        timeout: LIMIT,
    };
    let waits = queue.push("").id("waits").delay(HOUR);
    waits.durability(copied).await?;

    fault.strike(&mut cluster.masters[master])?;
    // The id makes a repetition harmless, however long the failover takes.
    let push = async || Ok(queue.push("").id("after").await.is_ok());
    until("a push", push, |pushed| *pushed).await?;
    assert_eq!(handled.next().await?, "after");
    stats_until(&queue, "the message that waits", |stats| {
        stats.scheduled == 1 && stats.leased == 0
    })
    .await?;
    let port = cluster.masters.last().context("a replica")?.port();
    assert!(
        client.address().contains(&port.to_string()),
        "{}",
        client.address()
    );
    worker.stop().await
}

#[tokio::test]
async fn work_goes_on_after_a_masters_death() -> Result<()> {
    work_goes_on_after(Fault::Killed).await
}

#[tokio::test]
async fn work_goes_on_while_a_master_is_frozen() -> Result<()> {
    work_goes_on_after(Fault::Frozen).await
}
