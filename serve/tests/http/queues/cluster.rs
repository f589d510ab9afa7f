//! Queues on the masters of a cluster.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq_testkit::cluster::Cluster;

use crate::instance::{Instance, LIMIT};
use crate::queues::lists::list_until;

/// A server in front of a cluster of three masters, with queues on each master.
async fn on_cluster() -> Result<(Instance, Cluster, Vec<String>)> {
    let cluster = Cluster::start(3).await?;
    let instance = Instance::before(&cluster.url()).await?;
    let (mut names, mut masters) = (Vec::new(), BTreeSet::new());
    for number in 0.. {
        let name = format!("q-{number:02}");
        instance.queue(&name).await?;
        masters.insert(cluster.place(&name).await?.1);
        names.push(name);
        if masters.len() == 3 && names.len() >= 12 {
            break;
        }
    }
    Ok((instance, cluster, names))
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_search_cover_all_masters() -> Result<()> {
    let (instance, _cluster, names) = on_cluster().await?;
    let list = list_until(&instance, |list| list["complete"] == true).await?;
    let listed = list["queues"].as_array().context("a list")?;
    let listed: Vec<_> = listed
        .iter()
        .filter_map(|one| one["queue"].as_str())
        .collect();
    assert_eq!(listed, names);
    let found = instance.read("GET /v1/search?id=1").await?;
    let hits = found["found"].as_array().context("a list")?;
    let hits: Vec<_> = hits
        .iter()
        .filter_map(|hit| hit["queue"].as_str())
        .collect();
    assert_eq!(hits, names, "{found}");
    assert_eq!(
        (&found["asked"], &found["complete"]),
        (&names.len().into(), &true.into())
    );
    // The next scan finds a queue that is created later.
    instance.queue("q-99").await?;
    let has_new = |list: &serde_json::Value| list.to_string().contains("q-99");
    list_until(&instance, has_new).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn queue_with_a_moving_slot_stays_in_lists_and_searches() -> Result<()> {
    let (instance, cluster, names) = on_cluster().await?;
    list_until(&instance, |list| list["complete"] == true).await?;
    let name = &names[0];
    let (slot, from) = cluster.place(name).await?;
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to).await?;
    cluster.finish_move(slot, from, to).await?;
    instance.client.queue(name)?.push("x").id("2").await?;
    let found = instance.read("GET /v1/search?id=2").await?;
    assert_eq!(found["found"][0]["queue"], name.as_str(), "{found}");
    assert_eq!(found["failed"].as_array().map(Vec::len), Some(0), "{found}");
    let line = format!("GET /v1/queues/{name}/messages/2");
    assert_eq!(instance.call(&line).await?.status, 200);
    let is_read = |list: &serde_json::Value| list["queues"][0]["counts"]["pushed"] == 2;
    list_until(&instance, is_read).await?;
    Ok(())
}

async fn ready_becomes(instance: &Instance, status: u16) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while instance.call("GET /readyz").await?.status != status {
        ensure!(Instant::now() < end, "/readyz does not become {status}");
    }
    Ok(())
}

/// All instances miss the same master: callers must not lose the queues of the others, too.
#[tokio::test(flavor = "multi_thread")]
async fn server_is_ready_while_a_master_is_gone() -> Result<()> {
    let options = ["--cluster-require-full-coverage", "no"];
    for gone in 0..3 {
        let mut cluster = Cluster::start_with(3, &options).await?;
        let instance = Instance::before(&cluster.url()).await?;
        cluster.masters[gone].kill()?;
        // The probe asks a master that is there, and takes no answer from before.
        tokio::time::sleep(Duration::from_millis(1_001)).await;
        assert_eq!(instance.call("GET /readyz").await?.status, 200, "{gone}");
    }
    Ok(())
}

/// By default the masters of a cluster refuse all keys while some slots have no master.
#[tokio::test(flavor = "multi_thread")]
async fn server_is_not_ready_while_the_cluster_is_down() -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let instance = Instance::before(&cluster.url()).await?;
    assert_eq!(instance.call("GET /readyz").await?.status, 200);
    cluster.masters[2].kill()?;
    ready_becomes(&instance, 503).await?;
    cluster.masters[2].restart()?;
    ready_becomes(&instance, 200).await
}

/// A third of the partitions is unreachable: the list has the counts of the others, and the overdue
/// time grows, so that an alert fires.
#[tokio::test(flavor = "multi_thread")]
async fn overdue_time_grows_while_a_master_is_away() -> Result<()> {
    let options = ["--cluster-require-full-coverage", "no"];
    let mut cluster = Cluster::start_with(3, &options).await?;
    let instance = Instance::before(&cluster.url()).await?;
    let queue = instance.client.queue("orders")?;
    queue.partition_into(6).await?;
    for number in 0..60 {
        queue.push("x").id(format!("order:{number}")).await?;
    }
    let (_, home) = cluster.place("orders").await?;
    list_until(&instance, |list| {
        list["queues"][0]["counts"]["pushed"] == 60
    })
    .await?;
    cluster.masters[(home + 1) % 3].kill()?;
    let is_unread = |list: &serde_json::Value| {
        let orders = &list["queues"][0];
        orders["error"].is_string() && orders["counts"]["overdue_ms"].as_u64() > Some(5_000)
    };
    list_until(&instance, is_unread).await?;
    let page = instance.call("GET /metrics").await?.body;
    let sample = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<f64>().ok())
    };
    assert_eq!(
        sample("dueq_queue_unread{queue=\"orders\"}"),
        Some(1.0),
        "{page}"
    );
    assert!(
        sample("dueq_queue_overdue_seconds{queue=\"orders\"}") > Some(5.0),
        "{page}"
    );
    assert_eq!(sample("dueq_redis_up"), Some(1.0), "{page}");
    assert!(
        sample("dueq_queue_due{queue=\"orders\"}") > Some(0.0),
        "{page}"
    );
    assert!(
        !page.contains("dueq_queue_pushed_total{"),
        "a part would seem a reset: {page}"
    );
    let orders = instance.read("GET /v1/queues/orders").await?;
    assert_eq!(
        orders["unread"].as_array().map(Vec::len),
        Some(2),
        "{orders}"
    );
    let backlog = instance.read("GET /v1/queues/orders/backlog").await?;
    assert_eq!(backlog["unread"], 2, "{backlog}");
    assert!(backlog["due_now"].as_u64() > Some(0), "{backlog}");
    assert!(backlog["overdue_s"].as_f64() > Some(5.0), "{backlog}");
    for read in ["dues", "history"] {
        let line = format!("GET /v1/queues/orders/{read}");
        let answer = instance.read(&line).await?;
        let unread = answer["unread"].as_array().map(Vec::len);
        assert_eq!(unread, Some(2), "{answer}");
    }
    Ok(())
}
