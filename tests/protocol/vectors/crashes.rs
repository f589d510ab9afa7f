//! Crashes: counted apart from failures, with a longer back-off each time and a dead letter at the
//! end.

use anyhow::{Result, ensure};

use super::{add, count, expect};
use crate::model::leased;
use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::state::State;

/// Beats each second up to `to`, so that `reap_after` is past then.
fn awake(queue: &mut Queue, from: u64, to: u64) -> Result<()> {
    let mut now = from;
    while now < to {
        queue.ok("beat", now, words!["node", "stay"])?;
        now += SECOND;
    }
    queue.ok("beat", to, words!["node", "stay"])?;
    Ok(())
}

fn reap(queue: &mut Queue, now: u64, limit: u64) -> Result<(i64, i64)> {
    let reply = queue.ok("reap", now, words![limit])?;
    Ok((reply.part(1)?.int()?, reply.part(2)?.int()?))
}

#[test]
fn the_first_crash_is_due_at_once_and_later_ones_back_off() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + 7, "payload")?;
    let mut now = T0 + 10 * SECOND;
    for crash in 1..=6u32 {
        awake(&mut queue, now - 9 * SECOND, now)?;
        queue.ok("promote", now, words![10])?;
        let claim = queue.ok("claim", now, words![1, token('a'), 1_000])?;
        let deliveries = claim.deliveries()?;
        let [[_, _, due, attempt, _]] = &deliveries[..] else {
            anyhow::bail!("crash {crash}: {claim:?}")
        };
        ensure!(
            due.int()? as u64 == T0 + 7,
            "the claim must report the original due time"
        );
        ensure!(
            attempt.int()? as u32 == crash,
            "{attempt:?} is the attempt at crash {crash}"
        );
        awake(&mut queue, now, now + 1_000)?;
        ensure!(
            reap(&mut queue, now + 999, 10)? == (0, 0),
            "reaped before the deadline"
        );
        let before = queue.state()?;
        now += 1_000;
        ensure!(reap(&mut queue, now, 10)? == (1, i64::from(crash == 6)));
        let due = State::score(&queue.state()?.scheduled, &"a".into()).map(|due| due as u64);
        let base = 500 << (crash - 1);
        match crash {
            1 => ensure!(due == Some(T0 + 7)),
            6 => ensure!(due.is_none(), "scheduled after more than 5 crashes"),
            _ => ensure!(
                due.is_some_and(|due| (now + base..=now + 3 * base).contains(&due)),
                "crash {crash}: {due:?}"
            ),
        }
        expect(&mut queue, before, |state| {
            super::ended(state, &token('a'));
            state.claims.remove(&Text::from("a"));
            let (attrs, wake) = match (crash, due) {
                (1, _) => ("0 1 - \n".to_owned(), 2),
                (_, Some(_)) => (format!("0 {crash} {} \n", T0 + 7), 0),
                _ => ("0 6 - \nthe lease ran out 6 times".to_owned(), 0),
            };
            state.attrs.insert("a".into(), attrs.into());
            match due {
                Some(due) => add(&mut state.scheduled, "a", due),
                None => add(&mut state.dead, "a", now),
            }
            count(state, "crashed", 1);
            if crash == 6 {
                count(state, "died", 1);
            }
            count(state, "seq", 1);
            state.wake = vec!["1".into(); wake.max(state.wake.len())];
        })?;
        now = due.unwrap_or(now).max(now) + 10 * SECOND;
    }
    Ok(())
}

