//! Blips: a server or network stands still for some seconds while messages become due.
//!
//! Each blip loses replies to claims. The leases outlast the test, so a message of a lost claim is
//! delivered only if the worker finds it by the claim's token.
//!
//! `DUEQ_BLIPS=1,3,6 cargo test -p dueq --test library blip -- --nocapture` makes blips of these
//! seconds with 3,000 messages each, and prints how late they were after the blip.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use dueq::{Client, Delivery, Due, Message};

use super::signal;
use crate::support::proxy::Proxy;
use crate::support::{
    LIMIT, LONG, Running, Setup, ids, push_all, seen, setup, stats_until, within,
};

#[derive(Debug, Clone, Copy)]
enum Blip {
    /// The process of the server stands still.
    Frozen,
    /// Calls arrive at the server, but no replies come back. Connections that missed a reply stay
    /// silent for ever.
    Mute,
    /// No bytes arrive in either direction. The connections of that time stay silent for ever.
    Silent,
    /// All connections are closed, and new ones are closed at once.
    Cut,
}

impl Blip {
    fn begin(self, proxy: &Proxy, setup: &Setup) -> Result<()> {
        match self {
            Self::Frozen => signal("-STOP", setup.server.pid())?,
            Self::Mute => proxy.mute(),
            Self::Silent => proxy.fall_silent(),
            Self::Cut => proxy.cut_all(),
        }
        Ok(())
    }

    fn end(self, proxy: &Proxy, setup: &Setup) -> Result<()> {
        match self {
            Self::Frozen => signal("-CONT", setup.server.pid())?,
            Self::Mute => proxy.unmute(),
            Self::Silent => proxy.end_silence(),
            Self::Cut => proxy.end_cut(),
        }
        Ok(())
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Delivers messages that become due from 1 s before the blip until 1 s after it.
async fn deliver_through(blip: Blip, lasts: Duration, count: usize) -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let sent = (delivery.id().into_owned(), delivery.due_ms(), unix_ms());
        let _ = sender.send((sent, delivery.attempt()));
        async {}
    };
    let worker = Running::start(queue.worker().lease(LONG), handler);
    setup.queue.push("").id("first").await?;
    handled.next().await?;

    let begin_ms = unix_ms() + 1_500;
    let lasts_ms = u64::try_from(lasts.as_millis())?;
    let due_ms = |index: usize| begin_ms - 1_000 + (lasts_ms + 2_000) * index as u64 / count as u64;
    let messages = ids(count).into_iter().enumerate();
    let messages =
        messages.map(|(index, id)| Message::new("").id(id).due(Due::at_ms(due_ms(index))));
    push_all(&setup.queue, messages.collect()).await?;
    let until_ms =
        |at_ms: u64| tokio::time::sleep(Duration::from_millis(at_ms.saturating_sub(unix_ms())));
    until_ms(begin_ms).await;
    blip.begin(&proxy, &setup)?;
    tokio::time::sleep(lasts).await; // the fault's duration
    blip.end(&proxy, &setup)?;
    let end_ms = unix_ms();

    let mut lateness = BTreeMap::new();
    while lateness.len() < count {
        let ((id, due_ms, at_ms), attempt) = handled.next().await?;
        assert_eq!(attempt, 1, "{blip:?}: {id} was charged");
        let late = at_ms.saturating_sub(due_ms.max(end_ms));
        assert!(
            lateness.insert(id.clone(), late).is_none(),
            "{blip:?}: {id} ran twice"
        );
    }
    let stats = stats_until(&setup.queue, "all acked", |stats| {
        stats.acked as usize == count + 1
    })
    .await?;
    assert_eq!((stats.leased, stats.crashed), (0, 0), "{blip:?}");
    let mut late: Vec<_> = lateness.into_values().collect();
    late.sort_unstable();
    println!(
        "{blip:?} of {lasts:?}: {count} messages, p99 {} ms, at most {} ms after the blip",
        late[count * 99 / 100],
        late[count - 1]
    );
    worker.stop().await
}

