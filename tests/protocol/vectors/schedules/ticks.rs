//! When claims make ticks: once for each fire, at its due time, and by the policy for missed fires.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::state::State;
use crate::vectors::schedules::declared::{
    apply, check, claim, cron, cron_queue, declare, every, listed, refill, show, tick, ticks, with,
};

#[test]
fn fires_count_from_the_anchor_not_from_the_declaration() -> Result<()> {
    for (spec, next) in [
        ("every=1000", T0 + 1_000),
        ("every=1000 anchor=250", T0 + 250),
        ("every=1000 anchor=1000", T0 + 1_000),
        ("every=700000000000 anchor=1700000000001", T0 + 1),
        ("every=3155760000000", 3_155_760_000_000),
        ("every=1000 anchor=1800000000000", T0 + 1_000),
    ] {
        ensure!(show(&mut with(spec)?, "s")?.next == next, "{spec}");
    }
    let mut queue = with("every=1000")?;
    for late in [0, 7, 999] {
        ticks(&mut queue, T0 + 1_000 + 1_000 * late + late)?;
        ensure!(show(&mut queue, "s")?.next % 1_000 == 0);
    }
    Ok(())
}

/// A claim of one due member knows the member behind it, but its own timer may return before that.
#[test]
fn a_claim_of_the_only_tick_tells_the_next_fire() -> Result<()> {
    let mut queue = with("every=10000")?;
    queue.ok("push", T0, words!["", "far", T0 + HOUR, "", ""])?;
    let claim = words![1, token('t'), SECOND];
    let reply = queue.ok("claim", T0 + 10_000, claim)?;
    ensure!(
        reply.part(0)?.part(3)?.int()? == (T0 + 20_000) as i64,
        "{reply:?}"
    );
    Ok(())
}

#[test]
fn a_fire_whose_tick_would_have_expired_is_missed() -> Result<()> {
    let mut queue = Queue::start()?;
    let schedule = words![
        "s",
        "every=10000",
        "",
        "expires=+50 on_expire=drop",
        "",
        "p"
    ];
    declare(&mut queue, T0, &[schedule])?;
    ensure!(ticks(&mut queue, T0 + 10_051)?.is_empty());
    ensure!(show(&mut queue, "s")?.counts == [0, 1, 0, 0]);
    let token = queue.new_token();
    let reply = queue.ok("claim", T0 + 20_050, words![9, &token, SECOND])?;
    ensure!(reply.deliveries()?[0][4] == "tick expires=+50 on_expire=drop".into());
    queue.ok("release", T0 + 20_051, words![tick(T0 + 20_000), &token])?;
    ensure!(ticks(&mut queue, T0 + 20_051)?.is_empty());
    Ok(())
}

#[test]
fn no_fire_makes_two_ticks_after_the_clock_went_back() -> Result<()> {
    let mut queue = with("every=1000")?;
    ensure!(ticks(&mut queue, T0 + 5 * SECOND)? == [tick(T0 + 5 * SECOND)]);
    for at in 0..=5 {
        ensure!(ticks(&mut queue, T0 + at * SECOND)?.is_empty());
    }
    // A change of the schedule does not make these fires again either.
    let changed = declare(&mut queue, T0, &[every("s", "every=1000 missed=all")])?;
    ensure!(changed == [format!("CHANGED {}", T0 + 6 * SECOND)]);
    // A timer on the ready list goes back to wait for its time.
    queue.ok("promote", T0 + 6 * SECOND, words![10])?;
    ensure!(ticks(&mut queue, T0 + 5 * SECOND)?.is_empty());
    ensure!(queue.state()?.ready.len() == 1);
    ensure!(ticks(&mut queue, T0 + 6 * SECOND)? == [tick(T0 + 6 * SECOND)]);
    Ok(())
}

