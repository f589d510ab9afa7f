//! `/workers`: the live workers of all queues.

use anyhow::Result;
use dueq::{Delivery, Due};

use crate::dashboard::look::{look_until, text};
use crate::instance::Instance;

#[tokio::test(flavor = "multi_thread")]
async fn workers_page_lists_workers_and_marks_the_leader() -> Result<()> {
    let instance = Instance::open().await?;
    let page = look_until(&instance, "/workers", |page| page.contains("No worker")).await?;
    assert!(page.contains("dueq work"), "{page}");
    let queue = instance.queue("orders").await?;
    let handle = |delivery: Delivery| async move { drop(delivery.ack().await) };
    let (first, second) = (queue.worker().spawn(handle)?, queue.worker().spawn(handle)?);
    // Load the page only after both workers are live: the server reads a queue's workers again only
    // after 15 s.
    while queue.nodes().await?.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let both = |page: &str| page.contains("the leader") && page.contains("2 workers on 1 queue");
    let page = look_until(&instance, "/workers", both).await?;
    for node in queue.nodes().await? {
        assert!(page.contains(&node.id), "{}: {page}", node.id);
    }
    assert_eq!(page.matches("the leader").count(), 1, "{page}");
    first.shutdown().await?;
    second.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_page_names_queues_without_a_worker() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.client.queue("orders")?;
    queue.push("x").id("1").due(Due::at_ms(1)).await?;
    instance.queue("later").await?;
    let named = |page: &str| page.contains("no worker lives");
    let page = text(&look_until(&instance, "/workers", named).await?);
    assert!(page.contains("lives, on orders ."), "{page}");
    Ok(())
}
