//! Crons: lists of fires that clients make, and refills.

use anyhow::{Result, ensure};

use super::schedules::{cron, cron_queue, declare, listed, refill, show, tick, ticks};
use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::words;

const FIRES: [u64; 3] = [T0 + 1_000, T0 + 2_500, T0 + 4_000];

fn queue(spec: &str) -> Result<Queue> {
    cron_queue(spec, &FIRES)
}

#[test]
fn a_cron_fires_at_its_listed_times_and_runs_dry() -> Result<()> {
    let mut queue = queue("")?;
    for fire in FIRES {
        ensure!(ticks(&mut queue, fire - 1)?.is_empty());
        ensure!(ticks(&mut queue, fire)? == [tick(fire)]);
    }
    let shown = show(&mut queue, "s")?;
    ensure!(
        shown.state == "dry" && shown.next == 0 && shown.listed == 0,
        "{shown:?}"
    );
    ensure!(ticks(&mut queue, T0 + HOUR)?.is_empty());
    let beat = queue.ok("beat", T0 + HOUR, words!["n", "stay"])?;
    ensure!(beat.part(5)?.int()? == 1);
    let stats = queue.ok("stats", T0 + HOUR, words![])?;
    let numbers = ["schedules", "low_lists", "dry_lists"]
        .into_iter()
        .flat_map(|name| [name.into(), 1_u64.into()]);
    ensure!(
        stats
            .part(1)?
            .list()?
            .ends_with(&numbers.collect::<Vec<_>>())
    );
    let low = queue.ok("schedules", T0, words!["", 10, "low"])?;
    ensure!(low.part(2)?.list()?.len() == 1);
    Ok(())
}

#[test]
fn a_list_that_ran_dry_goes_on_by_the_missed_policy() -> Result<()> {
    for (spec, made) in [("missed=one", vec![6]), ("missed=all", vec![5, 6])] {
        let mut queue = queue(spec)?;
        for fire in FIRES {
            ticks(&mut queue, fire)?;
        }
        let fires = [5, 6, 7].map(|at| T0 + at * SECOND);
        let reply = refill(&mut queue, T0 + 6_500, "2026a", 0, &fires)?;
        ensure!(reply == "OK 3" && show(&mut queue, "s")?.state == "active");
        let mut found = ticks(&mut queue, T0 + 6_500)?;
        found.extend(ticks(&mut queue, T0 + 6_500)?);
        let made: Vec<String> = made.iter().map(|at| tick(T0 + at * SECOND)).collect();
        ensure!(found == made, "{spec}: {found:?}");
        ensure!(show(&mut queue, "s")?.next == T0 + 7 * SECOND);
    }
    Ok(())
}

#[test]
fn a_list_without_more_fires_ends_the_schedule() -> Result<()> {
    let mut queue = queue("")?;
    ensure!(refill(&mut queue, T0, "2026a", 1, &[T0 + 5_000])? == "OK 4");
    for fire in FIRES.into_iter().chain([T0 + 5_000]) {
        ticks(&mut queue, fire)?;
    }
    ensure!(show(&mut queue, "s")?.state == "ended");
    let paused = queue.items("amend", T0 + HOUR, words!["pause", "s"])?;
    ensure!(paused == ["OK 0"] && show(&mut queue, "s")?.state == "ended");
    // Unless there are more after all.
    ensure!(refill(&mut queue, T0, "2026b", 0, &[T0 + HOUR])? == "OK 1");
    ensure!(ticks(&mut queue, T0 + HOUR)? == [tick(T0 + HOUR)]);
    ensure!(show(&mut queue, "s")?.state == "dry");
    Ok(())
}

#[test]
fn missed_counts_every_fire_of_the_list_once() -> Result<()> {
    let mut queue = queue("missed=one")?;
    ensure!(ticks(&mut queue, T0 + HOUR)? == [tick(FIRES[2])]);
    ensure!(show(&mut queue, "s")?.counts == [1, 2, 0, 0]);
    let mut queue = queue_with_end()?;
    ensure!(ticks(&mut queue, T0 + HOUR)? == [tick(FIRES[1])]);
    let shown = show(&mut queue, "s")?;
    ensure!(
        shown.counts == [1, 1, 0, 0] && shown.state == "ended",
        "{shown:?}"
    );
    let mut queue = queue_with_end()?;
    queue.ok("amend", T0, words!["pause", "s"])?;
    queue.ok("amend", T0 + HOUR, words!["resume", "s"])?;
    let shown = show(&mut queue, "s")?;
    ensure!(
        shown.counts == [0, 0, 0, 2] && shown.state == "ended",
        "{shown:?}"
    );
    Ok(())
}

/// The list has a fire behind the end.
fn queue_with_end() -> Result<Queue> {
    queue(&format!("end={}", FIRES[1] + 1))
}

