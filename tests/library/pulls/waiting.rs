//! When a pull gets its messages, and which messages it gets.

use std::time::Duration;

use anyhow::Result;
use dueq::{Delivery, ErrorKind};

use super::{MS, begin, pull_one};
use crate::support::{
    HOUR, LIMIT, LONG, Setup, messages, push_all, setup, stats_until, until, within,
};

fn id_of(deliveries: &[Delivery]) -> Vec<String> {
    let ids = deliveries.iter().map(|delivery| delivery.id().into_owned());
    ids.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_gets_its_message_when_it_is_due() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    queue.push("later").due(HOUR).await?;
    queue.push("soon").id("soon").due(300 * MS).await?;
    let delivery = pull_one(&puller).await?;
    assert_eq!(
        (&*delivery.id(), delivery.payload()),
        ("soon", &b"soon"[..])
    );
    assert!(delivery.started_us() >= delivery.due_ms() * 1_000, "early");
    assert!(
        delivery.lateness() < Duration::from_secs(10),
        "{:?}",
        delivery.lateness()
    );
    println!("late by {:?}", delivery.lateness());
    assert_eq!((delivery.attempt(), queue.stats().await?.leased), (1, 1));
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_are_served_in_order_with_messages_by_due_time() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    // `join` starts the pulls in this order.
    let mut pulls = [(); 3].map(|()| Box::pin(puller.pull(1, LONG, LIMIT)));
    for pull in &mut pulls {
        begin(pull).await;
    }
    for (id, delay) in [("third", 700), ("first", 300), ("second", 500)] {
        queue.push("").id(id).due(delay * MS).await?;
    }
    let [first, second, third] = pulls;
    let (first, second, third) =
        within("the pulls", async { tokio::join!(first, second, third) }).await?;
    for (pulled, id) in [(first?, "first"), (second?, "second"), (third?, "third")] {
        assert_eq!(id_of(&pulled), [id]);
    }
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pull_has_a_lease_of_its_own() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    let (short, long) = (
        puller.pull(1, 10 * LIMIT, LIMIT),
        puller.pull(1, 20 * LIMIT, LIMIT),
    );
    push_all(queue, messages(2)).await?;
    let (short, long) = tokio::join!(short, long);
    let (short, long) = (short?[0].deadline_ms(), long?[0].deadline_ms());
    // The claims are at most seconds apart, and the leases differ by ten minutes.
    let ten_minutes = u64::try_from((10 * LIMIT).as_millis())?;
    assert!(long - short > ten_minutes / 2, "{short} and {long}");
    Ok(puller.shutdown().await?)
}

/// Pulls what is due now, without waiting.
async fn now(puller: &dueq::claims::Puller) -> Result<Vec<Delivery>> {
    Ok(within("a pull", puller.pull(10, LONG, Duration::ZERO)).await??)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_without_a_wait_gets_what_is_due_now() -> Result<()> {
    let Setup { queue, client, .. } = &setup().await?;
    let puller = queue.puller();
    let now = async || now(&puller).await;
    assert!(now().await?.is_empty());
    queue.push("later").due(HOUR).await?;
    push_all(queue, messages(3)).await?;
    let due_ms = queue
        .get("message-0002")
        .await?
        .map_or(0, |stored| stored.time_ms);
    let time = async || Ok(client.server_time().await?.unix_us / 1_000);
    until("the due time", time, |now_ms| *now_ms > due_ms).await?;
    // The fair share of a single node is all messages.
    assert_eq!(now().await?.len(), 3);
    assert!(now().await?.is_empty());
    // A pull also asks a paused queue, so it gets messages at once after a resume.
    queue.push("").id("paused").await?;
    queue.pause().await?;
    assert!(now().await?.is_empty());
    queue.resume().await?;
    let due = stats_until(queue, "due", |stats| {
        stats.scheduled == 1 && stats.ready == 1
    });
    due.await?;
    assert_eq!(id_of(&now().await?), ["paused"]);
    Ok(puller.shutdown().await?)
}

/// The second pull comes while the first one's claim is in flight. That claim's reply says that the
/// queue is paused, but the second pull still needs a claim of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_of_a_paused_queue_end_after_their_wait() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    queue.push("").id("paused").await?;
    queue.pause().await?;
    let puller = &queue.puller();
    for offset_us in (0..1_000).step_by(5) {
        let second = async {
            tokio::time::sleep(Duration::from_micros(offset_us)).await;
            now(puller).await
        };
        let (first, second) = tokio::join!(now(puller), second);
        assert!(first?.is_empty() && second?.is_empty());
    }
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_of_an_empty_queue_ends_after_its_wait() -> Result<()> {
    let Setup { queue, .. } = &setup().await?;
    let puller = queue.puller();
    let start = std::time::Instant::now();
    assert!(puller.pull(10, LONG, 200 * MS).await?.is_empty());
    assert!(start.elapsed() >= 200 * MS);
    for (max, lease) in [
        (0, LONG),
        (dueq::claims::Puller::MAX + 1, LONG),
        (1, Duration::ZERO),
        (1, 25 * HOUR),
    ] {
        let refused = puller
            .pull(max, lease, LIMIT)
            .await
            .expect_err("out of range");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_reports_an_unreachable_server_and_recovers() -> Result<()> {
    let mut setup = setup().await?;
    let puller = setup.queue.puller();
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    setup.server.kill()?;
    let away = within("a pull", puller.pull(1, LONG, 100 * MS)).await?;
    assert!(
        away.as_ref().is_err_and(dueq::Error::is_retryable),
        "{away:?}"
    );
    // This pull waits beyond the outage.
    let mut pull = Box::pin(puller.pull(1, LONG, LIMIT));
    begin(&mut pull).await;
    setup.server.restart()?;
    setup.queue.push("").id("after").await?;
    assert_eq!(id_of(&within("the pull", pull).await??), ["after"]);
    Ok(puller.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pull_ends_at_its_own_time_in_an_outage() -> Result<()> {
    let mut setup = setup().await?;
    let puller = setup.queue.puller();
    assert!(puller.pull(1, LONG, Duration::ZERO).await?.is_empty());
    setup.server.kill()?;
    let mut first = Box::pin(puller.pull(1, LONG, HOUR));
    begin(&mut first).await;
    // A pull with another lease, and behind it one that could share the claim of the first.
    let (other, alike) = (
        puller.pull(1, 2 * LONG, 100 * MS),
        puller.pull(1, LONG, 100 * MS),
    );
    let ended = within("the pulls", async { tokio::join!(other, alike) }).await?;
    for ended in [ended.0, ended.1] {
        assert!(ended.is_err_and(|error| error.is_retryable()));
    }
    begin(&mut first).await;
    drop(first);
    Ok(puller.shutdown().await?)
}
