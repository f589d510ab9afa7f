//! One queue of a worker cannot be used, or its handler blocks a thread, and the other queues
//! continue. These tests judge by the order of events: the other queues are served before the
//! broken one is usable again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dueq::{Client, Delivery, ErrorKind, Queue, WorkerHandle};

use crate::support::{Seen, Setup, seen, server_us, setup, stats_until, until, within};

const QUEUES: usize = 50;
const BROKEN: &str = "queue-07";

/// A worker of 50 queues that reports the queue of each delivery.
struct Fleet {
    queues: Vec<Queue>,
    worker: WorkerHandle,
    seen: Seen<String>,
}

fn queues(client: &Client) -> Result<Vec<Queue>> {
    let queues = (0..QUEUES).map(|number| client.queue(&format!("queue-{number:02}")));
    Ok(queues.collect::<Result<_, _>>()?)
}

impl Fleet {
    async fn start(client: &Client) -> Result<Self> {
        let queues = queues(client)?;
        let (sender, seen) = seen();
        let mut worker = client.worker();
        for queue in &queues {
            let sender = sender.clone();
            worker = worker.queue(queue, move |delivery: Delivery| {
                let _ = sender.send(delivery.queue().to_owned());
                async {}
            });
        }
        let worker = worker.spawn()?;
        let mut fleet = Self {
            queues,
            worker,
            seen,
        };
        for queue in &fleet.queues {
            queue.push("").await?;
        }
        fleet.seen.take(QUEUES).await?;
        Ok(fleet)
    }

    fn broken(&self) -> Result<&Queue> {
        let mut queues = self.queues.iter();
        queues.find(|queue| queue.name() == BROKEN).context(BROKEN)
    }

    /// Checks that the other queues deliver a message that is due now, and one that is due soon.
    async fn others_deliver(&mut self, what: &str) -> Result<()> {
        let others = self.queues.iter().filter(|queue| queue.name() != BROKEN);
        let mut expected = Vec::new();
        for queue in others {
            for delay in [Duration::ZERO, Duration::from_millis(30)] {
                queue.push("").due(delay).await?;
                expected.push(queue.name().to_owned());
            }
        }
        let delivered = self.seen.take(expected.len()).await;
        let mut delivered = delivered.with_context(|| what.to_owned())?;
        delivered.sort();
        assert_eq!(delivered, expected, "{what}");
        Ok(())
    }

    /// Checks that the broken queue delivers again.
    async fn broken_delivers(&mut self, what: &str) -> Result<()> {
        let delivered = self.seen.next().await;
        assert_eq!(delivered.with_context(|| what.to_owned())?, BROKEN);
        Ok(())
    }

    /// Waits until the health of the worker has this error for the broken queue, and for no other.
    async fn reports(&self, error: &str) -> Result<()> {
        let errors = async || {
            let health = self.worker.health();
            let failing = health.queues().filter_map(|(name, queue)| {
                let error = queue.error()?;
                Some(format!("{name}: {error}"))
            });
            Ok(failing.collect::<Vec<_>>())
        };
        let errors = until(error, errors, |errors| !errors.is_empty()).await?;
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with(BROKEN), "{errors:?}");
        assert!(errors[0].contains(error), "{errors:?}");
        Ok(())
    }
}

/// Runs a script that replaces a key by a string, or restores it.
async fn replace(setup: &Setup, key: &str, script: &str) -> Result<()> {
    let key = format!("dueq:{{{BROKEN}}}:{key}");
    setup
        .command(&["EVAL", script, "2", &key, "the saved key"])
        .await
}

const BREAK: &str = "
    if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('RENAME', KEYS[1], KEYS[2]) end
    redis.call('SET', KEYS[1], 'of another program')";
const MEND: &str = "
    redis.call('DEL', KEYS[1])
    if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[1]) end";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_of_another_type_stops_only_its_queue() -> Result<()> {
    let setup = setup().await?;
    let mut fleet = Fleet::start(&setup.client).await?;
    for key in ["messages", "scheduled", "ready", "meta", "claims"] {
        replace(&setup, key, BREAK).await?;
        // Neither a push of one new message nor a beat reads the key `claims`: this message waits
        // until the key is mended.
        if key == "claims" {
            fleet.broken()?.push("").await?;
        } else {
            let refused = fleet.broken()?.push("").await;
            let error = refused.err().with_context(|| key.to_owned())?;
            assert_eq!(error.kind(), ErrorKind::Server, "{key}: {error}");
            fleet.reports("WRONGTYPE").await?;
        }
        fleet.others_deliver(key).await?;
        replace(&setup, key, MEND).await?;
        fleet.broken()?.push("").await?;
        fleet.broken_delivers(key).await?;
        if key == "claims" {
            fleet
                .broken_delivers("pushed while claims was broken")
                .await?;
        }
        let health = async || Ok(fleet.worker.health());
        let _ = until("no error", health, dueq::WorkerHealth::is_ready).await?;
    }
    Ok(fleet.worker.shutdown().await?)
}

