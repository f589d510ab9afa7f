//! Queues that a worker finds by a pattern, and parks while nothing happens in them.

use std::time::Duration;

use anyhow::Result;
use dueq::admin::{AclRole, acl_rules};
use dueq::{Client, Delivery, ErrorKind, Message, QueueLimits, Share};
use dueq_testkit::Stopwatch;
use dueq_testkit::cluster::Cluster;
use tokio::sync::mpsc::UnboundedSender;

use crate::support::{Seen, Setup, connection, seen, setup, setup_with, until, within};

async fn ack(_: Delivery) {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_queue_is_served_and_parks_again() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    // The queues exist before the worker scans.
    let mails = [client.queue("mail-a")?, client.queue("mail-b")?];
    for mail in &mails {
        mail.configure(dueq::QueueLimits::new().max_attempts(5))
            .await?;
    }
    let (sender, mut seen) = seen();
    let worker = client
        .worker()
        .parking(Duration::from_secs(60))
        .queue(queue, ack)
        .pattern(&client.pattern("mail-*")?, move |delivery: Delivery| {
            let text = format!("{} {}", delivery.queue(), delivery.id());
            let _ = sender.send(text);
            std::future::ready(())
        })
        .spawn()?;
    let parked = |health: &dueq::WorkerHealth| {
        ["mail-a", "mail-b"].into_iter().all(|name| {
            health
                .queue(name)
                .is_some_and(|queue| queue.is_parked() && queue.is_connected())
        })
    };
    let _ = until("parked queues", async || Ok(worker.health()), parked).await?;
    assert!(
        !worker
            .health()
            .queue("orders")
            .is_some_and(dueq::QueueHealth::is_parked)
    );
    for mail in &mails {
        assert_eq!(mail.stats().await?.nodes, 1, "a parked node is alive");
    }
    // The worker announced a silence of a minute. Messages that start in less than half of that were
    // reported by notices.
    let begun = Stopwatch::start();
    mails[0].push("").id("now").await?;
    assert_eq!(seen.next().await?, "mail-a now");
    let soon = Message::new("").id("soon").due(Duration::from_millis(300));
    mails[1].push_message(soon).await?;
    assert_eq!(seen.next().await?, "mail-b soon");
    assert!(begun.elapsed() < Duration::from_secs(30), "{begun:?}");
    let _ = until("parked queues again", async || Ok(worker.health()), parked).await?;
    let later = Message::new("").id("later").due(Duration::from_secs(3));
    let begun = Stopwatch::start();
    mails[1].push_message(later).await?;
    assert_eq!(seen.next().await?, "mail-b later");
    assert!(begun.elapsed() < Duration::from_secs(30), "{begun:?}");
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}

