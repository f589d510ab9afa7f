//! How long work is interrupted by a fault. The bounds allow seconds for a slow machine; each test
//! prints the measured time.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, ensure};
use dueq::outcomes::PushOutcome;
use dueq::{Client, Delivery, Message, Queue};
use dueq_testkit::{Server, Stopwatch};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::child::{Process, Role};
use crate::support::{
    Running, Seen, Setup, acking, command, connection, ids, lateness, messages, push_all,
    reporting, seen, server_us, setup, setup_with, stats_until, until,
};

const FALLBACK: Duration = Duration::from_secs(1);
/// Allowance for a slow machine.
const SLOW: Duration = Duration::from_secs(9);

/// The leader reaps all 50 leases of a killed process within the lease plus the fallback interval.
/// Each message is charged one crash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_worker_recovers_within_lease_and_fallback() -> Result<()> {
    let setup = setup().await?;
    push_all(&setup.queue, messages(50)).await?;
    let mut victim = Process::start(Role::Hold, &setup.server.url(), &[])?;
    let mut held = Vec::new();
    while held.len() < 50 {
        held.push(victim.says().await?);
    }
    held.sort_unstable();
    assert_eq!(held, ids(50));

    let (worker, mut seen) = reporting(setup.queue.worker(), |delivery| {
        (
            delivery.id().into_owned(),
            delivery.attempt(),
            delivery.due_ms(),
        )
    });
    stats_until(&setup.queue, "both alive", |stats| stats.nodes == 2).await?;
    assert_eq!(
        seen.rest(),
        [],
        "the leases are kept as long as their process lives"
    );
    victim.kill().await?;
    let killed = Stopwatch::start();
    let mut handled = seen.take(50).await?;
    let took = killed.elapsed();
    println!(
        "worker kill -9: all 50 messages were handled again after {took:?}, the lease was 2 s"
    );
    assert!(
        took < Duration::from_secs(2) + FALLBACK + SLOW,
        "it took {took:?}"
    );
    handled.sort_unstable();
    assert_eq!(
        handled
            .iter()
            .map(|(id, ..)| id.clone())
            .collect::<Vec<_>>(),
        ids(50)
    );
    assert!(
        handled.iter().all(|&(_, attempt, _)| attempt == 2),
        "{handled:?}"
    );
    let stats = stats_until(&setup.queue, "all acked", |stats| stats.acked == 50).await?;
    assert_eq!((stats.claimed, stats.crashed, stats.died), (100, 50, 0));
    worker.stop().await
}

/// One handled message: id, attempt, due time and start in microseconds.
type Started = (String, u32, u64, u64);

/// The leader is killed some milliseconds before twenty messages are due, and its standby promotes
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovers_within_fallback_from_a_leader_killed_before_due() -> Result<()> {
    let setup = setup().await?;
    // Nodes beat, and one becomes leader, once the queue exists.
    setup
        .queue
        .push("")
        .id("far")
        .due(Duration::from_secs(3_600))
        .await?;
    let (mut kills, mut pushed) = (vec![0, 2, 20], 0);
    while let Some(&before_ms) = kills.last() {
        ensure!(
            pushed < 20 * 20,
            "no process kept the leader until it was killed"
        );
        let started = kill_leader(&setup, before_ms, pushed).await?;
        pushed += 20;
        let Some(started) = started else { continue };
        kills.pop();
        let late_us = |(_, _, due_us, start_us): &Started| start_us.checked_sub(*due_us);
        let latest = started
            .iter()
            .map(late_us)
            .max()
            .flatten()
            .unwrap_or_default();
        println!("leader kill -9, {before_ms} ms before the due time: at most {latest} us late");
        for one in &started {
            let late = late_us(one).map(Duration::from_micros);
            assert!(late.is_some(), "early: {one:?}");
            // Messages that the leader claimed before its death return after its lease of 2 s.
            let lease = Duration::from_secs(if one.1 == 1 { 0 } else { 2 });
            assert!(late < Some(lease + FALLBACK + SLOW), "{one:?}");
        }
    }
    let stats = stats_until(&setup.queue, "all acked", |stats| stats.acked == pushed).await?;
    assert_eq!(
        (stats.scheduled + stats.ready + stats.leased, stats.died),
        (1, 0),
        "none is lost: {stats:?}"
    );
    Ok(())
}