#[test]
fn recompute_after_the_clock_went_back_fires_by_the_rule() -> Result<()> {
    let at = |seconds: u64| T0 + seconds * SECOND;
    let crons = [at(1), at(2), at(3), at(4), at(5), at(6)];
    let schedules = [every("s", "every=1000"), cron("c", "", &crons)];
    let mut queue = Queue::start()?;
    declare(&mut queue, T0, &schedules)?;
    ensure!(ticks(&mut queue, at(5))?.len() == 2);
    let kept = format!("KEPT {}", at(6));
    ensure!(declare(&mut queue, at(1), &schedules)? == [&*kept, &*kept]);
    let again = |queue: &mut Queue, now| apply(queue, now, ["some", "", "recompute"], &schedules);
    let changed = format!("CHANGED {}", at(2));
    ensure!(again(&mut queue, at(1))?.1 == [&*changed, &*changed]);
    // A repetition changes nothing, and a schedule that needs no repair stays as it is.
    let before = [show(&mut queue, "s")?, show(&mut queue, "c")?];
    let kept = format!("KEPT {}", at(2));
    let replies = again(&mut queue, at(1))?.1;
    ensure!(replies == [&*kept, &*kept], "{replies:?}");
    ensure!([show(&mut queue, "s")?, show(&mut queue, "c")?] == before);
    ensure!(before[0].counts == [0; 4] && before[1].counts == [0; 4]);
    let ids = ticks(&mut queue, at(2))?;
    ensure!(ids.len() == 2 && ids.contains(&tick(at(2))), "{ids:?}");
    Ok(())
}

#[test]
fn a_full_server_or_queue_does_not_stop_ticks() -> Result<()> {
    let mut queue = with("every=1000")?;
    queue.ok("configure", T0, words!["max_messages", 1])?;
    ensure!(ticks(&mut queue, T0 + SECOND)?.len() == 1);
    queue.command(words!["CONFIG", "SET", "maxmemory", 1])?;
    let reply = queue.call("schedule", T0, words!["x", "", ""])?;
    ensure!(reply.code() == Some("OOM"), "{reply:?}");
    let (ids, token) = claim(&mut queue, T0 + 2 * SECOND, 9)?;
    ensure!(ids == [tick(T0 + 2 * SECOND)]);
    queue.ok("ack", T0 + 2 * SECOND, words![&token, 1, &ids[0]])?;
    queue.ok("amend", T0 + 2 * SECOND, words!["pause", "s"])?;
    queue.ok("amend", T0 + 2 * SECOND, words!["remove", "s"])?;
    Ok(())
}

#[test]
fn limits_of_a_queue_apply_to_ticks() -> Result<()> {
    let mut queue = with("every=1000")?;
    declare(&mut queue, T0, &[every("t", "every=1000")])?;
    queue.ok("configure", T0, words!["max_leased", 1])?;
    let (ids, token) = claim(&mut queue, T0 + SECOND, 9)?;
    ensure!(ids.len() == 1 && ticks(&mut queue, T0 + SECOND)?.is_empty());
    queue.ok("ack", T0 + SECOND, words![&token, 1, &ids[0]])?;
    ensure!(ticks(&mut queue, T0 + SECOND)?.len() == 1);
    let mut queue = with("every=10")?;
    queue.ok("configure", T0, words!["rate", "2/60000/2"])?;
    for at in 1..50 {
        ticks(&mut queue, T0 + at * 10)?;
    }
    ensure!(show(&mut queue, "s")?.counts[0] == 2);
    Ok(())
}

#[test]
fn fires_missed_during_a_pause_make_one_tick_at_the_resume() -> Result<()> {
    let mut queue = with("every=1000")?;
    queue.ok("pause", T0, words![])?;
    ensure!(ticks(&mut queue, T0 + 5 * SECOND)?.is_empty());
    queue.ok("resume", T0 + 5 * SECOND, words![])?;
    ensure!(ticks(&mut queue, T0 + 5 * SECOND)? == [tick(T0 + 5 * SECOND)]);
    ensure!(show(&mut queue, "s")?.counts == [1, 4, 0, 0]);
    Ok(())
}

#[test]
fn ticks_have_payloads_of_up_to_one_mebibyte() -> Result<()> {
    let mut queue = Queue::start()?;
    let large = "x".repeat(1_048_576);
    let schedules: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .map(|name| words![name, "every=1000", "", "", "", &large])
        .to_vec();
    declare(&mut queue, T0, &schedules)?;
    ensure!(ticks(&mut queue, T0 + SECOND)?.len() == 4); // 4 MiB per claim
    ensure!(ticks(&mut queue, T0 + SECOND)?.len() == 2);
    Ok(())
}

