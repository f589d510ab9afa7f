//! The history: reports of beats, the rings of minutes, hours and days, and the verb that reads them.

use anyhow::{Context, Result, ensure};

use crate::model::reads::COUNTERS;
use crate::queue::{DAY, HOUR, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::{count, expect};

/// `T0` is 20 s after the start of its minute, and 13 min 20 s after that of its hour.
const MINUTE: u64 = 60 * SECOND;
/// The number of buckets of a histogram, from which the largest sum of one bucket follows.
const BUCKETS: usize = 68;
const MOST: u64 = 9_007_199_254_740_991;

/// A queue with one scheduled message, which node `a` knows.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.push(T0, "far", T0 + 1_000 * DAY, "")?;
    Ok(queue)
}

fn report(queue: &mut Queue, now: u64, text: &str) -> Result<()> {
    queue.ok("beat", now, words!["a", "stay", text]).map(drop)
}

/// The value of a field of meta, if it exists.
fn field(queue: &mut Queue, name: &str) -> Result<Option<String>> {
    let meta = queue.state()?.meta;
    Ok(meta.get(&name.into()).map(Text::text))
}

fn set(queue: &mut Queue, name: &str, value: impl Into<Text>) -> Result<()> {
    let meta = queue.key("meta");
    let value: Text = value.into();
    queue.command(words!["HSET", meta, name, value]).map(drop)
}

/// The name of the ring's field for a time.
fn slot(ring: &str, at: u64) -> String {
    match ring {
        "m" => format!("m{}", at / MINUTE % 60),
        "h" => format!("h{}", at / HOUR % 168),
        _ => format!("d{}", at / DAY % 90),
    }
}

/// A record with this many pushes, in which nothing else was counted.
fn record(at: u64, pushed: u64, histograms: &str) -> String {
    let counters = [pushed.to_string()].into_iter();
    let counters: Vec<_> = counters.chain((0..14).map(|_| "0".to_owned())).collect();
    format!("{at}|{}|{pushed} 0 0 0|{histograms}", counters.join(" "))
}

fn records(queue: &mut Queue, now: u64, ring: &str) -> Result<Vec<String>> {
    let reply = queue.ok("history", now, words![ring])?;
    reply.part(1)?.list()?.iter().map(Reply::text).collect()
}

/// The sums of a histogram in the form that meta has.
fn sums(counts: &[(usize, f64)]) -> Text {
    let mut sums = [0.0_f64; BUCKETS];
    for (bucket, count) in counts {
        sums[*bucket] = *count;
    }
    Text(sums.iter().flat_map(|sum| sum.to_le_bytes()).collect())
}

#[test]
fn the_first_report_changes_only_the_expected_fields() -> Result<()> {
    let mut queue = queue()?;
    queue.ok("beat", T0, words!["a", "stay"])?;
    let before = queue.state()?;
    ensure!(
        !before.meta.contains_key(&"history".into()),
        "a beat without a report wrote a history"
    );
    let now = T0 + SECOND;
    report(&mut queue, now, "3 1 0 2|7 5")?;
    expect(&mut queue, before, |state| {
        state.nodes.retain(|(node, _)| *node != "a".into());
        crate::vectors::add(&mut state.nodes, "a", now);
        let mut put = |name: &str, value: Text| state.meta.insert(name.into(), value);
        put("last_beat", now.into());
        put("leader_until", (now + 2_500).into());
        let first = record(now, 1, "");
        put("history", first.trim_end_matches('|').into());
        put("lateness", sums(&[(3, 1.0), (5, 2.0)]));
        put("handling", sums(&[(7, 5.0)]));
        for (ring, length) in [("m", MINUTE), ("h", HOUR), ("d", DAY)] {
            let end = now / length * length - 1;
            put(&slot(ring, end), record(end, 1, "|").into());
        }
    })
}

#[test]
fn reports_of_two_nodes_are_added_up() -> Result<()> {
    let mut queue = queue()?;
    report(&mut queue, T0, "3 1 0 2|")?;
    queue.ok("beat", T0, words!["b", "stay", "1 7 7 7 7|0 9"])?;
    queue.ok("beat", T0, words!["b", "stay", "67 4|30 1"])?;
    let all = records(&mut queue, T0, "minutes")?;
    let zeros = ["0"; 61].join(" ");
    let middle = ["0"; 29].join(" ");
    let expected = record(T0, 1, &format!("1 7 7 8 7 2 {zeros} 4|0 9 {middle} 1"));
    ensure!(all.last() == Some(&expected), "{all:?}");
    Ok(())
}

