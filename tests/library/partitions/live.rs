//! Changes of the number of partitions of a queue that is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::admin::RepartitionPhase;
use dueq::outcomes::{
    AckPushOutcome, CancelOutcome, PushOutcome, RescheduleOutcome, SettleOutcome,
};
use dueq::{Client, Delivery, ErrorKind, Message, MessageState, Queue};
use dueq_testkit::cluster::Cluster;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::remap;
use crate::support::{HOUR, Running, claim, push_all, setup, stats_until, until, within};

const SECOND: Duration = Duration::from_secs(1);

/// What a worker has handled: id, time in ms, due time in ms.
type Handled = UnboundedReceiver<(String, u64, u64)>;

fn group(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}-{n}")).collect()
}

fn due(ids: &[String], due: impl Fn(usize) -> Duration) -> Vec<Message> {
    let message = |(n, id): (usize, &String)| Message::new(id.as_bytes()).id(id).due(due(n));
    ids.iter().enumerate().map(message).collect()
}

fn worker(queue: &Queue) -> (Running, Handled) {
    let (sender, handled) = unbounded_channel();
    let handler = move |delivery: Delivery| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_ms = now.map_or(0, |now| now.as_millis() as u64);
        // The test may have ended.
        let _ = sender.send((delivery.id().into_owned(), now_ms, delivery.due_ms()));
        async {}
    };
    (
        Running::start(queue.worker().concurrency(32), handler),
        handled,
    )
}

/// The messages of a queue in all states, and what must become of them.
struct Stock {
    far: Vec<String>,
    dead: Vec<String>,
    once: Vec<String>,
    held: Vec<Delivery>,
    /// The ids that a worker must handle once.
    expected: BTreeSet<String>,
}

/// Fills a queue that nobody works on.
async fn stock(queue: &Queue) -> Result<Stock> {
    let (dead, once, held) = (group("dead", 100), group("once", 100), group("held", 50));
    push_all(queue, due(&dead, |_| Duration::ZERO)).await?;
    for delivery in claim(queue, dead.len()).await? {
        assert_eq!(
            delivery.bury("the bank is closed").await?,
            SettleOutcome::Done
        );
    }
    let windows = due(&once, |_| Duration::ZERO).into_iter();
    push_all(queue, windows.map(|one| one.window(HOUR)).collect()).await?;
    for delivery in claim(queue, once.len()).await? {
        assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    }
    push_all(queue, due(&held, |_| Duration::ZERO)).await?;
    let held = claim(queue, held.len()).await?;
    let (far, near, ready) = (
        group("far", 3_000),
        group("near", 1_000),
        group("ready", 750),
    );
    push_all(queue, due(&far, |_| HOUR)).await?;
    push_all(queue, due(&near, |n| Duration::from_millis(n as u64 * 20))).await?;
    push_all(queue, due(&ready, |_| Duration::ZERO)).await?;
    Ok(Stock {
        far,
        dead,
        once,
        held,
        expected: near.into_iter().chain(ready).collect(),
    })
}

/// What producers have done to the queue while its partitions changed.
#[derive(Default)]
struct Done {
    cancelled: BTreeSet<String>,
    expected: BTreeSet<String>,
}

