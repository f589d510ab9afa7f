//! Limits of a script's cost: a call for 256 messages of 100 B may take 5 ms of Redis's time on a
//! quiet machine. Longer payloads may add twice the time of a script that only reads and returns
//! them. No script reads a payload that it does not return.
//!
//! Machines differ, so "5 ms" is measured: it is this server's time for 10,000 HSETs of 100 B in a
//! script.

use anyhow::{Context, Result, ensure};

use crate::queue::{HOUR, Queue, T0, token};
use crate::reply::{Reply, Text, words};

/// The largest batch that a client should send.
const MANY: u64 = 256;
const MEBIBYTE: usize = 1_048_576;
fn ids(count: u64) -> Vec<Text> {
    (0..count)
        .map(|number| format!("{number:04}").into())
        .collect()
}

fn each(count: u64, item: impl Fn(Text) -> Vec<Text>) -> Vec<Text> {
    ids(count).into_iter().flat_map(item).collect()
}

/// The microseconds that Redis has spent in scripts.
pub(crate) fn script_us(queue: &mut Queue, command: &str) -> Result<u64> {
    let info = queue.command(words!["INFO", "commandstats"])?.text()?;
    let line = info
        .lines()
        .find(|line| line.starts_with(&format!("cmdstat_{command}:")));
    let us = line.and_then(|line| line.split("usec=").nth(1)?.split(',').next()?.parse().ok());
    Ok(us.unwrap_or(0))
}

/// How many microseconds this server needs for the work that takes 5 ms on a quiet machine.
pub(crate) fn five_ms(queue: &mut Queue) -> Result<u64> {
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
pub(crate) fn processor_us(queue: &mut Queue) -> Result<u64> {
    let info = queue.command(words!["INFO", "cpu"])?.text()?;
    let seconds = |field: &str| -> Result<f64> {
        let line = info.lines().find_map(|line| line.strip_prefix(field));
        Ok(line.context("a field of INFO cpu")?.trim().parse()?)
    };
    let used = seconds("used_cpu_user:")? + seconds("used_cpu_sys:")?;
    Ok((used * 1e6) as u64)
}

/// How many microseconds of processor time this server needs for that work.
pub(crate) fn five_ms_of_processor(queue: &mut Queue) -> Result<u64> {
    let before = processor_us(queue)?;
    five_ms(queue)?;
    Ok(processor_us(queue)? - before)
}

/// How many microseconds a script takes that only reads and returns these payloads.
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

/// Tests several orders of short and long payloads.
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

const STEPS: usize = 40;

/// Leases this many messages with claims of 1,000 ids each. The ids have this many bytes.
fn leased(queue: &mut Queue, count: u64, bytes: usize) -> Result<()> {
    for first in (0..count).step_by(1_000) {
        let ids = (first..first + 1_000).map(|number| format!("{number:0bytes$}"));
        let items = ids.flat_map(|id| words![id, T0, "", ""]);
        queue.ok("push", T0, words![""].into_iter().chain(items).collect())?;
        let token = queue.new_token();
        queue.ok("claim", T0, words![1_000, token, HOUR])?;
    }
    Ok(())
}

/// The cheapest of many steps counts, because other processes only add time.
#[test]
fn a_step_of_an_audit_beside_long_claims_takes_at_most_5_ms() -> Result<()> {
    for (count, bytes) in [(3_000, 200), (30_000, 20), (30_000, 100)] {
        let mut queue = Queue::start()?;
        leased(&mut queue, count, bytes)?;
        for (part, limit) in [("messages", 250), ("claims", 250)] {
            let (mut least, mut cursor) = (f64::INFINITY, Text::from("0"));
            for _ in 0..STEPS {
                let limit_us = five_ms(&mut queue)?;
                let before = script_us(&mut queue, "evalsha")?;
                let reply = queue.ok("audit", T0, words![part, &cursor, limit, ""])?;
                let us = script_us(&mut queue, "evalsha")? - before;
                least = least.min(us as f64 / limit_us as f64);
                ensure!(reply.part(3)?.list()?.is_empty(), "{reply:?}");
                cursor = reply.part(1)?.bytes()?.clone();
                if least <= 1.0 {
                    break;
                }
            }
            println!("{count} ids of {bytes} B, {part} {limit}: {least:.2} of 5 ms");
            // A step of 250 entries took 4.8 ms when it read the lists several times. Other
            // programs add time.
            ensure!(
                least <= 2.0,
                "{count} ids of {bytes} B, {part} {limit}: {least:.2}"
            );
        }
    }
    Ok(())
}
