//! The rate of a queue: at most N starts in any W ms, B of them at once.

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::{Header, Text, words};
use crate::vectors::expect;
use crate::vectors::nodes::hints::Listener;

/// Writes a time in microseconds as ARGV\[1\].
fn clock(us: u64) -> String {
    format!("{}.{:03}", us / 1_000, us % 1_000)
}

/// Claims with a new token. Returns the ids and the head.
fn claim(queue: &mut Queue, now_us: u64, count: u64) -> Result<(Vec<String>, i64)> {
    let token = queue.new_token();
    let reply = queue.ok("claim", clock(now_us), words![count, token, HOUR])?;
    let deliveries = reply.deliveries()?;
    let ids = deliveries.iter().map(|[id, ..]| id.text());
    Ok((ids.collect::<Result<_>>()?, Header::of(&reply)?.head))
}

/// The head in microseconds; 0 if there is none.
fn us(head: i64) -> u64 {
    head.max(0) as u64 * 1_000
}

/// A queue with this rate and `count` messages, due in the order of their ids.
fn limited(rate: &str, count: u64) -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["rate", rate])?;
    let items: Vec<Text> = (0..count)
        .flat_map(|number| words![format!("{number:04}"), T0 - 5_000 + number, "", ""])
        .collect();
    for some in items.chunks(4_000) {
        queue.ok("push", T0, [words![""], some.to_vec()].concat())?;
    }
    Ok(queue)
}

/// Claims random counts of messages with random costs, at random times and when the queue opens.
#[test]
fn no_window_has_more_starts_than_the_rate() -> Result<()> {
    let mut queue = Queue::start()?;
    for seed in 0..60 {
        let mut random = Rng::with_seed(seed);
        let starts = random.u64(1..30);
        let window_ms = *random
            .choice(&[1, 7, 10, 100, 333, 1_001])
            .context("none")?;
        let burst = random.u64(1..=starts);
        let rate = format!("{starts}/{window_ms}/{burst}");
        queue.empty()?;
        queue.ok("configure", T0, words!["rate", &rate])?;
        let mut costs = Vec::new();
        let mut items = words![""];
        for number in 0..200 {
            let cost = if random.bool() {
                1
            } else {
                random.u64(1..=burst)
            };
            costs.push(cost);
            items.extend(words![
                format!("{number:03}"),
                T0,
                "",
                format!("cost={cost}")
            ]);
        }
        queue.ok("push", T0, items)?;
        let (mut now_us, mut next) = (T0 * 1_000 + random.u64(0..1_000), 0);
        let mut charged: Vec<(u64, u64)> = Vec::new();
        for _ in 0..120 {
            let (ids, head) = claim(&mut queue, now_us, random.u64(1..9))?;
            for id in ids {
                ensure!(id == format!("{next:03}"), "{rate}: out of order");
                charged.push((now_us, costs[next]));
                next += 1;
            }
            let opens_us = us(head);
            now_us = match random.u32(0..4) {
                0 => now_us + random.u64(1..=window_ms * 1_000),
                1 => now_us + 1,
                2 => opens_us.max(now_us) + random.u64(0..2_000),
                _ => opens_us.max(now_us),
            };
        }
        for (first, (begin, _)) in charged.iter().enumerate() {
            let end = begin + window_ms * 1_000;
            let within = charged[first..].iter().take_while(|(at, _)| *at < end);
            let sum: u64 = within.map(|(_, cost)| cost).sum();
            ensure!(
                sum <= starts,
                "seed {seed}, {rate}: {sum} starts from {begin} us"
            );
        }
        ensure!(!charged.is_empty(), "{rate} started nothing");
    }
    Ok(())
}

/// One start costs 636.36 us, and 19 are charged one by one. If each were rounded down, 7 us would
/// be lost, and the 31st start would come within the window. If each were rounded up, the burst
/// would lack its 20th start.
#[test]
fn fractions_of_a_microsecond_are_charged() -> Result<()> {
    let mut queue = limited("30/7/20", 40)?;
    for number in 0..19 {
        let (ids, _) = claim(&mut queue, T0 * 1_000, 1)?;
        ensure!(ids == [format!("{number:04}")], "{ids:?}");
    }
    let (ids, _) = claim(&mut queue, T0 * 1_000 + 6_996, 99)?;
    ensure!(ids.len() == 11, "{} starts within 7 ms", 19 + ids.len());
    Ok(())
}

