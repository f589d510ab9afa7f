//! Faults of the processes of the workload.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rustix::process::Signal;

use super::{Mark, NoTarget, last, process_state, until};
use crate::history::Role;
use crate::kit::place::{Place, Status};
use crate::run::stage::Stage;

/// By how much the clock of a node is wrong, in minutes.
const WRONG_MINUTES: std::ops::Range<i64> = 2..30;

pub(crate) async fn kill(
    role: Role,
    crew: &[Arc<Place>],
    rng: &mut Rng,
    mark: &Mark<'_>,
) -> Result<()> {
    // A process that has just died for another reason cannot be killed: choose another.
    let killed = until("a process to kill", async || {
        let place = chosen(crew, rng, role)?;
        place.until("its start", |status| status.ready).await?;
        let life = place.signal_kill()?;
        Ok(Some((place, life)))
    });
    let (place, life) = killed.await?;
    mark.begin(&place.process(life));
    let end = place.ended(life).await?;
    // A poison message may kill the worker at that moment: that counts as well.
    ensure!(
        end.starts_with("signal:"),
        "{} ended otherwise: {end}",
        place.process(life)
    );
    mark.trace(&format!("{}: {end}", place.process(life)));
    mark.end(&place.process(life));
    Ok(())
}

pub(crate) fn chosen(crew: &[Arc<Place>], rng: &mut Rng, role: Role) -> Result<Arc<Place>> {
    let places: Vec<_> = crew.iter().filter(|place| place.role == role).collect();
    rng.choice(&places)
        .map(|place| Arc::clone(place))
        .context("no process has this role")
}

/// The most workers that are frozen by one fault. If a frozen worker holds no lease, it settles
/// nothing too late, and the next one is frozen.
const STOPS: u32 = 4;
/// How long a resumed worker may take to notice that it was frozen.
const FINDING_OUT: Duration = Duration::from_secs(10);

/// Freezes workers in turn, until one resumes with a message that another worker has claimed
/// meanwhile.
pub(super) async fn stop(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let mut stopped: Vec<String> = Vec::new();
    for _ in 0..STOPS {
        // A process that has just died for another reason cannot be frozen.
        let somebody = until("a worker that stops", async || {
            let place = chosen(&stage.crew, rng, Role::Worker)?;
            place.until("its start", |status| status.ready).await?;
            Ok(froze(&place).await?.map(|life| (place, life)))
        });
        let (place, life) = somebody.await?;
        let process = place.process(life);
        if stopped.is_empty() {
            mark.begin(&process);
        }
        let seen = wake(stage, &place, life)
            .await
            .with_context(|| process.clone())?;
        if let Some(what) = seen {
            mark.end(&process);
            mark.trace(&format!("{process}: {what}"));
            return Ok(());
        }
        stage.log.say(&format!(
            "{process} held nothing while it was stopped; another one is stopped"
        ));
        stopped.push(process);
    }
    mark.end(&stopped.join(", "));
    Err(NoTarget(format!(
        "{} held nothing while they were stopped",
        stopped.join(", ")
    ))
    .into())
}

/// Freezes a process and returns its number; `None` if it has just ended.
pub(crate) async fn froze(place: &Place) -> Result<Option<u32>> {
    let pid = place.status().pid.context("a process that is ready runs")?;
    let life = place.signal(Signal::STOP)?;
    let stopped = until("a stopped process", async || match process_state(pid) {
        Ok('T') => Ok(Some(true)),
        Ok('Z' | 'X') | Err(_) => Ok(Some(false)),
        Ok(_) => Ok(None),
    });
    Ok(stopped.await?.then_some(life))
}

/// Waits until other workers have claimed the messages of a frozen worker, and then resumes it: its
/// settlements come too late.
async fn wake(stage: &Stage, place: &Place, life: u32) -> Result<Option<&'static str>> {
    tokio::time::sleep(Duration::from_millis(3 * stage.options.lease_ms + 500)).await;
    let history = place.history(life);
    let size = std::fs::metadata(&history)?.len();
    ensure!(place.status().life == life, "did not stay stopped");
    place.signal(Signal::CONT)?;
    let seen = until(
        "a refused settlement, or a handler that learned of its lost lease",
        async || late(&history, size),
    );
    tokio::time::timeout(FINDING_OUT, seen)
        .await
        .ok()
        .transpose()
}

/// The first entry about a lost lease in a history, after this number of bytes.
fn late(history: &Path, from: u64) -> Result<Option<&'static str>> {
    let mut file = std::fs::File::open(history)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(["lost_lease", "\"LOST\"", "\"GONE\""]
        .into_iter()
        .find(|word| text.contains(word)))
}

/// The processes of the library. Programs in other languages cannot be told to remove a queue, and
/// not each of them asks libc for the time.
fn of_the_library(stage: &Stage) -> Vec<Arc<Place>> {
    let crew = stage.crew.iter().filter(|place| !place.is_program());
    crew.cloned().collect()
}

/// Starts a node whose wall clock is wrong by minutes, which must make no difference.
pub(super) async fn wrong_clock(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let place = chosen(&of_the_library(stage), rng, Role::Worker)?;
    let sign = if rng.bool() { 1 } else { -1 };
    let offset_ms = sign * 60_000 * rng.i64(WRONG_MINUTES);
    let status = place.until("its start", |status| status.ready).await?;
    mark.begin(&format!("{}: {offset_ms} ms", place.process(status.life)));
    place.shim.set_clock(offset_ms)?;
    let seen = until("a wrong clock", async || {
        place.until("its start", |status| status.ready).await?;
        let off_ms = place.clock_ms().await? - wall_ms();
        Ok(((off_ms - offset_ms).abs() < 30_000).then_some(off_ms))
    });
    let seen = seen.await;
    if let Ok(off_ms) = &seen {
        mark.trace(&format!("its clock is off by {off_ms} ms"));
        last(rng, 1_000..6_000).await;
    }
    place.shim.set_clock(0)?;
    mark.end(&place.process(status.life));
    seen.map(drop)
}

/// Makes a worker remove one of its queues while it runs, and add it again.
pub(super) async fn remove_queue(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let place = chosen(&of_the_library(stage), rng, Role::Worker)?;
    let before = place.until("its start", |status| status.ready).await?;
    mark.begin(&place.process(before.life));
    place.signal(Signal::USR2)?;
    let died = |status: &Status| status.life != before.life || status.pid.is_none();
    let over = |status: &Status| died(status) || status.added > before.added;
    let after = place.until("a queue that is back", over).await?;
    mark.end(&place.process(before.life));
    if died(&after) {
        return Err(NoTarget("worker that lives until its queue is back".to_owned()).into());
    }
    mark.trace("a queue was removed and is back");
    Ok(())
}

fn wall_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(0))
}
