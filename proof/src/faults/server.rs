//! Faults of the server, its files, its memory and its clock.

use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use rustix::process::Signal;

use super::{Mark, last, process_state, rights, target, until};
use crate::history::Event;
use crate::run::stage::{ASIDE, Stage};
use crate::run::store::Found;

/// How many bytes are truncated from an append-only file.
const CUT_BYTES: std::ops::Range<u64> = 4_096..262_144;
/// The farthest that clock steps together may go from the true time.
const CLOCK_LIMIT_MS: i64 = 60_000;

/// Kills the server by SIGKILL during all other work. The proxies block all processes until the
/// harness has read the state after the restart.
pub(super) async fn kill(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let before = stage.found().await?;
    let pid = stage.store().pid()?;
    mark.begin(&seqs(&before));
    stage.store().kill()?;
    stage.away();
    last(rng, 0..1_500).await;
    stage.store().restart().await?;
    let after = stage.found().await?;
    ensure!(pid != stage.store().pid()?, "it is the same process");
    mark.trace("the process is another one");
    for ((queue, before), (_, after)) in before.iter().zip(&after) {
        let Some(before) = before else { continue };
        let kept = after.as_ref().is_some_and(|after| {
            after.incarnation == before.incarnation && after.seq >= before.seq
        });
        if !kept {
            stage.log.wrong(format!(
                "kill -9 of the server lost writes of {queue}: {before:?}, now {after:?}"
            ));
        }
    }
    stage.store().fence()?;
    stage.back();
    mark.end(&seqs(&after));
    Ok(())
}

/// The evidence for a fault: `queue=NAME incarnation=.. seq=..`, for each queue.
pub(super) fn seqs(found: &[(String, Option<Found>)]) -> String {
    let words = found.iter().map(|(queue, found)| match found {
        Some(found) => format!(
            "queue={queue} incarnation={} seq={}",
            found.incarnation, found.seq
        ),
        None => format!("queue={queue} absent"),
    });
    words.collect::<Vec<_>>().join(", ")
}

pub(super) async fn stop(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let pid = stage.store().pid()?;
    mark.begin("");
    stage.store().signal(Signal::STOP)?;
    let seen = async {
        until("a stopped server", async || {
            Ok((process_state(pid)? == 'T').then_some(()))
        })
        .await?;
        // At once, because the freeze may be shorter or longer than the library's limit for a
        // reply.
        let ping = tokio::time::timeout(
            Duration::from_millis(300),
            stage.store().command::<String>(&["PING"]),
        )
        .await;
        ensure!(ping.is_err(), "a stopped server answered");
        mark.trace("it does not answer");
        last(rng, 200..6_500).await;
        Ok(())
    };
    let seen = seen.await;
    stage.store().signal(Signal::CONT)?;
    mark.end("");
    seen
}

const LAST_WRITE: &str = "dueq-proof:last-write";

/// Kills the server while no process is connected, truncates its append-only file, and raises `seq`
/// above every earlier value.
pub(super) async fn truncate(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let wanted = rng.u64(CUT_BYTES);
    // Shortly after a rewrite there may be too little to truncate.
    target("bytes to cut off", async || {
        Ok((stage.store().cuttable()? > CUT_BYTES.start).then_some(()))
    })
    .await?;
    stage.away();
    let before = stage.settled().await?;
    // The very last write: it is lost, however few bytes are truncated.
    let mark_now = mark.number.to_string();
    let _: String = stage
        .store()
        .command(&["SET", LAST_WRITE, &mark_now])
        .await?;
    let bytes = wanted.min(stage.store().cuttable()?);
    mark.begin(&format!("{bytes} bytes, {}", seqs(&before)));
    stage.store().kill()?;
    stage.store().cut(bytes)?;
    stage.store().restart().await?;
    rewrite(stage).await?;
    let last: Option<String> = stage.store().command(&["GET", LAST_WRITE]).await?;
    if last.as_ref() != Some(&mark_now) {
        mark.trace(&format!("the last write was {mark_now} and is {last:?}"));
    }
    let after = stage.found().await?;
    for ((queue, before), (_, after)) in before.iter().zip(&after) {
        let queue = queue.clone();
        match (before, after) {
            (Some(before), Some(after)) if before.incarnation == after.incarnation => {
                let next = stage.store().raise_seq(&queue).await?;
                stage.log.write(&Event::Undone {
                    queue,
                    incarnation: after.incarnation.clone(),
                    survived: after.seq,
                    next,
                });
            }
            (Some(before), None) => {
                stage.log.write(&Event::Emptied {
                    queue,
                    incarnation: before.incarnation.clone(),
                });
            }
            (None, None) => {}
            // A purge may have made it meanwhile, past the proxies.
            _ if queue == ASIDE => {}
            (before, after) => {
                anyhow::bail!("{queue} was {before:?} and is {after:?}: the cut went too deep")
            }
        }
    }
    stage.store().fence()?;
    stage.back();
    mark.end(&seqs(&after));
    Ok(())
}

