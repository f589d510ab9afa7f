//! Timers beside verbs that do not know schedules: places of a full queue, memory, cancels, and the way back from
//! the ready list.

use anyhow::{Result, ensure};

use super::schedules::{cron_queue, declare, every, refill, tick, ticks, with};
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::state::State;

#[test]
fn timers_take_no_places_of_max_messages() -> Result<()> {
    let mut queue = with("every=3600000")?;
    declare(&mut queue, T0, &[every("t", "every=3600000")])?;
    queue.ok("configure", T0, words!["max_messages", 2])?;
    let push = |queue: &mut Queue, id: &str| queue.push(T0, id, T0 + HOUR, "");
    ensure!(push(&mut queue, "a")? == "CREATED" && push(&mut queue, "b")? == "CREATED");
    let full = push(&mut queue, "c")?;
    ensure!(full.starts_with("FULL"), "{full}");
    // A tick is a message: it takes a place.
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["CANCELLED"]);
    queue.ok("trigger", T0, words!["s", "now"])?;
    ensure!(push(&mut queue, "c")?.starts_with("FULL"));
    Ok(())
}

#[test]
fn a_repeated_cancel_leaves_a_tick_triggered_again() -> Result<()> {
    for times in [words!["now"], words![T0 - 60_000]] {
        let mut queue = with("every=3600000")?;
        let trigger = || [words!["s"], times.clone()].concat();
        let made = queue.items("trigger", T0, trigger())?;
        let id = made[0].trim_start_matches("CREATED ").to_owned();
        ensure!(queue.items("cancel", T0, words!["", &id])? == ["CANCELLED"]);
        ensure!(queue.items("trigger", T0, trigger())? == made);
        let again =
            |queue: &mut Queue| queue.items("cancel", T0, words![format!("since={T0}"), &id]);
        ensure!(again(&mut queue)? == ["CANCELLED earlier"]);
        ensure!(queue.items("cancel", T0 + 5, words!["", &id])? == ["CANCELLED"]);
    }
    Ok(())
}

/// A refill with newer rules may bring an earlier fire while the timer is ready. Its entry there has the former time.
#[test]
fn a_timer_leaves_the_ready_list_for_its_present_fire() -> Result<()> {
    type Way = fn(&mut Queue) -> Result<()>;
    let ways: [(&str, Way); 2] = [
        ("purge", |queue| {
            queue
                .ok("purge", T0 + 4 * SECOND, words!["ready", 9])
                .map(drop)
        }),
        ("throttle", |queue| {
            let delivery = words!["a", token('a'), 1];
            queue.ok("throttle", T0 + 4 * SECOND, delivery).map(drop)
        }),
    ];
    for (name, way) in ways {
        let mut queue = cron_queue("", &[T0 + 4 * SECOND])?;
        queue.push(T0, "a", T0, "")?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        queue.ok("promote", T0 + 4 * SECOND, words![9])?;
        let earlier = [2, 9].map(|at| T0 + at * SECOND);
        refill(&mut queue, T0 + 4 * SECOND, "2026b", 0, &earlier)?;
        way(&mut queue)?;
        let at = State::score(&queue.state()?.scheduled, &"\u{4}s".into());
        ensure!(at == Some((T0 + 2 * SECOND) as f64), "{name}: {at:?}");
        queue.ok("claim", T0 + 4 * SECOND + 5, words![9, token('b'), HOUR])?;
        let state = queue.state()?;
        let at = State::score(&state.scheduled, &"\u{4}s".into());
        ensure!(at == Some((T0 + 9 * SECOND) as f64), "{name}: {at:?}");
        let made: Text = tick(T0 + 2 * SECOND).into();
        ensure!(state.messages.contains_key(&made), "{name}: {state:?}");
        ensure!(!ticks(&mut queue, T0 + 9 * SECOND)?.is_empty());
    }
    Ok(())
}
