//! No delivery is early, not by a fraction of a millisecond. Deliveries follow the due order.

use anyhow::{Result, ensure};

use super::{add, count, drain, expect};
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Header, Text, words};

#[test]
fn no_message_at_47_59_59_999_and_all_at_48_hours() -> Result<()> {
    let mut queue = Queue::start()?;
    for id in ["one", "two", "three"] {
        ensure!(queue.push(T0, id, "+172800000", "payload")? == "CREATED");
    }
    let due = T0 + 48 * HOUR;
    for early in [
        format!("{}", due - 1),
        format!("{}.5", due - 1),
        format!("{}.999", due - 1),
    ] {
        let before = queue.state()?;
        ensure!(
            queue
                .ok("promote", early.as_str(), words![1_000])?
                .part(1)?
                .int()?
                == 0,
            "at {early}"
        );
        ensure!(
            queue
                .ok("claim", early.as_str(), words![10, token('a'), SECOND])?
                .part(3)?
                .list()?
                .is_empty()
        );
        expect(&mut queue, before, |_| {})?;
    }
    ensure!(queue.take(due, 10, &token('a'))? == ["one", "three", "two"]);
    Ok(())
}

#[test]
fn a_delay_counts_from_the_end_of_the_millisecond() -> Result<()> {
    let mut queue = Queue::start()?;
    let fractional = format!("{T0}.5");
    queue.ok(
        "push",
        fractional.as_str(),
        words!["", "half", "+10", "", "", "now", "+0", "", ""],
    )?;
    queue.ok("push", T0, words!["", "whole", "+10", "", ""])?;
    let state = queue.state()?;
    let due = |id: &str| crate::state::State::score(&state.scheduled, &id.into());
    ensure!(due("half") == Some((T0 + 11) as f64) && due("whole") == Some((T0 + 10) as f64));
    // +0 at half a millisecond is due at the next whole one, not at once.
    ensure!(due("now") == Some((T0 + 1) as f64));
    ensure!(queue.take(T0, 10, &token('a'))?.is_empty());
    ensure!(queue.take(T0 + 10, 10, &token('a'))? == ["now", "whole"]);
    ensure!(queue.take(T0 + 11, 10, &token('b'))? == ["half"]);
    Ok(())
}

#[test]
fn leases_and_retries_count_from_the_end_of_the_millisecond() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    queue.push(T0, "b", T0, "")?;
    queue.ok("promote", T0, words![10])?;
    let fractional = format!("{T0}.001");
    let claim = queue.ok("claim", fractional.as_str(), words![10, token('a'), 1_000])?;
    ensure!(claim.part(2)?.int()? as u64 == T0 + 1_001);
    let extended = queue.items(
        "extend",
        fractional.as_str(),
        words!["a", token('a'), 2_000],
    )?;
    ensure!(extended == [format!("OK {}", T0 + 2_001)]);
    let retried = queue.items("retry", fractional.as_str(), words!["a", token('a'), 5, ""])?;
    ensure!(retried == [format!("SCHEDULED {}", T0 + 6)]);
    let again = queue.items("again", fractional.as_str(), words!["b", token('a'), "+5"])?;
    ensure!(again == [format!("OK {}", T0 + 6)]);
    queue.ok("cancel", fractional.as_str(), words!["", "a"])?;
    let remembered = queue.state()?.recent;
    let exactly = format!("{}.001", T0 + 12_000).parse::<f64>()?;
    for (name, until) in [("a", (T0 + 12_001) as f64 + 0.5), ("\u{4}a", exactly)] {
        ensure!(
            remembered.contains(&(name.into(), until)),
            "{name:?}: {remembered:?}"
        );
    }
    Ok(())
}

#[test]
fn promote_stops_at_the_ready_limit_and_keeps_due_order() -> Result<()> {
    let mut queue = Queue::start()?;
    let number = |place: u64| place * 1_237 % 5_000; // every number below 5,000 once, out of order
    for batch in 0..5 {
        let item = |place: u64| words!["", T0 - 5_000 + number(place), "payload", ""];
        let items = (batch * 1_000..(batch + 1) * 1_000).flat_map(|place| {
            let mut item = item(place);
            item[0] = format!("id-{:04}", number(place)).into();
            item
        });
        let words: Vec<Text> = [Text::default()].into_iter().chain(items).collect();
        ensure!(
            queue
                .items("push", T0 - 6_000, words)?
                .iter()
                .all(|reply| reply == "CREATED")
        );
    }
    let moved = |queue: &mut Queue| queue.ok("promote", T0, words![1_000])?.part(1)?.int();
    ensure!(
        moved(&mut queue)? == 1_000 && moved(&mut queue)? == 0,
        "promote must stop at 1,000 ready messages"
    );
    ensure!(queue.state()?.ready.len() == 1_001 && queue.state()?.scheduled.len() == 4_001);
    let first = queue.ok("claim", T0, words![300, token('a'), SECOND])?;
    ensure!(first.part(1)?.int()? == 700 && first.deliveries()?.len() == 300);
    ensure!(
        moved(&mut queue)? == 300,
        "promote must move as many messages as were claimed"
    );
    ensure!(Header::of(&first)?.head as u64 == T0 - 5_000 + 1_000);

    let rest = drain(&mut queue, T0)?;
    let expected: Vec<String> = (300..5_000)
        .map(|number| format!("id-{number:04}"))
        .collect();
    ensure!(
        rest == expected,
        "{} messages came, or in another order",
        rest.len()
    );
    Ok(())
}

