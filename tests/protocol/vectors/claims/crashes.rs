//! Crashes: they are counted apart from failures, each makes the back-off longer, and the last
//! makes a dead letter.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::words;

/// Sends a beat each second up to `to`, so that `reap_after` has passed by then.
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

/// After the second crash the message waits for its back-off, and its attributes keep its original
/// due time.
#[test]
fn a_reschedule_after_crashes_forgets_the_old_due_time() -> Result<()> {
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
