//! Rights that are taken away and given back, and passwords that are changed, while handlers run.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::handlers::IntoSettlement;
use dueq::{Client, Delivery, Message, Settlement};
use tokio::sync::watch;

use super::proxied::ACK_PUSH;
use crate::support::proxy::Proxy;
use crate::support::{LONG, Running, Setup, seen, setup, stats_until, until};

/// Pairs of commands: the first makes the server refuse the worker's user, the second ends that.
const REFUSALS: [[&[&str]; 2]; 2] = [
    [
        &["ACL", "SETUSER", "app", "-@all"],
        &["ACL", "SETUSER", "app", "+@all"],
    ],
    [
        &["ACL", "SETUSER", "app", "resetpass", ">other"],
        &["ACL", "SETUSER", "app", "resetpass", ">secret"],
    ],
];

async fn with_user() -> Result<(Setup, dueq::Queue)> {
    let setup = setup().await?;
    let rule = [
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
    ];
    setup.command::<()>(&rule).await?;
    let url = format!("redis://app:secret@127.0.0.1:{}/", setup.server.port());
    let queue = Client::connect(&url).await?.queue("orders")?;
    Ok((setup, queue))
}

/// Makes the server refuse the user. Returns when it has refused some calls.
async fn refuse(setup: &Setup, refusal: &[&str]) -> Result<()> {
    setup.command::<()>(refusal).await?;
    setup
        .command::<u64>(&["CLIENT", "KILL", "USER", "app"])
        .await?;
    Ok(())
}

/// Waits until the server has refused a call of this script, or a login.
async fn refused(setup: &Setup, call: &str) -> Result<()> {
    let log = async || setup.command::<redis::Value>(&["ACL", "LOG"]).await;
    let is_refused = |log: &redis::Value| {
        let text = format!("{log:?}").to_lowercase();
        text.contains(&format!("\"{call}\"")) || text.contains("\"auth\"")
    };
    until("a refusal", log, is_refused).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlement_refused_for_a_while_is_repeated() -> Result<()> {
    // The follow-up is due much later: while the user is refused, its own handler could not push
    // the same id again.
    let settlements: [fn() -> Settlement; 3] = [
        || Settlement::Ack,
        || Settlement::ack_and(vec![Message::new("").id("next").due(LONG)]),
        || Settlement::bury("a reason"),
    ];
    for (refusal, settlement) in REFUSALS
        .into_iter()
        .flat_map(|refusal| settlements.map(|settlement| (refusal, settlement)))
    {
        let [take, give] = refusal;
        let (setup, queue) = with_user().await?;
        let (go, gone) = watch::channel(false);
        let (sender, mut started) = seen();
        let handler = move |delivery: Delivery| {
            let _ = sender.send((delivery.id().into_owned(), delivery.attempt()));
            let mut gone = gone.clone();
            async move {
                let _ = gone.wait_for(|gone| *gone).await;
                settlement().into_settlement()
            }
        };
        let worker = Running::start(queue.worker().lease(LONG), handler);
        setup.queue.push_message(Message::new("").id("id")).await?;
        assert_eq!(started.next().await?, ("id".to_owned(), 1));
        refuse(&setup, take).await?;
        go.send_replace(true);
        refused(&setup, "evalsha").await?;
        // Claims are refused as well. Within this pause the settlement is refused at least once.
        tokio::time::sleep(Duration::from_secs(1)).await; // the fault's duration
        setup.command::<()>(give).await?;
        let is_settled = |stats: &dueq::QueueStats| stats.acked + stats.died + stats.retried >= 1;
        let stats = stats_until(&setup.queue, "the settlement", is_settled).await?;
        let message = setup.queue.get("id").await?;
        assert_eq!(stats.retried, 0, "a failure was charged: {message:?}");
        worker.stop().await?;
    }
    Ok(())
}

/// The rights return between the refused ack and the next call of the worker, so that nothing shows
/// whether the follow-up was the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follow_ups_refused_with_everything_else_charge_no_failure() -> Result<()> {
    let (setup, _) = with_user().await?;
    let [take, give] = REFUSALS[0];
    let proxy = Proxy::start(setup.server.port()).await?;
    let url = proxy.url().replace("//", "//app:secret@");
    let queue = Client::connect(&url).await?.queue("orders")?;
    setup
        .command::<String>(&["SCRIPT", "LOAD", ACK_PUSH])
        .await?;
    let (go, gone) = watch::channel(false);
    let (sender, mut started) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.attempt());
        let mut gone = gone.clone();
        async move {
            let _ = gone.wait_for(|gone| *gone).await;
            Settlement::ack_and(vec![Message::new("").id("next").due(LONG)])
        }
    };
    let worker = Running::start(queue.worker().lease(LONG), handler);
    setup.queue.push_message(Message::new("").id("id")).await?;
    assert_eq!(started.next().await?, 1);
    setup.command::<()>(take).await?;
    proxy.after_call_of(ACK_PUSH, give);
    go.send_replace(true);
    let is_settled = |stats: &dueq::QueueStats| stats.acked + stats.retried >= 1;
    let stats = stats_until(&setup.queue, "the settlement", is_settled).await?;
    assert_eq!((stats.acked, stats.retried, stats.scheduled), (1, 0, 1));
    worker.stop().await
}

/// The first extension, at a third of the lease, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extension_refused_for_a_while_is_repeated() -> Result<()> {
    let (setup, queue) = with_user().await?;
    let lease = Duration::from_secs(21);
    let (worker, mut held) = crate::support::holding(queue.worker().lease(lease));
    setup.queue.push_message(Message::new("").id("id")).await?;
    let delivery = held.next().await?;
    setup
        .command::<()>(&["ACL", "SETUSER", "app", "-evalsha", "-eval"])
        .await?;
    tokio::time::sleep(lease / 3).await; // until the extension
    setup.command::<()>(&["ACL", "LOG", "RESET"]).await?;
    tokio::time::sleep(Duration::from_millis(700)).await; // the extension is refused at least once
    setup.command::<()>(REFUSALS[0][1]).await?;
    let leased_until = async || {
        Ok(setup
            .queue
            .get("id")
            .await?
            .context("it is leased")?
            .time_ms)
    };
    let first_ms = delivery.deadline_ms();
    let extended_ms = until("an extension", leased_until, |ms| *ms > first_ms).await?;
    // Without a repetition, the next extension would begin only after two thirds of the lease.
    let later_ms = extended_ms - first_ms;
    let half_ms = u64::try_from((lease / 2).as_millis())?;
    assert!(later_ms < half_ms, "extended {later_ms} ms after the claim");
    assert!(!delivery.is_lost());
    let _ = delivery.ack().await?;
    worker.stop().await
}
