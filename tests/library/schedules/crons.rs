//! Crons: their lists of fires, and the refills of these lists.

use std::time::Duration;

use anyhow::Result;
use dueq::ErrorKind;
use dueq::schedules::{Schedule, ScheduleState};

use super::{apply_raw, info, names, now_ms};
use crate::support::{acking, claim_one, reporting, setup, stats_until, until};

fn cron(pattern: &str, name: &str) -> Result<Schedule> {
    Ok(Schedule::cron(pattern)?.zone("Europe/Paris").name(name))
}

#[tokio::test]
async fn cron_lists_its_fires_and_previews_beyond_the_list() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let report = cron("0 2 * * *", "report")?;
    let applied = queue.schedules("billing").apply([report.clone()]).await?;
    assert_eq!(names(&applied.created), ["report"]);
    let info = info(queue, "report").await?;
    assert_eq!(
        (info.state, info.listed, info.listed_ms.len()),
        (ScheduleState::Active, 512, 512)
    );
    assert_eq!(
        (&*info.pattern, info.zone.as_deref()),
        ("0 2 * * *", Some("Europe/Paris"))
    );
    assert!(info.tzdata.is_some() && !info.is_list_final);
    let preview = queue.schedule("report").next(600).await?;
    let computed: Vec<_> = report.fires(now_ms())?.take(600).collect();
    assert_eq!(preview, computed);
    let applied = queue.schedules("billing").apply([report]).await?;
    assert_eq!(names(&applied.kept), ["report"]);
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.schedules, stats.low_lists, stats.dry_lists),
        (1, 0, 0)
    );
    Ok(())
}

#[tokio::test]
async fn invalid_crons_are_refused_with_their_names() -> Result<()> {
    let setup = setup().await?;
    for (bad, problem) in [
        (
            cron("0 0 30 2 *", "never")?,
            "schedule \"never\": the cron pattern \"0 0 30 2 *\" does not fire",
        ),
        (
            cron("0 0 * * *", "zone")?.zone("CET"),
            "schedule \"zone\": \"CET\" is no time zone",
        ),
    ] {
        let error = setup.queue.schedules("billing").apply([bad]).await;
        let error = error.expect_err(problem);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert!(!setup.queue.exists().await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_refills_low_lists_while_it_handles_ticks() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let mut set = vec![cron("* * * * * *", "second")?];
    for number in 0..70 {
        set.push(cron(
            &format!("{} * * * *", number % 60),
            &format!("c{number}"),
        )?);
    }
    queue.schedules("billing").apply(set).await?;
    assert_eq!(queue.stats().await?.low_lists, 71);
    let (worker, mut ticks) = reporting(queue.worker(), |delivery| {
        delivery.tick().map(|tick| tick.schedule)
    });
    stats_until(queue, "full lists", |stats| stats.low_lists == 0).await?;
    let full = info(queue, "c7").await?;
    assert_eq!(full.listed_ms.len(), 512);
    let fires = full.schedule.fires(full.since_ms - 1)?;
    let computed: Vec<_> = fires.take(512).map(|fire| fire.nominal_ms).collect();
    assert_eq!(full.listed_ms, computed);
    while ticks.next().await?.as_deref() != Some("second") {}
    worker.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dry_list_is_refilled_when_a_leader_comes() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    // On a busy machine the fire may have passed before the call, and then nothing is declared.
    let declare = async || {
        let first = now_ms() / 1_000 * 1_000 + 2_000;
        let fires = format!("2020a 0\n{first}");
        apply_raw(&setup, "second", "zone=UTC", "* * * * * *", &fires).await?;
        Ok((first, queue.stats().await?.schedules))
    };
    let (first, _) = until("the schedule", declare, |(_, schedules)| *schedules == 1).await?;
    assert_eq!(claim_one(queue).await?.id(), format!("second@{first}"));
    let dry = info(queue, "second").await?;
    assert_eq!(
        (dry.state, dry.next_ms, dry.listed),
        (ScheduleState::Dry, None, 0)
    );
    let stats = queue.stats().await?;
    assert_eq!((stats.low_lists, stats.dry_lists), (1, 1));
    let found = queue.examine(false).await?;
    let codes: Vec<_> = found.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["dry_schedules"]);
    let (worker, mut handled) = acking(queue.worker());
    let next = handled.next().await?;
    assert!(next.starts_with("second@"), "{next}");
    worker.stop().await?;
    let stats = queue.stats().await?;
    assert_eq!((stats.low_lists, stats.dry_lists), (0, 0));
    let info = info(queue, "second").await?;
    let fires = (info.last_ms - info.since_ms) / 1_000 + 1;
    assert_eq!(info.made + info.missed, fires);
    Ok(())
}

#[tokio::test]
async fn refill_replaces_only_lists_of_older_time_zone_rules() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let far = now_ms() + 86_400_000;
    for (name, version) in [("old", "2020a"), ("new", "2999z")] {
        let fires = format!("{version} 0\n{far}");
        apply_raw(&setup, name, "zone=UTC", "0 * * * *", &fires).await?;
    }
    let refilled = queue.refill_schedules().await?;
    assert_eq!(
        (refilled.lists, refilled.fires, refilled.failed.len()),
        (1, 512, 0)
    );
    let old = info(queue, "old").await?;
    assert_ne!(old.tzdata.as_deref(), Some("2020a"));
    assert!(old.next_ms < Some(far), "its fires are computed again");
    assert_eq!(info(queue, "new").await?.listed_ms, [far]);
    assert_eq!(queue.refill_schedules().await?.lists, 0);
    let found = queue.examine(false).await?;
    assert_eq!(found.findings, []);
    Ok(())
}

#[tokio::test]
async fn cron_makes_no_ticks_after_its_end() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let now = std::time::SystemTime::now();
    let two = cron("* * * * * *", "two")?.end(now + Duration::from_millis(2_900));
    queue.schedules("billing").apply([two.clone()]).await?;
    let ended = async || {
        for delivery in queue.claim(10, Duration::from_secs(60)).await? {
            let _ = delivery.ack().await?;
        }
        info(queue, "two").await
    };
    let info = until("the end", ended, |info| info.state == ScheduleState::Ended).await?;
    assert!((1..=3).contains(&(info.made + info.missed)), "{info:?}");
    let applied = queue.schedules("billing").apply([two]).await?;
    assert_eq!(names(&applied.kept), ["two"], "it does not start again");
    Ok(())
}