async fn deliver_through_each(blip: Blip) -> Result<()> {
    let Ok(long) = std::env::var("DUEQ_BLIPS") else {
        return deliver_through(blip, Duration::from_secs(2), 300).await;
    };
    for seconds in long.split(',') {
        deliver_through(blip, Duration::from_secs(seconds.parse()?), 3_000).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blip_of_the_server_loses_no_grant() -> Result<()> {
    deliver_through_each(Blip::Frozen).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blip_without_replies_loses_no_grant() -> Result<()> {
    deliver_through_each(Blip::Mute).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blip_of_the_network_loses_no_grant() -> Result<()> {
    deliver_through_each(Blip::Silent).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blip_that_closes_connections_loses_no_grant() -> Result<()> {
    deliver_through_each(Blip::Cut).await
}

/// Workers and producers open only a few connections while a server stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_server_gets_few_connections() -> Result<()> {
    let setup = setup().await?;
    let connections = async || {
        let info: String = setup.command(&["INFO", "stats"]).await?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        anyhow::Ok(line.unwrap_or_default().trim().parse::<u64>()?)
    };
    let (worker, mut handled) = crate::support::acking(setup.queue.worker());
    setup.queue.push("").id("before").await?;
    handled.next().await?;
    let before = connections().await?;
    signal("-STOP", setup.server.pid())?;
    let stopped = std::time::Instant::now();
    let pushes = (0..20).map(|_| {
        let queue = setup.queue.clone();
        tokio::spawn(async move { queue.push("").await.map(drop) })
    });
    let pushes: Vec<_> = pushes.collect();
    tokio::time::sleep(Duration::from_secs(3)).await; // the fault's duration
    signal("-CONT", setup.server.pid())?;
    for push in pushes {
        within("a push", push).await???;
    }
    handled.take(20).await?;
    // Two per second for the client, two per second for the node, and some for their calls
    // afterwards.
    let opened = connections().await? - before;
    let most = 4 * stopped.elapsed().as_secs() + 13;
    assert!(opened <= most, "{opened} connections, not {most}");
    worker.stop().await
}

/// Firewalls drop connections that are idle for some minutes, and tell neither side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_call_on_a_forgotten_connection_is_fast() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let mut fastest = LIMIT;
    for round in 0..3 {
        queue.push("").id(format!("{round}")).await?;
        tokio::time::sleep(Duration::from_millis(1_100)).await; // idle time that triggers the fault
        proxy.forsake_open_connections();
        let start = std::time::Instant::now();
        queue.push("").id(format!("{round}-late")).await?;
        queue.stats().await?;
        let took = start.elapsed();
        println!("the first calls took {took:?}");
        fastest = fastest.min(took);
    }
    // A call that waits for its time limit before a repetition would take 5 s.
    assert!(fastest < Duration::from_secs(5), "{fastest:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_recovers_soon_from_silently_dropped_connections() -> Result<()> {
    let setup = setup().await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let queue = Client::connect(&proxy.url()).await?.queue("orders")?;
    let (worker, mut handled) = crate::support::acking(queue.worker().lease(LONG));
    let mut fastest = LIMIT;
    for id in ids(3) {
        setup.queue.push("").id(&id).await?;
        assert_eq!(handled.next().await?, id);
        stats_until(&setup.queue, "the ack", |stats| stats.leased == 0).await?;
        proxy.forsake_open_connections();
        let start = std::time::Instant::now();
        let id = format!("{id}-late");
        setup.queue.push("").id(&id).await?;
        assert_eq!(within("the message", handled.next()).await??, id);
        println!("delivered after {:?}", start.elapsed());
        fastest = fastest.min(start.elapsed());
    }
    assert!(fastest < Duration::from_secs(5), "{fastest:?}");
    worker.stop().await
}