/// A client that claims 1 ms after each opening loses no starts, and the queue opens only rarely.
#[test]
fn a_backlog_starts_at_97_percent_of_the_rate() -> Result<()> {
    for (starts, burst, seconds) in [(5, 2, 20), (100, 10, 10), (1_000, 10, 2)] {
        let mut queue = limited(&format!("{starts}/1000/{burst}"), starts * seconds)?;
        let end = (T0 + seconds * SECOND) * 1_000;
        let (mut now_us, mut started, mut calls) = (T0 * 1_000, 0, 0);
        while now_us < end {
            let (ids, head) = claim(&mut queue, now_us, 1_000)?;
            started += ids.len() as u64;
            calls += 1;
            now_us = now_us.max(us(head)) + 1_000;
        }
        let expected = (starts - burst + 1) * seconds;
        println!("{starts}/s: {started} of {expected} in {calls} calls");
        ensure!(started * 100 >= expected * 97, "{started} of {expected}");
        ensure!(calls <= 200 * seconds, "{calls} calls in {seconds} s");
    }
    Ok(())
}

#[test]
fn a_burst_starts_at_once_and_the_opening_is_the_head() -> Result<()> {
    let mut queue = limited("10/1000/4", 9)?;
    queue.ok("promote", T0, words![9])?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    let mut listener = Listener::start(&queue)?;
    let now_us = T0 * 1_000;
    let opens = T0 + 143; // a seventh of a second, rounded up
    let (ids, head) = claim(&mut queue, now_us, 9)?;
    ensure!(ids == ["0000", "0001", "0002", "0003"], "{ids:?}");
    ensure!(head == opens as i64, "{head}");
    let heard = listener.heard(&mut queue)?;
    ensure!(heard.contains(&opens.to_string()), "{heard:?}");

    let before = queue.state()?;
    ensure!(before.wake.is_empty() && before.ready.len() == 6);
    let (ids, head) = claim(&mut queue, now_us + 142_999, 9)?;
    ensure!(ids.is_empty() && head == opens as i64, "{ids:?}, {head}");
    expect(&mut queue, before, |_| {})?;
    ensure!(claim(&mut queue, opens * 1_000, 9)?.0 == ["0004"]);
    Ok(())
}

#[test]
fn a_moving_clock_allows_at_most_one_extra_burst() -> Result<()> {
    let mut queue = limited("10/1000/4", 40)?;
    queue.ok("beat", T0, words!["node", "stay"])?;
    ensure!(claim(&mut queue, T0 * 1_000, 40)?.0.len() == 4);
    let later = T0 + HOUR;
    ensure!(claim(&mut queue, later * 1_000, 40)?.0.len() == 4);

    queue.ok("beat", later, words!["node", "stay"])?;
    let back = T0 + 1;
    ensure!(claim(&mut queue, back * 1_000, 40)?.0.is_empty());
    let header = Header::of(&queue.ok("beat", back, words!["node", "stay"])?)?;
    ensure!(header.head <= back as i64, "closed for an hour: {header:?}");
    let (ids, head) = claim(&mut queue, back * 1_000, 40)?;
    ensure!(
        ids.is_empty(),
        "the clock that went back brought tokens: {ids:?}"
    );
    ensure!(head > back as i64 && head <= back as i64 + 144, "{head}");
    ensure!(claim(&mut queue, us(head), 40)?.0.len() == 1);
    Ok(())
}

/// The closing by a rate ends with that rate. A pause by an operator stays.
#[test]
fn a_new_rate_opens_a_queue_that_the_old_rate_closed() -> Result<()> {
    for (value, granted) in [("", 4), ("100/1000/3", 3)] {
        let mut queue = limited("1/2592000000/1", 5)?;
        ensure!(claim(&mut queue, T0 * 1_000, 9)?.0.len() == 1);
        ensure!(claim(&mut queue, (T0 + HOUR) * 1_000, 9)?.0.is_empty());
        queue.command(words!["DEL", "dueq:{q}:wake"])?;
        queue.ok("configure", T0 + HOUR, words!["rate", value])?;
        ensure!(queue.state()?.wake.len() == 2, "configure must wake nodes");
        // The first claim takes the whole burst of the new rate, whatever the old rate left.
        let (mut ids, _) = claim(&mut queue, (T0 + HOUR) * 1_000, 9)?;
        ids.extend(claim(&mut queue, (T0 + HOUR + SECOND) * 1_000, 9)?.0);
        ensure!(ids.len() == granted, "{value}: {ids:?}");
    }
    let mut queue = limited("1/1000/1", 5)?;
    claim(&mut queue, T0 * 1_000, 9)?;
    queue.ok("pause", T0, words![9_000])?;
    queue.ok("configure", T0, words!["rate", ""])?;
    ensure!(claim(&mut queue, (T0 + 8_999) * 1_000, 9)?.0.is_empty());
    ensure!(claim(&mut queue, (T0 + 9_000) * 1_000, 9)?.0.len() == 4);
    Ok(())
}

