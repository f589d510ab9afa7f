//! The times and counts of a schedule (`since`, `next`, `last`) through pauses, refills and
//! changes. Each fire from `since` to `last` is counted exactly once, and no other fire is counted.

use anyhow::{Result, ensure};

use crate::frozen;
use crate::model::repairs::PARTS;
use crate::queue::{HOUR, Queue, SECOND, T0, keys_of, token};
use crate::reply::{Header, Text, words};
use crate::state::State;
use crate::vectors::schedules::bounds::declare_many;
use crate::vectors::schedules::declared::{
    apply, check, claim, cron, cron_queue, declare, every, listed, refill, show, tick, ticks, with,
};
use crate::vectors::verified;

const FIRES: [u64; 3] = [T0 + 1_000, T0 + 2_500, T0 + 4_000];

fn pause(queue: &mut Queue, now: u64) -> Result<()> {
    ensure!(queue.items("amend", now, words!["pause", "s"])? == ["OK 0"]);
    crate::vectors::schedules::declared::check(queue)
}

fn resume(queue: &mut Queue, now: u64) -> Result<String> {
    let replies = queue.items("amend", now, words!["resume", "s"])?;
    crate::vectors::schedules::declared::check(queue)?;
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
        // So a change of the schedule may make its start earlier.
        let changed = declare(&mut queue, T0 + 3, &[every("s", "every=1000")])?;
        ensure!(
            changed == [format!("CHANGED {}", T0 + SECOND)],
            "{changed:?}"
        );
    }
    Ok(())
}

