//! Helpers for schedules, and what an apply declares.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::model::check_structure;
use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::{Reply, Text, words};

/// The arguments of one schedule in an apply.
pub(crate) fn every(name: &str, spec: &str) -> Vec<Text> {
    words![name, spec, "", "", "", "payload"]
}

/// A cron in UTC with these words and these listed fires.
pub(crate) fn cron(name: &str, spec: &str, fires: &[u64]) -> Vec<Text> {
    let spec = format!("zone=UTC {spec}");
    words![
        name,
        spec,
        "0 2 * * *",
        "",
        listed("2026a", 0, fires),
        "payload"
    ]
}

/// A list of fires in the form that apply and refill accept.
pub(crate) fn listed(version: &str, last: u8, fires: &[u64]) -> String {
    let fires: Vec<String> = fires.iter().map(u64::to_string).collect();
    format!("{version} {last}\n{}", fires.join(" "))
}

/// The reply to an apply: its word, the results of the schedules, and the removed names.
pub(crate) fn apply(
    queue: &mut Queue,
    now: u64,
    words: [&str; 3],
    schedules: &[Vec<Text>],
) -> Result<(String, Vec<String>, Vec<String>)> {
    let words = [words.map(Text::from).to_vec(), schedules.concat()].concat();
    let reply = queue.ok("schedule", now, words)?;
    let texts = |part: usize| -> Result<Vec<String>> {
        reply.part(part)?.list()?.iter().map(Reply::text).collect()
    };
    check(queue)?;
    Ok((reply.part(1)?.text()?, texts(2)?, texts(3)?))
}

/// Declares schedules in the set `some`. Returns their results.
pub(crate) fn declare(queue: &mut Queue, now: u64, schedules: &[Vec<Text>]) -> Result<Vec<String>> {
    let (word, replies, _) = apply(queue, now, ["some", "", ""], schedules)?;
    ensure!(word == "OK", "{word}: {replies:?}");
    Ok(replies)
}

/// A new queue with this schedule `every`.
pub(crate) fn with(spec: &str) -> Result<Queue> {
    let mut queue = Queue::start()?;
    declare(&mut queue, T0, &[every("s", spec)])?;
    Ok(queue)
}

/// A new queue with the cron `s`, its words and its listed fires.
pub(crate) fn cron_queue(spec: &str, fires: &[u64]) -> Result<Queue> {
    let mut queue = Queue::start()?;
    declare(&mut queue, T0, &[cron("s", spec, fires)])?;
    Ok(queue)
}

/// Refills the list of a cron, with the version and the last listed fire that `schedules` returns.
pub(crate) fn refill(
    queue: &mut Queue,
    now: u64,
    zone: &str,
    last: u8,
    fires: &[u64],
) -> Result<String> {
    let shown = show(queue, "s")?;
    let words = words![
        "s",
        shown.version,
        shown.last_listed,
        listed(zone, last, fires)
    ];
    let replies = queue.items("refill", now, words)?;
    check(queue)?;
    Ok(replies[0].clone())
}

/// A schedule as the verb `schedules` returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) state: String,
    pub(crate) next: u64,
    pub(crate) last: u64,
    pub(crate) since: u64,
    /// The counts of fires: made, missed, overlapped, paused.
    pub(crate) counts: [u64; 4],
    pub(crate) triggered: u64,
    pub(crate) version: String,
    pub(crate) zone_version: String,
    pub(crate) last_listed: u64,
    pub(crate) listed: u64,
}

pub(crate) fn show(queue: &mut Queue, name: &str) -> Result<Shown> {
    let reply = queue.ok("schedules", T0, words![name])?;
    let item = reply.part(2)?.part(0).context("no such schedule")?.clone();
    let number = |index: usize| -> Result<u64> { Ok(item.part(index)?.int()? as u64) };
    Ok(Shown {
        state: item.part(1)?.text()?,
        next: number(2)?,
        last: number(3)?,
        since: number(4)?,
        counts: [number(5)?, number(6)?, number(7)?, number(8)?],
        triggered: number(9)?,
        version: item.part(10)?.text()?,
        zone_version: item.part(14)?.text()?,
        last_listed: number(15)?,
        listed: number(17)?,
    })
}

/// Claims up to `count` messages. Returns their ids and the token.
pub(crate) fn claim(queue: &mut Queue, now: u64, count: u64) -> Result<(Vec<String>, Text)> {
    let token = queue.new_token();
    let reply = queue.ok("claim", now, words![count, &token, 30 * SECOND])?;
    let deliveries = reply.deliveries()?;
    check(queue)?;
    let ids = deliveries.iter().map(|[id, ..]| id.text());
    Ok((ids.collect::<Result<_>>()?, token))
}

/// Claims everything that is due. Returns the ids.
pub(crate) fn ticks(queue: &mut Queue, now: u64) -> Result<Vec<String>> {
    Ok(claim(queue, now, 1_000)?.0)
}

/// The id of a tick of the schedule `s`.
pub(crate) fn tick(nominal: u64) -> String {
    format!("s@{nominal}")
}

/// Checks the structure of the queue, and that the counts of schedules in meta equal a recount.
pub(crate) fn check(queue: &mut Queue) -> Result<()> {
    let state = queue.state()?;
    check_structure(&state, None)?;
    let mut found = BTreeMap::from([("schedules", 0), ("low_lists", 0), ("dry_lists", 0)]);
    for (field, value) in &state.meta {
        let (field, value) = (field.text(), value.text());
        let Some(name) = field.strip_prefix("schedule:") else {
            continue;
        };
        *found.entry("schedules").or_default() += 1;
        let dry = value.starts_with("dry ");
        *found.entry("dry_lists").or_default() += i64::from(dry);
        let Some(list) = state.meta.get(&format!("fires:{name}").into()) else {
            continue;
        };
        let list = list.text();
        let (head, fires) = list.split_once('\n').context("a list without a head")?;
        let low = fires.split_whitespace().count() < 256;
        let low = low && head.ends_with(" 0") && !value.starts_with("ended ");
        *found.entry("low_lists").or_default() += i64::from(low);
    }
    for (field, count) in found {
        let stored = state.meta.get(&field.into()).map(Text::text);
        let stored: i64 = stored.unwrap_or("0".to_owned()).parse()?;
        ensure!(stored == count, "{field} is {stored}, and not {count}");
    }
    Ok(())
}

#[test]
fn apply_keeps_a_schedule_whose_words_are_reordered() -> Result<()> {
    let mut queue = Queue::start()?;
    declare(
        &mut queue,
        T0,
        &[every("s", "every=1000 jitter=5 missed=all")],
    )?;
    let before = show(&mut queue, "s")?;
    let replies = declare(
        &mut queue,
        T0 + HOUR,
        &[every("s", "missed=all jitter=05  every=1000")],
    )?;
    ensure!(replies[0].starts_with("KEPT") && show(&mut queue, "s")? == before);
    for other in [
        words!["s", "every=1000 jitter=6 missed=all", "", "", "", "payload"],
        words![
            "s",
            "every=1000 jitter=6 missed=all",
            "",
            "max_attempts=2",
            "",
            "payload"
        ],
        words![
            "s",
            "every=1000 jitter=6 missed=all",
            "",
            "max_attempts=2",
            "",
            "other"
        ],
    ] {
        ensure!(declare(&mut queue, T0 + HOUR, &[other])?[0].starts_with("CHANGED"));
    }
    Ok(())
}
