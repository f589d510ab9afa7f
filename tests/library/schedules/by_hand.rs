//! Ticks by hand, pauses and removals.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use dueq::{ErrorKind, Overlap, ScheduleState, Triggered};

use super::{every, info, now_ms};
use crate::support::{claim, claim_one, setup, until};

const HOUR_MS: u64 = 3_600_000;

#[tokio::test]
async fn trigger_makes_a_tick_and_moves_no_fire() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let sync = every(HOUR_MS, "sync").overlap(Overlap::Skip).payload("all");
    queue.schedules("billing").apply([sync]).await?;
    let before = info(queue, "sync").await?;
    let Triggered::Created(id) = queue.schedule("sync").trigger().await? else {
        anyhow::bail!("no tick");
    };
    // Within the same millisecond the id is there already.
    let again = async || Ok(queue.schedule("sync").trigger().await?);
    let _ = until("an overlap", again, |again| *again == Triggered::Overlaps).await?;
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
    assert_eq!(queue.schedule("other").trigger().await?, Triggered::Gone);
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
    // What is ahead is left out.
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