#[test]
fn the_last_record_of_each_minute_enters_the_ring() -> Result<()> {
    let mut queue = queue()?;
    report(&mut queue, T0, "3 1|")?;
    let end = T0 / MINUTE * MINUTE + MINUTE - 1;
    queue.push(end, "more", T0 + 1_000 * DAY, "")?;
    report(&mut queue, end, "3 1|")?;
    ensure!(field(&mut queue, &slot("m", end))?.is_none());
    queue.push(end + 1, "next", T0 + 1_000 * DAY, "")?;
    report(&mut queue, end + 1, "3 1|")?;
    let expected = record(end, 2, "3 2|");
    ensure!(field(&mut queue, &slot("m", end))? == Some(expected.clone()));
    ensure!(field(&mut queue, &slot("h", end))?.is_none());
    let all = records(&mut queue, end + 2, "minutes")?;
    ensure!(
        all[1..] == [expected, record(end + 2, 3, "3 3|")],
        "{all:?}"
    );
    Ok(())
}

#[test]
fn history_rings_of_hours_and_days_are_separate() -> Result<()> {
    let mut queue = queue()?;
    report(&mut queue, T0, "3 1|")?;
    let first = record(T0, 1, "3 1|");
    let next_hour = T0 / HOUR * HOUR + HOUR;
    report(&mut queue, next_hour, "3 1|")?;
    ensure!(field(&mut queue, &slot("m", T0))? == Some(first.clone()));
    ensure!(field(&mut queue, &slot("h", T0))? == Some(first));
    ensure!(field(&mut queue, &slot("d", T0))?.is_none());
    let second = record(next_hour, 1, "3 2|");
    let next_day = T0 / DAY * DAY + DAY;
    report(&mut queue, next_day, "|")?;
    ensure!(field(&mut queue, &slot("h", next_hour))? == Some(second.clone()));
    ensure!(field(&mut queue, &slot("d", T0))? == Some(second.clone()));
    let days = records(&mut queue, next_day, "days")?;
    ensure!(
        days[1..] == [second, record(next_day, 1, "3 2|")],
        "{days:?}"
    );
    Ok(())
}

#[test]
fn a_gap_has_no_records_and_the_last_record_keeps_its_slot() -> Result<()> {
    let mut queue = queue()?;
    report(&mut queue, T0, "3 1|7 5")?;
    let later = T0 + 25 * MINUTE;
    // No report has come since, so the verb returns a record that is not in the ring yet.
    for is_rolled in [false, true] {
        if is_rolled {
            report(&mut queue, later, "|")?;
        }
        let all = records(&mut queue, later, "minutes")?;
        let base = record(T0 / MINUTE * MINUTE - 1, 1, "|");
        let [last, now] = [T0, later].map(|at| record(at, 1, "3 1|7 5"));
        ensure!(all == [base, last, now], "{is_rolled}: {all:?}");
    }
    Ok(())
}

#[test]
fn records_of_an_earlier_round_of_the_ring_are_skipped() -> Result<()> {
    let mut queue = queue()?;
    for minute in 0..70 {
        report(&mut queue, T0 + minute * MINUTE, "0 1|")?;
    }
    let last = T0 + 69 * MINUTE;
    let all = records(&mut queue, last, "minutes")?;
    ensure!(all.len() == 61, "{}", all.len());
    ensure!(all[0] == record(T0 + 9 * MINUTE, 1, "0 10|"), "{}", all[0]);
    let much_later = last + 58 * MINUTE;
    let all = records(&mut queue, much_later, "minutes")?;
    ensure!(all.len() == 4 && all[0] == record(T0 + 67 * MINUTE, 1, "0 68|"));
    ensure!(records(&mut queue, last + 2 * HOUR, "minutes")?.len() == 1);
    Ok(())
}

#[test]
fn a_clock_that_goes_back_leaves_no_records_of_the_future() -> Result<()> {
    let mut queue = queue()?;
    for minute in 0..5 {
        report(&mut queue, T0 + minute * MINUTE, "0 1|")?;
    }
    let back = T0 + MINUTE + SECOND;
    report(&mut queue, back, "0 1|")?;
    ensure!(field(&mut queue, &slot("m", T0 + 3 * MINUTE))? == Some(String::new()));
    let all = records(&mut queue, back, "minutes")?;
    let expected = [record(T0, 1, "0 1|"), record(back, 1, "0 6|")];
    ensure!(all[1..] == expected, "{all:?}");
    report(&mut queue, T0 + 5 * MINUTE, "0 1|")?;
    let all = records(&mut queue, T0 + 5 * MINUTE, "minutes")?;
    let rest = [record(back, 1, "0 6|"), record(T0 + 5 * MINUTE, 1, "0 7|")];
    ensure!(all[2..] == rest, "{all:?}");
    Ok(())
}

