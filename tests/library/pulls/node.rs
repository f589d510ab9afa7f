//! The node of a puller: which queues it attends, how it ends, and how many commands it costs.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::claims::{Puller, Pullers};
use dueq::{Client, ErrorKind};

use super::{MS, begin, pull_one};
use crate::support::{HOUR, LIMIT, LONG, Setup, setup, stats_until, until, within};

/// How many commands the server has executed, without those of the test itself.
async fn commands(setup: &Setup) -> Result<u64> {
    let stats: String = setup.command(&["INFO", "commandstats"]).await?;
    let calls = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let is_counted = ["evalsha", "blpop", "subscribe", "ssubscribe"].contains(&name);
        rest.split(',')
            .next()?
            .parse::<u64>()
            .ok()
            .filter(|_| is_counted)
    });
    Ok(calls.sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_waiting_pulls() -> Result<()> {
    let setup = setup().await?;
    let puller = setup.queue.puller();
    let mut pulls = [(); 3].map(|()| Box::pin(puller.pull(1, LONG, LIMIT)));
    for pull in &mut pulls {
        begin(pull).await;
    }
    within("the shutdown", puller.shutdown()).await??;
    for pull in pulls {
        assert!(within("the pull", pull).await??.is_empty());
    }
    let stats = setup.queue.stats().await?;
    assert_eq!((stats.nodes, stats.claimed), (0, 0));
    let ended = puller.pull(1, LONG, LIMIT).await.expect_err("it has ended");
    assert_eq!(ended.kind(), ErrorKind::Unavailable);
    assert!(!puller.pullers().health().is_running());
    let ended = puller
        .pullers()
        .attend(&setup.queue)
        .await
        .expect_err("it has ended");
    assert_eq!(ended.kind(), ErrorKind::Unavailable);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_last_handle_ends_the_node() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").due(HOUR).await?;
    let puller = setup.queue.puller();
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    stats_until(&setup.queue, "the node", |stats| stats.nodes == 1).await?;
    drop(puller);
    stats_until(&setup.queue, "the leave", |stats| stats.nodes == 0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pullers_attend_and_leave_queues() -> Result<()> {
    let setup = setup().await?;
    let mails = setup.client.queue("mails")?;
    let pullers = setup.client.pullers();
    let orders = pullers.attend(&setup.queue).await?;
    let of_mails = pullers.attend(&mails).await?;
    mails.push("").id("mail").await?;
    assert_eq!(pull_one(&of_mails).await?.id(), "mail");
    // A second `attend` of the queue shares its line of pulls.
    let again = pullers.attend(&mails).await?;
    let mut waiting = Box::pin(of_mails.pull(1, LONG, LIMIT));
    begin(&mut waiting).await;
    within("the leave", again.leave()).await??;
    assert!(within("the pull", waiting).await??.is_empty());
    assert_eq!(mails.stats().await?.nodes, 0, "the node left the queue");
    let left = of_mails
        .pull(1, LONG, LIMIT)
        .await
        .expect_err("it was left");
    assert_eq!(left.kind(), ErrorKind::Unavailable);
    assert_eq!(
        again.leave().await.err().map(|e| e.kind()),
        Some(ErrorKind::InvalidInput)
    );
    // Other queues continue, and the queue may be attended again.
    setup.queue.push("").id("order").await?;
    assert_eq!(pull_one(&orders).await?.id(), "order");
    mails.push("").id("later").await?;
    assert_eq!(
        pull_one(&pullers.attend(&mails).await?).await?.id(),
        "later"
    );
    let other = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    let refused = pullers.attend(&other).await.expect_err("another client");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    Ok(pullers.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_reports_that_its_queue_cannot_be_used() -> Result<()> {
    let setup = setup().await?;
    setup
        .command::<()>(&["SET", "dueq:{orders}:meta", "of another program"])
        .await?;
    let puller = setup.queue.puller();
    let refused = within("the pull", puller.pull(1, LONG, LIMIT)).await?;
    let refused = refused.expect_err("no queue");
    assert!(!refused.is_retryable(), "{refused}");
    Ok(())
}

/// Counts the commands during `span` while all queues are idle. The last queue is named `idle`.
async fn idle_commands(setup: &Setup, span: Duration) -> Result<u64> {
    let idle = setup.client.queue("idle")?;
    stats_until(&idle, "the node", |stats| stats.nodes == 1).await?;
    // After this pause all queues are subscribed, and those beyond the 64th are parked.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = commands(setup).await?;
    tokio::time::sleep(span).await;
    Ok(commands(setup).await? - before)
}

/// Counts the commands that a worker, or a puller, of this many idle queues causes in a while.
async fn cost_of(queues: u32, pulls: bool) -> Result<u64> {
    let setup = setup().await?;
    let names = (1..queues).map(|number| format!("queue-{number:03}"));
    let mut worker = setup.client.worker();
    let pullers = setup.client.pullers();
    for name in names.chain(["idle".to_owned()]) {
        let queue = setup.client.queue(&name)?;
        queue.push("").delay(HOUR).await?;
        if pulls {
            let puller = pullers.attend(&queue).await?;
            assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
        } else {
            worker = worker.queue(&queue, |_: dueq::Delivery| async {});
        }
    }
    let worker = (!pulls).then(|| worker.spawn()).transpose()?;
    // As long as five beats of a queue that is not parked.
    let commands = idle_commands(&setup, Duration::from_millis(4_500)).await?;
    if let Some(worker) = worker {
        worker.shutdown().await?;
    }
    pullers.shutdown().await?;
    Ok(commands)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_puller_costs_as_much_as_an_idle_worker() -> Result<()> {
    for queues in [1, 160] {
        let (worker, puller) = tokio::try_join!(cost_of(queues, false), cost_of(queues, true))?;
        println!("{queues} idle queues: {worker} commands of a worker, {puller} of a puller");
        // Beats and renewed subscriptions differ by what the machine does meanwhile. Without parking
        // 160 queues would cost 800.
        let most = (3 * worker + 4).min(600);
        assert!(puller <= most, "{puller} after {worker}");
    }
    Ok(())
}

/// A queue beyond the 64 that the blocking pop covers, which is parked when nothing happens.
async fn parkable(setup: &Setup, pullers: &Pullers) -> Result<Puller> {
    // The queue must exist: a node does not beat for one that does not.
    setup.queue.push("").due(HOUR).await?;
    for number in 0..64 {
        let queue = setup.client.queue(&format!("covered-{number}"))?;
        pullers.attend(&queue).await?;
    }
    Ok(pullers.attend(&setup.queue).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_queue_of_a_puller_is_parked() -> Result<()> {
    let setup = setup().await?;
    let pullers = setup.client.pullers();
    let puller = parkable(&setup, &pullers).await?;
    let is_parked = async || {
        let parked = stats_until(&setup.queue, "parked", |stats| stats.parked_ms > 2_000);
        parked.await.map(drop)
    };
    is_parked().await?;
    // The queue stays parked while a pull waits, and the message reaches the pull nevertheless.
    let mut pull = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut pull).await;
    is_parked().await?;
    setup.queue.push("").id("id").due(50 * MS).await?;
    let delivery = within("the pull", pull)
        .await??
        .pop()
        .context("a message")?;
    println!("late by {:?}", delivery.lateness());
    let _ = delivery.ack().await?;
    // The queue is parked after dropped pulls, too.
    for _ in 0..5 {
        let mut pull = Box::pin(puller.pull(1, LONG, LIMIT));
        begin(&mut pull).await;
    }
    until(
        "acked",
        async || Ok(setup.queue.stats().await?.acked),
        |acked| *acked == 1,
    )
    .await?;
    is_parked().await?;
    Ok(pullers.shutdown().await?)
}