/// Pushes twenty messages: half are due at one instant, the others 1 ms apart. Kills the leader
/// `before_ms` before that instant and returns the messages that the standby handled; `None` if the
/// process was no longer the leader.
async fn kill_leader(setup: &Setup, before_ms: u64, number: u64) -> Result<Option<Vec<Started>>> {
    let key = |name: &str| format!("dueq:{{orders}}:{name}");
    let named = async || {
        setup
            .command::<Option<String>>(&["HGET", &key("meta"), "leader"])
            .await
    };
    let nodes = async || {
        setup
            .command::<Vec<String>>(&["ZRANGE", &key("nodes"), "0", "-1"])
            .await
    };
    let earlier = (nodes().await?, named().await?);
    let mut leader = Process::start(Role::Hold, &setup.server.url(), &[])?;
    let is_new = |leader: &Option<String>| {
        *leader != earlier.1
            && leader
                .as_ref()
                .is_some_and(|leader| !leader.is_empty() && !earlier.0.contains(leader))
    };
    let name = until("a leader", named, is_new).await?;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let id = delivery.id().into_owned();
        let _ = sender.send((
            id,
            delivery.attempt(),
            delivery.due_ms() * 1_000,
            delivery.started_us(),
        ));
        async {}
    };
    let before = nodes().await?;
    let standby = Running::start(setup.queue.worker(), handler);
    until("a standby", nodes, |nodes| {
        nodes.iter().any(|node| !before.contains(node))
    })
    .await?;

    let mut redis = setup.redis().await?;
    let due_ms = server_us(&mut redis).await? / 1_000 + 300;
    let ids: Vec<_> = (number..number + 20)
        .map(|number| format!("{number:04}"))
        .collect();
    let due = |place: u64| UNIX_EPOCH + Duration::from_millis(due_ms + place.saturating_sub(9));
    push_all(
        &setup.queue,
        (0..)
            .zip(&ids)
            .map(|(place, id)| Message::new("").id(id).due(due(place)))
            .collect(),
    )
    .await?;
    let led = named().await? == name;
    let left_us = ((due_ms - before_ms) * 1_000).saturating_sub(server_us(&mut redis).await?);
    tokio::time::sleep(Duration::from_micros(left_us)).await; // the kill must hit a given instant
    leader.kill().await?;
    let mut handled: Vec<Started> = seen.take(20).await?;
    handled.sort_unstable();
    assert_eq!(
        handled.iter().map(|(id, ..)| id).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
    standby.stop().await?;
    Ok(led.then_some(handled))
}

/// Pushes one message after another, so that each becomes the head and finds the worker idle. Fails
/// unless all but two fire within the fallback interval, and these at all: a machine that stands
/// still delays one or two, and a lost fallback delays every one that lacks its hints.
async fn fire_within_fallback(what: &str, queue: &Queue, seen: &mut Seen<Duration>) -> Result<()> {
    let mut all = Vec::new();
    for delay in [0, 20, 150, 300, 1_200, 5, 40, 0, 700, 90] {
        queue.push("").due(Duration::from_millis(delay)).await?;
        all.push(seen.next().await?);
    }
    all.sort_unstable();
    println!(
        "{what}: {:?} late at the median, {:?} at most",
        all[all.len() / 2],
        all[all.len() - 1]
    );
    assert!(all[all.len() - 3] < FALLBACK + SLOW, "{all:?}");
    Ok(())
}

/// Both hints fail: the user has no right to channels, and the key of the wake-up list has another
/// type.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fires_within_fallback_without_notices_and_wake_ups() -> Result<()> {
    let server = Server::start(&[])?;
    let mut admin = connection(&server.url()).await?;
    let rule = [
        "ACL",
        "SETUSER",
        "worker",
        "on",
        ">secret",
        "~dueq:*",
        "+@all",
        "resetchannels",
    ];
    command::<()>(&mut admin, &rule).await?;
    command::<()>(&mut admin, &["SET", "dueq:{orders}:wake", "no list"]).await?;
    let url = format!("redis://worker:secret@127.0.0.1:{}/", server.port());
    let queue = Client::connect(&url).await?.queue("orders")?;
    let (worker, mut seen) = lateness(&queue);
    fire_within_fallback("no right to notices, no wake-up list", &queue, &mut seen).await?;
    let subscribers: (String, u64) = command(
        &mut admin,
        &["PUBSUB", "SHARDNUMSUB", "dueq:{orders}:notice"],
    )
    .await?;
    assert_eq!(subscribers.1, 0, "the user has no right to subscribe");
    worker.stop().await
}

