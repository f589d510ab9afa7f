//! Limits of a script's cost. 256 messages of 100 B may take 5 ms of Redis's time on a quiet
//! machine.
//! Longer payloads may add twice the time of a script that only reads and returns them. No script
//! reads a payload that it does not return.
//!
//! Machines differ, so the tests measure the 5 ms: this server's time for 10,000 HSETs of 100 B in
//! a script.

use anyhow::{Context, Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};

/// The largest batch that a client should send.
const MANY: u64 = 256;
const MEBIBYTE: usize = 1_048_576;
/// A test measures a call until its fastest run is within the limit, at most this often.
/// Other processes only add time, so the fastest run is the closest to the script's cost.
pub(super) const ROUNDS: usize = 40;

fn ids(count: u64) -> Vec<Text> {
    (0..count)
        .map(|number| format!("{number:04}").into())
        .collect()
}

fn each(count: u64, item: impl Fn(Text) -> Vec<Text>) -> Vec<Text> {
    ids(count).into_iter().flat_map(item).collect()
}

/// The microseconds that Redis has spent in scripts.
pub(super) fn script_us(queue: &mut Queue, command: &str) -> Result<u64> {
    let info = queue.command(words!["INFO", "commandstats"])?.text()?;
    let line = info
        .lines()
        .find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    let us = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next()?.parse().ok());
    Ok(us.unwrap_or(0))
}

/// The microseconds that this server needs for 5 ms of a quiet machine's work.
pub(super) fn five_ms(queue: &mut Queue) -> Result<u64> {
    let script = "for i = 1, 10000 do redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end";
    let before = script_us(queue, "eval")?;
    queue.command(words![
        "EVAL",
        script,
        1,
        "calibration",
        "field",
        "x".repeat(100)
    ])?;
    let us = script_us(queue, "eval")? - before;
    queue.command(words!["DEL", "calibration"])?;
    Ok(us)
}

/// The microseconds of processor time that the server has used. A busy machine makes a call last
/// longer, but use little more of it.
pub(super) fn processor_us(queue: &mut Queue) -> Result<u64> {
    let info = queue.command(words!["INFO", "cpu"])?.text()?;
    let seconds = |field: &str| -> Result<f64> {
        let line = info.lines().find_map(|line| line.strip_prefix(field));
        Ok(line.context("a field of INFO cpu")?.trim().parse()?)
    };
    let used = seconds("used_cpu_user:")? + seconds("used_cpu_sys:")?;
    Ok((used * 1e6) as u64)
}

/// As `five_ms`, in processor time.
pub(super) fn five_ms_of_processor(queue: &mut Queue) -> Result<u64> {
    let before = processor_us(queue)?;
    five_ms(queue)?;
    Ok(processor_us(queue)? - before)
}

/// The microseconds of one run of this call after `prepare`.
fn cost(
    queue: &mut Queue,
    prepare: &dyn Fn(&mut Queue) -> Result<()>,
    (verb, words): (&str, Vec<Text>),
) -> Result<u64> {
    queue.empty()?;
    prepare(queue)?;
    let before = script_us(queue, "evalsha")?;
    queue.ok(verb, T0, words)?;
    Ok(script_us(queue, "evalsha")? - before)
}

fn pushed(queue: &mut Queue, due: u64) -> Result<()> {
    for some in ids(1_024).chunks(256) {
        let items = some
            .iter()
            .flat_map(|id| words![id, due, "x".repeat(100), ""])
            .collect();
        queue.ok("push", T0, [words![""], items].concat())?;
    }
    Ok(())
}

fn ready(queue: &mut Queue) -> Result<()> {
    pushed(queue, T0)?;
    queue.ok("promote", T0, words![1_000]).map(drop)
}

fn leased(queue: &mut Queue) -> Result<()> {
    pushed(queue, T0)?;
    queue
        .ok("claim", T0, words![MANY, token('a'), 30_000])
        .map(drop)
}

fn dead(queue: &mut Queue) -> Result<()> {
    leased(queue)?;
    queue
        .ok("bury", T0, each(MANY, |id| words![id, token('a'), "why"]))
        .map(drop)
}

