//! Measures the parts ("legs") of the time between a due time and the start of the handler.
//!
//! The nodes' script calls divide this time: **wheel**, from the due time until a node asks the
//! server for due messages; **promote**, that call, if another call granted the message; **wake-up
//! list**, from its answer until the granting call was made; **claim**, that call; and
//! **dispatch**, from its answer until the handler starts.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dueq::harness::{self, Observer, Reply};
use dueq::outcomes::PushOutcome;
use dueq::{Applied, Client, Delivery, Due, Message, Queue};
use dueq_bench_driver::unix_us;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Output;
use crate::peers::measured::Lateness;
use crate::peers::server::Server;

/// How long the nodes settle in; below, how far ahead messages are pushed, and the interval of
/// pushes.
const SETTLING: Duration = Duration::from_secs(3);
const AHEAD_US: u64 = 1_000_000;
const STEP_US: u64 = 100_000;
/// How long to wait after the last due time.
const PATIENCE: Duration = Duration::from_secs(30);
const ID: &str = "leg-";

/// Measures the parts of the time between a due time and the start of the handler: wheel, promote,
/// wake-up list, claim, dispatch.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many messages a second
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "10,1000", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    rate: Vec<u64>,
    /// How many nodes; as many messages are due together, so that each has one to handle
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2", value_parser = clap::value_parser!(u64).range(1..=50))]
    nodes: Vec<u64>,
    /// How long each is measured, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    #[command(flatten)]
    output: Output,
}

/// A promote or claim call of a node, with its times by the machine's clock.
#[derive(Clone, Copy, Default)]
struct Call {
    from_us: u64,
    to_us: u64,
}

#[derive(Default)]
struct Calls {
    under_way: HashMap<u64, u64>,
    answered: Vec<Call>,
    /// For each id: the call that granted it.
    granted: HashMap<Vec<u8>, Call>,
}

static CALLS: LazyLock<Mutex<Calls>> = LazyLock::new(Mutex::default);

fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Watch;

impl Observer for Watch {
    fn invoke(&self, call: u64, verb: &'static str, _: &str, args: &[&[u8]]) {
        // A claim of zero messages only pushes wake-up tokens, so it is left out.
        if verb == "promote" || verb == "claim" && args.get(1) != Some(&b"0".as_slice()) {
            calls().under_way.insert(call, unix_us());
        }
    }

    fn done(&self, call: u64, result: Result<&Reply, (String, Applied)>) {
        let to_us = unix_us();
        let mut calls = calls();
        let Some(from_us) = calls.under_way.remove(&call) else {
            return;
        };
        let Ok(reply) = result else { return };
        let answered = Call { from_us, to_us };
        calls.answered.push(answered);
        ids(reply, &mut |id| {
            calls.granted.insert(id.to_vec(), answered);
        });
    }
}

/// Calls `found` with each id in the answer to a claim.
fn ids(reply: &Reply, found: &mut impl FnMut(&[u8])) {
    match reply {
        Reply::Bytes(bytes) if bytes.starts_with(ID.as_bytes()) => found(bytes),
        Reply::List(parts) => parts.iter().for_each(|part| ids(part, found)),
        _ => {}
    }
}

struct Handled {
    id: Vec<u8>,
    due_us: u64,
    started_us: u64,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    if !harness::observe(Watch) {
        bail!("another observer watches the script calls");
    }
    let mut settings = Vec::new();
    for &nodes in &arguments.nodes {
        for &rate in &arguments.rate {
            settings.push(measure(nodes, rate, arguments.seconds).await?);
        }
    }
    arguments
        .output
        .write(&json!({ "curve": "legs", "settings": settings }))
}