/// The rate closed the queue for longer than the break did. A new rate ends only the closing by the
/// rate.
#[test]
fn a_new_rate_keeps_a_shorter_break_of_the_queue() -> Result<()> {
    for close in [words!["throttle", "close", 400], words!["pause", 400]] {
        let mut queue = limited("1/1000/1", 3)?;
        claim(&mut queue, T0 * 1_000, 1)?;
        let verb = close[0].text();
        let reply = queue.ok(&verb, T0 + 1, close[1..].to_vec())?;
        ensure!(reply.part(1)?.text()? == format!("OK {}", T0 + 1_000));
        queue.ok("configure", T0 + 2, words!["rate", "100/1000/10"])?;
        let (ids, head) = claim(&mut queue, (T0 + 3) * 1_000, 1)?;
        ensure!(ids.is_empty() && us(head) == (T0 + 401) * 1_000, "{head}");
        queue.ok("configure", T0 + 4, words!["rate", ""])?;
        ensure!(claim(&mut queue, (T0 + 400) * 1_000, 1)?.0.is_empty());
        ensure!(claim(&mut queue, (T0 + 401) * 1_000, 1)?.0.len() == 1);
    }
    Ok(())
}

/// Values that no script writes limit nothing, and make no claim fail.
#[test]
fn foreign_values_of_rate_and_tat_limit_nothing() -> Result<()> {
    let rates = ["x", "", "5", "5/0/1", "0/5/1", "1/5/2", "1e3/5/1", "-1/5/1"];
    for rate in rates {
        let mut queue = limited("1/1000/1", 5)?;
        queue.command(words!["HSET", "dueq:{q}:meta", "rate", rate])?;
        ensure!(claim(&mut queue, T0 * 1_000, 9)?.0.len() == 5, "{rate:?}");
    }
    for tat in ["x", "", "nan", "-inf", "-5", "0"] {
        let mut queue = limited("9/1000/2", 5)?;
        queue.command(words!["HSET", "dueq:{q}:meta", "tat", tat])?;
        ensure!(claim(&mut queue, T0 * 1_000, 9)?.0.len() == 2, "{tat:?}");
    }
    for tat in ["inf", "1e300", "99999999999999999999"] {
        let mut queue = limited("9/1000/2", 5)?;
        queue.command(words!["HSET", "dueq:{q}:meta", "tat", tat])?;
        let (ids, head) = claim(&mut queue, T0 * 1_000, 9)?;
        ensure!(
            ids.is_empty() && head <= T0 as i64 + 126,
            "{tat:?}: {ids:?}, {head}"
        );
    }
    Ok(())
}

/// The rate closes the queue after a resume. Configuring the rate again must not bring the resumed
/// break back.
#[test]
fn a_resumed_break_does_not_come_back_with_a_new_rate() -> Result<()> {
    for close in [words!["throttle", "close", 60_000], words!["pause", 60_000]] {
        let mut queue = limited("1/1000/1", 3)?;
        queue.ok(&close[0].text(), T0, close[1..].to_vec())?;
        queue.ok("resume", T0, words![])?;
        ensure!(claim(&mut queue, T0 * 1_000, 9)?.0.len() == 1);
        queue.ok("configure", T0 + 1, words!["rate", ""])?;
        let (ids, head) = claim(&mut queue, (T0 + 1) * 1_000, 9)?;
        ensure!(ids.len() == 2, "closed until {head}");
    }
    Ok(())
}

#[test]
fn a_clock_that_went_back_does_not_end_a_break() -> Result<()> {
    let mut queue = limited("1/1000/1", 3)?;
    queue.ok("beat", T0 + HOUR, words!["node", "stay"])?;
    queue.ok("throttle", T0 + HOUR, words!["close", 5_000])?;
    queue.ok("beat", T0, words!["node", "stay"])?;
    let (ids, head) = claim(&mut queue, T0 * 1_000, 9)?;
    ensure!(ids.is_empty() && us(head) == (T0 + HOUR + 5_000) * 1_000);
    Ok(())
}