/// A list has 512 fires, and the fires behind it are not known. So for each list whose fires are
/// all in the past, `missed=one` makes one tick.
#[test]
fn a_cron_that_was_dry_for_long_makes_one_tick_per_list() -> Result<()> {
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
fn pruned_schedules_make_room_below_the_limit() -> Result<()> {
    let mut queue = Queue::start()?;
    let names = |set: u64, from: u64, count: u64| -> Vec<_> {
        let names = (from..from + count).map(move |at| format!("s{set}.{at}"));
        names.map(|name| every(&name, "every=3600000")).collect()
    };
    for (set, count) in (0..9).map(|set| (set, 1_000)).chain([(9, 999), (11, 1)]) {
        declare_many(&mut queue, &set.to_string(), &names(set, 0, count))?;
    }
    // The queue has as many schedules as allowed. The call removes as many as it creates.
    let (word, replies, removed) = apply(&mut queue, T0, ["5", "", "prune"], &names(5, 990, 24))?;
    ensure!(word == "OK" && removed.len() == 24, "{:?}", replies.last());
    // Ten schedules stayed and 14 were created, so there is room for ten.
    let (word, replies, _) = apply(&mut queue, T0, ["6", "", ""], &names(6, 1_000, 11))?;
    ensure!(
        word == "INVALID",
        "without prune none is removed: {replies:?}"
    );
    let (word, replies, _) = apply(&mut queue, T0, ["6", "", ""], &names(6, 1_000, 10))?;
    ensure!(word == "OK", "{replies:?}");
    // Schedules that stay make no room.
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

fn timer_at(queue: &mut Queue) -> Result<Option<f64>> {
    Ok(State::score(&queue.state()?.scheduled, &"\u{4}s".into()))
}

#[test]
fn a_removed_schedule_takes_its_timer_off_the_ready_list() -> Result<()> {
    for way in ["remove", "prune", "change"] {
        let mut queue = with("every=1000")?;
        queue.push(T0, "a", T0 + 999, "")?;
        queue.ok("promote", T0 + SECOND, words![9])?;
        ensure!(queue.state()?.ready.len() == 3);
        match way {
            "remove" => drop(queue.ok("amend", T0, words!["remove", "s"])?),
            "prune" => drop(apply(&mut queue, T0, ["some", "", "prune"], &[])?),
            _ => drop(declare(&mut queue, T0, &[every("s", "every=5000")])?),
        }
        check(&mut queue)?;
        ensure!(
            queue.state()?.ready.len() == 2 && ticks(&mut queue, T0 + SECOND)? == ["a"],
            "{way}"
        );
    }
    Ok(())
}

#[test]
fn purge_keeps_timers_and_peek_does_not_return_them() -> Result<()> {
    let mut queue = with("every=1000")?;
    declare(&mut queue, T0, &[every("t", "every=1000")])?;
    for id in ["a", "b"] {
        queue.push(T0, id, T0 + 5 * SECOND, "")?;
    }
    for limit in [1, 2, 9] {
        let (mut found, mut cursor) = (Vec::new(), Text::default());
        loop {
            let page = queue.ok("peek", T0, words!["scheduled", &cursor, limit])?;
            for item in page.part(2)?.list()? {
                found.push(item.part(0)?.text()?);
            }
            cursor = page.part(1)?.bytes()?.clone();
            if cursor.0.is_empty() {
                break;
            }
        }
        ensure!(found == ["a", "b"], "by {limit}: {found:?}");
    }
    let purged = queue.ok("purge", T0, words!["scheduled", 1])?;
    ensure!(
        purged.part(1)?.int()? == 1 && purged.part(2)?.int()? == 1,
        "{purged:?}"
    );
    queue.ok("promote", T0 + SECOND, words![9])?;
    ensure!(
        queue
            .ok("peek", T0, words!["ready", "", 9])?
            .part(2)?
            .list()?
            .is_empty()
    );
    let purged = queue.ok("purge", T0 + SECOND, words!["scheduled", 9])?;
    ensure!(
        purged.part(1)?.int()? == 1 && purged.part(2)?.int()? == 0,
        "{purged:?}"
    );
    let purged = queue.ok("purge", T0 + SECOND, words!["ready", 9])?;
    ensure!(
        purged.part(1)?.int()? == 0 && purged.part(2)?.int()? == 0,
        "{purged:?}"
    );
    ensure!(
        Header::of(&purged)?.head == (T0 + SECOND) as i64,
        "{purged:?}"
    );
    check(&mut queue)?;
    ensure!(ticks(&mut queue, T0 + SECOND)?.len() == 2);
    Ok(())
}

#[test]
fn no_verb_of_messages_acts_on_a_timer() -> Result<()> {
    let mut queue = with("every=1000")?;
    let id = "\u{4}s";
    let before = queue.contents()?;
    for (verb, words) in [
        ("cancel", words!["1", id]),
        ("reschedule", words![id, "+1", ""]),
        ("run_now", words![id]),
        ("requeue", words!["ids", id]),
    ] {
        ensure!(queue.items(verb, T0, words)? == ["ABSENT"], "{verb}");
    }
    ensure!(queue.push(T0, id, T0, "")?.starts_with("INVALID"));
    ensure!(queue.ok("get", T0, words![id])?.part(1)?.list()?.is_empty());
    ensure!(queue.contents()? == before);
    Ok(())
}

#[test]
fn throttle_and_requeue_treat_ticks_as_messages() -> Result<()> {
    let mut queue = with("every=1000")?;
    queue.push(T0, "a", T0, "")?;
    let (now, held) = (T0 + 2 * SECOND, token('a'));
    queue.ok("claim", T0, words![1, &held, SECOND])?;
    queue.ok("promote", now, words![9])?;
    queue.ok("throttle", now, words!["a", &held, SECOND])?;
    check(&mut queue)?;
    ensure!(timer_at(&mut queue)? == Some((T0 + SECOND) as f64));
    ensure!(ticks(&mut queue, now)?.is_empty());
    let id = tick(now + SECOND);
    let (ids, token) = claim(&mut queue, now + SECOND, 9)?;
    ensure!(ids == ["a".to_owned(), id.clone()], "{ids:?}");
    queue.ok("bury", now + SECOND, words![&id, &token, "why"])?;
    ensure!(queue.items("requeue", now + SECOND, words!["ids", &id])? == ["REQUEUED"]);
    ensure!(ticks(&mut queue, now + SECOND)? == [id]);
    check(&mut queue)
}

#[test]
fn audit_and_verify_accept_schedules_and_repair_lost_timers() -> Result<()> {
    let audit = |queue: &mut Queue, repair: &str| -> Result<usize> {
        let mut found = 0;
        for part in PARTS {
            let reply = queue.ok("audit", T0, words![part, 0, 1_000, repair])?;
            found += reply.part(3)?.list()?.len();
        }
        Ok(found)
    };
    let mut queue = with("every=1000 overlap=skip")?;
    declare(&mut queue, T0, &[cron("c", "", &[T0 + 1, T0 + HOUR])])?;
    queue.ok("promote", T0 + 1, words![9])?;
    ensure!(audit(&mut queue, "")? == 0);
    ensure!(verified(&mut queue)?);
    for lose in [
        words!["ZREM", "dueq:{q}:scheduled", "\u{4}s"],
        words!["ZADD", "dueq:{q}:scheduled", "inf", "\u{4}s"],
        words!["ZADD", "dueq:{q}:scheduled", "-5", "\u{4}s"],
    ] {
        queue.command(lose.clone())?;
        ensure!(audit(&mut queue, "1")? == 1, "{lose:?}");
        ensure!(audit(&mut queue, "")? == 0, "{lose:?}");
        ticks(&mut queue, T0 + 2)?;
        ensure!(
            timer_at(&mut queue)? == Some((T0 + SECOND) as f64),
            "{lose:?}"
        );
    }
    Ok(())
}

#[test]
fn remap_is_refused_while_a_queue_has_schedules() -> Result<()> {
    let mut queue = with("every=1000")?;
    for form in ["close", "change"] {
        let reply = queue.ok("remap", T0, words![form, 0, "7|-|- 17"])?;
        ensure!(reply.part(1)?.text()? == "HAS 1", "{reply:?}");
    }
    queue.ok("amend", T0, words!["remove", "s"])?;
    let reply = queue.ok("remap", T0, words!["close", 0, "7|-|- 17"])?;
    ensure!(reply.part(1)?.text()? == "DONE", "{reply:?}");
    let (word, replies, _) = apply(&mut queue, T0, ["x", "", ""], &[every("s", "every=1000")])?;
    ensure!(
        word == "INVALID" && replies[0].contains("several partitions"),
        "{replies:?}"
    );
    Ok(())
}

#[test]
fn schedules_raise_the_layout_and_older_scripts_refuse_it() -> Result<()> {
    for start in ["1", "3"] {
        let mut queue = Queue::start()?;
        queue.push(T0, "a", T0, "")?;
        if start == "3" {
            queue.ok("configure", T0, words!["layout", 3])?;
        }
        apply(&mut queue, T0, ["x", "1", "prune"], &[])?;
        ensure!(queue.state()?.meta.get(&"layout".into()) == Some(&start.into()));
        declare(&mut queue, T0, &[every("s", "every=1000")])?;
        queue.ok("configure", T0, words!["layout", 3])?;
        ensure!(queue.state()?.meta.get(&"layout".into()) == Some(&"4".into()));
        ensure!(queue.push(T0, "b", T0, "")? == "CREATED");
        let before = queue.contents()?;
        for (verb, source) in frozen::scripts()? {
            let words = [
                words!["EVAL", source, 10],
                keys_of("dueq:{q}"),
                words![T0, "", "", ""],
            ];
            let reply = queue.command(words.concat())?;
            ensure!(reply.code() == Some("LAYOUT"), "{verb}: {reply:?}");
        }
        ensure!(queue.contents()? == before);
    }
    Ok(())
}