fn pushed_with(queue: &mut Queue, due: u64, options: &str) -> Result<()> {
    let words = each(MANY, |id| words![id, due, "x".repeat(100), options]);
    queue
        .ok("push", due, [words![""], words].concat())
        .map(drop)
}

/// More messages have expired than a claim looks at.
fn expired(queue: &mut Queue) -> Result<()> {
    pushed_with(queue, T0 - SECOND, "expires=+1")?;
    ready(queue)
}

fn limited(queue: &mut Queue) -> Result<()> {
    let limits = words!["rate", "1000000/1000/1000000", "max_leased", 1_000];
    queue.ok("configure", T0, limits)?;
    pushed_with(queue, T0, "cost=3 expires=+1000")
}

/// The microseconds of a script that only returns these payloads.
fn returning(queue: &mut Queue, ids: Vec<&Text>) -> Result<u64> {
    if ids.is_empty() {
        return Ok(0);
    }
    let script = "return redis.call('HMGET', KEYS[1], unpack(ARGV))";
    let ids: Vec<Text> = ids.into_iter().cloned().collect();
    let before = script_us(queue, "eval")?;
    queue.command([words!["EVAL", script, 1, "dueq:{q}:messages"], ids].concat())?;
    Ok(script_us(queue, "eval")? - before)
}

fn length_of(payload: &Reply) -> usize {
    payload.bytes().map_or(0, |bytes| bytes.0.len())
}

type Prepare = fn(&mut Queue) -> Result<()>;

#[test]
fn no_call_of_256_small_messages_takes_5_ms() -> Result<()> {
    let far: Prepare = |queue| pushed(queue, T0 + HOUR);
    let held = |more: &'static [&'static str]| {
        each(MANY, move |id| {
            words![id, token('a')]
                .into_iter()
                .chain(more.iter().map(|word| Text::from(*word)))
                .collect()
        })
    };
    let push = |option: &str| {
        [
            words![""],
            each(MANY, |id| words![id, "+5", "x".repeat(100), option]),
        ]
        .concat()
    };
    // Every second ready id: the entries between them stay.
    let second = || ids(2 * MANY).into_iter().step_by(2);
    let calls: Vec<(&str, Prepare, Vec<Text>)> = vec![
        ("push", |_| Ok(()), push("")),
        ("push", far, push("")),
        ("upsert", ready, push("on_conflict=reschedule")),
        ("upsert", far, push("on_conflict=replace max_attempts=3")),
        ("promote", |queue| pushed(queue, T0), words![MANY]),
        (
            "claim",
            |queue| pushed(queue, T0),
            words![MANY, token('b'), 30_000],
        ),
        ("claim", ready, words![MANY, token('b'), 30_000]),
        (
            "ack",
            leased,
            [words![token('a'), MANY], ids(MANY)].concat(),
        ),
        ("again", leased, held(&["+5"])),
        ("retry", leased, held(&["5", "error"])),
        ("release", leased, held(&[])),
        ("bury", leased, held(&["why"])),
        ("snooze", leased, held(&["+5"])),
        ("throttle", leased, held(&["5"])),
        ("claim", expired, words![MANY, token('b'), 30_000]),
        ("claim", limited, words![MANY, token('b'), 30_000]),
        ("extend", leased, held(&["60000"])),
        ("cancel", far, [words![""], ids(MANY)].concat()),
        ("cancel", ready, [words![""], second().collect()].concat()),
        ("reschedule", far, each(MANY, |id| words![id, "+5", ""])),
        (
            "reschedule",
            ready,
            second().flat_map(|id| words![id, "+5", ""]).collect(),
        ),
        ("run_now", far, ids(MANY)),
        ("requeue", dead, [words!["ids"], ids(MANY)].concat()),
        ("requeue", dead, words!["oldest", MANY, ""]),
        ("purge", far, words!["scheduled", MANY]),
        ("purge", ready, words!["ready", MANY]),
        ("peek", far, words!["scheduled", "", MANY]),
    ];
    let mut queue = Queue::start()?;
    for (number, (verb, prepare, words)) in calls.into_iter().enumerate() {
        let (mut call_us, mut limit_us) = (u64::MAX, u64::MAX);
        for _ in 0..ROUNDS {
            limit_us = limit_us.min(five_ms(&mut queue)?);
            call_us = call_us.min(cost(&mut queue, &prepare, (verb, words.clone()))?);
            if call_us <= limit_us {
                break;
            }
        }
        println!(
            "{verb} ({number}): {:.2} of 5 ms",
            call_us as f64 / limit_us as f64
        );
        ensure!(
            call_us <= limit_us,
            "{verb} ({number}) takes {call_us} us; the limit here is {limit_us} us"
        );
    }
    Ok(())
}

