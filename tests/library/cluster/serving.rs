//! Queues on every master, served by one worker.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use dueq::admin::{AclRole, acl_rules};
use dueq::outcomes::{CancelOutcome, DeleteOutcome, RescheduleOutcome, RunNowOutcome};
use dueq::{Client, Delivery, Durability, ErrorKind};
use dueq_testkit::cluster::Cluster;

use crate::support::{HOUR, LIMIT, messages, push_all, seen, stats_until, until};

/// Names of queues, chosen so that each master has some.
fn names() -> Vec<String> {
    (0..12).map(|number| format!("mail-{number}")).collect()
}

#[tokio::test]
async fn one_worker_serves_queues_on_every_master() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send((delivery.queue().to_owned(), delivery.id().to_string()));
        async {}
    };
    let mut worker = client.worker();
    let mut masters = BTreeSet::new();
    for name in names() {
        masters.insert(cluster.place(&name).await?.1);
        worker = worker.queue(&client.queue(&name)?, handler.clone());
    }
    assert_eq!(masters, BTreeSet::from([0, 1, 2]));
    let worker = worker.spawn()?;
    for name in names() {
        push_all(&client.queue(&name)?, messages(20)).await?;
    }
    let mut counts = BTreeMap::new();
    for (queue, id) in handled.take(12 * 20).await? {
        counts.entry(queue).or_insert_with(BTreeSet::new).insert(id);
    }
    assert!(counts.len() == 12 && counts.values().all(|ids| ids.len() == 20));
    for name in names() {
        let queue = client.queue(&name)?;
        stats_until(&queue, "all acked", |stats| stats.leased == 0).await?;
    }
    assert_eq!(client.queues().await?, {
        let mut names = names();
        names.sort();
        names
    });
    Ok(worker.shutdown().await?)
}

#[tokio::test]
async fn a_pattern_finds_queues_on_every_master() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    for name in names() {
        push_all(&client.queue(&name)?, messages(1)).await?;
    }
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.queue().to_owned());
        async {}
    };
    let worker = client.worker().pattern(&client.pattern("mail-*")?, handler);
    let worker = worker.spawn()?;
    let found: BTreeSet<_> = handled.take(12).await?.into_iter().collect();
    assert_eq!(found, names().into_iter().collect());
    // Notices and wake-ups reach the node from every master.
    for name in names() {
        let queue = client.queue(&name)?;
        queue
            .push("later")
            .delay(std::time::Duration::from_millis(300))
            .await?;
    }
    let found: BTreeSet<_> = handled.take(12).await?.into_iter().collect();
    assert_eq!(found, names().into_iter().collect());
    Ok(worker.shutdown().await?)
}

#[tokio::test]
async fn every_call_finds_the_master_of_its_queue() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    for name in names().into_iter().take(4) {
        let queue = client.queue(&name)?;
        let hour = crate::support::HOUR;
        queue.push("a").id("a").delay(hour).await?;
        assert!(queue.exists().await?);
        assert!(matches!(
            queue.reschedule("a", hour * 2).await?,
            RescheduleOutcome::Moved(_)
        ));
        queue.pause().await?;
        queue.resume().await?;
        assert_eq!(queue.stats().await?.scheduled, 1);
        assert!(queue.get("a").await?.is_some());
        assert_eq!(queue.run_now("a").await?, RunNowOutcome::Moved);
        assert_eq!(queue.cancel("a").await?, CancelOutcome::Cancelled);
        assert!(queue.examine(false).await?.findings.is_empty());
        let incarnation = queue.incarnation().await?.expect("it exists");
        let deleted = queue.delete_incarnation(&incarnation).await?;
        assert_eq!(deleted, DeleteOutcome::Deleted);
    }
    let checkup = client.examine().await?;
    assert!(checkup.facts.contains(&("masters", "3".to_owned())));
    Ok(())
}

#[tokio::test]
async fn wait_for_replicas_happens_at_the_master_of_the_queue() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    let none = Durability::Replicated {
        replicas: 1,
        timeout: std::time::Duration::from_millis(20),
    };
    for name in names().into_iter().take(4) {
        let queue = client.queue(&name)?;
        let (_, master) = cluster.place(&name).await?;
        let pushed = queue.push("a").durability(none).await;
        let error = pushed.expect_err("no master has a replica");
        assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
        let waits = async || {
            cluster
                .command::<String>(master, &["INFO", "commandstats"])
                .await
        };
        let stats = until("a wait", waits, |stats| stats.contains("cmdstat_wait:")).await?;
        assert!(stats.contains("cmdstat_wait:"), "{LIMIT:?}");
    }
    Ok(())
}

/// Creates a user on every master. Returns the URL with that user.
async fn user(cluster: &Cluster, name: &str, rules: &[&str]) -> Result<String> {
    let words = [&["ACL", "SETUSER", name, "reset", "on", ">secret"], rules].concat();
    for master in 0..cluster.masters.len() {
        cluster.command::<()>(master, &words).await?;
    }
    let port = cluster.masters[0].port();
    Ok(format!("redis://{name}:secret@127.0.0.1:{port}/"))
}

#[tokio::test]
async fn each_role_has_the_rights_to_follow_moved_slots() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let mut clients = Vec::new();
    for (name, role) in [
        ("producer", AclRole::Producer),
        ("consumer", AclRole::Consumer),
    ] {
        let rules = acl_rules("orders", role)?;
        // The rule `reset` is skipped, because it would remove the password.
        let rules: Vec<&str> = rules.iter().skip(1).map(String::as_str).collect();
        clients.push(Client::connect(&user(&cluster, name, &rules).await?).await?);
    }
    let operator = Client::connect(&cluster.url()).await?;
    operator
        .queue("orders")?
        .push("")
        .id("a")
        .delay(HOUR)
        .await?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().to_string());
        async {}
    };
    let consumed = clients[1].queue("orders")?;
    let worker = clients[1].worker().queue(&consumed, handler).spawn()?;
    let produced = clients[0].queue("orders")?;
    produced.push("").id("b").await?;
    assert_eq!(handled.next().await?, "b");
    let (slot, owner) = cluster.place("orders").await?;
    cluster.begin_move(slot, owner, 1 - owner).await?;
    cluster.finish_move(slot, owner, 1 - owner).await?;
    produced.push("").id("c").await?;
    assert_eq!(handled.next().await?, "c");
    let health = async || Ok(worker.health());
    let _ = until("no error", health, dueq::WorkerHealth::is_ready).await?;
    Ok(worker.shutdown().await?)
}

#[tokio::test]
async fn operator_has_the_right_to_look_for_stuck_slots() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let rules = acl_rules("orders", AclRole::Operator)?;
    let rules: Vec<&str> = rules.iter().skip(1).map(String::as_str).collect();
    let client = Client::connect(&user(&cluster, "operator", &rules).await?).await?;
    client.queue("orders")?.push("").await?;
    let checkup = client.examine().await?;
    let mut unchecked = checkup.unchecked.iter().map(|it| it.what);
    assert!(
        !unchecked.any(|what| what.contains("CLUSTER NODES")),
        "{:?}",
        checkup.unchecked
    );
    Ok(())
}

#[tokio::test]
async fn error_names_the_missing_rights_to_a_cluster() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let url = user(&cluster, "limited", &["~*", "&*", "+@all", "-cluster"]).await?;
    let error = Client::connect(&url).await.expect_err("it may not ask");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("cluster|info"), "{error}");
    Ok(())
}
