//! How soon a worker on a pattern serves a queue, among so many foreign keys that a scan with its
//! pauses takes longer than the limit of any wait.

use anyhow::Result;
use dueq::{Client, Delivery, Limits, Role, acl_rules};
use dueq_testkit::cluster::Cluster;

use crate::support::{Seen, Setup, connection, seen, setup_with, until, within};

const OPTIONS: [&str; 2] = ["--enable-debug-command", "yes"];
const POPULATE: [&str; 4] = ["DEBUG", "POPULATE", "300000", "foreign"];
/// How many steps a scan of them has at least.
const STEPS: u64 = 300;

/// A worker on a pattern, and the names of the queues that it serves.
fn served(client: &Client) -> Result<(dueq::WorkerHandle, Seen<String>)> {
    let (sender, served) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.queue().to_owned());
        async {}
    };
    let mails = client.pattern("mail-*")?;
    Ok((client.worker().pattern(&mails, handler).spawn(), served))
}

/// Waits until the worker has scanned all keys once.
async fn scanned(setup: &Setup) -> Result<()> {
    let mut redis = setup.redis().await?;
    let steps = async || {
        let stats: String = crate::support::command(&mut redis, &["INFO", "commandstats"]).await?;
        let calls = stats
            .split_once("cmdstat_scan:calls=")
            .map(|(_, rest)| rest);
        let calls = calls.and_then(|rest| rest.split(',').next()).unwrap_or("0");
        Ok(calls.parse::<u64>()?)
    };
    until("a whole scan", steps, |steps| *steps >= STEPS).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_and_new_queues_are_served_among_foreign_keys() -> Result<()> {
    let setup = &setup_with(&OPTIONS).await?;
    setup.command::<()>(&POPULATE).await?;
    let mut old: Vec<_> = (0..10).map(|number| format!("mail-{number}")).collect();
    for name in &old {
        setup.client.queue(name)?.push("").await?;
    }
    let (worker, mut served) = served(&setup.client)?;
    let mut found = within("the old queues", served.take(10)).await??;
    found.sort();
    old.sort();
    assert_eq!(found, old);
    setup.client.queue("mail-new")?.push("").await?;
    assert_eq!(served.next().await?, "mail-new");
    // Channels belong to all databases of a server.
    let other = Client::connect(&format!("{}1", setup.server.url())).await?;
    other.queue("mail-other")?.push("").await?;
    setup.client.queue("mail-last")?.push("").await?;
    assert_eq!(served.next().await?, "mail-last");
    assert!(worker.health().queue("mail-other").is_none());
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_that_was_not_heard_of_is_found_after_a_reconnect() -> Result<()> {
    let setup = &setup_with(&OPTIONS).await?;
    setup.command::<()>(&POPULATE).await?;
    let (worker, mut served) = served(&setup.client)?;
    scanned(setup).await?;
    // Release 0.1 publishes no creation.
    let push = include_str!("../../compat/0.1/lua/push.lua");
    let keys = dueq::queue_keys("mail-old")?;
    let keys = keys.iter().map(String::as_str);
    let words: Vec<_> = ["EVAL", push, "10"].into_iter().chain(keys).collect();
    let words = [&words[..], &["", "", "id", "+0", "payload", ""]].concat();
    let _: redis::Value = setup.command(&words).await?;
    let killed: u64 = setup.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
    assert!(killed > 0);
    assert_eq!(served.next().await?, "mail-old");
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_rights_suffice_to_hear_of_a_new_queue() -> Result<()> {
    let setup = &setup_with(&OPTIONS).await?;
    setup.command::<()>(&POPULATE).await?;
    let mut admin = connection(&setup.server.url()).await?;
    let mut clients = Vec::new();
    for (name, role) in [
        ("producer", Role::Producer),
        ("consumer", Role::Consumer),
        ("operator", Role::Operator),
    ] {
        let rules = acl_rules("mail-*", role)?;
        let rules = rules.iter().skip(1).map(String::as_str);
        let words: Vec<_> = ["ACL", "SETUSER", name, "on", ">secret"]
            .into_iter()
            .chain(rules)
            .collect();
        crate::support::command::<()>(&mut admin, &words).await?;
        let url = format!("redis://{name}:secret@127.0.0.1:{}/", setup.server.port());
        clients.push(Client::connect(&url).await?);
    }
    let (worker, mut served) = served(&clients[1])?;
    scanned(setup).await?;
    let created = clients[2].queue("mail-new")?;
    created.configure(Limits::new().max_attempts(5)).await?;
    clients[0].queue("mail-new")?.push("").await?;
    assert_eq!(served.next().await?, "mail-new");
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_queues_of_every_master_are_served_among_foreign_keys() -> Result<()> {
    let cluster = Cluster::start_with(3, &OPTIONS).await?;
    for master in 0..3 {
        cluster.command::<()>(master, &POPULATE).await?;
    }
    let client = Client::connect(&cluster.url()).await?;
    client.queue("mail-old")?.push("").await?;
    let (worker, mut served) = served(&client)?;
    assert_eq!(served.next().await?, "mail-old");
    let mut masters = std::collections::BTreeSet::new();
    for number in 0..12 {
        let name = format!("mail-{number}");
        masters.insert(cluster.place(&name).await?.1);
        client.queue(&name)?.push("").await?;
        assert_eq!(served.next().await?, name);
    }
    assert_eq!(masters.len(), 3);
    Ok(worker.shutdown().await?)
}