async fn measure(nodes: u64, rate: u64, seconds: u64) -> Result<Value> {
    let server = Server::private().await?;
    let (stop, handled) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
    let mut workers = Vec::new();
    for _ in 0..nodes {
        // A separate client for each node, so that each has its own connections, like a process.
        let queue = Client::connect(&server.address()).await?.queue("legs")?;
        let (stop, handled) = (stop.clone(), Arc::clone(&handled));
        let handler = move |delivery: Delivery| {
            let (id, due_us, started_us) = (
                delivery.id_bytes().to_vec(),
                delivery.due_ms() * 1_000,
                unix_us(),
            );
            handled
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Handled {
                    id,
                    due_us,
                    started_us,
                });
            std::future::ready(())
        };
        workers.push(tokio::spawn(
            queue
                .worker()
                .run(handler, async move { stop.cancelled().await }),
        ));
    }
    let queue = Client::connect(&server.address()).await?.queue("legs")?;
    tokio::time::sleep(SETTLING).await;
    *calls() = Calls::default();
    let pushed = push(&queue, nodes, rate, seconds).await?;
    let all = async {
        while handled.lock().unwrap_or_else(PoisonError::into_inner).len() < pushed {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .context("not all was handled")?;
    stop.cancel();
    for worker in workers {
        worker.await??;
    }
    let handled = std::mem::take(&mut *handled.lock().unwrap_or_else(PoisonError::into_inner));
    let mut setting = legs(&handled, std::mem::take(&mut *calls()))?;
    (setting["nodes"], setting["rate_per_s"]) = (json!(nodes), json!(rate));
    eprintln!("{setting}");
    Ok(setting)
}

/// Pushes messages that become due within `seconds`, about a second ahead. In each instant as many
/// are due as there are nodes. Returns the number of messages.
async fn push(queue: &Queue, nodes: u64, rate: u64, seconds: u64) -> Result<usize> {
    let (apart_us, from_us) = (1_000_000 * nodes / rate, unix_us() + AHEAD_US);
    let instants = (seconds * 1_000_000 / apart_us).max(1);
    let mut next = 0;
    while next < instants {
        let until_us = unix_us() + AHEAD_US + STEP_US;
        let mut messages = Vec::new();
        while next < instants && from_us + next * apart_us < until_us {
            let due_ms = (from_us + next * apart_us) / 1_000;
            let one = |node| {
                Message::new([b'x'; 100])
                    .id(format!("{ID}{next:07}-{node}"))
                    .due(Due::at_ms(due_ms))
            };
            messages.extend((0..nodes).map(one));
            next += 1;
        }
        for pushed in queue.push_many(messages).await {
            if pushed? != PushOutcome::Created {
                bail!("an id was there already");
            }
        }
        tokio::time::sleep(Duration::from_micros(
            (until_us - AHEAD_US).saturating_sub(unix_us()),
        ))
        .await;
    }
    Ok((instants * nodes) as usize)
}

/// The legs of all deliveries.
fn legs(handled: &[Handled], mut calls: Calls) -> Result<Value> {
    calls.answered.sort_by_key(|call| call.from_us);
    let (mut late, mut all) = (Vec::new(), HashMap::<&str, Vec<i64>>::new());
    for Handled {
        id,
        due_us,
        started_us,
    } in handled
    {
        let claim = *calls
            .granted
            .get(id)
            .context("a delivery that no claim granted")?;
        let first = calls
            .answered
            .partition_point(|call| call.from_us < *due_us);
        // The server reads its clock during the call: so a call that was made just before the due
        // time may grant the message.
        let first = calls
            .answered
            .get(first)
            .copied()
            .filter(|first| first.from_us < claim.from_us)
            .unwrap_or(claim);
        let mut leg = |name, from_us: u64, to_us: u64| {
            all.entry(name)
                .or_default()
                .push(to_us.cast_signed() - from_us.cast_signed());
        };
        leg("wheel", *due_us, first.from_us);
        if first.from_us != claim.from_us {
            leg("promote", first.from_us, first.to_us);
            leg("wake", first.to_us, claim.from_us);
        }
        leg("claim", claim.from_us, claim.to_us);
        leg("dispatch", claim.to_us, *started_us);
        late.push(started_us.cast_signed() - due_us.cast_signed());
    }
    let spread = |us: &[i64]| {
        let mut spread = Lateness::default();
        spread.add(us);
        spread.json(false)
    };
    let legs: serde_json::Map<_, _> = all
        .iter()
        .map(|(name, us)| ((*name).to_owned(), spread(us)))
        .collect();
    Ok(json!({ "late_ms": spread(&late), "legs_ms": legs }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_begin_and_end_with_the_script_calls() {
        let call = |from_us, to_us| Call { from_us, to_us };
        let mut calls = Calls {
            answered: vec![call(5_000, 5_100), call(1_200, 1_500), call(900, 950)],
            ..Calls::default()
        };
        calls.granted.insert(b"leg-a".to_vec(), call(1_200, 1_500));
        calls.granted.insert(b"leg-b".to_vec(), call(5_000, 5_100));
        let handled = |id: &str, started_us| Handled {
            id: id.into(),
            due_us: 1_000,
            started_us,
        };
        let cut = legs(&[handled("leg-a", 1_530), handled("leg-b", 5_150)], calls).expect("legs");
        let max = |leg: &str| cut["legs_ms"][leg]["max"].as_f64();
        assert_eq!(
            (max("wheel"), max("promote"), max("wake")),
            (Some(0.2), Some(0.3), Some(3.5))
        );
        assert_eq!((max("claim"), max("dispatch")), (Some(0.3), Some(0.05)));
        assert_eq!(
            (
                cut["legs_ms"]["promote"]["n"].as_u64(),
                cut["late_ms"]["n"].as_u64()
            ),
            (Some(1), Some(2))
        );
        assert_eq!(cut["late_ms"]["max"].as_f64(), Some(4.15));
    }

    #[test]
    fn ids_are_found_anywhere_in_a_reply() {
        let bytes = |text: &str| Reply::Bytes(text.into());
        let reply = Reply::List(vec![
            Reply::Int(1),
            Reply::List(vec![bytes("leg-1"), bytes("payload")]),
            bytes("leg-2"),
        ]);
        let mut found = Vec::new();
        ids(&reply, &mut |id| found.push(id.to_vec()));
        assert_eq!(found, [b"leg-1", b"leg-2"]);
    }
}