#[test]
fn failures_and_crashes_are_counted_apart() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("push", T0, words!["", "a", T0, "", "max_attempts=2"])?;
    awake(&mut queue, T0, T0 + 6 * SECOND)?;
    let now = T0 + 6 * SECOND;
    ensure!(queue.take(now, 1, &token('a'))? == ["a"]);
    awake(&mut queue, now, now + 30 * SECOND)?;
    let now = now + 30 * SECOND;
    ensure!(reap(&mut queue, now, 10)? == (1, 0));
    ensure!(queue.take(now, 1, &token('b'))? == ["a"]);
    ensure!(
        queue.items("retry", now, words!["a", token('b'), 0, "first"])?
            == [format!("SCHEDULED {now}")]
    );
    ensure!(queue.state()?.attrs.get(&"a".into()) == Some(&"1 1 - max_attempts=2\nfirst".into()));
    ensure!(queue.take(now, 1, &token('c'))? == ["a"]);
    ensure!(
        queue.items("retry", now, words!["a", token('c'), 0, "second"])? == ["DEAD"],
        "the crash must not count as a failure"
    );
    ensure!(queue.state()?.attrs.get(&"a".into()) == Some(&"2 1 - max_attempts=2\nsecond".into()));
    ensure!(queue.items("requeue", now, words!["ids", "a"])? == ["REQUEUED"]);
    ensure!(queue.state()?.attrs.get(&"a".into()) == Some(&"0 0 - max_attempts=2\n".into()));
    Ok(())
}

#[test]
fn reap_waits_until_live_nodes_had_time_to_extend() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    queue.push(T0, "b", T0, "")?;
    ensure!(queue.take(T0, 2, &token('a'))?.len() == 2);
    ensure!(
        reap(&mut queue, T0, 10)? == (0, 0),
        "reaped before the first beat"
    );
    let first = queue.ok("beat", T0, words!["node", "stay"])?;
    ensure!(
        first.part(3)?.int()? == 0,
        "the first beat must not delay the reap"
    );
    let back = T0 + 60 * SECOND;
    ensure!(
        reap(&mut queue, back, 10)? == (0, 0),
        "reaped after a minute without a beat"
    );
    let beat = queue.ok("beat", back, words!["node", "stay"])?;
    ensure!(
        beat.part(3)?.int()? as u64 == back + 5 * SECOND,
        "reap_after must be 5 s ahead"
    );
    for second in 0..5 {
        queue.ok("beat", back + second * SECOND, words!["node", "stay"])?;
        ensure!(reap(&mut queue, back + second * SECOND, 10)? == (0, 0));
    }
    ensure!(
        queue.items(
            "extend",
            back + SECOND,
            words!["a", token('a'), 60 * SECOND]
        )?[0]
            .starts_with("OK")
    );
    ensure!(
        reap(&mut queue, back + 5 * SECOND - 1, 10)? == (0, 0),
        "reaped 1 ms before reap_after"
    );
    ensure!(
        reap(&mut queue, back + 5 * SECOND, 10)? == (1, 0),
        "only the lease without an extension may be reaped"
    );
    ensure!(
        queue.items("ack", back + 6 * SECOND, words![token('a'), 2, "a", "b"])? == ["OK", "LOST"]
    );
    Ok(())
}

#[test]
fn an_outage_and_a_clock_step_delay_the_reap() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    awake(&mut queue, T0, T0 + 10 * SECOND)?;
    let now = T0 + 10 * SECOND;
    queue.ok("promote", now, words![1])?;
    queue.ok("claim", now, words![1, token('a'), 100])?;
    ensure!(
        reap(&mut queue, now + 3_001, 10)? == (0, 0),
        "reaped more than 3 s after the last beat"
    );
    ensure!(
        reap(&mut queue, now - 1, 10)? == (0, 0),
        "reaped with the last beat in the future"
    );
    let back = queue.ok("beat", now - 1, words!["node", "stay"])?;
    ensure!(
        back.part(3)?.int()? as u64 == now - 1 + 5 * SECOND,
        "a clock that goes back must count as an outage"
    );
    let outage = queue.ok("beat", now + 60 * SECOND, words!["node", "stay"])?;
    ensure!(outage.part(3)?.int()? as u64 == now + 65 * SECOND);
    let steady = queue.ok("beat", now + 63 * SECOND, words!["node", "stay"])?;
    ensure!(
        steady.part(3)?.int()? as u64 == now + 65 * SECOND,
        "3 s without a beat must not count as an outage"
    );
    ensure!(reap(&mut queue, now + 65 * SECOND, 10)? == (1, 0));
    Ok(())
}

