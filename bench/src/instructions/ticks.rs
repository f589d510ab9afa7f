//! Counts Redis's instructions for a tick and for an ordinary message, by callgrind: a busy machine
//! does not change these figures.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use dueq_testkit::report::{Report, Violations};
use dueq_testkit::scripts::{Raw, fires};
use redis::Value;

use super::counter::Counter;

/// The number of calls that are counted together.
const CALLS: u64 = 200;
const BEGIN_MS: u64 = 1_800_000_000_000;
/// The time between two fires, and between two messages.
const STEP_MS: u64 = 1_000;
<<<<<<< HEAD
/// Size of a large claim, at most the 64 timers that one takes; and how many of these are counted.
const BATCH: usize = 60;
/// Schedules that one call declares, at most.
const DECLARE: usize = 24;
=======
/// The size of a large claim; below, how many of these are counted.
const BATCH: usize = 100;
>>>>>>> b847f9415976fc9f546e9a40f34b300920d771ae
const ROUNDS: u64 = 10;
const PAYLOAD: usize = 100;
/// The most instructions of a tick beyond those of a message.
const MOST: u64 = 100_000;

/// The instructions of one call of each kind.
#[derive(Debug, Clone, Copy)]
struct Costs {
    claim: u64,
    promote: u64,
    claim_ready: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Message,
    MessageBesideSchedule,
    Every,
    Cron,
}

/// Instructions of Redis for a tick beside those for an ordinary message, counted by callgrind. The
/// goal is at most 100,000 more for a tick.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use each VERB.lua of this folder
    #[arg(long, value_name = "DIR")]
    scripts: Option<PathBuf>,
    /// Exit with 1 if the goal is missed
    #[arg(long)]
    strict: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut counter = Counter::start(false)?;
    let mut raw = Raw::new(counter.connection()?, arguments.scripts.as_deref());
    let kinds = [
        (Kind::Message, "message"),
        (Kind::MessageBesideSchedule, "beside"),
        (Kind::Every, "every"),
        (Kind::Cron, "cron"),
    ];
    for (_, queue) in kinds {
        raw.allow_test_clock(queue)?;
    }
    for (kind, queue) in kinds {
        prepare(&mut raw, kind, queue)?;
    }
    counter.idle()?;
    let mut costs = Vec::new();
    for (kind, queue) in kinds {
        eprintln!("cost: counts {queue}");
        costs.push(count(&mut raw, &mut counter, kind, queue)?);
    }
    let mut report = Report::default();
    report.scenario("ticks");
    let above = judge(&costs[0], &[("every", costs[2]), ("cron", costs[3])]).summary();
    let is_met = above.is_none();
    let text = above.unwrap_or_else(|| "none".to_owned());
    report.goal("calls that cost more", text, "none", is_met);
    let names = [
        [
            "claim, message",
            "promote, message",
            "claim of ready, message",
        ],
        [
            "claim, message in a queue with a schedule",
            "promote, message in a queue with a schedule",
            "claim of ready, message in a queue with a schedule",
        ],
        [
            "claim, tick of every",
            "promote, timer of every",
            "claim of ready, tick of every",
        ],
        [
            "claim, tick of a cron",
            "promote, timer of a cron",
            "claim of ready, tick of a cron",
        ],
    ];
    for (names, costs) in names.iter().zip(&costs) {
        report.figure(names[0], costs.claim);
        report.figure(names[1], costs.promote);
        report.figure(names[2], costs.claim_ready);
    }
    let [message, tick] = batches(&mut raw, &mut counter)?;
    report.figure("claim of 60, a message", message);
    report.figure("claim of 60, a tick of every", tick);
    report.print(arguments.json, arguments.strict)
}

<<<<<<< HEAD
/// Instructions for each message and each tick of a claim of many.
=======
/// The instructions per message, and per tick, of a claim of a hundred.
>>>>>>> b847f9415976fc9f546e9a40f34b300920d771ae
fn batches(raw: &mut Raw, counter: &mut Counter) -> Result<[u64; 2]> {
    let payload = "x".repeat(PAYLOAD);
    let names: Vec<_> = (0..BATCH).map(|number| format!("s{number}")).collect();
    let queues = ["batch-messages", "batch-ticks"];
    for queue in queues {
        raw.allow_test_clock(queue)?;
    }
    for some in names.chunks(DECLARE) {
        let mut words = vec!["set", "", ""];
        for name in some {
            words.extend([&**name, "every=1000", "", "", "", &payload]);
        }
        raw.call("schedule", queues[1], BEGIN_MS, &words)?;
    }
    let mut costs = [0; 2];
    for round in 1..=ROUNDS {
        let now_ms = BEGIN_MS + round * STEP_MS;
        let ids: Vec<_> = names
            .iter()
            .map(|name| format!("{name}@{now_ms}"))
            .collect();
        let mut words = vec![""];
        for id in &ids {
            words.extend([&**id, "+0", &payload, ""]);
        }
        raw.call("push", queues[0], now_ms, &words)?;
        for (queue, cost) in queues.iter().zip(&mut costs) {
            counter.count()?;
            let granted = raw.claim_many(queue, now_ms, BATCH)?;
            *cost += counter.count()?;
            ensure!(granted.len() == BATCH, "{} granted", granted.len());
            for granted in &granted {
                raw.ack(queue, now_ms, granted)?;
            }
        }
    }
    Ok(costs.map(|cost| cost / (ROUNDS * BATCH as u64)))
}

