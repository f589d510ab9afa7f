//! A device is offline after 30 seconds of silence.
//!
//! Every heartbeat pushes the same id, due in 30 seconds. `OnConflict::Reschedule` moves the one
//! scheduled message. One of the two nodes receives it only after the heartbeats stop.
//!
//! `scripts/with-server cargo run --example heartbeat -- --speed 20`

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Parser;
use dueq::outcomes::PushOutcome;
use dueq::{Client, Delivery, OnConflict, Queue};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

const RHYTHM: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

/// Reports devices that were silent for 30 seconds. REDIS_URL names the server.
#[derive(Parser)]
struct Args {
    /// How many times faster than real time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    speed: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let speed = Args::parse().speed;
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1/".to_owned());
    let name = format!("example-heartbeat-{}", std::process::id());
    // Two nodes share only Redis; here they also share a process.
    let nodes = [
        Client::connect(&url).await?.queue(&name)?,
        Client::connect(&url).await?.queue(&name)?,
    ];
    let result = tokio::select! {
        result = story(&nodes, speed) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    nodes[0].delete().await?;
    result
}

async fn story([a, b]: &[Queue; 2], speed: u32) -> anyhow::Result<()> {
    let (report, mut reports) = mpsc::unbounded_channel();
    let offline = move |delivery: Delivery| {
        println!("{} is offline", delivery.id());
        let _ = report.send((delivery.id().into_owned(), Instant::now()));
        async {}
    };
    let workers = [
        a.worker().spawn(offline.clone())?,
        b.worker().spawn(offline)?,
    ];

    let (mut lives, mut offline) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        for (node, device) in [(a, "door"), (b, "lamp"), (a, "oven")] {
            beat(node, device, speed, &mut lives).await?;
        }
        sleep(RHYTHM / speed).await;
    }
    // Only the door sends heartbeats until the lamp is reported; then the lamp returns for a while.
    while !offline.iter().any(|(device, _)| device == "lamp") {
        beat(a, "door", speed, &mut lives).await?;
        if let Ok(report) = timeout(RHYTHM / speed, reports.recv()).await {
            offline.push(report.context("the workers are gone")?);
        }
    }
    for _ in 0..3 {
        beat(a, "lamp", speed, &mut lives).await?;
        sleep(RHYTHM / speed).await;
    }
    while offline.len() < lives.len() {
        offline.push(reports.recv().await.context("the workers are gone")?);
    }
    for worker in workers {
        worker.shutdown().await?;
    }

    let more = reports.try_recv();
    ensure!(
        more.is_err(),
        "a device was reported once more than it came online"
    );
    for (device, last_beat) in &lives {
        let report = offline
            .iter()
            .position(|(name, _)| name == device)
            .context("one report was of another device")?;
        let silence = offline.remove(report).1.duration_since(*last_beat);
        ensure!(
            silence >= SILENCE / speed,
            "{device} was reported after {silence:?}"
        );
        println!("{device} was reported after {silence:.3?} of silence");
    }
    println!(
        "each device went offline once per time online, and never before {:?} of silence",
        SILENCE / speed
    );
    Ok(())
}

/// Sends a heartbeat through either node. `lives` records the last heartbeat of each time online.
async fn beat(
    node: &Queue,
    device: &'static str,
    speed: u32,
    lives: &mut Vec<(&str, Instant)>,
) -> anyhow::Result<()> {
    let now = Instant::now();
    let offline = node.push("").id(device).delay(SILENCE / speed);
    match offline.on_conflict(OnConflict::Reschedule).await?.outcome() {
        PushOutcome::Created => {
            println!("{device} is online");
            lives.push((device, now));
        }
        PushOutcome::Moved => {
            let life = lives.iter_mut().rfind(|life| life.0 == device);
            life.context("it was online")?.1 = now;
        }
        // A worker is reporting the device now; its next heartbeat brings it back.
        PushOutcome::Exists(_) => {}
        other => bail!("a heartbeat of {device} was ignored: {other:?}"),
    }
    Ok(())
}
