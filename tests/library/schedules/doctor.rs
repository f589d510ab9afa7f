//! The doctor's findings about schedules that were paused for long, or made no tick for long.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use dueq::admin::{Checkup, Finding};
use dueq::schedules::{OverlapPolicy, ScheduleState};

use super::{every, info, now_ms};
use crate::support::{Setup, setup};

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;

/// The positions of the numbers of a schedule in its field of meta, counted after the state.
const NEXT: usize = 1;
const LAST: usize = 2;
const SINCE: usize = 3;
const MADE: usize = 4;
const MISSED: usize = 5;
const OVERLAPPED: usize = 6;

/// Changes the stored numbers of a schedule as if months had passed.
async fn age(setup: &Setup, name: &str, numbers: &[(usize, u64)]) -> Result<()> {
    let (meta, field) = ("dueq:{orders}:meta", format!("schedule:{name}"));
    let stored: String = setup.command(&["HGET", meta, &field]).await?;
    let (first, rest) = stored.split_once('\n').context("its form")?;
    let mut words: Vec<_> = first.split(' ').map(str::to_owned).collect();
    for (at, number) in numbers {
        words[*at] = number.to_string();
    }
    let aged = format!("{}\n{rest}", words.join(" "));
    setup.command::<()>(&["HSET", meta, &field, &aged]).await
}

fn of<'a>(found: &'a [Finding], code: &str) -> Option<&'a Finding> {
    found.iter().find(|finding| finding.code == code)
}

async fn examined(setup: &Setup) -> Result<Checkup> {
    let checkup = setup.queue.examine(false).await?;
    assert!(checkup.unchecked.is_empty(), "{checkup:?}");
    Ok(checkup)
}

#[tokio::test]
async fn doctor_names_schedules_that_were_paused_for_long() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let set = ["old", "new", "active"].map(|name| every(HOUR_MS, name));
    queue.schedules("billing").apply(set).await?;
    for name in ["old", "new"] {
        assert!(queue.schedule(name).pause().await?);
    }
    let checkup = examined(&setup).await?;
    assert_eq!((checkup.findings, checkup.remarks), (vec![], vec![]));

    age(&setup, "old", &[(NEXT, now_ms() - 31 * DAY_MS)]).await?;
    age(&setup, "new", &[(NEXT, now_ms() - 29 * DAY_MS)]).await?;
    let old = info(queue, "old").await?;
    assert_eq!((old.state, old.next_ms), (ScheduleState::Paused, None));
    assert!(old.first_paused_ms < Some(now_ms() - 30 * DAY_MS));
    let checkup = examined(&setup).await?;
    assert_eq!(checkup.findings, [], "a pause is no fault");
    let paused = of(&checkup.remarks, "paused_schedules").context("no remark")?;
    assert_eq!(
        paused.problem,
        "1 schedules have been paused for more than 30 days: old"
    );
    assert_eq!(
        paused.remedy,
        "dueq schedule resume orders old, or dueq schedule rm orders old"
    );

    assert!(queue.schedule("old").resume().await?);
    assert_eq!(info(queue, "old").await?.first_paused_ms, None);
    assert_eq!(examined(&setup).await?.remarks, []);
    Ok(())
}

#[tokio::test]
async fn doctor_finds_schedules_left_behind_by_a_clock_set_back() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let names = ["ahead", "off", "right", "later"];
    let set = names.map(|name| match name {
        // Its next fire is far ahead because of its start.
        "later" => every(HOUR_MS, name).start(SystemTime::now() + Duration::from_millis(DAY_MS)),
        _ => every(60_000, name),
    });
    queue.schedules("billing").apply(set).await?;
    assert!(queue.schedule("off").pause().await?);
    assert_eq!(examined(&setup).await?.findings, []);

    // The clock was two hours ahead at the last fire of these schedules.
    let last = info(queue, "right").await?.last_ms / 60_000 * 60_000 + 2 * HOUR_MS;
    for name in ["ahead", "off"] {
        age(
            &setup,
            name,
            &[(LAST, last), (NEXT, last + 60_000), (MADE, 7)],
        )
        .await?;
    }
    let checkup = examined(&setup).await?;
    let found = of(&checkup.findings, "silent_schedules").context("no finding")?;
    assert_eq!(checkup.findings.len(), 1, "{checkup:?}");
    assert!(
        found.problem.contains("the clock was set back: ahead"),
        "{}",
        found.problem
    );
    assert_eq!(found.remedy, "dueq schedule recompute orders ahead");

    let right = info(queue, "right").await?;
    for name in names {
        assert!(queue.schedule(name).recompute().await?);
    }
    assert!(!queue.schedule("none").recompute().await?);
    assert_eq!(examined(&setup).await?.findings, []);
    let mended = info(queue, "ahead").await?;
    assert!(
        mended.next_ms.is_some_and(|next| next < now_ms() + 61_000),
        "{mended:?}"
    );
    assert_eq!(
        (mended.made, info(queue, "right").await?.version),
        (0, right.version)
    );
    let off = info(queue, "off").await?;
    assert_eq!(off.state, ScheduleState::Paused);
    assert!(off.first_paused_ms < Some(now_ms() + 61_000), "{off:?}");
    Ok(())
}

#[tokio::test]
async fn doctor_finds_schedules_whose_fires_make_no_tick() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let names = ["missing", "overlapping", "young", "few", "working", "off"];
    let set = names.map(|name| every(HOUR_MS, name).overlap(OverlapPolicy::Skip));
    queue.schedules("billing").apply(set).await?;
    assert!(queue.schedule("off").pause().await?);
    assert_eq!(examined(&setup).await?.findings, []);

    let last = info(queue, "working").await?.last_ms;
    let of_days = |days: u64| (SINCE, last - days * DAY_MS);
    let ago = |days: u64| [(LAST, last), of_days(days)];
    for (name, numbers) in [
        ("missing", [ago(2).as_slice(), &[(MISSED, 49)]].concat()),
        (
            "overlapping",
            [ago(2).as_slice(), &[(OVERLAPPED, 49)]].concat(),
        ),
        ("young", vec![(SINCE, last - 20 * HOUR_MS), (MISSED, 21)]),
        ("few", [ago(2).as_slice(), &[(MISSED, 2)]].concat()),
        (
            "working",
            [ago(2).as_slice(), &[(MISSED, 48), (MADE, 1)]].concat(),
        ),
        ("off", [ago(2).as_slice(), &[(MISSED, 49)]].concat()),
    ] {
        age(&setup, name, &numbers).await?;
    }
    let checkup = examined(&setup).await?;
    let tickless = of(&checkup.findings, "tickless_schedules").context("no finding")?;
    assert_eq!(checkup.findings.len(), 1, "{checkup:?}");
    assert_eq!(
        tickless.problem,
        "2 schedules have made no tick, although their fires passed for more than a day: missing, overlapping"
    );
    assert!(
        tickless
            .remedy
            .starts_with("dueq schedule show orders missing shows"),
        "{}",
        tickless.remedy
    );
    assert!(!tickless.consequence.is_empty() && !tickless.repaired);
    Ok(())
}