#[test]
fn past_due_times_are_due_at_once_in_their_order() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, due) in [("late", T0 - 5), ("later", T0 - 1), ("latest", 0)] {
        ensure!(queue.push(T0, id, due, "")? == "CREATED");
    }
    ensure!(queue.take(T0, 10, &token('a'))? == ["latest", "late", "later"]);
    Ok(())
}

#[test]
fn a_due_time_is_at_most_100_years_ahead() -> Result<()> {
    let mut queue = Queue::start()?;
    let most = 3_155_760_000_000;
    ensure!(queue.push(T0, "delay", "+3155760000000", "")? == "CREATED");
    ensure!(queue.push(T0, "time", T0 + most, "")? == "CREATED");
    for beyond in [
        "+3155760000001".to_owned(),
        (T0 + most + 1).to_string(),
        "9".repeat(15),
        "9".repeat(400),
    ] {
        ensure!(
            queue
                .push(T0, "beyond", &beyond, "")?
                .starts_with("INVALID"),
            "{beyond}"
        );
    }
    ensure!(queue.take(T0 + most - 1, 10, &token('a'))?.is_empty());
    ensure!(queue.take(T0 + most, 10, &token('a'))? == ["delay", "time"]);
    Ok(())
}

#[test]
fn a_clock_that_goes_back_makes_no_message_early() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + 100, "")?;
    queue.push(T0, "b", T0 + 50, "")?;
    queue.ok("promote", T0 + 100, words![10])?;
    let before = queue.state()?;
    let claim = queue.ok("claim", T0 + 60, words![10, token('a'), SECOND])?;
    ensure!(
        claim.deliveries()?.len() == 1,
        "the claim must grant b only"
    );
    expect(&mut queue, before, |state| {
        state.ready.truncate(1);
        add(&mut state.scheduled, "a", T0 + 100);
        super::granted(state, &token('a'), T0 + 60 + SECOND, &[("b", T0 + 50)]);
        count(state, "claimed", 1);
        count(state, "seq", 1);
    })?;
    ensure!(queue.take(T0 + 99, 10, &token('b'))?.is_empty());
    ensure!(queue.take(T0 + 100, 10, &token('b'))? == ["a"]);
    Ok(())
}

#[test]
fn calls_without_a_time_use_the_servers_clock() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.command(words!["DEL", "dueq:{q}:meta"])?;
    let time = |queue: &mut Queue| -> Result<i64> {
        let time = queue.command(words!["TIME"])?;
        let [seconds, micros] = time.list()? else {
            anyhow::bail!("TIME: {time:?}")
        };
        Ok(seconds.text()?.parse::<i64>()? * 1_000_000 + micros.text()?.parse::<i64>()?)
    };
    let before = time(&mut queue)?;
    let header = Header::of(&queue.ok("push", "", words!["", "a", "+1000", "", ""])?)?;
    ensure!(
        (before..=time(&mut queue)?).contains(&header.now_us),
        "{header:?}"
    );
    ensure!(header.head == (header.now_us + 999) / 1_000 + 1_000 && !header.paused);
    Ok(())
}

/// The claim checks the due time of each ready message, not only of the first.
#[test]
fn a_clock_set_back_returns_ready_messages_to_scheduled() -> Result<()> {
    let mut queue = Queue::start()?;
    for (due, ids) in [
        (T0 - 1, ["a", "b", "c"]),
        (T0, ["d", "e", "f"]),
        (T0 + 1, ["g", "h", "i"]),
    ] {
        for id in ids {
            queue.push(T0 - SECOND, id, due, "")?;
        }
    }
    queue.ok("promote", T0 + 1, words![100])?;
    ensure!(queue.take(T0, 100, &token('a'))? == ["a", "b", "c", "d", "e", "f"]);
    let state = queue.state()?;
    let due = |id: &str| crate::state::State::score(&state.scheduled, &id.into());
    ensure!(["g", "h", "i"].map(due) == [Some((T0 + 1) as f64); 3]);
    ensure!(queue.take(T0 + 1, 100, &token('b'))? == ["g", "h", "i"]);
    Ok(())
}

/// A producer's rights suffice to write such scores by hand. They must not make another client's
/// call run forever.
#[test]
fn due_times_beyond_2_to_53_are_promoted_and_claimed() -> Result<()> {
    let (past, future) = (
        ["-9007199254740996", "-9007199254740994"],
        ["9007199254740996", "9007199254740998"],
    );
    for (now, [most, last]) in [(T0, past), (9_007_199_254_750_000, future)] {
        for promoted in [true, false] {
            let mut queue = Queue::start()?;
            queue.ok("configure", T0, words!["max_attempts", 3])?;
            let mut add = words!["ZADD", queue.key("scheduled")];
            for place in 0..10_u64 {
                add.extend(words![
                    if place == 9 { last } else { most },
                    format!("{place}")
                ]);
            }
            queue.command(add)?;
            if promoted {
                ensure!(queue.ok("promote", now, words![10])?.part(1)?.int()? == 10);
            }
            // These ids have no payload, so the claim drops them.
            let claim = queue.ok("claim", now, words![10, token('a'), SECOND])?;
            ensure!(claim.part(3)?.list()?.is_empty());
            ensure!(
                queue.state()?.scheduled.len() == 1,
                "{:?}",
                queue.state()?.scheduled
            );
        }
    }
    Ok(())
}
