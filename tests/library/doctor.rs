//! The doctor examines and repairs a queue while producers and workers use it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use dueq::outcomes::{CancelOutcome, PushOutcome};
use dueq::{Delivery, Message, Retry};

use super::support::*;

/// Messages per producer.
const EACH: usize = 1_500;

/// Pushes messages, cancels some, and returns the number of cancelled ones.
async fn produce(queue: dueq::Queue, name: &'static str) -> Result<usize> {
    let mut cancelled = 0;
    for number in 0..EACH {
        let id = format!("{name}-{number}");
        let delay = Duration::from_millis(number as u64 * 7 % 300);
        ensure!(queue.push("payload").id(&id).due(delay).await? == PushOutcome::Created);
        match number % 10 {
            3 => cancelled += usize::from(queue.cancel(&id).await? == CancelOutcome::Cancelled),
            5 => drop(queue.run_now(&id).await?),
            7 => drop(queue.reschedule(&id, Duration::from_millis(50)).await?),
            _ => {}
        }
    }
    Ok(cancelled)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_finds_and_repairs_nothing_in_a_sound_queue() -> Result<()> {
    let setup = setup().await?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let sender = sender.clone();
        async move {
            // Every fifth message fails once.
            let fails = delivery.attempt() == 1 && delivery.id().ends_with(['0', '5']);
            if !fails {
                let _ = sender.send(delivery.id().into_owned());
            }
            if fails { Err(anyhow!("once")) } else { Ok(()) }
        }
    };
    let retry = Retry::fixed(Duration::from_millis(20));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            Running::start(
                setup.queue.worker().concurrency(16).retry(retry),
                handler.clone(),
            )
        })
        .collect();
    let producers = [
        ("a", setup.client.queue("orders")?),
        ("b", setup.client.queue("orders")?),
    ]
    .map(|(name, queue)| tokio::spawn(produce(queue, name)));

    let (over, doctor) = (
        Arc::new(AtomicBool::new(false)),
        setup.client.queue("orders")?,
    );
    let examined = tokio::spawn({
        let over = Arc::clone(&over);
        async move {
            let mut times = 0;
            while !over.load(Ordering::Relaxed) {
                let checkup = doctor.examine(times % 2 == 0).await?;
                // On a slow machine messages may be late, which is not a fault.
                let is_well = checkup.findings.iter().all(|one| one.code == "overdue");
                ensure!(is_well && checkup.unchecked.is_empty(), "{checkup:#?}");
                times += 1;
            }
            Ok(times)
        }
    });
    let mut cancelled = 0;
    for producer in producers {
        cancelled += producer.await??;
    }
    let mut counts = BTreeMap::new();
    for id in handled.take(2 * EACH - cancelled).await? {
        *counts.entry(id).or_insert(0) += 1;
    }
    let done = stats_until(&setup.queue, "all settled", |stats| stats.leased == 0).await?;
    over.store(true, Ordering::Relaxed);
    let times: usize = examined.await??;
    for worker in workers {
        worker.stop().await?;
    }
    println!(
        "{times} checkups while {} messages were handled",
        counts.len()
    );
    assert!(times > 1, "the doctor ran while the worker ran");
    assert_eq!(
        counts.len() + cancelled,
        2 * EACH,
        "each was handled or cancelled"
    );
    assert!(
        counts.values().all(|times| *times == 1) && handled.rest().is_empty(),
        "none twice"
    );
    let settled = (
        done.acked,
        done.cancelled,
        done.died,
        done.crashed,
        done.purged,
    );
    assert_eq!(settled, (counts.len() as u64, cancelled as u64, 0, 0, 0));
    assert_eq!((done.scheduled, done.ready, done.dead), (0, 0, 0));
    Ok(())
}

/// Faults are planted while producers and a worker run. The doctor repairs all of them; no other
/// message is lost or handled twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_repairs_planted_faults_under_load() -> Result<()> {
    let setup = setup().await?;
    let planted = 20;
    for number in 0..planted {
        setup
            .queue
            .push("x")
            .id(format!("planted-{number}"))
            .due(HOUR)
            .await?;
    }
    let (worker, mut handled) = acking(setup.queue.worker().concurrency(16));
    let producer = tokio::spawn(produce(setup.client.queue("orders")?, "a"));
    let mut redis = setup.redis().await?;
    let mut repaired = 0;
    for number in 0..planted {
        let id = format!("planted-{number}");
        let _: i64 = command(&mut redis, &["ZREM", "dueq:{orders}:scheduled", &id]).await?;
        let mut checkup = setup.queue.examine(true).await?;
        checkup.findings.retain(|one| one.code != "overdue");
        ensure!(
            checkup
                .findings
                .iter()
                .all(|one| one.repaired && one.code == "unplaced"),
            "{checkup:#?}"
        );
        repaired += checkup.findings.len();
    }
    let cancelled = producer.await??;
    let mut ids = handled.take(EACH - cancelled).await?;
    let stats = stats_until(&setup.queue, "all settled", |stats| stats.leased == 0).await?;
    assert_eq!(
        (repaired, stats.dead, stats.died),
        (planted, planted as u64, planted as u64)
    );
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), EACH - cancelled, "each once");
    assert!(
        ids.iter().all(|id| id.starts_with("a-")),
        "a message that may have been handled is not delivered"
    );

    // An operator keeps these messages after inspecting them.
    assert_eq!(setup.queue.requeue_all().await?, planted as u64);
    assert_eq!(handled.take(planted).await?.len(), planted);
    worker.stop().await?;
    Ok(())
}