fn prepare(raw: &mut Raw, kind: Kind, queue: &str) -> Result<()> {
    let payload = "x".repeat(PAYLOAD);
    let times = (1..=512).map(|number| BEGIN_MS + number * STEP_MS);
    let fires = fires(times);
    let item = match kind {
        Kind::Message => return Ok(()),
        Kind::MessageBesideSchedule => ["s", "every=3600000000", "", "", "", &payload],
        Kind::Every => ["s", "every=1000", "", "", "", &payload],
        Kind::Cron => ["s", "zone=UTC", "* * * * * *", "", &fires, &payload],
    };
    let words = [&["set", "", ""][..], &item].concat();
    let reply = raw.call("schedule", queue, BEGIN_MS, &words)?;
    ensure!(
        reply.get(1) == Some(&Value::BulkString(b"OK".into())),
        "schedule answers {reply:?}"
    );
    Ok(())
}

fn count(raw: &mut Raw, counter: &mut Counter, kind: Kind, queue: &str) -> Result<Costs> {
    let mut now_ms = BEGIN_MS;
    let payload = "x".repeat(PAYLOAD);
    let mut turn =
        |raw: &mut Raw, counter: &mut Counter, promotes: bool, calls: u64| -> Result<[u64; 2]> {
            let (mut promote, mut claim) = (0, 0);
            let (begin_ms, mut granted) = (now_ms, Vec::new());
            if matches!(kind, Kind::Message | Kind::MessageBesideSchedule) {
                for number in 1..=calls {
                    let due_ms = (begin_ms + number * STEP_MS).to_string();
                    let id = format!("s@{due_ms}");
                    raw.call("push", queue, begin_ms, &["", &id, &due_ms, &payload, ""])?;
                }
            }
            counter.count()?;
            if promotes {
                // Each promote has one due entry, so that each claim finds it on the ready list.
                for number in 1..=calls {
                    now_ms = begin_ms + number * STEP_MS;
                    counter.count()?;
                    raw.call("promote", queue, now_ms, &["100"])?;
                    promote += counter.count()?;
                    granted.extend(raw.claim(queue, now_ms)?);
                    claim += counter.count()?;
                }
            } else {
                for number in 1..=calls {
                    now_ms = begin_ms + number * STEP_MS;
                    granted.extend(raw.claim(queue, now_ms)?);
                }
                claim = counter.count()?;
            }
            ensure!(
                granted.len() as u64 == calls,
                "{} of {calls} granted",
                granted.len()
            );
            for granted in &granted {
                raw.ack(queue, now_ms, granted)?;
            }
            counter.count()?;
            Ok([promote / calls, claim / calls])
        };
    turn(raw, counter, false, 10)?; // fills caches and buffers
    turn(raw, counter, true, 2)?;
    let [_, claim] = turn(raw, counter, false, CALLS).context("claims")?;
    let [promote, claim_ready] = turn(raw, counter, true, 10).context("promotes")?;
    Ok(Costs {
        claim,
        promote,
        claim_ready,
    })
}

fn judge(message: &Costs, ticks: &[(&str, Costs)]) -> Violations {
    let mut violations = Violations::default();
    for (kind, tick) in ticks {
        let both = [
            ("claim", tick.claim, message.claim),
            (
                "promote and claim",
                tick.promote + tick.claim_ready,
                message.promote + message.claim_ready,
            ),
        ];
        for (what, tick, message) in both {
            if tick > message + MOST {
                violations.add(format!(
                    "{what} of a tick of {kind} costs {tick} instructions, a message {message}: above {MOST} more"
                ));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_may_cost_a_hundred_thousand_more() {
        let costs = |claim| Costs {
            claim,
            promote: 30_000,
            claim_ready: 50_000,
        };
        let message = costs(60_000);
        assert_eq!(
            judge(&message, &[("every", costs(160_000))]).summary(),
            None
        );
        let found = judge(&message, &[("every", costs(160_001))]);
        assert!(found.texts()[0].starts_with("claim of a tick of every costs 160001"));
    }
}