#[test]
fn sums_stop_at_the_largest_integer_of_a_double() -> Result<()> {
    let mut queue = queue()?;
    let wide = [vec!["0"], vec!["1000000000"; BUCKETS]].concat().join(" ");
    report(&mut queue, T0, &format!("{wide}|{wide}"))?;
    set(
        &mut queue,
        "handling",
        sums(&[(0, MOST as f64), (1, f64::NAN), (2, -5.0)]),
    )?;
    report(&mut queue, T0, &format!("{wide}|0 1000000000 0 1"))?;
    let all = records(&mut queue, T0, "minutes")?;
    let twice = vec!["2000000000"; BUCKETS].join(" ");
    let expected = record(T0, 1, &format!("0 {twice}|0 {MOST}"));
    ensure!(all.last() == Some(&expected), "{all:?}");
    let meta = queue.state()?.meta;
    ensure!(meta[&"lateness".into()].0.len() == 544 && meta[&"handling".into()].0.len() == 544);
    Ok(())
}

#[test]
fn fields_that_no_script_wrote_are_skipped_and_replaced() -> Result<()> {
    let mut queue = queue()?;
    let now = T0 / HOUR * HOUR;
    report(&mut queue, now, "0 1|0 1")?;
    let before = slot("m", now - 1);
    for bad in [
        "",
        "x",
        "|",
        "1",
        "1|x|0|",
        &"9".repeat(5_000),
        &format!("{now}|'|"),
    ] {
        for name in ["history", "lateness", "handling", &before] {
            set(&mut queue, name, bad)?;
        }
        let all = records(&mut queue, now, "minutes")?;
        ensure!(all == [record(now, 1, "|")], "{bad:?}: {all:?}");
        report(&mut queue, now, "0 1|0 1")?;
        let all = records(&mut queue, now, "minutes")?;
        ensure!(
            all.last() == Some(&record(now, 1, "0 1|0 1")),
            "{bad:?}: {all:?}"
        );
    }
    set(&mut queue, "acked", "x".repeat(1_000))?;
    report(&mut queue, now, "0 1|0 1")?;
    report(&mut queue, now + MINUTE, "0 1|0 1")?;
    ensure!(
        field(&mut queue, &slot("m", now))?.is_none(),
        "a record with a counter that is no number"
    );
    let history = field(&mut queue, "history")?.context("no history")?;
    ensure!(history.len() < 350, "{history}");
    Ok(())
}

#[test]
fn nodes_that_leave_or_park_send_their_report() -> Result<()> {
    let mut queue = queue()?;
    queue.ok("beat", T0, words!["a", "stay", 2_000, "0 1|"])?;
    let state = queue.state()?;
    ensure!(state.meta[&"parked_until".into()] == (T0 + 2_000).into());
    queue.ok("beat", T0, words!["a", "leave", "0 1|"])?;
    queue.ok("beat", T0, words!["b", "first", "0 1|"])?;
    queue.ok("beat", T0, words!["b", "second", 3_000, "0 1|"])?;
    let all = records(&mut queue, T0, "days")?;
    ensure!(all.last() == Some(&record(T0, 1, "0 4|")), "{all:?}");
    Ok(())
}

#[test]
fn a_record_has_every_counter_and_state() -> Result<()> {
    let mut queue = Queue::start()?;
    crate::vectors::seed(&mut queue)?;
    for (number, name) in COUNTERS.into_iter().enumerate() {
        set(&mut queue, name, 100 + number as u64)?;
    }
    queue.push(T0, "late", T0, "")?;
    ensure!(queue.take(T0 + 1, 2, &token('m'))?.len() == 2);
    let counted = "102 102 102 103 104 105 106 107 108 109 110 111 112 113 114";
    let counted = counted.replacen("102 102", "101 103", 1);
    let expected = format!("{}|{counted}|1 0 3 1||", T0 + 1);
    let all = records(&mut queue, T0 + 1, "hours")?;
    ensure!(all == [expected.clone()], "{all:?}");
    report(&mut queue, T0 + 1, "|")?;
    let history = field(&mut queue, "history")?;
    ensure!(
        history.as_deref() == Some(expected.trim_end_matches('|')),
        "{history:?}"
    );
    Ok(())
}

#[test]
fn a_record_counts_the_messages_after_its_beat() -> Result<()> {
    let mut queue = Queue::start()?;
    crate::vectors::seed(&mut queue)?;
    queue.ok("configure", T0, words!["dead_keep_ms", 1_000])?;
    let before = queue.state()?;
    report(&mut queue, T0 + 2 * SECOND, "|")?;
    let history = field(&mut queue, "history")?.context("no history")?;
    ensure!(history.ends_with("|1 1 1 0"), "{history}");
    let mut expected = before;
    count(&mut expected, "trimmed", 1);
    ensure!(history.contains(" 1 0 0 0|"), "one trimmed: {history}");
    Ok(())
}

#[test]
fn an_absent_queue_has_no_history_and_gets_none() -> Result<()> {
    let mut queue = Queue::start()?;
    report(&mut queue, T0, "0 1|0 1")?;
    ensure!(queue.contents()?.is_empty() || queue.state()?.meta.len() <= 1);
    ensure!(records(&mut queue, T0, "minutes")?.is_empty());
    Ok(())
}