#[test]
fn a_newer_tzdata_replaces_future_fires_an_older_one_never() -> Result<()> {
    let mut queue = queue("")?;
    ticks(&mut queue, FIRES[0])?;
    let before = queue.contents()?;
    ensure!(refill(&mut queue, FIRES[0], "2025z", 0, &[T0 + 9_000])? == "KEPT");
    let over = refill(&mut queue, FIRES[0], "2026b", 0, &[FIRES[0], T0 + 9_000])?;
    ensure!(
        over == format!(
            "INVALID fires must be after {}, the last one that is over",
            FIRES[0]
        )
    );
    let listed = refill(&mut queue, FIRES[0], "2026a", 0, &[FIRES[2], T0 + 9_000])?;
    ensure!(
        listed
            == format!(
                "INVALID fires must be after {}, the last listed one",
                FIRES[2]
            )
    );
    ensure!(queue.contents()? == before);
    let new = [T0 + 1_500, T0 + 3_000];
    ensure!(refill(&mut queue, FIRES[0], "2026b", 0, &new)? == "OK 2");
    ensure!(show(&mut queue, "s")?.zone_version == "2026b");
    ensure!(ticks(&mut queue, new[0] - 1)?.is_empty());
    ensure!(ticks(&mut queue, new[0])? == [tick(new[0])]);
    ensure!(ticks(&mut queue, T0 + 2_500)?.is_empty());
    Ok(())
}

#[test]
fn a_repeated_refill_and_one_of_another_version_are_changed() -> Result<()> {
    let mut queue = queue("")?;
    let shown = show(&mut queue, "s")?;
    let call =
        |version: &str, last: u64| words!["s", version, last, listed("2026a", 0, &[T0 + 9_000])];
    let good = call(&shown.version, shown.last_listed);
    ensure!(queue.items("refill", T0, good.clone())? == ["OK 4"]);
    let before = queue.contents()?;
    ensure!(queue.items("refill", T0, good)? == ["CHANGED"]);
    ensure!(queue.items("refill", T0, call("1", T0 + 9_000))? == ["CHANGED"]);
    ensure!(queue.contents()? == before);
    // The version grows with a change, even if the clock went back.
    declare(&mut queue, T0 - HOUR, &[cron("s", "missed=all", &FIRES)])?;
    ensure!(show(&mut queue, "s")?.version.parse::<u64>()? == shown.version.parse::<u64>()? + 1);
    Ok(())
}

#[test]
fn a_list_holds_512_fires_and_is_low_below_256() -> Result<()> {
    let mut queue = Queue::start()?;
    let fires: Vec<u64> = (1..=512).map(|at| T0 + at * SECOND).collect();
    declare(&mut queue, T0, &[cron("s", "missed=all", &fires)])?;
    ensure!(refill(&mut queue, T0, "2026a", 0, &[T0 + HOUR])?.starts_with("INVALID a list holds"));
    let low = |queue: &mut Queue| -> Result<i64> {
        let beat = queue.ok("beat", T0 + HOUR, words!["n", "stay"])?;
        beat.part(5)?.int()
    };
    for at in 1..=257 {
        ensure!(low(&mut queue)? == i64::from(at > 257));
        ensure!(ticks(&mut queue, T0 + at * SECOND)?.len() == 1);
    }
    ensure!(low(&mut queue)? == 1 && show(&mut queue, "s")?.listed == 255);
    Ok(())
}

#[test]
fn fires_before_the_start_and_of_a_pause_make_no_tick() -> Result<()> {
    let mut queue = queue(&format!("start={}", FIRES[1]))?;
    ensure!(show(&mut queue, "s")?.next == FIRES[1]);
    ensure!(refill(&mut queue, T0, "2026b", 0, &[FIRES[0], FIRES[2]])? == "OK 1");
    ensure!(show(&mut queue, "s")?.next == FIRES[2]);
    queue.ok("amend", T0, words!["pause", "s"])?;
    ensure!(ticks(&mut queue, T0 + HOUR)?.is_empty());
    ensure!(refill(&mut queue, T0, "2026b", 0, &[T0 + 5_000, T0 + 2 * HOUR])? == "OK 3");
    ensure!(
        queue.items("amend", T0 + HOUR, words!["resume", "s"])?
            == [format!("OK {}", T0 + 2 * HOUR)]
    );
    ensure!(show(&mut queue, "s")?.counts == [0, 0, 0, 2]);
    Ok(())
}

#[test]
fn a_claim_outlives_a_lost_list_and_a_lost_record() -> Result<()> {
    let mut queue = queue("")?;
    queue.command(words!["HDEL", "dueq:{q}:meta", "fires:s"])?;
    queue.push(T0, "a", T0, "")?;
    let token = queue.new_token();
    let reply = queue.ok("claim", FIRES[0], words![9, token, SECOND])?;
    ensure!(reply.deliveries()?.len() == 1);
    ensure!(show(&mut queue, "s")?.state == "dry");
    let shown = show(&mut queue, "s")?;
    let words = words!["s", shown.version, 0, listed("2026a", 0, &[T0 + 9_000])];
    ensure!(queue.items("refill", T0, words)? == ["OK 1"]);
    queue.command(words!["HDEL", "dueq:{q}:meta", "schedule:s"])?;
    let token = queue.new_token();
    queue.ok("claim", T0 + HOUR, words![9, token, SECOND])?;
    ensure!(!queue.state()?.messages.contains_key(&"\u{4}s".into()));
    Ok(())
}
