//! What a schedule knows of its fires: `since`, `next`, `last` and the counts, through pauses, refills
//! and changes. Each fire from `since` to `last` is counted once, and no other one.

use anyhow::{Result, ensure};

use super::schedules::{
    apply, cron, cron_queue, declare, every, listed, refill, show, tick, ticks, with,
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

#[test]
fn a_resume_between_two_fires_keeps_the_last_one() -> Result<()> {
    let mut queue = with("every=1000")?;
    ticks(&mut queue, T0 + SECOND)?;
    let before = show(&mut queue, "s")?;
    pause(&mut queue, T0 + 1_200)?;
    resume(&mut queue, T0 + 1_300)?;
    ensure!(show(&mut queue, "s")? == before);
    ensure!(ticks(&mut queue, T0 + 2 * SECOND)? == [tick(T0 + 2 * SECOND)]);
    Ok(())
}

#[test]
fn refill_counts_the_list_after_the_fires_of_a_pause_left() -> Result<()> {
    let mut queue = cron_queue("", &FIRES)?;
    pause(&mut queue, T0)?;
    let resumed = resume(&mut queue, T0 + HOUR)?;
    ensure!(resumed == "OK 0" && show(&mut queue, "s")?.state == "dry");
    let fires = [T0 + 5_000, T0 + HOUR, T0 + HOUR + 1, T0 + HOUR + 2];
    ensure!(refill(&mut queue, T0 + HOUR, "2026a", 0, &fires)? == "OK 2");
    let shown = show(&mut queue, "s")?;
    ensure!(shown.listed == 2 && shown.counts == [0, 0, 0, 5]);
    ensure!(shown.last == fires[1] && shown.next == fires[2]);
    Ok(())
}

#[test]
fn refill_of_a_paused_cron_shows_the_first_listed_fire() -> Result<()> {
    for spec in ["", "overlap=skip jitter=5"] {
        let mut queue = cron_queue(spec, &FIRES)?;
        pause(&mut queue, T0)?;
        ensure!(show(&mut queue, "s")?.next == FIRES[0]);
        let earlier = [T0 + 500, T0 + 1_700];
        ensure!(refill(&mut queue, T0, "2026b", 0, &earlier)? == "OK 2");
        let shown = show(&mut queue, "s")?;
        ensure!(
            shown.state == "paused" && shown.next == earlier[0],
            "{shown:?}"
        );
        ensure!(shown.since == earlier[0] && shown.listed == 2, "{shown:?}");
        // Without fires there is no next one, and the list is to begin after the last one that is over.
        ensure!(refill(&mut queue, T0, "2026c", 0, &[])? == "OK 0");
        let shown = show(&mut queue, "s")?;
        ensure!(
            shown.next == 0 && shown.last_listed == T0 && shown.last == T0,
            "{shown:?}"
        );
        ensure!(refill(&mut queue, T0, "2026c", 0, &earlier)? == "OK 2");
        ensure!(show(&mut queue, "s")?.next == earlier[0]);
        ensure!(resume(&mut queue, earlier[0])? == format!("OK {}", earlier[1]));
        ensure!(show(&mut queue, "s")?.counts == [0, 0, 0, 1]);
    }
    Ok(())
}

#[test]
fn refill_of_a_paused_dry_cron_keeps_its_record() -> Result<()> {
    for version in ["2026a", "2026b"] {
        for is_final in [0, 1] {
            let what = format!("{version}, {is_final}");
            let mut queue = cron_queue("missed=one", &FIRES)?;
            ensure!(ticks(&mut queue, FIRES[2])? == [tick(FIRES[2])]);
            pause(&mut queue, FIRES[2])?;
            let shown = show(&mut queue, "s")?;
            ensure!(shown.state == "paused" && shown.next == 0 && shown.listed == 0);
            ensure!(
                refill(&mut queue, FIRES[2], version, is_final, &[])? == "OK 0",
                "{what}"
            );
            let empty = show(&mut queue, "s")?;
            ensure!(
                empty.state == "paused" && empty.next == 0,
                "{what}: {empty:?}"
            );
            ensure!(
                empty.counts == [1, 2, 0, 0] && empty.last == FIRES[2],
                "{what}: {empty:?}"
            );
            ensure!(empty.last_listed == FIRES[2], "{what}: {empty:?}");
            let more = [T0 + 5_000, T0 + 6_000];
            ensure!(
                refill(&mut queue, T0 + 5_500, version, is_final, &more)? == "OK 2",
                "{what}"
            );
            let full = show(&mut queue, "s")?;
            ensure!(
                full.state == "paused" && full.next == more[0],
                "{what}: {full:?}"
            );
            ensure!(
                resume(&mut queue, T0 + 5_500)? == format!("OK {}", more[1]),
                "{what}"
            );
            ensure!(ticks(&mut queue, more[1])? == [tick(more[1])], "{what}");
            let shown = show(&mut queue, "s")?;
            let state = if is_final == 1 { "ended" } else { "dry" };
            ensure!(
                shown.state == state && shown.counts == [2, 2, 0, 1],
                "{what}: {shown:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn since_is_the_first_fire_of_newer_rules_before_any_is_over() -> Result<()> {
    for first in [T0 + 300, T0 + 1_800] {
        let mut queue = cron_queue("missed=all", &FIRES)?;
        ensure!(show(&mut queue, "s")?.since == FIRES[0]);
        ensure!(refill(&mut queue, T0, "2026b", 0, &[first, T0 + 9_000])? == "OK 2");
        ensure!(show(&mut queue, "s")?.since == first);
        ensure!(ticks(&mut queue, first)? == [tick(first)]);
        // Later on it stays: it is the first one that was counted.
        ensure!(refill(&mut queue, first, "2026c", 0, &[T0 + 3_000])? == "OK 1");
        ensure!(ticks(&mut queue, T0 + 3_000)? == [tick(T0 + 3_000)]);
        let shown = show(&mut queue, "s")?;
        ensure!(
            shown.since == first && shown.last == T0 + 3_000,
            "{shown:?}"
        );
        ensure!(shown.counts == [2, 0, 0, 0], "{shown:?}");
    }
    Ok(())
}

/// The list of a cron that ended before its first fire gets fires of newer rules.
#[test]
fn since_of_an_ended_cron_is_the_first_fire_that_it_gets() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut ended = cron("s", "", &[]);
    ended[4] = "2026a 1\n".into();
    ensure!(declare(&mut queue, T0, &[ended])? == ["CREATED 0"]);
    ensure!(refill(&mut queue, T0, "2026b", 0, &FIRES)? == "OK 3");
    let shown = show(&mut queue, "s")?;
    ensure!(
        shown.state == "active" && shown.since == FIRES[0],
        "{shown:?}"
    );
    Ok(())
}

#[test]
fn a_change_with_newer_rules_begins_after_the_last_fire() -> Result<()> {
    let mut queue = cron_queue("missed=all", &FIRES)?;
    ensure!(ticks(&mut queue, FIRES[0])? == [tick(FIRES[0])]);
    let mut newer = cron("s", "missed=one", &[]);
    let fires = [FIRES[0] - 1, FIRES[0], FIRES[0] + 7, T0 + 9_000];
    newer[4] = super::schedules::listed("2026b", 0, &fires).into();
    // The clock went back, too.
    let changed = declare(&mut queue, T0, &[newer])?;
    ensure!(changed == [format!("CHANGED {}", fires[2])], "{changed:?}");
    let shown = show(&mut queue, "s")?;
    ensure!(
        shown.since == fires[2] && shown.last == FIRES[0],
        "{shown:?}"
    );
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
