//! Measures many queues on one node: cost, lateness beside a broken queue, reserves and shares.

mod beside;
pub(crate) mod node;
mod order;

use anyhow::Result;
use clap::ValueEnum;
use dueq::{Due, Message, Queue};
use dueq_bench_driver::unix_us;
use serde_json::{Value, json};

use super::Output;

/// Measures one node with many queues: its cost, a broken queue, reserves, weights, strict order.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Which measurements
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,...",
        default_value = "many,broken,reserve,shares,strict"
    )]
    only: Vec<Part>,
    /// How many queues `many` has
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    queues: usize,
    /// How many rounds of `many` and of each fault of `broken`
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// How long each measurement lasts
    #[arg(long, value_name = "S", default_value_t = 60)]
    seconds: u64,
    /// How many messages `reserve` measures
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    messages: u64,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Many,
    Broken,
    Reserve,
    Shares,
    Strict,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut result = serde_json::Map::new();
    for &part in &arguments.only {
        let (name, value) = match part {
            Part::Many => ("many", beside::many(arguments).await?),
            Part::Broken => ("broken", beside::broken(arguments).await?),
            Part::Reserve => ("reserve", order::reserve(arguments.messages).await?),
            Part::Shares => ("shares", order::shares(arguments.seconds).await?),
            Part::Strict => ("strict", order::strict(arguments.seconds).await?),
        };
        eprintln!("{name}: {value}");
        result.insert(name.to_owned(), value);
    }
    arguments.output.write(&Value::Object(result))
}

/// A message that is due in `ahead_ms`, with its due time as its payload.
fn timed(ahead_ms: u64) -> Message {
    let due_ms = unix_us() / 1_000 + ahead_ms;
    Message::new(due_ms.to_string()).due(Due::at_ms(due_ms))
}

async fn push_one(queue: &Queue, message: Message) -> Result<()> {
    for pushed in queue.push_many([message]).await {
        pushed?;
    }
    Ok(())
}

/// How late the handler of a `timed` message starts now, in microseconds.
fn late_us(payload: &[u8]) -> u64 {
    let due_ms: Option<u64> = std::str::from_utf8(payload)
        .ok()
        .and_then(|text| text.parse().ok());
    unix_us().saturating_sub(due_ms.unwrap_or(0) * 1_000)
}

fn percentiles(mut late_us: Vec<u64>) -> Value {
    late_us.sort_unstable();
    let at = |share: f64| {
        let index = (late_us.len() as f64 * share) as usize;
        let us = late_us.get(index.min(late_us.len().saturating_sub(1)));
        us.map(|&us| us as f64 / 1_000.0)
    };
    json!({ "messages": late_us.len(), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0) })
}