#[tokio::test]
async fn an_evicting_server_can_be_examined_but_not_used() -> Result<()> {
    let server = dueq_testkit::Server::start(&["--maxmemory-policy", "allkeys-lru"])?;
    let refused = dueq::Client::connect(&server.url())
        .await
        .expect_err("it evicts");
    assert_eq!(refused.kind(), dueq::ErrorKind::Unsupported);
    let options = dueq::ClientOptions::new().accept_unfit();
    let client = dueq::Client::connect_with(&server.url(), &options).await?;
    let checkup = client.examine().await?;
    let codes: Vec<_> = checkup
        .findings
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(codes, ["eviction", "persistence"], "{checkup:#?}");
    assert!(checkup.unchecked.is_empty());
    Ok(())
}

/// The message's notice and wake-up tokens are lost, so it is late by up to the parking time, which
/// is no fault. The remedy in the doctor's remark ends the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_message_of_a_parked_queue_is_no_fault() -> Result<()> {
    let setup = setup().await?;
    let (client, queue) = (&setup.client, &setup.queue);
    let far = Message::new("").id("far").due(HOUR);
    queue.push_message(far).await?;
    let (sender, mut handled) = seen();
    let worker = client
        .worker()
        .parking(Duration::from_secs(60))
        .pattern(&client.pattern("order?")?, move |delivery: Delivery| {
            let _ = sender.send(delivery.id().into_owned());
            std::future::ready(())
        })
        .spawn()?;
    let is_parked = |health: &dueq::WorkerHealth| {
        let queue = health.queue("orders");
        queue.is_some_and(dueq::QueueHealth::is_parked)
    };
    let _ = until("a parked queue", async || Ok(worker.health()), is_parked).await?;
    let checkup = queue.examine(false).await?;
    assert!(checkup.findings.is_empty(), "{checkup:#?}");
    assert!(checkup.remarks.is_empty(), "{checkup:#?}");

    let mut redis = setup.redis().await?;
    let due = (server_us(&mut redis).await? / 1_000 - 5_000).to_string();
    let words = ["HSET", "dueq:{orders}:messages", "late", ""];
    let _: i64 = command(&mut redis, &words).await?;
    let words = ["ZADD", "dueq:{orders}:scheduled", &due, "late"];
    let _: i64 = command(&mut redis, &words).await?;
    let checkup = queue.examine(false).await?;
    assert!(checkup.findings.is_empty(), "{checkup:#?}");
    let codes: Vec<_> = checkup.remarks.iter().map(|remark| remark.code).collect();
    assert_eq!(codes, ["parked"], "{checkup:#?}");
    assert!(checkup.remarks[0].remedy.contains("dueq resume orders"));

    queue.resume().await?;
    assert_eq!(handled.next().await?, "late");
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reports_full_queues_old_nodes_and_a_bad_rate() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let remarks = async || -> Result<Vec<&'static str>> {
        let checkup = queue.examine(false).await?;
        ensure!(checkup.findings.is_empty(), "{checkup:#?}");
        Ok(checkup.remarks.iter().map(|one| one.code).collect())
    };
    queue
        .configure(dueq::QueueLimits::new().max_leased(1))
        .await?;
    let (worker, mut held) = crate::support::holding(queue.worker());
    for id in ["one", "two"] {
        queue.push("").id(id).await?;
    }
    held.next().await?;
    assert_eq!(remarks().await?, ["full"]);
    let now_ms = setup.client.server_time().await?.now_ms().to_string();
    let nodes = "dueq:{orders}:nodes";
    setup
        .command::<i64>(&["ZADD", nodes, &now_ms, "an older node"])
        .await?;
    assert_eq!(remarks().await?, ["full", "old_nodes"]);
    worker.abort().await?;
    setup
        .command::<i64>(&["HSET", "dueq:{orders}:meta", "rate", "5/0/1"])
        .await?;
    let checkup = queue.examine(false).await?;
    let codes: Vec<_> = checkup.findings.iter().map(|one| one.code).collect();
    assert!(codes.contains(&"rate"), "{checkup:#?}");
    Ok(())
}
