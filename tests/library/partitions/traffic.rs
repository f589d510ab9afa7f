//! A queue in use: messages in all states, producers and a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;
use dueq::admin::Repartition;
use dueq::metrics::Counter;
use dueq::outcomes::{
    AckPushOutcome, CancelOutcome, PushOutcome, RescheduleOutcome, SettleOutcome,
};
use dueq::{Delivery, Message, MessageState, Queue};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::support::{HOUR, Running, claim, push_all, stats_until, until, within};

const SECOND: Duration = Duration::from_secs(1);

/// What a worker has handled: id, time in ms, due time in ms.
type Handled = UnboundedReceiver<(String, u64, u64)>;

pub(super) fn group(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{name}-{n}")).collect()
}

pub(super) fn due(ids: &[String], due: impl Fn(usize) -> Duration) -> Vec<Message> {
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
pub(super) struct Stock {
    far: Vec<String>,
    dead: Vec<String>,
    once: Vec<String>,
    held: Vec<Delivery>,
    /// The ids that a worker must handle once.
    expected: BTreeSet<String>,
}

/// Fills a queue that nobody works on.
pub(super) async fn stock(queue: &Queue) -> Result<Stock> {
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
/// became of each message. With `taken_back`, takes the change back halfway.
pub(super) async fn change_live(
    queue: &Queue,
    stock: Stock,
    count: usize,
    taken_back: bool,
) -> Result<()> {
    let change = || queue.partition_into(count);
    change_used(&[queue], stock, change, count, taken_back).await
}

/// As `change_live`, for a queue of which these are handles in each of its stores, the first where it
/// is. Workers use each of them, and producers use the others once the queue is there as well.
pub(super) async fn change_used<'a>(
    used: &[&Queue],
    mut stock: Stock,
    change: impl Fn() -> Repartition<'a>,
    count: usize,
    taken_back: bool,
) -> Result<()> {
    let queue = used[0];
    let before = queue.partitions().await?.len();
    let (workers, mut handled): (Vec<_>, Vec<_>) = used.iter().map(|one| worker(one)).unzip();
    let stop = CancellationToken::new();
    let start = |index: usize| {
        let parts = stock.far.chunks(1_000).enumerate();
        let own = parts.filter(move |(n, _)| n % used.len() == index);
        own.map(|(_, far)| tokio::spawn(produce(used[index].clone(), far.to_vec(), stop.clone())))
            .collect::<Vec<_>>()
    };
    let mut producers = start(0);
    let mut change = Box::pin(change().without_rests().into_future());
    for (index, other) in used.iter().enumerate().skip(1) {
        let partitions = async || Ok(other.partitions().await?);
        let is_there = until("the queue in the other store", partitions, |all| {
            all.len() > before
        });
        tokio::select! {
            begun = is_there => begun.map(drop)?,
            ended = &mut change => panic!("{ended:?}"),
        }
        producers.extend(start(index));
    }
    let held = std::mem::take(&mut stock.held);
    let early = tokio::time::timeout(5 * SECOND, &mut change).await;
    assert!(early.is_err(), "leased messages are waited for: {early:?}");
    if taken_back {
        drop(change);
        change = Box::pin(queue.abort_repartition().into_future());
        let early = tokio::time::timeout(SECOND, &mut change).await;
        assert!(early.is_err(), "leased messages are waited for: {early:?}");
    }
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
    assert_eq!(partitions.len(), if taken_back { before } else { count });
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
    for worker in workers {
        worker.stop().await?;
    }
    // A partition that the change removed is no loss.
    for queue in used {
        assert_eq!(queue.metrics().count(Counter::StoreEmptied), 0);
    }
    let mut times = BTreeMap::<String, u64>::new();
    for handled in &mut handled {
        while let Ok((id, at_ms, due_ms)) = handled.try_recv() {
            assert!(at_ms + 5 >= due_ms, "{id} at {at_ms}, due {due_ms}");
            assert_eq!(times.insert(id.clone(), at_ms), None, "{id} twice");
        }
    }
    assert_eq!(times.into_keys().collect::<BTreeSet<_>>(), expected);
    let checkup = queue.examine(false).await?;
    let problems: Vec<_> = checkup.findings.iter().map(|one| &one.problem).collect();
    assert!(problems.is_empty(), "{problems:?}");
    Ok(())
}
