//! Overlap policies: what a fire does while an earlier tick is scheduled, ready or leased.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0};
use crate::reply::words;
use crate::vectors::schedules::declared::{claim, declare, every, show, tick, ticks, with};

const FIRST: u64 = T0 + SECOND;
const SECOND_FIRE: u64 = T0 + 2 * SECOND;

/// Makes the first tick, and brings it into this state.
fn first_in(queue: &mut Queue, state: &str) -> Result<()> {
    let (ids, token) = claim(queue, FIRST, 9)?;
    ensure!(ids == [tick(FIRST)]);
    match state {
        "dead" => queue.ok("bury", FIRST, words![&ids[0], &token, "why"])?,
        "done" => queue.ok("ack", FIRST, words![&token, 1, &ids[0]])?,
        "scheduled" => queue.ok("retry", FIRST, words![&ids[0], &token, 60_000, "why"])?,
        "ready" => {
            queue.ok("release", FIRST, words![&ids[0], &token])?;
            queue.ok("promote", FIRST, words![9])?
        }
        _ => return Ok(()),
    };
    Ok(())
}

/// The claim meets the timer first. The earlier tick is behind it in the ready list.
#[test]
fn replace_removes_a_ready_tick_and_keeps_the_others() -> Result<()> {
    let mut queue = with("every=1000 overlap=replace")?;
    let (ids, token) = claim(&mut queue, FIRST, 9)?;
    queue.ok("promote", SECOND_FIRE, words![9])?;
    queue.push(SECOND_FIRE, "before", SECOND_FIRE, "")?;
    queue.ok("promote", SECOND_FIRE, words![9])?;
    queue.ok("release", SECOND_FIRE, words![&ids[0], &token])?;
    queue.ok("promote", SECOND_FIRE, words![9])?;
    queue.push(SECOND_FIRE, "after", SECOND_FIRE, "")?;
    queue.ok("promote", SECOND_FIRE, words![9])?;
    ensure!(queue.state()?.ready.len() == 5);
    let token = queue.new_token();
    let reply = queue.ok("claim", SECOND_FIRE, words![1, &token, 30 * SECOND])?;
    ensure!(
        reply.deliveries()?[0][0] == tick(SECOND_FIRE).into(),
        "{reply:?}"
    );
    ensure!(
        reply.part(1)?.int()? == 2,
        "ready messages that are left: {reply:?}"
    );
    crate::vectors::schedules::declared::check(&mut queue)?;
    ensure!(ticks(&mut queue, SECOND_FIRE)? == ["before", "after"]);
    Ok(())
}

#[test]
fn replace_keeps_a_tick_that_the_same_claim_grants() -> Result<()> {
    let mut queue = with("every=1000 overlap=replace")?;
    first_in(&mut queue, "ready")?;
    ensure!(ticks(&mut queue, SECOND_FIRE)? == [tick(FIRST), tick(SECOND_FIRE)]);
    let mut queue = with("every=1000 overlap=skip")?;
    first_in(&mut queue, "ready")?;
    ensure!(ticks(&mut queue, SECOND_FIRE)? == [tick(FIRST)]);
    ensure!(show(&mut queue, "s")?.counts == [1, 0, 1, 0]);
    Ok(())
}

/// A tick that expires in the claim that would replace it dies of its expiry, and nothing else
/// happens to it.
#[test]
fn a_tick_that_expires_in_a_replacing_claim_dies_once() -> Result<()> {
    for on_expire in ["dead", "drop"] {
        let mut queue = Queue::start()?;
        let options = format!("expires=+500 on_expire={on_expire}");
        let spec = "every=1000 overlap=replace";
        declare(&mut queue, T0, &[words!["s", spec, "", options, "", "p"]])?;
        first_in(&mut queue, "ready")?;
        ensure!(ticks(&mut queue, SECOND_FIRE)? == [tick(SECOND_FIRE)]);
        let state = queue.state()?;
        ensure!((state.dead.len() == 2) == (on_expire == "dead"));
        let counted = state.meta.get(&"expired".into()).map(|count| count.text());
        ensure!(counted.as_deref() == Some("1"), "{counted:?}");
    }
    Ok(())
}

#[test]
fn a_fire_whose_id_is_taken_counts_as_overlapped() -> Result<()> {
    let mut queue = with("every=1000")?;
    queue.push(T0, &tick(FIRST), T0 + 100 * SECOND, "")?;
    ensure!(ticks(&mut queue, FIRST)?.is_empty());
    ensure!(show(&mut queue, "s")?.counts == [0, 0, 1, 0]);
    ensure!(ticks(&mut queue, SECOND_FIRE)? == [tick(SECOND_FIRE)]);
    Ok(())
}

