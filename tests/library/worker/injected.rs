//! A worker ends although one of its tasks panicked, or a handler blocks its thread. Another worker
//! gets the messages at once.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq::{Delivery, ErrorKind, Message, Queue, harness};

use crate::support::{LONG, Running, Seen, holding, messages, push_all, seen, setup, within};

/// A lease that is extended every second, so that an extension is made soon.
const SHORT: Duration = Duration::from_secs(3);

/// A worker with two handlers, which hold a message each until they are dropped.
async fn busy(queue: &Queue, lease: Duration) -> Result<(Running, Seen<Delivery>)> {
    let settings = queue.worker().concurrency(2).lease(lease);
    let (worker, mut seen) = holding(settings.grace(Duration::from_millis(10)));
    push_all(queue, messages(2)).await?;
    seen.take(2).await?;
    Ok((worker, seen))
}

#[tokio::test]
async fn a_panic_in_any_internal_task_ends_the_worker() -> Result<()> {
    let setup = setup().await?;
    // The control: how long a worker takes that is asked to stop.
    let queue = setup.client.queue("control")?;
    let (worker, _seen) = busy(&queue, LONG).await?;
    let start = Instant::now();
    worker.stop().await?;
    let control = start.elapsed();
    for task in harness::internal_tasks() {
        // Only workers with a pattern have it.
        if task == "scanner" {
            continue;
        }
        let name = format!("injected-{}", task.replace(' ', "-"));
        let queue = setup.client.queue(&name)?;
        let waits = matches!(task, "lease extension" | "batcher");
        let (worker, _seen) = busy(&queue, if waits { SHORT } else { LONG }).await?;
        let start = Instant::now();
        ensure!(harness::panic_in(&name, task), "no task {task}");
        let error = worker.ended().await?.err();
        let took = start.elapsed();
        let error = error.with_context(|| format!("no error of {task}"))?;
        assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
        assert!(error.to_string().contains(task), "{task}: {error}");
        // A second for the timer's next wake-up or the next extension, and one for the end.
        let limit = Duration::from_secs(5) + 10 * control;
        assert!(took < limit, "{task}: {took:?}, and {control:?} without");
        // Released, not reaped: the lease of the first worker runs for ten minutes.
        let (other, mut seen) = holding(queue.worker().concurrency(2).lease(LONG));
        for delivery in seen
            .take(2)
            .await
            .with_context(|| format!("after {task}"))?
        {
            assert!(waits || delivery.attempt() == 1, "{task}: counted as a try");
        }
        drop(other);
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
                // Ends when the test has ended.
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
        .spawn();
    for id in ["blocking", "held"] {
        queue.push_message(Message::new("").id(id)).await?;
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