const FIRES: [u64; 3] = [T0 + 1_000, T0 + 2_500, T0 + 4_000];

fn queue(spec: &str) -> Result<Queue> {
    cron_queue(spec, &FIRES)
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

/// A schedule without other words takes a shorter way while one fire is due.
#[test]
fn a_plain_tick_leaves_what_any_other_leaves() -> Result<()> {
    let fires: Vec<u64> = (1..=260).map(|at| T0 + at * SECOND).collect();
    for (rule, last, options) in [
        ("every=1000", 0, ""),
        ("every=1000", 0, "max_attempts=3"),
        ("every=1000", 0, "expires=+50"),
        ("zone=UTC", 0, ""),
        ("zone=UTC", 1, "expires=+50"),
    ] {
        let seen = [rule, &format!("{rule} missed=one")].map(|spec| -> Result<_> {
            let (pattern, list) = match rule {
                "zone=UTC" => ("* * * * * *", listed("2026a", last, &fires)),
                _ => ("", String::new()),
            };
            let (mut queue, mut seen) = (Queue::start()?, Vec::new());
            let schedule = words!["s", spec, pattern, options, list, "payload"];
            declare(&mut queue, T0, &[schedule])?;
            queue.push(T0, &tick(T0 + 7_000), T0 + HOUR, "of a producer")?;
            let times = [
                999, 1_000, 1_999, 2_000, 3_060, 4_000, 5_000, 6_999, 7_000, 8_000, 9_999, 20_000,
            ];
            for at in times {
                let token = queue.new_token();
                let reply = queue.ok("claim", T0 + at, words![9, token, SECOND])?;
                let granted = reply.deliveries()?;
                check(&mut queue)?;
                seen.push((granted, show(&mut queue, "s")?, queue.state()?.scheduled));
            }
            Ok(seen)
        });
        let [plain, other] = seen;
        for (plain, other) in plain?.iter().zip(other?) {
            ensure!(
                *plain == other,
                "{rule} {options}: {plain:?}, not {other:?}"
            );
        }
    }
    Ok(())
}

/// A refill under newer rules moves the next fire; the entry of the ready list stays.
#[test]
fn a_ready_timer_waits_for_a_fire_that_moved() -> Result<()> {
    let mut queue = with("every=1000")?;
    let now = T0 + SECOND;
    queue.ok("promote", now, words![9])?;
    let record = words!["HGET", "dueq:{q}:meta", "schedule:s"];
    let record = queue.command(record)?.text()?;
    let moved = record.replacen(&now.to_string(), &(now + SECOND).to_string(), 1);
    queue.command(words!["HSET", "dueq:{q}:meta", "schedule:s", moved])?;
    ensure!(ticks(&mut queue, now)?.is_empty());
    ensure!(ticks(&mut queue, now + SECOND)? == [tick(now + SECOND)]);
    Ok(())
}

#[test]
fn a_claim_survives_a_lost_list_and_a_lost_record() -> Result<()> {
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

#[test]
fn timers_do_not_count_towards_max_messages() -> Result<()> {
    let mut queue = with("every=3600000")?;
    declare(&mut queue, T0, &[every("t", "every=3600000")])?;
    queue.ok("configure", T0, words!["max_messages", 2])?;
    let push = |queue: &mut Queue, id: &str| queue.push(T0, id, T0 + HOUR, "");
    ensure!(push(&mut queue, "a")? == "CREATED" && push(&mut queue, "b")? == "CREATED");
    let full = push(&mut queue, "c")?;
    ensure!(full.starts_with("FULL"), "{full}");
    // A tick is a message, so it counts.
    ensure!(queue.items("cancel", T0, words!["", "a"])? == ["CANCELLED"]);
    queue.ok("trigger", T0, words!["s", "now"])?;
    ensure!(push(&mut queue, "c")?.starts_with("FULL"));
    Ok(())
}

#[test]
fn a_repeated_cancel_spares_a_tick_that_was_made_again() -> Result<()> {
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

/// A refill with newer rules may bring an earlier fire while the timer is ready. The timer's entry
/// there still has the old time.
#[test]
fn a_ready_timer_whose_fire_changed_uses_the_new_fire() -> Result<()> {
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
