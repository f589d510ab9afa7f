//! Declaring sets of schedules.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq::admin::AclRole;
use dueq::outcomes::SettleOutcome;
use dueq::schedules::{OverlapPolicy, Schedule};
use dueq::{Applied, ErrorKind, QueueLimits};

use super::{every, info, names};
use crate::support::{HOUR, setup};

const DAY_MS: u64 = 86_400_000;

#[tokio::test]
async fn apply_creates_changes_keeps_and_prunes() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let set = || queue.schedules("billing");
    let applied = set()
        .apply([every(DAY_MS, "a"), every(DAY_MS, "b")])
        .await?;
    assert_eq!(names(&applied.created), ["a", "b"]);
    let next_ms = applied.created[0].next_ms;
    assert_eq!(next_ms, info(queue, "a").await?.next_ms);
    let others = queue.schedules("mail").apply([every(DAY_MS, "c")]).await?;
    assert_eq!(names(&others.created), ["c"]);

    let changed = every(DAY_MS, "b").payload("other");
    let applied = set().apply([every(DAY_MS, "a"), changed.clone()]).await?;
    assert_eq!(
        (names(&applied.kept), names(&applied.changed)),
        (vec!["a"], vec!["b"])
    );
    assert_eq!(info(queue, "b").await?.schedule, changed);

    // Without `prune` a schedule that the call omits stays. With `prune` it is removed if it
    // belongs to this set.
    let applied = set().apply([every(DAY_MS, "a")]).await?;
    assert_eq!(
        (names(&applied.kept), applied.removed.len()),
        (vec!["a"], 0)
    );
    let applied = set()
        .prune(true)
        .dry_run(true)
        .apply([every(DAY_MS, "a")])
        .await?;
    assert_eq!(applied.removed, ["b"]);
    assert!(queue.schedule("b").get().await?.is_some(), "a dry run");
    let applied = set().prune(true).apply([every(DAY_MS, "a")]).await?;
    assert_eq!(applied.removed, ["b"]);
    let page = queue.list_schedules(None, 1).await?;
    assert_eq!((page.schedules.len(), &*page.schedules[0].name), (1, "a"));
    let page = queue.list_schedules(page.next.as_ref(), 10).await?;
    assert_eq!((page.schedules.len(), &*page.schedules[0].name), (1, "c"));
    assert_eq!((&*page.schedules[0].set, page.next), ("mail", None));
    assert_eq!(queue.stats().await?.schedules, 2);
    Ok(())
}

#[tokio::test]
async fn apply_of_an_older_revision_changes_nothing() -> Result<()> {
    let setup = setup().await?;
    let set = || setup.queue.schedules("billing").prune(true);
    let old = || [every(DAY_MS, "old")];
    set().revision(42).apply([every(DAY_MS, "new")]).await?;
    let error = set().revision(41).apply(old()).await.expect_err("stale");
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::InvalidInput, Some("STALE"))
    );
    assert!(
        error
            .to_string()
            .contains("has revision 42, and this call has 41"),
        "{error}"
    );
    assert!(setup.queue.schedule("old").get().await?.is_none());
    set().revision(42).apply(old()).await?;
    assert!(setup.queue.schedule("new").get().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn one_invalid_schedule_refuses_the_whole_set() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    queue
        .configure(QueueLimits::new().max_payload_bytes(1_000))
        .await?;
    let good = || every(DAY_MS, "good");
    let too_long = every(DAY_MS, "long").payload(vec![b'x'; 1_001]);
    let foreign = every(DAY_MS, "foreign");
    queue.schedules("mail").apply([foreign.clone()]).await?;
    for (bad, problem) in [
        (every(9, "fast"), "schedule \"fast\": every is 9ms"),
        (good(), "have the name \"good\""),
        (too_long, "schedule \"long\": payload has 1001 bytes"),
        (
            foreign,
            "schedule \"foreign\": foreign belongs to the set mail",
        ),
        (every(1_000, "x").jitter(HOUR), "jitter is 3600s"),
    ] {
        let error = queue.schedules("billing").apply([good(), bad]).await;
        let error = error.expect_err(problem);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.was_applied(), Applied::No);
        assert!(error.to_string().contains(problem), "{error}");
    }
    let many = (0..1_001).map(|number| every(DAY_MS, &number.to_string()));
    let error = queue
        .schedules("billing")
        .apply(many)
        .await
        .expect_err("many");
    assert!(error.to_string().contains("up to 1000"), "{error}");
    let error = queue.schedules("a b").apply([]).await.expect_err("a name");
    assert!(error.to_string().contains("a set of schedules"), "{error}");
    assert_eq!(queue.stats().await?.schedules, 1);
    Ok(())
}

