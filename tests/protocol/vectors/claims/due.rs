//! No delivery is early, not by a fraction of a millisecond. Deliveries follow the due order.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Header, Text, words};
use crate::state::State;
use crate::vectors::drain;

#[test]
fn promote_stops_at_the_ready_limit_and_keeps_due_order() -> Result<()> {
    let mut queue = Queue::start()?;
    let number = |place: u64| place * 1_237 % 5_000; // every number below 5,000 once, shuffled
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

/// A producer has the right to write such scores by hand. They must not make another client's call
/// run for ever.
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

#[test]
fn a_release_after_the_clock_went_back_is_due_now() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + 10 * SECOND, "payload")?;
    queue.push(T0, "b", T0 + SECOND, "payload")?;
    ensure!(queue.take(T0 + 10 * SECOND, 2, &token('t'))?.len() == 2);
    queue.ok(
        "release",
        T0 + 2 * SECOND,
        words!["a", token('t'), "b", token('t')],
    )?;
    let scheduled = queue.state()?.scheduled;
    ensure!(
        State::score(&scheduled, &"a".into()) == Some((T0 + 2 * SECOND) as f64),
        "a must be due now: its due time is in the future"
    );
    ensure!(
        State::score(&scheduled, &"b".into()) == Some((T0 + SECOND) as f64),
        "b must keep its due time: it is past"
    );
    Ok(())
}

/// The clock went back by more than a day, so an audit shortened the lease. The lease ends long
/// before the due time.
#[test]
fn a_reap_after_the_clock_went_back_is_due_now() -> Result<()> {
    let (mut queue, later) = (Queue::start()?, T0 + 25 * HOUR);
    queue.push(T0, "a", later, "payload")?;
    ensure!(queue.take(later, 1, &token('t'))? == ["a"]);
    ensure!(
        queue
            .ok("audit", T0, words!["leases", 0, 100, "1"])?
            .part(3)?
            .list()?
            .len()
            == 1
    );
    let now = T0 + 60 * SECOND;
    for second in 0..=60 {
        queue.ok("beat", T0 + second * SECOND, words!["node", "stay"])?;
    }
    ensure!(queue.ok("reap", now, words![10])?.part(1)?.int()? == 1);
    ensure!(State::score(&queue.state()?.scheduled, &"a".into()) == Some(now as f64));
    Ok(())
}

/// Two of the ready messages are not due at the time of the claim, and two due ones follow them.
#[test]
fn a_claim_after_the_clock_went_back_takes_only_due_ones() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, due) in [("a", 0), ("b", 50), ("f", 300), ("g", 300)] {
        queue.push(T0, id, T0 + due, &format!("payload of {id}"))?;
    }
    queue.ok("promote", T0 + 300, words![10])?;
    for (id, due) in [("c", 60), ("d", 70)] {
        queue.push(T0 + 100, id, T0 + due, &format!("payload of {id}"))?;
    }
    queue.ok("promote", T0 + 100, words![10])?;
    let claim = queue.ok("claim", T0 + 100, words![10, token('t'), 30 * SECOND])?;
    let mut granted = Vec::new();
    for [id, payload, due, ..] in claim.deliveries()? {
        granted.push((id.text()?, payload.text()?, due.int()? as u64 - T0));
    }
    let expected = [("a", 0), ("b", 50), ("c", 60), ("d", 70)];
    let expected = expected.map(|(id, due)| (id.to_owned(), format!("payload of {id}"), due));
    ensure!(granted == expected, "{granted:?}");
    let scheduled = queue.state()?.scheduled;
    for id in ["f", "g"] {
        ensure!(
            State::score(&scheduled, &id.into()) == Some((T0 + 300) as f64),
            "{id}: {scheduled:?}"
        );
    }
    Ok(())
}
