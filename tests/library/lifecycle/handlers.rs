//! The results of handlers, and the ways in which handlers fail.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::SettleOutcome;
use dueq::{Delivery, Due, MessageState, Retry, Settlement, StoredMessage};

use crate::support::{HOUR, Running, Setup, seen, setup, stats_until};

/// A worker handles the message `id` once. Returns the message as it is stored afterwards.
async fn handled<H, F, S>(setup: &Setup, retry: Retry, handler: H) -> Result<Option<StoredMessage>>
where
    H: Fn(Delivery) -> F + Send + Sync + 'static,
    F: Future<Output = S> + Send + 'static,
    S: dueq::handlers::IntoSettlement + Send + 'static,
{
    let worker = Running::start(setup.queue.worker().retry(retry), handler);
    setup.queue.push("payload").id("id").await?;
    let settled = |stats: &dueq::QueueStats| stats.claimed > 0 && stats.leased == 0;
    stats_until(&setup.queue, "the settlement", settled).await?;
    worker.stop().await?;
    Ok(setup.queue.get("id").await?)
}

fn hourly() -> Retry {
    Retry::fixed(HOUR)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unit_ok_and_ack_all_ack_the_message() -> Result<()> {
    assert_eq!(
        handled(&setup().await?, hourly(), |_| async {}).await?,
        None
    );
    assert_eq!(
        handled(&setup().await?, hourly(), |_| async { anyhow::Ok(()) }).await?,
        None
    );
    assert_eq!(
        handled(&setup().await?, hourly(), |_| async { Settlement::Ack }).await?,
        None
    );
    assert_eq!(
        handled(&setup().await?, hourly(), |_| async {
            anyhow::Ok(Settlement::Ack)
        })
        .await?,
        None
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_becomes_a_retry_that_keeps_the_error_and_its_causes() -> Result<()> {
    let fail = |_| async {
        Err::<(), _>(anyhow::anyhow!("no route to host")).context("cannot reach the bank")
    };
    let stored = handled(&setup().await?, hourly(), fail)
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.state, stored.failures, stored.crashes),
        (MessageState::Scheduled, 1, 0)
    );
    assert_eq!(stored.error, "cannot reach the bank: no route to host");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_settlement_has_its_documented_effect() -> Result<()> {
    let one = setup().await?;
    let stored = handled(&one, hourly(), |_| async { Settlement::again(2 * HOUR) })
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.state, stored.failures, stored.error.as_str()),
        (MessageState::Scheduled, 0, "")
    );
    assert_eq!(one.queue.stats().await?.repeated, 1);

    let far = Due::at_ms(4_000_000_000_000);
    let stored = handled(&setup().await?, hourly(), move |_| async move {
        Settlement::again(far)
    })
    .await?;
    assert_eq!(stored.expect("scheduled").time_ms, 4_000_000_000_000);

    let retry = |_| async { Settlement::retry_after(3 * HOUR, "busy") };
    let three = setup().await?;
    let stored = handled(&three, hourly(), retry).await?.expect("scheduled");
    assert_eq!((stored.failures, stored.error.as_str()), (1, "busy"));
    let mut redis = three.redis().await?;
    let now_ms = crate::support::server_us(&mut redis).await? / 1_000;
    assert!(
        stored.time_ms > now_ms + 2 * 3_600_000,
        "its own delay, not the worker's"
    );

    let stored = handled(&setup().await?, hourly(), |_| async {
        Settlement::bury("not an order")
    })
    .await?;
    let stored = stored.expect("dead");
    assert_eq!(
        (stored.state, stored.failures, stored.error.as_str()),
        (MessageState::Dead, 0, "not an order")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_delivery_comes_back_uncharged() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send((delivery.attempt(), delivery.due_ms()));
        async { Settlement::Release }
    };
    let worker = Running::start(setup.queue.worker(), handler);
    setup.queue.push("").await?;
    let handled = seen.take(3).await?;
    assert!(
        handled.iter().all(|&one| one == (1, handled[0].1)),
        "{handled:?}"
    );
    worker.stop().await?;
    assert!(setup.queue.stats().await?.released >= 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_does_not_settle_what_the_handler_settled() -> Result<()> {
    let buried = |delivery: Delivery| async move {
        assert_eq!(delivery.bury("by hand").await?, SettleOutcome::Done);
        anyhow::Ok(())
    };
    let one = setup().await?;
    let stored = handled(&one, hourly(), buried).await?.expect("dead");
    assert_eq!(
        (stored.state, stored.error.as_str()),
        (MessageState::Dead, "by hand")
    );

    let acked = |delivery: Delivery| async move {
        let _ = delivery.ack().await?;
        Err::<(), _>(anyhow::anyhow!("an error after the ack"))
    };
    assert_eq!(handled(&setup().await?, hourly(), acked).await?, None);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_a_handler_counts_as_a_failure() -> Result<()> {
    let panics = |delivery: Delivery| async move {
        assert!(
            delivery.payload().is_empty(),
            "the payload is {} bytes",
            delivery.payload().len()
        );
    };
    let stored = handled(&setup().await?, hourly(), panics)
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.state, stored.failures),
        (MessageState::Scheduled, 1)
    );
    assert_eq!(stored.error, "the handler panicked: the payload is 7 bytes");

    // The call of the handler panics, before it returns a future.
    let panics = |delivery: Delivery| {
        assert!(delivery.attempt() > 1, "no future");
        async {}
    };
    let stored = handled(&setup().await?, hourly(), panics)
        .await?
        .expect("scheduled");
    assert_eq!(stored.error, "the handler panicked: no future");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_beyond_its_time_limit_is_dropped_and_retried() -> Result<()> {
    let setup = setup().await?;
    let (dropped, mut drops) = seen();
    let handler = move |_| {
        let guard = Guard(dropped.clone());
        async move {
            std::future::pending::<()>().await;
            drop(guard);
        }
    };
    let worker = setup
        .queue
        .worker()
        .time_limit(Duration::from_millis(30))
        .retry(hourly());
    let worker = Running::start(worker, handler);
    setup.queue.push("").id("id").await?;
    drops.next().await?;
    stats_until(&setup.queue, "the retry", |stats| stats.retried == 1).await?;
    let stored = setup.queue.get("id").await?.expect("scheduled");
    assert_eq!((stored.failures, stored.crashes), (1, 0));
    assert!(
        stored.error.contains("time limit of 30ms"),
        "{}",
        stored.error
    );
    worker.stop().await
}

/// The handler never waits: each poll uses the whole budget of its task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_handler_that_never_yields_ends_at_its_time_limit() -> Result<()> {
    let setup = setup().await?;
    let worker = setup
        .queue
        .worker()
        .time_limit(Duration::from_millis(30))
        .retry(hourly());
    let handler = |delivery: Delivery| async move {
        while !delivery.is_lost() {
            tokio::task::consume_budget().await;
        }
    };
    let worker = Running::start(worker, handler);
    setup.queue.push("").id("id").await?;
    stats_until(&setup.queue, "the retry", |stats| stats.retried == 1).await?;
    worker.stop().await
}

/// The panics are in a value that is dropped with the handler, and in the conversion of its result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panic_of_a_handler_settles_its_message() -> Result<()> {
    let one = setup().await?;
    let worker = one
        .queue
        .worker()
        .time_limit(Duration::from_millis(30))
        .retry(hourly());
    let handler = |_| async {
        let bomb = Bomb;
        std::future::pending::<()>().await;
        drop(bomb);
    };
    let worker = Running::start(worker, handler);
    one.queue.push("").id("id").await?;
    stats_until(&one.queue, "the retry", |stats| stats.retried == 1).await?;
    worker.stop().await?;

    let stored = handled(&setup().await?, hourly(), |_| async { Bomb })
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.failures, stored.error.as_str()),
        (1, "the handler panicked: no settlement")
    );
    Ok(())
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "in a drop");
    }
}

impl dueq::handlers::IntoSettlement for Bomb {
    fn into_settlement(self) -> Settlement {
        panic!("no settlement")
    }
}

struct Guard(tokio::sync::mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_settlement_counts_as_a_failure() -> Result<()> {
    let impossible = |_| async { Settlement::again(Duration::MAX) };
    let stored = handled(&setup().await?, hourly(), impossible)
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.state, stored.failures),
        (MessageState::Scheduled, 1)
    );
    assert!(stored.error.contains("100 years"), "{}", stored.error);
    let impossible = |_| async { Settlement::again(Due::at_ms(u64::MAX)) };
    let stored = handled(&setup().await?, hourly(), impossible)
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.state, stored.failures),
        (MessageState::Scheduled, 1)
    );
    let endless = Retry::fixed(Duration::MAX);
    let stored = handled(&setup().await?, endless, |_| async { Err::<(), _>("no") })
        .await?
        .expect("scheduled");
    assert_eq!(
        (stored.state, stored.failures),
        (MessageState::Scheduled, 1)
    );
    Ok(())
}