/// The blocking pop covers the wake-up lists of all 50 queues.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_wake_up_list_of_another_type_stops_no_queue() -> Result<()> {
    let setup = setup().await?;
    let mut fleet = Fleet::start(&setup.client).await?;
    replace(&setup, "wake", BREAK).await?;
    fleet.others_deliver("while broken").await?;
    fleet.others_deliver("with the list left out").await?;
    replace(&setup, "wake", MEND).await?;
    fleet.broken()?.push("").await?;
    fleet.broken_delivers("mended").await?;
    Ok(fleet.worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_queue_of_another_layout_does_not_stop_the_others() -> Result<()> {
    let setup = setup().await?;
    let mut fleet = Fleet::start(&setup.client).await?;
    let meta = format!("dueq:{{{BROKEN}}}:meta");
    let layout: String = setup.command(&["HGET", &meta, "layout"]).await?;
    setup
        .command::<()>(&["HSET", &meta, "layout", "99"])
        .await?;
    fleet.reports("layout 99").await?;
    let refused = fleet.broken()?.push("").await;
    assert_eq!(refused.expect_err("refused").kind(), ErrorKind::Unsupported);
    fleet.others_deliver("another layout").await?;
    assert!(fleet.worker.health().is_running());
    setup
        .command::<()>(&["HSET", &meta, "layout", &layout])
        .await?;
    fleet.broken()?.push("").await?;
    fleet.broken_delivers("the layout as before").await?;
    Ok(fleet.worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn paused_and_deleted_queues_do_not_stop_the_others() -> Result<()> {
    let setup = setup().await?;
    let mut fleet = Fleet::start(&setup.client).await?;
    fleet.broken()?.pause().await?;
    fleet.broken()?.push("").await?;
    fleet.others_deliver("paused").await?;
    fleet.broken()?.resume().await?;
    fleet.broken_delivers("resumed").await?;
    ensure!(fleet.broken()?.delete().await?, "it existed");
    fleet.others_deliver("deleted").await?;
    assert!(!fleet.broken()?.exists().await?, "no beat creates it");
    fleet.broken()?.push("").await?;
    fleet.broken_delivers("created again").await?;
    Ok(fleet.worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_starts_despite_a_queue_of_another_layout() -> Result<()> {
    let setup = setup().await?;
    let Setup { queue, client, .. } = &setup;
    let (newer, added) = (client.queue("newer")?, client.queue("added")?);
    for name in ["newer", "added"] {
        let meta = format!("dueq:{{{name}}}:meta");
        let words = ["HSET", &meta, "layout", "99"];
        setup.command::<()>(&words).await?;
    }
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.queue().to_owned());
        async {}
    };
    let worker = client.worker().queue(&newer, handler.clone());
    let worker = worker.queue(queue, handler.clone()).spawn()?;
    worker.add(&added, handler).await?;
    queue.push("").await?;
    assert_eq!(seen.next().await?, "orders");
    let errors = async || {
        let health = worker.health();
        let failing = health.queues().filter(|(_, queue)| queue.error().is_some());
        Ok(failing.map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
    };
    until("two errors", errors, |failing| {
        *failing == ["added", "newer"]
    })
    .await?;
    assert!(worker.health().is_running() && !worker.health().is_ready());
    // The queues become usable again without a restart of the worker.
    for broken in [&newer, &added] {
        setup
            .command::<()>(&["DEL", &format!("dueq:{{{}}}:meta", broken.name())])
            .await?;
        broken.push("").await?;
        assert_eq!(seen.next().await?, broken.name());
    }
    Ok(worker.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_that_blocks_a_thread_delays_no_other_queue() -> Result<()> {
    let setup = setup().await?;
    let queues = queues(&setup.client)?;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (sender, mut seen) = seen();
    let mut worker = setup.client.worker().lease(Duration::from_secs(3));
    for queue in &queues {
        let (sender, blocked) = (sender.clone(), Arc::clone(&blocked));
        worker = worker.queue(queue, move |delivery: Delivery| {
            let _ = sender.send(delivery.clone());
            if delivery.queue() == BROKEN {
                // The handler blocks until the test releases it or ends.
                let _ = blocked.lock().map(|blocked| blocked.recv());
            }
            async {}
        });
    }
    let worker = worker.spawn()?;
    let broken = queues.iter().find(|queue| queue.name() == BROKEN);
    let broken = broken.context(BROKEN)?;
    broken.push("").await?;
    let blocking = seen.next().await?;
    for round in 0..5 {
        for queue in queues.iter().filter(|queue| queue.name() != BROKEN) {
            let soon = Duration::from_millis(10 * round);
            queue.push("").due(soon).await?;
        }
        seen.take(QUEUES - 1).await?;
    }
    for queue in queues.iter().filter(|queue| queue.name() != BROKEN) {
        stats_until(queue, "settled", |stats| stats.acked == 5).await?;
    }
    // The lease of the blocked handler is extended, too.
    let mut redis = setup.redis().await?;
    let is_over = |us: &u64| us / 1_000 > blocking.deadline_ms();
    let time = async || server_us(&mut redis).await;
    until("the first deadline", time, is_over).await?;
    let stats = broken.stats().await?;
    assert_eq!((stats.leased, stats.acked, stats.crashed), (1, 0, 0));
    drop(release);
    stats_until(broken, "settled", |stats| stats.acked == 1).await?;
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}
