//! Moves of a queue to another store, while it is in use.

use anyhow::Result;
use dueq::Client;
use dueq_testkit::cluster::Cluster;

use super::live::has_all;
use super::traffic::{change_used, due, group, stock};
use crate::support::{HOUR, push_all, setup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_moves_to_another_server() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    let ids = group("far", 3_000);
    push_all(&here.queue, due(&ids, |_| HOUR)).await?;
    here.queue
        .move_to(&there.server.url(), Some(3))
        .without_rests()
        .await?;
    has_all(&there.queue, &ids, 3).await?;
    has_all(&here.queue, &ids, 3).await?;
    let fresh = Client::connect(&here.server.url()).await?.queue("orders")?;
    has_all(&fresh, &ids, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_moves_from_a_server_into_a_cluster() -> Result<()> {
    let (here, cluster) = (setup().await?, Cluster::start(3).await?);
    let there = Client::connect(&cluster.url()).await?.queue("orders")?;
    let stock = stock(&here.queue).await?;
    let url = cluster.url();
    let change = || here.queue.move_to(&url, Some(6));
    change_used(&[&here.queue, &there], stock, change, 6, false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_that_was_to_move_stays() -> Result<()> {
    let (here, there) = (setup().await?, setup().await?);
    here.queue.partition_into(2).await?;
    let stock = stock(&here.queue).await?;
    let url = there.server.url();
    let change = || here.queue.move_to(&url, Some(3));
    change_used(&[&here.queue, &there.queue], stock, change, 3, true).await
}