/// Rewrites the append-only file, as an operator must after such a start. Redis leaves an
/// incomplete transaction in the file and appends to it; at the next start it executes that part
/// together with the commands behind it (seen on 7.0.15).
async fn rewrite(stage: &Stage) -> Result<()> {
    if let Err(error) = stage.store().command::<String>(&["BGREWRITEAOF"]).await {
        // The server has just started a rewrite because the file has grown. That one began after
        // the start, so it counts.
        ensure!(format!("{error:#}").contains("already in progress"), error);
    }
    until("a rewritten append-only file", async || {
        Ok(stage.store().is_file_whole().await?.then_some(()))
    })
    .await
}

/// Fills the server's disk: Redis refuses writes with MISCONF until it has written its pending
/// data.
pub(super) async fn disk_full(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let status = async || {
        stage
            .store()
            .info("persistence", "aof_last_write_status")
            .await
    };
    let refused = stage.store().errors("MISCONF").await?;
    mark.begin("");
    stage.store().shim.set_disk_full(true)?;
    let seen = async {
        until("a failed write", async || {
            Ok((status().await? == "err").then_some(()))
        })
        .await?;
        let count = until("a refused write", async || {
            let now = stage.store().errors("MISCONF").await?;
            Ok((now > refused).then_some(now - refused))
        });
        mark.trace(&format!("{} writes refused so far", count.await?));
        last(rng, 300..2_500).await;
        Ok(())
    };
    let seen = seen.await;
    stage.store().shim.set_disk_full(false)?;
    until("a write that succeeds", async || {
        Ok((status().await? == "ok").then_some(()))
    })
    .await?;
    mark.end("");
    seen
}

pub(super) async fn max_memory(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let refused = stage.store().errors("OOM").await?;
    let used: u64 = stage.store().info("memory", "used_memory").await?.parse()?;
    mark.begin(&format!("{used} bytes"));
    let set = async |bytes: u64| {
        stage
            .store()
            .command::<()>(&["CONFIG", "SET", "maxmemory", &bytes.to_string()])
            .await
    };
    set(used).await?;
    let seen = async {
        let count = until("a refused push", async || {
            // Reclaim memory that was freed meanwhile.
            let used: u64 = stage.store().info("memory", "used_memory").await?.parse()?;
            set(used.min(used - used / 50)).await?;
            let now = stage.store().errors("OOM").await?;
            Ok((now > refused).then_some(now - refused))
        });
        mark.trace(&format!("{} calls refused so far", count.await?));
        let acked = stage.counter("acked").await?;
        last(rng, 500..2_500).await;
        until("an ack while memory is full", async || {
            Ok((stage.counter("acked").await? != acked).then_some(()))
        })
        .await
    };
    let seen = seen.await;
    set(0).await?;
    mark.end("");
    seen
}

/// Makes one clock step, which stays; the next step begins there.
pub(super) async fn step_clock(
    stage: &Stage,
    rng: &mut Rng,
    mark: &Mark<'_>,
    sign: i64,
) -> Result<()> {
    let most =
        (CLOCK_LIMIT_MS - sign * stage.store().offset_ms()).clamp(2_000, stage.step_limit_ms());
    let step_ms = sign * rng.i64(1_500..=most.max(1_501));
    let clock = async || anyhow::Ok(stage.store().time_ms().await? - monotonic_ms());
    let before = clock().await?;
    mark.begin(&format!("{step_ms} ms"));
    stage.store().step_clock(step_ms)?;
    // Retry: a server may answer with the time at which it woke up, before the step.
    let jumped = until("the step", async || {
        let jumped = clock().await? - before;
        // The two clocks were not read at the exact instant of the step.
        Ok(((jumped - step_ms).abs() < 1_000).then_some(jumped))
    });
    let jumped = jumped.await?;
    mark.trace(&format!("TIME jumped by {jumped} ms"));
    mark.end("");
    Ok(())
}

fn monotonic_ms() -> i64 {
    i64::try_from(crate::history::now_us() / 1_000).unwrap_or(0)
}

pub(super) async fn flushall(stage: &Stage, mark: &Mark<'_>) -> Result<()> {
    let before = stage.found().await?;
    mark.begin(&seqs(&before));
    // A transaction: no command comes between the read and FLUSHALL, which empties that queue.
    let mut pipeline = redis::pipe();
    pipeline.atomic();
    for (queue, _) in &before {
        pipeline
            .cmd("HGET")
            .arg(format!("dueq:{{{queue}}}:meta"))
            .arg("incarnation");
    }
    pipeline.cmd("FLUSHALL").ignore();
    let borns: Vec<Option<String>> = pipeline
        .query_async(&mut stage.store().connection().await?)
        .await?;
    for ((queue, _), incarnation) in before.iter().zip(&borns) {
        if let Some(incarnation) = incarnation {
            stage.log.write(&Event::Emptied {
                queue: queue.clone(),
                incarnation: incarnation.clone(),
            });
        }
    }
    let main = borns.first().cloned().flatten();
    let now = until("a recreated queue", async || {
        Ok(stage
            .found()
            .await?
            .swap_remove(0)
            .1
            .filter(|found| Some(&found.incarnation) != main.as_ref()))
    });
    mark.trace(&format!(
        "incarnation was {}, is {}",
        main.clone().unwrap_or_default(),
        now.await?.incarnation
    ));
    stage.store().fence()?;
    mark.end("");
    Ok(())
}

pub(super) async fn take_rights(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    mark.begin("");
    let taken = rights::take(stage.store().port, rng).await?;
    taken.trace(mark);
    mark.end("");
    Ok(())
}