#[tokio::test]
async fn queue_of_several_partitions_refuses_schedules() -> Result<()> {
    let setup = setup().await?;
    setup.queue.partition_into(2).await?;
    let applied = setup
        .queue
        .schedules("billing")
        .apply([every(DAY_MS, "a")])
        .await;
    let error = applied.expect_err("two partitions");
    assert!(error.to_string().contains("several partitions"), "{error}");
    Ok(())
}

#[tokio::test]
async fn one_apply_declares_a_thousand_schedules() -> Result<()> {
    let setup = setup().await?;
    let all = || (0..1_000).map(|number| every(DAY_MS + number, &format!("s{number}")));
    let applied = setup.queue.schedules("billing").apply(all()).await?;
    assert_eq!(applied.created.len(), 1_000);
    let applied = setup.queue.schedules("billing").apply(all()).await?;
    assert_eq!(applied.kept.len(), 1_000);
    Ok(())
}

#[tokio::test]
async fn schedule_calls_need_the_rights_of_their_role() -> Result<()> {
    let setup = setup().await?;
    let operator =
        crate::lifecycle::rights::queue_of(&setup, "operator", AclRole::Operator).await?;
    let consumer =
        crate::lifecycle::rights::queue_of(&setup, "consumer", AclRole::Consumer).await?;
    let skip = || every(10, "a").overlap(OverlapPolicy::Skip);
    operator.schedules("billing").apply([skip()]).await?;
    let is_denied = |error: dueq::Error| error.kind() == ErrorKind::Denied;
    let refused = consumer.schedules("billing").apply([skip()]).await;
    assert!(is_denied(refused.expect_err("no right")));
    let refused = consumer.schedule("a").trigger().await;
    assert!(is_denied(refused.expect_err("no right")));
    assert_eq!(consumer.list_schedules(None, 10).await?.schedules.len(), 1);
    assert_eq!(consumer.refill_schedules().await?.lists, 0);
    let delivery = crate::support::claim_one(&consumer).await?;
    assert!(delivery.tick().is_some());
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    assert!(operator.schedule("a").pause().await?);
    assert!(operator.schedule("a").resume().await?);
    let _ = operator.schedule("a").trigger().await?;
    assert!(operator.schedule("a").remove().await?);
    let beyond = Schedule::every(Duration::from_secs(60)).name("b");
    operator
        .schedules("billing")
        .prune(true)
        .apply([beyond])
        .await?;
    Ok(())
}

/// The set is so large that it takes several calls.
#[tokio::test]
async fn a_large_set_is_checked_in_whole_before_any_change() -> Result<()> {
    let setup = setup().await?;
    let names = |count: usize| (0..count).map(|at| format!("s{at:03}"));
    let set = |count| names(count).map(|name| every(DAY_MS, &name));
    let apply = || setup.queue.schedules("billing").prune(true);
    // An invalid schedule in the last call prevents all changes.
    let bad = every(DAY_MS, "last").payload(vec![0; 2 << 20]);
    let refused = apply().apply(set(60).chain([bad])).await;
    let error = refused.err().context("it is too long")?;
    assert_eq!(error.refused_schedules()[0].0, "last", "{error}");
    let stored = async || {
        anyhow::Ok(
            setup
                .queue
                .list_schedules(None, 1_000)
                .await?
                .schedules
                .len(),
        )
    };
    assert_eq!(stored().await?, 0);
    assert_eq!(apply().apply(set(60)).await?.created.len(), 60);
    let changes = apply().dry_run(true).apply(set(30)).await?;
    assert_eq!((changes.kept.len(), changes.removed.len()), (30, 30));
    let changes = apply().apply(set(30)).await?;
    assert_eq!((changes.kept.len(), changes.removed.len()), (30, 30));
    // One call declares all schedules, and another removes those that the first set left.
    let changes = apply().apply(set(1)).await?;
    assert_eq!((changes.kept.len(), changes.removed.len()), (1, 29));
    assert_eq!(stored().await?, 1);
    Ok(())
}