#[test]
fn a_reap_is_bounded_and_takes_the_longest_expired_first() -> Result<()> {
    let mut queue = Queue::start()?;
    for place in 0..5 {
        let id = place.to_string();
        queue.push(T0, &id, T0 + place, "")?;
        queue.ok("promote", T0 + 10, words![10])?;
        let token = queue.new_token();
        queue.ok("claim", T0 + 10, words![1, token, 1_000 + place])?;
    }
    awake(&mut queue, T0, T0 + 10 * SECOND)?;
    let now = T0 + 10 * SECOND;
    ensure!(reap(&mut queue, now, 2)? == (2, 0));
    ensure!(leased(&queue.state()?)? == ["2", "3", "4"].map(Text::from));
    ensure!(
        reap(&mut queue, now, 2)? == (2, 0)
            && reap(&mut queue, now, 2)? == (1, 0)
            && reap(&mut queue, now, 2)? == (0, 0)
    );
    Ok(())
}

#[test]
fn a_paused_queue_is_reaped_and_max_crashes_may_be_0() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    queue.ok("configure", T0, words!["max_crashes", 0])?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    queue.ok("pause", T0, words![])?;
    awake(&mut queue, T0, T0 + 30 * SECOND)?;
    ensure!(reap(&mut queue, T0 + 30 * SECOND, 10)? == (1, 1));
    ensure!(
        queue.state()?.attrs.get(&"a".into()) == Some(&"0 1 - \nthe lease ran out 1 times".into())
    );
    Ok(())
}

#[test]
fn a_reschedule_of_a_crashed_message_sets_its_due_time() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    let mut now = T0 + 10 * SECOND;
    for crash in 1..=2 {
        ensure!(queue.take(now, 1, &token('a'))? == ["a"], "crash {crash}");
        awake(&mut queue, now, now + 30 * SECOND)?;
        now += 30 * SECOND;
        ensure!(reap(&mut queue, now, 10)? == (1, 0));
    }
    let due = now + 5 * SECOND;
    ensure!(queue.items("reschedule", now, words!["a", due, ""])? == [format!("MOVED {due}")]);
    let claim = queue.ok("claim", due, words![1, token('b'), 1_000])?;
    let deliveries = claim.deliveries()?;
    let [[_, _, claimed_due, attempt, _]] = &deliveries[..] else {
        anyhow::bail!("{claim:?}")
    };
    ensure!(
        (claimed_due.int()? as u64, attempt.int()?) == (due, 3),
        "{claimed_due:?}, {attempt:?}"
    );
    Ok(())
}

/// After the second crash the message waits, and its attributes keep the due time that it had.
#[test]
fn a_move_after_crashes_forgets_the_due_time_before_them() -> Result<()> {
    for (verb, arguments) in [
        (
            "upsert",
            words!["", "a", T0 + 90 * SECOND, "new", "on_conflict=reschedule"],
        ),
        ("reschedule", words!["a", T0 + 90 * SECOND, ""]),
        ("run_now", words!["a"]),
    ] {
        let mut queue = Queue::start()?;
        queue.push(T0, "a", T0 + 7, "payload")?;
        let mut now = T0 + 10 * SECOND;
        for _ in 0..2 {
            awake(&mut queue, now - 9 * SECOND, now)?;
            queue.ok("promote", now, words![10])?;
            queue.ok("claim", now, words![1, token('a'), 1_000])?;
            now += 1_000;
            awake(&mut queue, now - 1_000, now)?;
            ensure!(reap(&mut queue, now, 10)? == (1, 0));
        }
        let attrs = |queue: &mut Queue| {
            Ok::<_, anyhow::Error>(queue.state()?.attrs.get(&"a".into()).cloned())
        };
        let kept = format!("0 2 {} \n", T0 + 7);
        ensure!(attrs(&mut queue)? == Some(kept.into()), "{verb}");
        queue.ok(verb, now, arguments)?;
        ensure!(attrs(&mut queue)? == Some("0 2 - \n".into()), "{verb}");
    }
    Ok(())
}
