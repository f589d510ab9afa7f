//! Measures a million messages that are due in one instant, and another queue on that server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq_bench_driver::{Dues, Reply, Request, unix_us};
use redis::Script;
use serde_json::json;

use super::Output;
use crate::peers::driver::Driver;
use crate::peers::measured::Lateness;
use crate::peers::server::Server;
use crate::peers::systems::{chosen, root};

/// How long the quiet queue is watched before the instant.
const BEFORE: Duration = Duration::from_secs(2);
/// How long the quiet queue is watched from the instant on, in seconds.
const BESIDE_S: u64 = 15;
const LIMIT: Duration = Duration::from_secs(600);

/// Pushes many messages due in one instant to one queue, and measures the lateness of another queue
/// on the same server.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many are due at once
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    messages: u64,
    /// How many messages a second the other queue has
    #[arg(long, value_name = "N", default_value_t = 100)]
    rate: u64,
    #[command(flatten)]
    output: Output,
}

#[tokio::main]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let mut server = Server::private().await?;
    server.track_script_times().await?;
    let kind = chosen(&["dueq".to_owned()])?[0];
    let (mut storm, mut quiet) = (
        Driver::start(kind.command(&server.address())?)?,
        Driver::start(kind.command(&server.address())?)?,
    );
    let open = |queue: &str| Request::Open {
        queue: queue.to_owned(),
    };
    ask(&mut storm, &open("storm")).await?;
    ask(&mut quiet, &open("quiet")).await?;

    // Pushes in parts, because the instant is chosen by how long the remaining pushes take.
    let n = arguments.messages;
    let part = in_future(&mut storm, n / 10, unix_us() / 1_000 + 86_400_000).await?;
    let at_ms = unix_us() / 1_000 + (part.seconds() * 15_000.0) as u64 + 10_000;
    ask(&mut storm, &open("storm2")).await?;
    in_future(&mut storm, n, at_ms).await?;
    ask(&mut storm, &Request::Work { concurrency: 0 }).await?;
    ask(&mut quiet, &Request::Work { concurrency: 0 }).await?;

    let wait = (at_ms * 1_000).saturating_sub(unix_us() + u64::try_from(BEFORE.as_micros())?);
    tokio::time::sleep(Duration::from_micros(wait)).await;
    let before = server.cpu_us().await?.context("INFO of a Redis")?;
    let drain = Request::Drain {
        n,
        limit_ms: u64::try_from(LIMIT.as_millis())?,
        late: false,
    };
    let (drained, late) = tokio::join!(ask(&mut storm, &drain), watch(&mut quiet, arguments.rate));
    let (drained, (alone, beside)) = (drained?, late?);
    let after = server.cpu_us().await?.context("INFO of a Redis")?;
    let drain_s = drained.to_us.saturating_sub(at_ms * 1_000) as f64 / 1e6;
    arguments.output.write(&json!({
        "storm": n,
        "drained": drained.n,
        "drain_s": drain_s,
        "quiet_rate_per_s": arguments.rate,
        "quiet_lateness_ms": beside.json(false),
        "quiet_lateness_before_ms": alone.json(false),
        "script_us": server.script_times().await?,
        "slowest_us": named(server.slowest(10).await?)?,
        "redis_core_share": (after - before) / 1e6 / (drain_s + BEFORE.as_secs_f64()),
    }))
}

/// The slowest commands, with the names of scripts instead of their hashes.
fn named(slowest: Vec<(u64, Vec<String>)>) -> Result<Vec<(u64, String)>> {
    let mut names = BTreeMap::new();
    for file in std::fs::read_dir(root().join("lua/dist"))? {
        let path = file?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        names.insert(
            Script::new(&std::fs::read_to_string(&path)?)
                .get_hash()
                .to_owned(),
            name,
        );
    }
    let name = |word: &String| names.get(word).unwrap_or(word).clone();
    Ok(slowest
        .into_iter()
        .map(|(us, words)| (us, words.iter().map(name).collect::<Vec<_>>().join(" ")))
        .collect())
}

/// Pushes messages at a steady rate to the quiet queue, before the storm and for as long as it may
/// last. Returns the lateness before and during the storm.
async fn watch(quiet: &mut Driver, per_s: u64) -> Result<(Lateness, Lateness)> {
    // They are pushed half a second ahead: the messages of the first second are due before the
    // instant.
    let (first, rest) = (per_s, per_s * BESIDE_S);
    let mut both = (Lateness::default(), Lateness::default());
    ask(
        quiet,
        &Request::Pace {
            n: first,
            per_s,
            delay_ms: 500,
        },
    )
    .await?;
    ask(
        quiet,
        &Request::Pace {
            n: rest,
            per_s,
            delay_ms: 500,
        },
    )
    .await?;
    let drain = Request::Drain {
        n: first + rest,
        limit_ms: 60_000,
        late: true,
    };
    let late_us = ask(quiet, &drain).await?.late_us;
    let (before, beside) = late_us.split_at((first as usize).min(late_us.len()));
    both.0.add(before);
    both.1.add(beside);
    Ok(both)
}

async fn ask(driver: &mut Driver, request: &Request) -> Result<Reply> {
    driver.ask(request, LIMIT).await
}

async fn in_future(driver: &mut Driver, n: u64, at_ms: u64) -> Result<Reply> {
    ask(
        driver,
        &Request::Bulk {
            n,
            batch: 0,
            due: Dues {
                at_ms,
                ..Dues::default()
            },
        },
    )
    .await
}