/// A handler that reports its name and the queue.
fn named(
    name: &'static str,
    sender: &UnboundedSender<String>,
) -> impl Fn(Delivery) -> std::future::Ready<()> + Clone + Send + Sync + 'static {
    let sender = sender.clone();
    move |delivery: Delivery| {
        let _ = sender.send(format!("{name}: {}", delivery.queue()));
        std::future::ready(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_two_patterns_match_has_one_handler() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let names = ["mail-a", "mail-b", "other"];
    for name in names {
        client.queue(name)?.push("").await?;
    }
    let (sender, mut seen) = seen();
    // A scan tries the patterns in their order.
    let worker = client
        .worker()
        .pattern(&client.pattern("mail-*")?, named("mails", &sender))
        .pattern(&client.pattern("*")?, named("all", &sender))
        .queue(&client.queue("mail-a")?, named("one", &sender))
        .spawn()?;
    let mut handled = seen.take(3).await?;
    handled.sort();
    assert_eq!(handled, ["all: other", "mails: mail-b", "one: mail-a"]);
    let found = client.queue("mail-b")?;
    let twice = worker.add(&found, ack).await.expect_err("refused");
    assert_eq!(twice.kind(), ErrorKind::InvalidInput);
    assert!(twice.to_string().contains("a pattern matches"), "{twice}");
    assert_eq!(worker.health().queues().count(), 3);
    // After its removal, the queue can be added with a handler of its own.
    within("the removal", worker.remove("mail-b")).await??;
    worker.add(&found, named("own", &sender)).await?;
    found.push("").await?;
    assert_eq!(seen.next().await?, "own: mail-b");
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_found_queue_of_another_layout_stops_no_other() -> Result<()> {
    let setup = setup().await?;
    let client = &setup.client;
    let words = ["HSET", "dueq:{mail-newer}:meta", "layout", "99"];
    setup.command::<()>(&words).await?;
    let mail = client.queue("mail-a")?;
    mail.push("").await?;
    let (sender, mut seen) = seen();
    let mails = client.pattern("mail-*")?;
    let worker = client.worker().pattern(&mails, named("mails", &sender));
    let worker = worker.spawn()?;
    assert_eq!(seen.next().await?, "mails: mail-a");
    let error = async || {
        let health = worker.health();
        let newer = health.queue("mail-newer");
        Ok(newer
            .and_then(dueq::QueueHealth::error)
            .map(ToString::to_string))
    };
    let error = until("an error", error, Option::is_some).await?;
    assert!(error.is_some_and(|error| error.contains("layout 99")));
    mail.push("").await?;
    assert_eq!(seen.next().await?, "mails: mail-a");
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserve_for_a_pattern_is_refused() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let mails = client.pattern("mail-*")?;
    let reserved = Share::weight(1).reserve(2);
    let worker = client.worker().pattern_with(&mails, reserved, ack);
    let error = worker.spawn().expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("mail-*"), "{error}");
    for text in ["", "a/b", "a{b}"] {
        let error = client.pattern(text).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parking_time_out_of_range_is_refused() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    let mails = client.pattern("mail-*")?;
    for parking in [Duration::from_millis(999), Duration::from_millis(60_001)] {
        let worker = client.worker().parking(parking).pattern(&mails, ack);
        let error = worker.spawn().expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{parking:?}");
        assert!(error.to_string().contains("1s to 60s"), "{error}");
    }
    Ok(())
}

const OPTIONS: [&str; 2] = ["--enable-debug-command", "yes"];
const POPULATE: [&str; 4] = ["DEBUG", "POPULATE", "300000", "foreign"];
/// The least number of steps of a scan over the foreign keys.
const STEPS: u64 = 300;

/// A worker of a pattern, and a channel with the names of the queues that it serves.
fn served(client: &Client) -> Result<(dueq::WorkerHandle, Seen<String>)> {
    let (sender, served) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.queue().to_owned());
        async {}
    };
    let mails = client.pattern("mail-*")?;
    Ok((client.worker().pattern(&mails, handler).spawn()?, served))
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
    // Channels belong to all databases of a server, so a queue of another database is announced
    // here too.
    let other = Client::connect(&format!("{}1", setup.server.url())).await?;
    other.queue("mail-other")?.push("").await?;
    setup.client.queue("mail-last")?.push("").await?;
    assert_eq!(served.next().await?, "mail-last");
    assert!(worker.health().queue("mail-other").is_none());
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_notice_was_missed_is_found_later() -> Result<()> {
    let setup = &setup_with(&OPTIONS).await?;
    setup.command::<()>(&POPULATE).await?;
    let (worker, mut served) = served(&setup.client)?;
    scanned(setup).await?;
    // Release 0.1 publishes no notice of a new queue.
    let frozen = dueq_testkit::scripts::frozen()?;
    let keys = dueq::admin::queue_keys("mail-old")?;
    let keys = keys.iter().map(String::as_str);
    let words: Vec<_> = ["EVAL", frozen["push"].as_str(), "10"]
        .into_iter()
        .chain(keys)
        .collect();
    let words = [&words[..], &["", "", "id", "+0", "payload", ""]].concat();
    let _: redis::Value = setup.command(&words).await?;
    let killed: u64 = setup.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
    assert!(killed > 0);
    assert_eq!(served.next().await?, "mail-old");
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_rights_suffice_for_notices_of_new_queues() -> Result<()> {
    let setup = &setup_with(&OPTIONS).await?;
    setup.command::<()>(&POPULATE).await?;
    let mut admin = connection(&setup.server.url()).await?;
    let mut clients = Vec::new();
    for (name, role) in [
        ("producer", AclRole::Producer),
        ("consumer", AclRole::Consumer),
        ("operator", AclRole::Operator),
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
    created
        .configure(QueueLimits::new().max_attempts(5))
        .await?;
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
