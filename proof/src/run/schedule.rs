//! The order and the times of faults, lane by lane, as the seed decides.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use tokio::time::Instant;

use super::stage::Stage;
use crate::faults::{self, Kind, Lane};

/// A clock step that is tried before any clock fault: if it takes effect, the shim works.
const PROBE_MS: i64 = 3_600_000;
/// With `--messages` a run lasts at most this many times its duration.
const LONGEST: u32 = 3;

/// The requested faults that are possible here; and the names of the others.
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

/// Injects faults until the run's duration is over, or enough messages were pushed. Returns the
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
        let course = Course {
            kinds,
            rng,
            begun,
            duration: stage.options.duration,
            pause_ms: pause_ms(&stage.options),
            is_enough: is_enough.clone(),
        };
        let takes = |kind: Kind| kind.takes(stage);
        let inject = async |kind: Kind, rng: &mut Rng| faults::inject(kind, stage, rng).await;
        follow(course, takes, inject)
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
            // The counter restarts in an emptied store, and goes back where the last writes were
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

/// The range of pauses between two faults; longer in a long run.
pub(crate) fn pause_ms(options: &super::Options) -> std::ops::Range<u64> {
    if options.duration >= 300 {
        500..4_000
    } else {
        100..800
    }
}

/// The course of a lane: its faults and their times.
pub(crate) struct Course<K> {
    pub(crate) kinds: Vec<K>,
    pub(crate) rng: Rng,
    pub(crate) begun: Instant,
    /// The length of the course in seconds, from `begun`.
    pub(crate) duration: u64,
    /// The pause between two faults, in ms.
    pub(crate) pause_ms: std::ops::Range<u64>,
    pub(crate) is_enough: tokio::sync::watch::Receiver<bool>,
}

/// Injects the faults of a lane one after the other, each kind once before any kind repeats. Starts
/// no fault that would last beyond the end. `inject` returns false if other faults exclude the
/// fault now.
pub(crate) async fn follow<K: Copy>(
    course: Course<K>,
    takes: impl Fn(K) -> Duration,
    mut inject: impl AsyncFnMut(K, &mut Rng) -> bool,
) {
    let Course {
        kinds,
        mut rng,
        begun,
        duration,
        pause_ms,
        mut is_enough,
    } = course;
    if kinds.is_empty() {
        return;
    }
    let (mut deck, end): (Vec<K>, _) = (Vec::new(), begun + Duration::from_secs(duration));
    loop {
        let pause_ms = rng.u64(pause_ms.clone());
        tokio::select! {
            _ = is_enough.wait_for(|enough| *enough) => return,
            () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
        }
        if deck.is_empty() {
            deck.clone_from(&kinds);
            rng.shuffle(&mut deck);
        }
        // After the planned end, a run waits for its last messages for an unknown time.
        let left = end.saturating_duration_since(Instant::now());
        let fits = |kind: &K| left.is_zero() || takes(*kind) < left;
        let Some(place) = deck.iter().position(fits) else {
            deck.clear();
            if kinds.iter().any(fits) {
                continue;
            }
            return;
        };
        let kind = deck.remove(place);
        if !inject(kind, &mut rng).await {
            deck.push(kind);
        }
    }
}
