//! What a schedule knows of its fires: `since`, `next`, `last` and the counts, through pauses, refills
//! and changes. Each fire from `since` to `last` is counted once, and no other one.

use anyhow::{Result, ensure};

use super::schedules::{
    apply, cron_queue, declare, every, listed, refill, show, tick, ticks, with,
};
use super::schedules_bounds::declare_many;
use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::words;

const FIRES: [u64; 3] = [T0 + 1_000, T0 + 2_500, T0 + 4_000];

fn pause(queue: &mut Queue, now: u64) -> Result<()> {
    ensure!(queue.items("amend", now, words!["pause", "s"])? == ["OK 0"]);
    super::schedules::check(queue)
}

fn resume(queue: &mut Queue, now: u64) -> Result<String> {
    let replies = queue.items("amend", now, words!["resume", "s"])?;
    super::schedules::check(queue)?;
    Ok(replies[0].clone())
}

#[test]
fn a_resume_before_the_first_fire_changes_no_time() -> Result<()> {
    let start = T0 + 1_000 * HOUR;
    let far = "every=3155760000000 anchor=1800000000000".to_owned();
    for spec in [
        format!("every=1000 start={start}"),
        format!("every=1000 anchor={start}"),
        far,
    ] {
        let mut queue = with(&spec)?;
        let before = show(&mut queue, "s")?;
        pause(&mut queue, T0 + 1)?;
        let resumed = resume(&mut queue, T0 + 2)?;
        ensure!(
            resumed == format!("OK {}", before.next),
            "{spec}: {resumed}"
        );
        ensure!(show(&mut queue, "s")? == before, "{spec}");
        // So a change may make the start earlier.
        let changed = declare(&mut queue, T0 + 3, &[every("s", "every=1000")])?;
        ensure!(
            changed == [format!("CHANGED {}", T0 + SECOND)],
            "{changed:?}"
        );
    }
    Ok(())
}

/// A list holds 512 fires. Nobody knows those behind it, so each list that is over as a whole makes
/// the one tick that `missed=one` wants.
#[test]
fn a_cron_that_was_dry_for_long_makes_one_tick_a_list() -> Result<()> {
    let mut queue = cron_queue("missed=one", &FIRES)?;
    ensure!(ticks(&mut queue, FIRES[2])? == [tick(FIRES[2])]);
    let now = T0 + 10_000 * SECOND;
    let mut made = Vec::new();
    for list in 0..3_u64 {
        let fires: Vec<u64> = (1..=512)
            .map(|at| T0 + (list * 512 + at) * 5 * SECOND)
            .collect();
        ensure!(refill(&mut queue, now, "2026a", 0, &fires)? == "OK 512");
        made.extend(ticks(&mut queue, now)?);
        ensure!(ticks(&mut queue, now)?.is_empty());
        ensure!(show(&mut queue, "s")?.state == "dry");
    }
    let last = [512, 1_024, 1_536].map(|at| tick(T0 + at * 5 * SECOND));
    ensure!(made == last, "{made:?}");
    ensure!(show(&mut queue, "s")?.counts == [4, 2 + 3 * 511, 0, 0]);
    Ok(())
}

#[test]
fn pruned_schedules_do_not_count_against_the_limit() -> Result<()> {
    let mut queue = Queue::start()?;
    let names = |set: u64, from: u64, count: u64| -> Vec<_> {
        let names = (from..from + count).map(move |at| format!("s{set}.{at}"));
        names.map(|name| every(&name, "every=3600000")).collect()
    };
    for (set, count) in (0..9).map(|set| (set, 1_000)).chain([(9, 999), (11, 1)]) {
        declare_many(&mut queue, &set.to_string(), &names(set, 0, count))?;
    }
    // The queue is full. The call removes as many as it creates.
    let (word, replies, removed) = apply(&mut queue, T0, ["5", "", "prune"], &names(5, 990, 24))?;
    ensure!(word == "OK" && removed.len() == 24, "{:?}", replies.last());
    // Ten stayed, 14 were created: there is room for ten.
    let (word, replies, _) = apply(&mut queue, T0, ["6", "", ""], &names(6, 1_000, 11))?;
    ensure!(
        word == "INVALID",
        "without prune none is removed: {replies:?}"
    );
    let (word, replies, _) = apply(&mut queue, T0, ["6", "", ""], &names(6, 1_000, 10))?;
    ensure!(word == "OK", "{replies:?}");
    // Those that stay make no room.
    let (word, replies, _) = apply(&mut queue, T0, ["11", "", "prune"], &names(11, 0, 2))?;
    ensure!(word == "INVALID", "{:?}", replies.last());
    ensure!(replies[1] == "INVALID this queue would have more than 10000 schedules");
    Ok(())
}

#[test]
fn a_refill_adds_no_fires_before_the_declaration() -> Result<()> {
    for fires in [vec![], vec![T0 - 9_000]] {
        let mut queue = Queue::start()?;
        let list = listed("2026a", 1, &fires);
        let ended = words!["s", "zone=UTC", "0 2 * * *", "", list, "payload"];
        ensure!(declare(&mut queue, T0, &[ended])? == ["CREATED 0"]);
        let before = show(&mut queue, "s")?;
        let reply = refill(&mut queue, T0, "2026a", 0, &[T0, T0 + 1_000])?;
        let over = format!("INVALID fires must be after {T0}, the last one that is over");
        ensure!(reply == over && show(&mut queue, "s")? == before, "{reply}");
        ensure!(refill(&mut queue, T0, "2026a", 0, &[T0 + 1_000])? == "OK 1");
        ensure!(ticks(&mut queue, T0 + 1_000)? == [tick(T0 + 1_000)]);
        ensure!(show(&mut queue, "s")?.counts == [1, 0, 0, 0]);
    }
    Ok(())
}
