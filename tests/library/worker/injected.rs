//! A worker ends properly even if one of its tasks panicked or a handler blocks its thread, and
//! another worker gets the messages at once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dueq::{Client, Delivery, ErrorKind, Queue, WorkerHandle, harness};
use dueq_testkit::Stopwatch;

use crate::support::{LONG, Setup, holding, seen, setup, stats_until, within};

/// A lease that is extended every second, so that the extension task runs soon.
const SHORT: Duration = Duration::from_secs(3);

/// A worker of a named queue and of a queue that its pattern finds. It handles a message of each
/// until its handlers are dropped.
async fn busy(client: &Client, queues: &[Queue; 2], lease: Duration) -> Result<WorkerHandle> {
    for queue in queues {
        queue.push("").await?;
    }
    let [named, found] = queues;
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery);
        std::future::pending::<()>()
    };
    let pattern = client.pattern(&format!("{}*", found.name()))?;
    let worker = client.worker().lease(lease).queue(named, handler.clone());
    let worker = worker.pattern(&pattern, handler).spawn()?;
    seen.take(2).await?;
    Ok(worker)
}

fn queues(client: &Client, task: &str) -> Result<[Queue; 2]> {
    let name = |kind| format!("{kind}-{}", task.replace(' ', "-"));
    Ok([client.queue(&name("named"))?, client.queue(&name("found"))?])
}

#[tokio::test]
async fn a_panic_in_any_internal_task_ends_the_worker() -> Result<()> {
    let Setup { client, .. } = &setup().await?;
    // For comparison: how long a worker takes to end and drop its handlers.
    let worker = busy(client, &queues(client, "control")?, LONG).await?;
    let start = Stopwatch::start();
    worker.abort();
    worker.wait().await?;
    let control = start.elapsed();
    for task in harness::internal_tasks() {
        let queues = queues(client, task)?;
        let waits = matches!(task, "lease extension" | "batcher");
        let worker = busy(client, &queues, if waits { SHORT } else { LONG }).await?;
        let start = Stopwatch::start();
        ensure!(harness::panic_in(queues[0].name(), task), "no task {task}");
        let error = within(task, worker.wait()).await?.err();
        let took = start.elapsed();
        let error = error.with_context(|| format!("no error of {task}"))?;
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(error.to_string().contains(task), "{task}: {error}");
        // Allows one second for the timer's next wake-up or the next extension, and one for the
        // end.
        let limit = Duration::from_secs(5) + 10 * control;
        assert!(took < limit, "{task}: {took:?}, and {control:?} without");
        for queue in &queues {
            // The other worker can only get the messages if they were released: the first lease
            // runs for ten minutes.
            let (other, mut seen) = holding(queue.worker().lease(LONG));
            let delivery = seen.next().await.with_context(|| format!("after {task}"))?;
            assert!(waits || delivery.attempt() == 1, "{task}: counted as a try");
            // If the panicked node had not left, it would count as alive for 3 s.
            stats_until(queue, "one node", |stats| stats.nodes == 1).await?;
            drop(other);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_shutdown_ends_while_handlers_block_their_threads() -> Result<()> {
    let setup = setup().await?;
    harness::limit_end("blocked", Duration::from_millis(100));
    let queue = setup.client.queue("blocked")?;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let (sender, mut seen) = seen();
    let handler = move |delivery: Delivery| {
        let (blocked, sender) = (Arc::clone(&blocked), sender.clone());
        async move {
            let is_blocking = delivery.id() == "blocking";
            let _ = sender.send(delivery);
            if is_blocking {
                // The handler blocks until the test has ended.
                let _ = blocked.lock().map(|blocked| blocked.recv());
            } else {
                std::future::pending().await
            }
        }
    };
    let worker = setup.client.worker().lease(LONG);
    let worker = worker
        .grace(Duration::from_millis(10))
        .queue(&queue, handler)
        .spawn()?;
    for id in ["blocking", "held"] {
        queue.push("").id(id).await?;
    }
    seen.take(2).await?;
    let error = within("the shutdown", worker.shutdown()).await?.err();
    let error = error.context("no error")?;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(
        error.to_string().contains("1 handlers did not end 100ms"),
        "{error}"
    );
    let stats = queue.stats().await?;
    assert_eq!((stats.released, stats.leased, stats.nodes), (1, 1, 0));
    drop(release);
    Ok(())
}