/// Eight connections of other clients consume the wake-up tokens, as if their machine were gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovers_within_fallback_without_notices_and_wake_tokens() -> Result<()> {
    let setup = setup().await?;
    setup
        .command::<()>(&["ACL", "SETUSER", "default", "resetchannels"])
        .await?;
    let mut thieves = JoinSet::new();
    for _ in 0..8 {
        let mut redis = connection(&setup.server.url()).await?;
        thieves.spawn(async move {
            loop {
                command::<(String, String)>(&mut redis, &["BLPOP", "dueq:{orders}:wake", "0"])
                    .await?;
            }
            #[expect(unreachable_code, reason = "gives the closure its error type")]
            anyhow::Ok(())
        });
    }
    let (worker, mut seen) = lateness(&setup.queue);
    fire_within_fallback(
        "no right to notices, tokens stolen",
        &setup.queue,
        &mut seen,
    )
    .await?;
    assert_eq!(thieves.len(), 8);
    assert!(thieves.try_join_next().is_none(), "the faults continued");
    worker.stop().await
}

/// Every 10 ms the test removes the tokens and kills each subscribed or blocked connection.
async fn saboteur(server: &Server) -> Result<JoinHandle<Result<()>>> {
    let mut redis = connection(&server.url()).await?;
    Ok(tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
            command::<u64>(&mut redis, &["DEL", "dueq:{orders}:wake"]).await?;
            command::<u64>(&mut redis, &["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
            let clients: String =
                command(&mut redis, &["CLIENT", "LIST", "TYPE", "normal"]).await?;
            for client in clients
                .lines()
                .filter(|client| client.contains(" flags=b "))
            {
                let id = client.split([' ', '=']).nth(1).unwrap_or_default();
                // The connection may have closed meanwhile.
                command::<u64>(&mut redis, &["CLIENT", "KILL", "ID", id]).await?;
            }
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovers_within_fallback_while_hints_are_cut_every_10_ms() -> Result<()> {
    let setup = setup().await?;
    let (worker, mut seen) = lateness(&setup.queue);
    let saboteur = saboteur(&setup.server).await?;
    let fired = fire_within_fallback("wake and subscription killed", &setup.queue, &mut seen).await;
    assert!(
        !saboteur.is_finished(),
        "the fault went on: {:?}",
        saboteur.await
    );
    saboteur.abort();
    fired?;
    worker.stop().await
}

/// The time counts from the first reply of the restarted server, for any length of the outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovers_within_a_second_of_a_server_restart() -> Result<()> {
    let mut setup = setup_with(&["--appendonly", "yes", "--appendfsync", "always"]).await?;
    // If the kill loses the reply to a claim, the messages return after this lease.
    let (worker, mut seen) = acking(setup.queue.worker().lease(FALLBACK));
    let (mut due, mut new) = (Vec::new(), Vec::new());
    for away_ms in [300, 1_000, 3_000] {
        // Due while the server is down.
        let id = format!("due within {away_ms} ms");
        setup
            .queue
            .push("")
            .id(&id)
            .due(Duration::from_millis(away_ms / 2))
            .await?;
        setup.server.kill()?;
        tokio::time::sleep(Duration::from_millis(away_ms)).await; // length of the outage
        setup.server.restart()?;
        let answered = Stopwatch::start();
        assert_eq!(seen.next().await?, id);
        due.push(answered.elapsed());
        // A producer pushes a message of which no node has heard.
        let id = format!("new after {away_ms} ms");
        assert_eq!(setup.queue.push("").id(&id).await?, PushOutcome::Created);
        assert_eq!(seen.next().await?, id);
        new.push(answered.elapsed());
        // All messages are settled before the next kill.
        stats_until(&setup.queue, "all acked", |stats| {
            stats.scheduled + stats.ready + stats.leased == 0
        })
        .await?;
    }
    println!(
        "server restart: due messages handled {due:?} after its first reply, a new message {new:?}"
    );
    assert!(
        new.iter().all(|took| *took < FALLBACK + SLOW),
        "{due:?} {new:?}"
    );
    worker.stop().await
}