/// Covers several orders of short and long payloads.
#[test]
fn payloads_cost_only_if_they_are_stored_or_returned() -> Result<()> {
    type Length = fn(u64) -> usize;
    let orders: [(&str, Length); 4] = [
        (
            "short ones first",
            |number| if number < 4 { 10 } else { MEBIBYTE },
        ),
        (
            "long ones first",
            |number| if number < 60 { MEBIBYTE } else { 10 },
        ),
        (
            "in turn",
            |number| if number % 2 == 0 { 10 } else { MEBIBYTE },
        ),
        ("one far larger than all others", |number| {
            if number == 30 { 16 * MEBIBYTE } else { 10 }
        }),
    ];
    for (order, length) in orders {
        let mut queue = Queue::start()?;
        queue.ok(
            "configure",
            T0,
            words!["max_payload_bytes", 16 * MEBIBYTE as u64],
        )?;
        for number in 0..64 {
            queue.push(
                T0,
                &format!("{number:04}"),
                T0 + number,
                &"x".repeat(length(number)),
            )?;
        }
        let memory = |queue: &mut Queue, field: &str| -> Result<i64> {
            let info = queue.command(words!["INFO", "memory"])?.text()?;
            let line = info
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{field}:"))?.trim().parse().ok());
            line.with_context(|| format!("no {field}"))
        };
        let push = [words![""], each(64, |id| words![id, "+0", "y", ""])].concat();
        let claim = |letter| words![MANY, token(letter), 30_000];
        for (verb, calls) in [
            ("push", vec![push; 12]),
            ("claim", ('a'..='l').map(claim).collect()),
        ] {
            let mut best = f64::INFINITY;
            for words in calls {
                let limit = five_ms(&mut queue)?;
                let held = memory(&mut queue, "used_memory")?;
                let gap = memory(&mut queue, "used_memory_peak")? - held;
                let before = script_us(&mut queue, "evalsha")?;
                let reply = queue.ok(verb, T0 + 100, words)?;
                let us = script_us(&mut queue, "evalsha")? - before;
                let granted = if verb == "claim" {
                    reply.deliveries()?
                } else {
                    Vec::new()
                };
                if verb == "claim" && granted.is_empty() {
                    break;
                }
                let returned: usize = granted
                    .iter()
                    .map(|[_, payload, ..]| length_of(payload))
                    .sum();
                // A returned payload is in memory several times: Lua's string, the reply, the
                // connection's buffer.
                let room = gap.max(4 * returned as i64 + 2 * MEBIBYTE as i64);
                let peak = memory(&mut queue, "used_memory_peak")? - held;
                ensure!(
                    peak <= room,
                    "{order}: {verb} took {peak} B to return {returned} B"
                );
                let floor = returning(
                    &mut queue,
                    granted
                        .iter()
                        .map(|[id, ..]| id.bytes())
                        .collect::<Result<_>>()?,
                )?;
                best = best.min(us as f64 / (limit + 2 * floor) as f64);
                if best <= 1.0 {
                    break;
                }
            }
            println!("{order}: {verb}: {best:.2} of its limit");
            ensure!(best <= 1.0, "{order}: {verb} takes {best:.2} of its limit");
        }
    }
    Ok(())
}
