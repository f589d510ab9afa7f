//! Ticks that workers handle.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use dueq::{Message, Missed, Overlap, Settled, Tick};

use super::{every, info};
use crate::support::{claim, push_and_claim, reporting, setup, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_handles_each_fire_once_and_counts_agree() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let (worker, mut ticks) = reporting(queue.worker(), |delivery| {
        (
            delivery.tick(),
            delivery.payload().to_vec(),
            delivery.due_ms(),
        )
    });
    let beat = every(50, "beat")
        .payload("now")
        .missed(Missed::All { max: 1_000 });
    queue.schedules("hearts").apply([beat]).await?;
    let all = ticks.take(40).await?;
    worker.stop().await?;
    let mut nominal = BTreeSet::new();
    for (tick, payload, due_ms) in all.into_iter().chain(ticks.rest()) {
        let Some(Tick {
            schedule,
            nominal_ms,
            ..
        }) = tick
        else {
            anyhow::bail!("no tick");
        };
        assert_eq!(
            (&*schedule, &*payload, due_ms),
            ("beat", &b"now"[..], nominal_ms)
        );
        assert_eq!(nominal_ms % 50, 0);
        assert!(nominal.insert(nominal_ms), "{nominal_ms} came twice");
    }
    let info = info(queue, "beat").await?;
    let (first, last) = (info.since_ms, info.last_ms);
    let fires = (last - first) / 50 + 1;
    assert_eq!(
        info.made + info.missed + info.overlapped + info.paused,
        fires
    );
    assert_eq!(nominal.len() as u64, info.made);
    assert_eq!(nominal.first(), Some(&first));
    Ok(())
}

#[tokio::test]
async fn preview_equals_the_ticks_with_jitter() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let sync = every(100, "sync").jitter(Duration::from_millis(90));
    let sync = sync.missed(Missed::All { max: 1_000 }).limit(8);
    queue.schedules("billing").apply([sync]).await?;
    let preview = queue.schedule("sync").next(100).await?;
    assert_eq!(preview.len(), 8, "as many as the limit");
    let deliveries = claim(queue, 8).await?;
    let made = deliveries.iter().map(|delivery| {
        let nominal_ms = delivery.tick().map(|tick| tick.nominal_ms);
        (nominal_ms, delivery.due_ms())
    });
    let previewed = preview
        .iter()
        .map(|fire| (Some(fire.nominal_ms), fire.due_ms));
    assert_eq!(made.collect::<Vec<_>>(), previewed.collect::<Vec<_>>());
    assert!(preview.iter().any(|fire| fire.due_ms > fire.nominal_ms));
    let info = info(queue, "sync").await?;
    assert_eq!((info.state, info.made), (dueq::ScheduleState::Ended, 8));
    assert_eq!(queue.schedule("sync").next(5).await?, []);
    Ok(())
}

#[tokio::test]
async fn ticks_that_overlap_are_skipped_and_counted() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let sync = every(20, "sync").overlap(Overlap::Skip);
    queue.schedules("billing").apply([sync]).await?;
    let first = claim(queue, 1).await?.remove(0);
    let overlapped = async || {
        let claimed = queue.claim(10, Duration::from_secs(60)).await?;
        assert_eq!(claimed.len(), 0, "the first tick is leased");
        Ok(info(queue, "sync").await?.overlapped)
    };
    until("three overlaps", overlapped, |overlapped| *overlapped >= 3).await?;
    assert_eq!(first.ack().await?, Settled::Done);
    let second = claim(queue, 1).await?.remove(0);
    assert!(second.tick().is_some());
    Ok(())
}

#[tokio::test]
async fn other_messages_are_no_ticks() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .schedules("billing")
        .apply([every(3_600_000, "sync")])
        .await?;
    let delivery = push_and_claim(queue, Message::new("").id("sync@1700000000000")).await?;
    assert_eq!(delivery.tick(), None);
    Ok(())
}
