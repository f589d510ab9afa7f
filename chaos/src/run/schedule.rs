//! The order and times of the faults: decided by the seed, lane by lane.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tokio::time::Instant;

use super::stage::Stage;
use crate::faults::{self, Kind, Lane};

/// Before any clock fault: a step that takes effect shows that the shim works.
const PROBE_MS: i64 = 3_600_000;
/// With `--messages` a run lasts at most so many times its duration.
const LONGEST: u32 = 3;

/// The requested faults that are possible here, and the others.
pub async fn possible(stage: &Stage) -> Result<(Vec<Kind>, Vec<String>)> {
    let all: &[Kind] = clap::ValueEnum::value_variants();
    let mut kinds = stage.options.faults.clone().unwrap_or_else(|| all.to_vec());
    let mut left_out = Vec::new();
    if stage.options.no_faults {
        return Ok((Vec::new(), left_out));
    }
    let before = stage.store().time_ms().await?;
    stage.store().shim.set_clock(PROBE_MS)?;
    let stepped = stage.store().time_ms().await? - before > PROBE_MS / 2;
    stage.store().shim.set_clock(0)?;
    if !stepped {
        kinds.retain(|kind| !matches!(kind, Kind::ClockForward | Kind::ClockBack | Kind::DiskFull));
        left_out.push(
            "clock_forward, clock_back, disk_full: this server does not take the preloaded shim"
                .to_owned(),
        );
    }
    if stage.file_limit < 11_000 {
        left_out.push(format!(
            "idle_connections: fewer than 10000, as {} open files are permitted",
            stage.file_limit
        ));
    }
    left_out
        .iter()
        .for_each(|what| stage.log.say(&format!("left out: {what}")));
    Ok((kinds, left_out))
}

/// Injects faults for the duration of the run, or until enough messages were pushed. Returns the
/// number of pushed messages.
pub async fn disturb(stage: &Arc<Stage>, kinds: Vec<Kind>) -> u64 {
    let begun = Instant::now();
    let duration = Duration::from_secs(stage.options.duration);
    let (enough, is_enough) = tokio::sync::watch::channel(false);
    let follow = |lane: Lane| {
        let kinds: Vec<_> = kinds
            .iter()
            .copied()
            .filter(|kind| kind.lane() == lane)
            .collect();
        let rng =
            Rng::with_seed(stage.options.seed.wrapping_mul(0x9e37_79b9) ^ (lane as u64) << 32);
        follow(stage, kinds, rng, begun + duration, is_enough.clone())
    };
    let count = async {
        let pushed = count(stage, begun, duration).await;
        enough.send_replace(true);
        pushed
    };
    let lanes = [Lane::Server, Lane::Processes, Lane::Network, Lane::Loads].map(follow);
    let [server, processes, network, loads] = lanes;
    tokio::join!(count, server, processes, network, loads).0
}

/// Waits until the run is long enough and enough messages were pushed; returns that number.
async fn count(stage: &Stage, begun: Instant, duration: Duration) -> u64 {
    let mut known = vec![(None, 0_u64); stage.queues().len()];
    let (mut pushed, mut said) = (0_u64, begun);
    loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        for (queue, (incarnation, last)) in stage.queues().iter().zip(&mut known) {
            let Ok((now_born, now)) = stage.store().born_and_pushed(queue.name).await else {
                continue;
            };
            // The counter restarts in an emptied store, and goes back where the last writes are
            // lost.
            pushed += if now_born == *incarnation {
                now.saturating_sub(*last)
            } else {
                now
            };
            (*incarnation, *last) = (now_born, now);
        }
        let elapsed = begun.elapsed();
        if said.elapsed() > Duration::from_secs(10) {
            said = Instant::now();
            stage.log.say(&format!("{pushed} messages pushed"));
        }
        let many = stage
            .options
            .messages
            .is_none_or(|messages| pushed >= messages);
        if elapsed >= duration && (many || elapsed >= duration * LONGEST) {
            if !many {
                stage
                    .log
                    .wrong(format!("only {pushed} messages were pushed in {elapsed:?}"));
            }
            break;
        }
    }
    pushed
}

/// One fault after the other, each kind once before any kind repeats. Starts no fault that would
/// last beyond the end.
async fn follow(
    stage: &Arc<Stage>,
    kinds: Vec<Kind>,
    mut rng: Rng,
    end: Instant,
    mut is_enough: tokio::sync::watch::Receiver<bool>,
) {
    if kinds.is_empty() {
        return;
    }
    let mut deck: Vec<Kind> = Vec::new();
    let long = stage.options.duration >= 300;
    loop {
        let pause_ms = if long {
            rng.u64(500..4_000)
        } else {
            rng.u64(100..800)
        };
        tokio::select! {
            _ = is_enough.wait_for(|enough| *enough) => return,
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
        }
        if deck.is_empty() {
            deck.clone_from(&kinds);
            rng.shuffle(&mut deck);
        }
        // Beyond the planned end the run only waits for the last messages, for an unknown time.
        let left = end.saturating_duration_since(Instant::now());
        let fits = |kind: &Kind| left.is_zero() || kind.takes(stage) < left;
        let Some(place) = deck.iter().position(fits) else {
            deck.clear();
            if kinds.iter().any(fits) {
                continue;
            }
            return;
        };
        let kind = deck.remove(place);
        if !faults::inject(kind, stage, &mut rng).await {
            deck.push(kind);
        }
    }
}