#[test]
fn trigger_is_refused_at_a_thousand_live_ticks() -> Result<()> {
    let mut queue = with("every=1000 overlap=skip")?;
    for from in 0..10_u64 {
        let times = (0..100).map(|at| T0 - from * 100 - at);
        let words = words!["s"].into_iter().chain(times.map(Into::into));
        queue.ok("trigger", T0, words.collect())?;
    }
    let replies = queue.items("trigger", T0, words!["s", 5])?;
    ensure!(replies[0].starts_with("INVALID 1000 ticks"), "{replies:?}");
    ensure!(declare(&mut queue, T0, &[every("s", "every=1000")])?[0].starts_with("CHANGED"));
    Ok(())
}

/// Only another program can remove the payload. A trigger with `replace` must not remove a tick
/// before it notices.
#[test]
fn trigger_without_a_payload_changes_nothing() -> Result<()> {
    let mut queue = with("every=1000 overlap=replace")?;
    first_in(&mut queue, "scheduled")?;
    queue.command(words!["HDEL", "dueq:{q}:messages", "\u{4}s"])?;
    let before = queue.state()?;
    let reply = queue.ok("trigger", FIRST + 1, words!["s", "now"])?;
    ensure!(reply.part(1)?.text()? == "GONE", "{reply:?}");
    ensure!(queue.state()? == before, "the refused trigger wrote");
    ensure!(
        declare(
            &mut queue,
            FIRST + 2,
            &[every("s", "every=1000 overlap=replace")]
        )?[0]
            .starts_with("CHANGED")
    );
    ensure!(queue.items("trigger", FIRST + 3, words!["s", "now"])?[0].starts_with("CREATED"));
    Ok(())
}

/// A trigger makes the tick of a due fire. The claim that reaches this fire then handles only the
/// timer.
#[test]
fn replace_keeps_a_triggered_tick_of_the_same_fire() -> Result<()> {
    let mut queue = with("every=1000 overlap=replace")?;
    let made = queue.items("trigger", FIRST, words!["s", FIRST])?;
    ensure!(made == [format!("CREATED {}", tick(FIRST))]);
    ensure!(claim(&mut queue, FIRST, 1)?.0.is_empty());
    ensure!(show(&mut queue, "s")?.counts == [0, 0, 1, 0]);
    ensure!(ticks(&mut queue, FIRST)? == [tick(FIRST)]);
    Ok(())
}

#[test]
fn a_fire_that_makes_no_tick_replaces_nothing() -> Result<()> {
    // Each row: why the second fire makes no tick, and how it counts.
    for (spec, why) in [
        ("", "taken"),
        ("missed=skip within=5", "late"),
        ("missed=all within=5", "late"),
    ] {
        let mut queue = with(&format!("every=1000 overlap=replace {spec}"))?;
        first_in(&mut queue, "scheduled")?;
        let mut now = SECOND_FIRE;
        if why == "taken" {
            queue.push(FIRST, &tick(SECOND_FIRE), SECOND_FIRE + 1, "")?;
        } else {
            now += 6;
        }
        ensure!(claim(&mut queue, now, 1)?.0.is_empty(), "{spec}");
        let counts = show(&mut queue, "s")?.counts;
        let late = u64::from(why == "late");
        ensure!(counts == [1, late, 1 - late, 0], "{spec}: {counts:?}");
        let messages = queue.state()?.messages;
        ensure!(messages.contains_key(&tick(FIRST).into()), "{spec}");
    }
    Ok(())
}

/// The id of a former tick is free. If a producer pushes a message with it, that message is not a
/// tick.
#[test]
fn a_producers_message_is_not_replaced_and_no_overlap() -> Result<()> {
    for overlap in ["skip", "replace"] {
        for by_hand in [false, true] {
            let what = format!("{overlap}, {by_hand}");
            let mut queue = with(&format!("every=1000 overlap={overlap}"))?;
            first_in(&mut queue, "done")?;
            queue.push(FIRST, &tick(FIRST), SECOND_FIRE + 9, "")?;
            if by_hand {
                let made = queue.items("trigger", FIRST + 1, words!["s", "now"])?;
                ensure!(made == [format!("CREATED {}", tick(FIRST + 1))], "{what}");
            } else {
                ensure!(
                    ticks(&mut queue, SECOND_FIRE)? == [tick(SECOND_FIRE)],
                    "{what}"
                );
            }
            let messages = queue.state()?.messages;
            ensure!(messages.contains_key(&tick(FIRST).into()), "{what}");
        }
    }
    Ok(())
}

/// Ticks of the policy `allow` are not recorded, so their number is not limited, even after a
/// change to it.
#[test]
fn a_change_to_allow_ends_the_limit_of_triggered_ticks() -> Result<()> {
    let mut queue = with("every=1000 overlap=skip")?;
    for from in 0..10_u64 {
        let times = (0..100).map(|at| T0 - from * 100 - at);
        let words = words!["s"].into_iter().chain(times.map(Into::into));
        queue.ok("trigger", T0, words.collect())?;
    }
    declare(&mut queue, T0, &[every("s", "every=1000")])?;
    let replies = queue.items("trigger", T0, words!["s", 5])?;
    ensure!(replies == [format!("CREATED {}", tick(5))], "{replies:?}");
    Ok(())
}
