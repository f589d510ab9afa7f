//! How nodes learn that a message is due: notices, timers, and the fallback interval.

use std::time::Duration;

use anyhow::{Result, ensure};
use dueq::{Client, Delivery, Message, Queue};
use dueq_testkit::Server;
use redis::aio::MultiplexedConnection;

use super::held::Holding;
use crate::support::{
    HOUR, Running, Seen, acking, claim_one, command, connection, seen, server_us, setup,
    setup_with, stats_until, until,
};

const BEAT: &str = include_str!("../../../lua/dist/beat.lua");
const PUSH: &str = include_str!("../../../lua/dist/push.lua");
/// The fallback interval is 1 s; the rest allows for a slow machine.
const FALLBACK_LIMIT: Duration = Duration::from_secs(1 + 9);

/// A worker that reports each handled message and its lateness.
fn reporting(queue: &Queue) -> (Running, Seen<(String, Duration)>) {
    let (sender, seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send((delivery.id().into_owned(), delivery.lateness()));
        async {}
    };
    (Running::start(queue.worker(), handler), seen)
}

/// The connection that subscribes to notices, once there is one other than `old`.
async fn listener(redis: &mut MultiplexedConnection, old: &str) -> Result<String> {
    let look = async || {
        let channel = ["PUBSUB", "SHARDNUMSUB", "dueq:{orders}:notice"];
        let (_, count): (String, u64) = command(redis, &channel).await?;
        let clients: String = command(redis, &["CLIENT", "LIST", "TYPE", "pubsub"]).await?;
        Ok((
            count,
            clients
                .split_once(' ')
                .map_or(String::new(), |(id, _)| id.to_owned()),
        ))
    };
    Ok(until("a listener", look, |(count, id)| {
        *count == 1 && !id.is_empty() && id != old
    })
    .await?
    .1)
}

/// Pushes one message and checks that it is handled within the fallback interval.
async fn fires(
    queue: &Queue,
    seen: &mut Seen<(String, Duration)>,
    id: &str,
    delay: Duration,
) -> Result<()> {
    queue.push("").id(id).due(delay).await?;
    let (handled, late) = seen.next().await?;
    ensure!(
        handled == id && late < FALLBACK_LIMIT,
        "{handled} instead of {id}, {late:?} late"
    );
    Ok(())
}

/// Redisson's delayed queue transfers due elements when a timer fires. Only a notice or the reply
/// to an earlier transfer sets that timer, so a lost subscription stops all transfers until a
/// restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_fire_after_the_subscription_is_lost() -> Result<()> {
    let server = Server::start(&[])?;
    let mut admin = connection(&server.url()).await?;
    command::<()>(
        &mut admin,
        &[
            "ACL", "SETUSER", "worker", "on", ">secret", "~*", "&*", "+@all",
        ],
    )
    .await?;
    let url = format!("redis://worker:secret@127.0.0.1:{}/", server.port());
    let (worker, mut seen) = reporting(&Client::connect(&url).await?.queue("orders")?);
    let producer = Client::connect(&server.url()).await?.queue("orders")?;
    let mut listening = listener(&mut admin, "").await?;
    for round in 0..3 {
        command::<u64>(&mut admin, &["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
        listening = listener(&mut admin, &listening).await?;
        fires(
            &producer,
            &mut seen,
            &format!("killed {round}"),
            Duration::from_millis(50),
        )
        .await?;
    }
    // From here on the user has no right to subscribe: the server closes the subscription and
    // rejects the next one.
    command::<()>(&mut admin, &["ACL", "SETUSER", "worker", "resetchannels"]).await?;
    let clients =
        async || command::<String>(&mut admin, &["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    until("no subscriber", clients, String::is_empty).await?;
    for delay in [0, 100, 700, 1_500] {
        fires(
            &producer,
            &mut seen,
            &format!("deaf {delay}"),
            Duration::from_millis(delay),
        )
        .await?;
    }
    worker.stop().await
}

/// A client that subscribes only at its start receives no notice from a server that takes over the
/// address. Redisson fixed this several times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_gets_notices_again_after_a_failover() -> Result<()> {
    let mut setup = setup_with(&["--repl-diskless-sync-delay", "0"]).await?;
    let (worker, mut seen) = reporting(&setup.queue);
    let port = setup.server.port().to_string();
    listener(&mut setup.redis().await?, "").await?;
    let replica = Server::start(&["--replicaof", "127.0.0.1", &port])?;
    let mut successor = connection(&replica.url()).await?;
    let link = async || command::<String>(&mut successor, &["INFO", "replication"]).await;
    until("a replica", link, |info| {
        info.contains("master_link_status:up")
    })
    .await?;
    setup
        .queue
        .push("")
        .id("before")
        .due(Duration::from_millis(1_500))
        .await?;
    let copied = async || {
        command::<bool>(
            &mut successor,
            &["HEXISTS", "dueq:{orders}:messages", "before"],
        )
        .await
    };
    until("a copy of the message", copied, |copied| *copied).await?;
    setup.server.kill()?;
    command::<()>(&mut successor, &["REPLICAOF", "NO", "ONE"]).await?;
    command::<()>(&mut successor, &["CONFIG", "SET", "port", &port]).await?;

    let (id, late) = seen.next().await?;
    println!("messages due around the failover were handled {late:?} late");
    assert_eq!(id, "before");
    listener(&mut successor, "").await?;
    fires(&setup.queue, &mut seen, "after", Duration::from_millis(100)).await?;
    worker.stop().await
}

/// In Redisson's delayed queue, a message can wait for a later one: the timer was set for the later
/// one and stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_message_replaces_a_later_timer() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut seen) = reporting(queue);
    queue.push("").id("far").due(HOUR).await?;
    stats_until(queue, "a live worker", |stats| stats.nodes == 1).await?;
    for round in 0..5 {
        // Each message is due earlier than the last, and the final one later than all of them.
        for delay in [600, 300, 150, 3_600_000] {
            let message = Message::new("")
                .id(format!("{round} {delay}"))
                .due(Duration::from_millis(delay));
            queue.push_message(message).await?;
        }
        let mut handled = seen.take(3).await?;
        handled.sort_unstable();
        for ((id, late), delay) in handled.iter().zip([150, 300, 600]) {
            assert_eq!(id, &format!("{round} {delay}"));
            assert!(*late < FALLBACK_LIMIT, "{id}: {late:?} late");
        }
    }
    assert_eq!(queue.stats().await?.scheduled, 6, "the later messages wait");
    worker.stop().await
}

/// In Redisson's delayed queue, the reply of a running transfer sets the timer when it arrives. It
/// overwrites the earlier time that a notice has set meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_reply_keeps_an_earlier_timer() -> Result<()> {
    let setup = setup().await?;
    let proxy = Holding::start(setup.server.port(), BEAT).await?;
    setup.queue.push("").id("far").due(HOUR).await?;
    let (worker, mut seen) = reporting(&Client::connect(&proxy.url()).await?.queue("orders")?);
    listener(&mut setup.redis().await?, "").await?;
    for round in 0..5 {
        // The reply reports that no message is due for an hour.
        proxy.hold().await?;
        let (id, notices) = (format!("near {round}"), proxy.notices());
        setup
            .queue
            .push("")
            .id(&id)
            .due(Duration::from_millis(200))
            .await?;
        proxy.more_notices_than(notices).await?;
        proxy.let_go();
        let (handled, late) = seen.next().await?;
        assert_eq!(handled, id);
        assert!(late < FALLBACK_LIMIT, "{id}: {late:?} late");
    }
    worker.stop().await
}

