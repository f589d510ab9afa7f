//! Timers beside the other verbs: amend, promote, purge, peek, audit, remap, and the layout.

use anyhow::{Result, ensure};

use super::schedules::{apply, check, claim, cron, declare, every, tick, ticks, with};
use crate::frozen;
use crate::queue::{HOUR, Queue, SECOND, T0, keys_of, token};
use crate::reply::{Header, Text, words};
use crate::state::State;

fn timer_at(queue: &mut Queue) -> Result<Option<f64>> {
    Ok(State::score(&queue.state()?.scheduled, &"\u{4}s".into()))
}

#[test]
fn a_removed_schedule_leaves_the_ready_list() -> Result<()> {
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
fn purge_keeps_timers_and_peek_shows_none() -> Result<()> {
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
fn no_verb_of_messages_takes_a_timer() -> Result<()> {
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
fn ticks_are_messages_for_throttle_and_requeue() -> Result<()> {
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
fn audit_and_verify_find_no_fault_and_repair_a_lost_timer() -> Result<()> {
    let parts = [
        "ready",
        "leases",
        "claims",
        "messages",
        "scheduled",
        "dead",
        "attrs",
    ];
    let audit = |queue: &mut Queue, repair: &str| -> Result<usize> {
        let mut found = 0;
        for part in parts {
            let reply = queue.ok("audit", T0, words![part, 0, 1_000, repair])?;
            found += reply.part(3)?.list()?.len();
        }
        Ok(found)
    };
    let mut queue = with("every=1000 overlap=skip")?;
    declare(&mut queue, T0, &[cron("c", "", &[T0 + 1, T0 + HOUR])])?;
    queue.ok("promote", T0 + 1, words![9])?;
    ensure!(audit(&mut queue, "")? == 0);
    ensure!(
        queue
            .ok("verify", T0, words![""])?
            .part(1)?
            .list()?
            .is_empty()
    );
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