/// Pushes, cancels, reschedules and reads until it is stopped.
async fn produce(queue: Queue, far: Vec<String>, stop: CancellationToken) -> Result<Done> {
    let mut done = Done::default();
    let mut moved = BTreeSet::new();
    let mut round = 0;
    let first = far[0].clone();
    let mut far = far.into_iter().cycle();
    while !stop.is_cancelled() {
        round += 1;
        let new = format!("new-{first}-{round}");
        let push = queue
            .push("")
            .id(&new)
            .delay(Duration::from_millis(round % 7 * 300));
        assert_eq!(push.await?.outcome(), PushOutcome::Created, "{new}");
        done.expected.insert(new);
        let fresh = queue.push("").delay(SECOND).await?;
        assert!(fresh.is_created());
        done.expected.insert(fresh.id().into_owned());
        let mut next = || {
            let unused = |id: &String| !done.cancelled.contains(id) && !moved.contains(id);
            far.by_ref()
                .take(10_000)
                .find(unused)
                .expect("an unused id")
        };
        let known = next();
        let stored = queue.get(&known).await?.map(|stored| stored.state);
        assert_eq!(stored, Some(MessageState::Scheduled), "{known}");
        let again = queue.push("").id(&known).await?.outcome();
        assert_eq!(
            again,
            PushOutcome::Exists(MessageState::Scheduled),
            "{known}"
        );
        let many: Vec<_> = (0..5).map(|_| next()).collect();
        for receipt in queue.push_many(due(&many, |_| HOUR)).await {
            let receipt = receipt?;
            let exists = PushOutcome::Exists(MessageState::Scheduled);
            assert_eq!(receipt.outcome(), exists, "{}", receipt.id());
        }
        let bulk: Vec<_> = (0..5)
            .map(|n| format!("bulk-{first}-{round}-{n}"))
            .collect();
        push_all(&queue, due(&bulk, |_| SECOND)).await?;
        done.expected.extend(bulk);
        if round % 3 == 0 {
            let id = next();
            assert_eq!(queue.cancel(&id).await?, CancelOutcome::Cancelled, "{id}");
            assert!(queue.get(&id).await?.is_none(), "{id}");
            assert_eq!(queue.cancel(&id).await?, CancelOutcome::Cancelled, "{id}");
            done.cancelled.insert(id);
        } else if round % 3 == 1 {
            let id = next();
            let outcome = queue.reschedule(&id, SECOND).await?;
            assert!(
                matches!(outcome, RescheduleOutcome::Moved(_)),
                "{id}: {outcome:?}"
            );
            moved.insert(id);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    done.expected.extend(moved);
    Ok(done)
}

/// Changes the number of partitions while producers and a worker use the queue, and checks what
/// became of each message.
async fn change_live(queue: &Queue, mut stock: Stock, count: usize) -> Result<()> {
    let (running, mut handled) = worker(queue);
    let stop = CancellationToken::new();
    let producers: Vec<_> = stock
        .far
        .chunks(1_000)
        .map(|far| tokio::spawn(produce(queue.clone(), far.to_vec(), stop.clone())))
        .collect();
    let change = queue.partition_into(count).without_rests().into_future();
    let mut change = pin!(change);
    let held = std::mem::take(&mut stock.held);
    let early = tokio::time::timeout(5 * SECOND, &mut change).await;
    assert!(early.is_err(), "leased messages are waited for");
    for (n, delivery) in held.into_iter().enumerate() {
        if n % 2 == 0 {
            assert_eq!(delivery.ack().await?, SettleOutcome::Done);
            continue;
        }
        let id = delivery.id().into_owned();
        let ids = [format!("{{{id}}}/1"), format!("{{{id}}}/2")];
        let next = ids.clone().map(|id| Message::new("").id(id));
        let followed = delivery.ack_push(next).await;
        if let Ok(AckPushOutcome::Done(receipts)) = followed {
            assert!(
                receipts.iter().all(dueq::Receipt::is_created),
                "{receipts:?}"
            );
        } else {
            panic!("{id}: {followed:?}");
        }
        stock.expected.extend(ids);
    }
    within("the change", change).await??;
    stop.cancel();
    let (mut expected, mut cancelled) = (stock.expected, BTreeSet::new());
    for producer in producers {
        let done = producer.await??;
        expected.extend(done.expected);
        cancelled.extend(done.cancelled);
    }
    let partitions = queue.partitions().await?;
    assert_eq!(partitions.len(), count);
    for id in &stock.once {
        let outcome = queue.push("").id(id).await?.outcome();
        assert!(
            matches!(outcome, PushOutcome::Remembered(_)),
            "{id}: {outcome:?}"
        );
    }
    let dead = queue.list(MessageState::Dead, None, 1_000).await?.messages;
    let dead: BTreeSet<_> = dead
        .iter()
        .map(|one| String::from_utf8_lossy(&one.id).into_owned())
        .collect();
    assert_eq!(dead, stock.dead.iter().cloned().collect());
    let waiting = stock
        .far
        .iter()
        .filter(|id| !expected.contains(*id) && !cancelled.contains(*id));
    let waiting: Vec<_> = waiting.collect();
    for id in &waiting {
        assert!(queue.get(id).await?.is_some(), "{id}");
    }
    let left = waiting.len() as u64;
    stats_until(queue, "only far messages", |stats| {
        stats.scheduled == left && stats.ready + stats.leased == 0
    })
    .await?;
    running.stop().await?;
    let mut times = BTreeMap::<String, u64>::new();
    while let Ok((id, at_ms, due_ms)) = handled.try_recv() {
        assert!(at_ms + 5 >= due_ms, "{id} at {at_ms}, due {due_ms}");
        assert_eq!(times.insert(id.clone(), at_ms), None, "{id} twice");
    }
    assert_eq!(times.into_keys().collect::<BTreeSet<_>>(), expected);
    let checkup = queue.examine(false).await?;
    let problems: Vec<_> = checkup.findings.iter().map(|one| &one.problem).collect();
    assert!(problems.is_empty(), "{problems:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_grows_from_1_to_3_partitions() -> Result<()> {
    let setup = setup().await?;
    let stock = stock(&setup.queue).await?;
    change_live(&setup.queue, stock, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_shrinks_from_3_to_1_partition() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(3).await?;
    let stock = stock(&setup.queue).await?;
    change_live(&setup.queue, stock, 1).await?;
    let keys: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(keys, [] as [String; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_queue_grows_over_the_masters_of_a_cluster() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
    let stock = stock(&queue).await?;
    change_live(&queue, stock, 6).await
}

/// Checks that the queue has exactly these far messages, each where it belongs.
async fn has_all(queue: &Queue, ids: &[String], partitions: usize) -> Result<()> {
    assert_eq!(queue.partitions().await?.len(), partitions);
    let stats = queue.stats().await?;
    assert_eq!((stats.scheduled, stats.moving), (ids.len() as u64, 0));
    for id in ids {
        let stored = queue.get(id).await?.map(|one| one.payload);
        assert_eq!(stored.as_deref(), Some(id.as_bytes()), "{id}");
    }
    Ok(())
}

/// Polls a future at most so many times; `None` if it was dropped before its end.
pub(super) async fn polled<T>(future: impl Future<Output = T>, mut polls: u32) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        if polls == 0 {
            return std::task::Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_dropped_anywhere_goes_on_in_the_next_call() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let ids = group("far", 1_500);
    push_all(queue, due(&ids, |_| HOUR)).await?;
    for polls in 1..60 {
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue("orders")?;
        if let Some(result) = polled(fresh.partition_into(3).into_future(), polls).await {
            result?;
        }
        let probe = &ids[polls as usize];
        let push = queue.push("").id(probe).delay(HOUR);
        match tokio::time::timeout(SECOND / 10, push.into_future()).await {
            Ok(receipt) => assert!(!receipt?.is_created(), "{probe}"),
            // It is on its way.
            Err(_) => continue,
        }
    }
    queue.partition_into(3).await?;
    has_all(queue, &ids, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_change_moves_all_messages_back() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let limits = dueq::QueueLimits::new()
        .max_leased(7)
        .max_messages(Some(20_000));
    queue.configure(limits).await?;
    let ids = group("far", 4_000);
    push_all(queue, due(&ids, |_| HOUR)).await?;
    let (sender, mut moved) = unbounded_channel();
    let first = queue.clone();
    let change = tokio::spawn(async move {
        let change = first.partition_into(3);
        let change = change.on_progress(move |now| _ = sender.send(now.moved));
        change.await
    });
    while within("messages that moved", moved.recv())
        .await?
        .is_some_and(|moved| moved == 0)
    {}
    let error = queue.partition_into(5).await.expect_err("another change");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("from 1 to 3"), "{error}");
    let mut is_back = false;
    for polls in [2, 4, 7, 11] {
        let fresh = Client::connect(&setup.server.url())
            .await?
            .queue("orders")?;
        if let Some(result) = polled(fresh.abort_repartition().into_future(), polls).await {
            result?;
            is_back = true;
            break;
        }
    }
    if !is_back {
        queue.abort_repartition().await?;
    }
    let error = change.await?.expect_err("it was taken back");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    has_all(queue, &ids, 1).await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.max_leased, stats.max_messages), (7, 20_000));
    let keys: Vec<String> = setup.command(&["KEYS", "dueq:{*/*"]).await?;
    assert_eq!(keys, [] as [String; 0]);
    let error = queue.abort_repartition().await.expect_err("no change runs");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_make_the_same_change_do_no_harm() -> Result<()> {
    let setup = setup().await?;
    let ids = group("far", 3_000);
    push_all(&setup.queue, due(&ids, |_| HOUR)).await?;
    setup.queue.partition_into(2).await?;
    let phases = Arc::new(std::sync::Mutex::new(Vec::new()));
    let other = Client::connect(&setup.server.url())
        .await?
        .queue("orders")?;
    let seen = Arc::clone(&phases);
    let watched = setup.queue.partition_into(4).on_progress(move |now| {
        seen.lock().expect("no panic").push(now.phase);
    });
    let start = async {
        until(
            "the change",
            async || Ok(setup.queue.partitions().await?.iter().any(|one| one.joins)),
            |joins| *joins,
        )
        .await?;
        Ok::<_, anyhow::Error>(other.partition_into(4).without_rests().await?)
    };
    let (first, second) = tokio::join!(watched.into_future(), start);
    first?;
    second?;
    assert!(
        phases
            .lock()
            .expect("no panic")
            .contains(&RepartitionPhase::Moving)
    );
    has_all(&setup.queue, &ids, 4).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_on_a_message_that_nobody_moves_any_more_says_the_remedy() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let ids = group("far", 40);
    push_all(queue, due(&ids, |_| HOUR)).await?;
    remap(&setup, "-", &["close", "0", "7|-|- 5 9"]).await?;
    let mut words = vec!["FCALL".to_owned(), "dueq_depart".into(), "10".into()];
    words.extend(queue.keys().iter().cloned());
    words.extend(["m7", "", "0", "5"].map(str::to_owned));
    let mut gone = Vec::new();
    for id in &ids {
        if queue.keys_of(id).await?[0].contains("/5}") {
            gone.push(id.clone());
        }
    }
    words.extend(gone.iter().cloned());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    setup.command::<redis::Value>(&words).await?;
    let error = queue.push("").id(&gone[0]).await.expect_err("on its way");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let remedy = format!("dueq partitions {} 3", queue.name());
    assert!(error.to_string().contains(&remedy), "{error}");
    assert_eq!(queue.stats().await?.moving, gone.len() as u64);
    queue.partition_into(3).await?;
    has_all(queue, &ids, 3).await
}