/// A producer in any language: it calls the script and closes its connection at once.
fn push_raw(port: u16, queue: &Queue, id: &str, due: &str) -> Result<()> {
    let keys: Vec<&str> = queue.keys().iter().map(String::as_str).collect();
    let words = [
        &["EVAL", PUSH, "10"],
        &keys[..],
        &["", "", id, due, "payload", ""],
    ]
    .concat();
    let reply = dueq_testkit::command(port, &words)?;
    ensure!(reply.starts_with("*2"), "{reply}");
    Ok(())
}

/// In Redisson only a process with the delayed queue open transfers elements. If the producers exit
/// and the consumers open only the destination queue, no element ever arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_without_channels_find_due_messages() -> Result<()> {
    let setup = setup().await?;
    // No user may publish or subscribe.
    setup
        .command::<()>(&["ACL", "SETUSER", "default", "resetchannels"])
        .await?;
    let (port, queue) = (setup.server.port(), &setup.queue);
    for (id, due) in [("past", "1"), ("now", "+0"), ("soon", "+30")] {
        push_raw(port, queue, id, due)?;
        assert_eq!(claim_one(queue).await?.id(), id, "by claims alone");
    }
    let (worker, mut seen) = reporting(queue);
    for (id, due) in [
        ("a", "+0"),
        ("b", "+20"),
        ("c", "1"),
        ("d", "+400"),
        ("e", "+1300"),
    ] {
        push_raw(port, queue, id, due)?;
        let (handled, late) = seen.next().await?;
        assert_eq!(handled, id);
        assert!(due == "1" || late < FALLBACK_LIMIT, "{id}: {late:?} late");
    }
    worker.stop().await
}

/// With Redisson, an element that became due before any process opened the delayed queue can stay
/// until the next push.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_pushed_before_any_worker_started_fires() -> Result<()> {
    let setup = setup().await?;
    let overdue_ms = server_us(&mut setup.redis().await?).await? / 1_000 - 3_600_000;
    for (id, due) in [
        ("overdue", overdue_ms.to_string()),
        ("now", "+0".into()),
        ("soon", "+1200".into()),
    ] {
        push_raw(setup.server.port(), &setup.queue, id, &due)?;
    }
    let (worker, mut seen) = acking(setup.queue.worker().concurrency(1));
    assert_eq!(seen.take(3).await?, ["overdue", "now", "soon"]);
    worker.stop().await
}

/// The reverse order: a consumer that starts without a queue has no due time to wait for, and may
/// never check again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_started_before_its_queue_exists_serves_it() -> Result<()> {
    for delay in [0, 50, 1_500] {
        let setup = setup().await?;
        let (worker, mut seen) = reporting(&setup.queue);
        // The worker has subscribed, so the push notifies it.
        listener(&mut setup.redis().await?, "").await?;
        fires(
            &setup.queue,
            &mut seen,
            "first",
            Duration::from_millis(delay),
        )
        .await?;
        worker.stop().await?;
    }
    Ok(())
}
