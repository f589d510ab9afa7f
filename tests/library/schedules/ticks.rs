//! Ticks that workers handle.

use std::collections::BTreeSet;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use dueq::outcomes::SettleOutcome;
use dueq::schedules::{MissedPolicy, OverlapPolicy, ScheduleState, Tick, TriggerOutcome};
use dueq::{ErrorKind, Message};

use super::{every, info, now_ms};
use crate::support::{claim, claim_one, push_and_claim, reporting, setup, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_handles_each_fire_once_and_the_counts_agree() -> Result<()> {
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
        .missed(MissedPolicy::All { max: 1_000 });
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
async fn previewed_fires_equal_the_ticks_with_their_jitter() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let sync = every(100, "sync").jitter(Duration::from_millis(90));
    let sync = sync.missed(MissedPolicy::All { max: 1_000 }).limit(8);
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
    assert_eq!(
        (info.state, info.made),
        (dueq::schedules::ScheduleState::Ended, 8)
    );
    assert_eq!(queue.schedule("sync").next(5).await?, []);
    Ok(())
}

#[tokio::test]
async fn ticks_that_overlap_are_skipped_and_counted() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let sync = every(20, "sync").overlap(OverlapPolicy::Skip);
    queue.schedules("billing").apply([sync]).await?;
    let first = claim(queue, 1).await?.remove(0);
    let overlapped = async || {
        let claimed = queue.claim(10, Duration::from_secs(60)).await?;
        assert_eq!(claimed.len(), 0, "the first tick is leased");
        Ok(info(queue, "sync").await?.overlapped)
    };
    until("three overlaps", overlapped, |overlapped| *overlapped >= 3).await?;
    assert_eq!(first.ack().await?, SettleOutcome::Done);
    let second = claim(queue, 1).await?.remove(0);
    assert!(second.tick().is_some());
    Ok(())
}

#[tokio::test]
async fn other_messages_are_not_reported_as_ticks() -> Result<()> {
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

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn trigger_makes_a_tick_and_leaves_the_next_fire() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let sync = every(HOUR_MS, "sync")
        .overlap(OverlapPolicy::Skip)
        .payload("all");
    queue.schedules("billing").apply([sync]).await?;
    let before = info(queue, "sync").await?;
    let TriggerOutcome::Created(id) = queue.schedule("sync").trigger().await? else {
        anyhow::bail!("no tick");
    };
    // A second trigger in the same millisecond finds that its id exists.
    let again = async || Ok(queue.schedule("sync").trigger().await?);
    let _ = until("an overlap", again, |again| {
        *again == TriggerOutcome::Overlaps
    })
    .await?;
    let delivery = claim_one(queue).await?;
    assert_eq!((&*delivery.id(), delivery.payload()), (&*id, &b"all"[..]));
    assert_eq!(
        delivery.tick().map(|tick| tick.schedule).as_deref(),
        Some("sync")
    );
    let after = info(queue, "sync").await?;
    assert_eq!(
        (after.next_ms, after.made, after.triggered),
        (before.next_ms, 0, 1)
    );
    assert_eq!(
        queue.schedule("other").trigger().await?,
        TriggerOutcome::Gone
    );
    Ok(())
}

#[tokio::test]
async fn fire_now_makes_a_tick_at_creation_only() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let apply = async |payload: &str| {
        let set = queue.schedules("billing").fire_now(true);
        set.apply([every(HOUR_MS, "sync").payload(payload)]).await
    };
    apply("one").await?;
    apply("one").await?;
    apply("two").await?;
    assert_eq!(info(queue, "sync").await?.triggered, 1);
    assert_eq!(claim_one(queue).await?.payload(), b"one");
    Ok(())
}

#[tokio::test]
async fn backfill_makes_each_past_tick_once() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .schedules("billing")
        .apply([every(1_000, "sync")])
        .await?;
    queue.schedule("sync").pause().await?;
    let from = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let sync = queue.schedule("sync");
    let done = sync.backfill(from, from + Duration::from_secs(249)).await?;
    assert_eq!((done.created, done.existing), (250, 0));
    let done = sync.backfill(from, from + Duration::from_secs(250)).await?;
    assert_eq!((done.created, done.existing), (1, 250));
    let mut ids: Vec<_> = claim(queue, 251)
        .await?
        .iter()
        .map(|tick| tick.id().into_owned())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids[0], "sync@1700000000000");
    assert_eq!(ids[250], "sync@1700000250000");
    // A backfill leaves out fires in the future.
    let now = UNIX_EPOCH + Duration::from_millis(now_ms());
    let done = sync
        .backfill(
            now - Duration::from_secs(10),
            now + Duration::from_secs(3_600),
        )
        .await?;
    assert!((9..=20).contains(&done.created), "{done:?}");
    let error = queue.schedule("other").backfill(from, now).await;
    assert_eq!(error.expect_err("none").kind(), ErrorKind::InvalidInput);
    Ok(())
}

#[tokio::test]
async fn paused_schedule_makes_no_ticks_until_resumed() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .schedules("billing")
        .apply([every(20, "sync")])
        .await?;
    let sync = queue.schedule("sync");
    assert!(sync.pause().await? && sync.pause().await?);
    let paused = info(queue, "sync").await?;
    assert_eq!(
        (paused.state, paused.next_ms),
        (ScheduleState::Paused, None)
    );
    assert_eq!(sync.next(3).await?, []);
    let made = paused.made;
    let passed = async || Ok(now_ms());
    until("three fires", passed, |now| *now > paused.last_ms + 200).await?;
    assert_eq!(queue.claim(10, Duration::from_secs(60)).await?.len(), 0);
    assert!(sync.resume().await?);
    let resumed = info(queue, "sync").await?;
    assert_eq!((resumed.state, resumed.made), (ScheduleState::Active, made));
    assert!(resumed.paused >= 3, "{resumed:?}");
    assert!(claim_one(queue).await?.tick().is_some());
    assert!(sync.remove().await?);
    assert!(!sync.remove().await? && !sync.resume().await?);
    assert_eq!(queue.stats().await?.schedules, 0);
    Ok(())
}
