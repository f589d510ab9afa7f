//! `/workers`: the live workers of all queues.

use anyhow::Result;
use dueq::{Delivery, Due};

use crate::dashboard::look::{led, look_until, submit, text};
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
    let both = |page: &str| page.contains("the leader") && page.contains("1 process on 1 queue");
    let page = look_until(&instance, "/workers", both).await?;
    for node in queue.nodes().await? {
        assert!(page.contains(&node.id), "{}: {page}", node.id);
    }
    assert_eq!(page.matches("the leader").count(), 1, "{page}");
    // Both workers are of one process.
    let processes = instance.read("GET /v1/processes").await?;
    let process = &processes["processes"][0];
    assert_eq!(process["process"]["pid"], std::process::id(), "{processes}");
    assert_eq!(
        process["workers"].as_array().map(Vec::len),
        Some(2),
        "{processes}"
    );
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

#[tokio::test(flavor = "multi_thread")]
async fn message_and_process_pages_say_who_has_what_since_when() -> Result<()> {
    let instance = Instance::open().await?;
    let queue = instance.queue("orders").await?;
    let _ = queue.run_now("1").await?;
    let worker = queue
        .worker()
        .grace(std::time::Duration::ZERO)
        .spawn(|_: Delivery| std::future::pending::<()>())?;
    while queue.stats().await?.leased == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let shown = instance.read("GET /v1/queues/orders/messages/1").await?;
    assert_eq!(
        shown["holder"]["process"]["pid"],
        std::process::id(),
        "{shown}"
    );
    assert_eq!(shown["holder"]["is_alive"], true, "{shown}");
    let page = look_until(&instance, "/queues/orders/messages/1", |_| true).await?;
    let host = shown["holder"]["process"]["host"]
        .as_str()
        .unwrap_or_default();
    let link = format!(
        "/workers/process?host={host}&#38;pid={}",
        std::process::id()
    );
    assert!(page.contains(&link), "{link}: {page}");
    assert!(
        page.contains("Bury when its lease ends") && page.contains("A handler began"),
        "{page}"
    );
    let list = "/queues/orders/messages?state=leased&order=start";
    let page = look_until(&instance, list, |_| true).await?;
    let node = shown["node"].as_str().unwrap_or_default();
    assert!(
        page.contains(node) && page.contains("longest running first"),
        "{page}"
    );
    // A queue with one worker has one row.
    let is_read = |page: &str| page.contains(node);
    let page = text(&look_until(&instance, "/workers", is_read).await?);
    assert!(page.contains("1 worker, "), "{page}");
    assert_eq!(page.matches(node).count(), 1, "{page}");
    let process = format!("/workers/process?host={host}&pid={}", std::process::id());
    let has = |page: &str| page.contains("/queues/orders/messages/1");
    look_until(&instance, &process, has).await?;
    // Drained by its page, it says so at once; a message that is due then waits.
    let page = look_until(&instance, &process, |page| page.contains(">Drain<")).await?;
    assert!(!page.contains(">Resume<"), "{page}");
    let pid = std::process::id();
    let body = |action| format!("action={action}&host={host}&pid={pid}");
    let answer = submit(&instance, None, "/workers/process", &body("drain")).await?;
    led(&answer, &format!("{process}&did=drained"));
    let drained = instance.read("GET /v1/processes").await?;
    assert_eq!(drained["processes"][0]["drained"][0], "orders", "{drained}");
    let page = look_until(&instance, &process, |page| page.contains(">Resume<")).await?;
    assert!(!page.contains(">Drain<"), "{page}");
    assert_eq!(queue.stats().await?.drained_nodes, 1);
    let answer = submit(&instance, None, "/workers/process", &body("resume")).await?;
    led(&answer, &format!("{process}&did=undrained"));
    assert_eq!(queue.stats().await?.drained_nodes, 0);
    // A queue that cannot be read keeps no other from being drained.
    instance.client.queue("broken")?.push("").await?;
    look_until(&instance, "/", |page| page.contains("/queues/broken")).await?;
    instance.redis.command(&["DEL", "dueq:{broken}:nodes"])?;
    instance
        .redis
        .command(&["SET", "dueq:{broken}:nodes", "x"])?;
    let answer = submit(&instance, None, "/workers/process", &body("drain")).await?;
    led(&answer, &format!("{process}&did=reached_in_part"));
    assert_eq!(queue.stats().await?.drained_nodes, 1);
    let page = look_until(&instance, "/workers/process?host=h&pid=1", |_| true).await?;
    assert!(page.contains("no live worker"), "{page}");
    worker.shutdown().await?;
    Ok(())
}
