//! The server dies or freezes, and a replica replaces it at the same address, as behind a virtual
//! IP.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use rustix::process::Signal;

use super::server::seqs;
use super::{Mark, last, process_state, target, until, until_within};
use crate::history::{Event, Role};
use crate::kit::proxy::{Direction, Mode, Proxy};
use crate::run::stage::{Stage, confirmed_sign};
use crate::run::store::{Found, Store};

/// How long a replica may take to sync: it may have to load a million messages.
const SYNC_LIMIT: Duration = Duration::from_secs(60);

/// The servers of a failover.
struct Servers {
    old: Arc<Store>,
    new: Arc<Store>,
    /// A proxy between master and replica, which can make the replica lag.
    link: Proxy,
}

pub(super) async fn fail_over(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let old = stage.store();
    let link = Proxy::start(old.port, Mode::Pass).await?;
    let name = format!("server-{}", mark.number);
    let new = Arc::new(
        old.start_another(name, stage.library.clone(), stage.folder.clone())
            .await?,
    );
    new.follow(Some(link.port())).await?;
    until_within(SYNC_LIMIT, "a replica in step", async || {
        Ok(new.is_in_step().await?.then_some(()))
    })
    .await?;
    let servers = Servers { old, new, link };
    let confirmed = confirmed_sign(&stage.replica_sign());
    if confirmed.exists() {
        std::fs::remove_file(&confirmed)?;
    }
    std::fs::write(stage.replica_sign(), "")?;
    let done = async {
        let is_confirmed = async || Ok(confirmed.exists().then_some(()));
        target("a push that a replica confirmed", is_confirmed).await?;
        if rng.bool() {
            kill(stage, rng, mark, &servers).await
        } else {
            freeze(stage, rng, mark, &servers).await
        }
    };
    let done = done.await;
    std::fs::remove_file(stage.replica_sign())?;
    if done.is_err() {
        let _ = servers.old.signal(Signal::CONT); // the process may have ended
        stage.leave_behind(Vec::new());
        stage.back();
    }
    done?;
    servers.old.kill()?;
    servers.old.keep_log(&stage.folder)?;
    // From now on no push is acknowledged as replicated, and later faults must not truncate pushes
    // that were.
    servers.new.fence()?;
    mark.end(&seqs(&stage.found().await?));
    Ok(())
}

/// Kills the master by SIGKILL. The replica has nearly all writes, or lacks those of a short while.
async fn kill(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>, servers: &Servers) -> Result<()> {
    let lags = rng.bool();
    if lags {
        lag(stage, rng, servers).await?;
    }
    let before = stage.found_on(&servers.old).await?;
    mark.begin(&format!(
        "kill -9{}, {}",
        if lags { ", the replica lags" } else { "" },
        seqs(&before)
    ));
    servers.old.kill()?;
    stage.away();
    last(rng, 0..1_500).await;
    let survived = take_over(stage, servers, &before).await?;
    ensure!(
        !lags || changes(&survived) < changes(&before),
        "the replica had all that its master had"
    );
    mark.trace(&format!(
        "another server is the master: {} changes were made and {} are there",
        changes(&before),
        changes(&survived)
    ));
    Ok(())
}

/// Freezes the old master. When it resumes, it does not know that it was replaced, and still serves
/// some processes. The replica always lags, so writes are certainly lost. The harness raises the
/// new master's `seq` by a million, so that later answers of the old master are recognised by their
/// `seq`.
async fn freeze(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>, servers: &Servers) -> Result<()> {
    let Servers { old, new, link } = servers;
    let mut behind = Vec::new();
    for role in [Role::Producer, Role::Worker] {
        let places: Vec<_> = stage
            .crew
            .iter()
            .filter(|place| place.role == role)
            .collect();
        behind.push(
            rng.choice(&places)
                .context("no process has this role")?
                .name
                .clone(),
        );
    }
    lag(stage, rng, servers).await?;
    // The operator resumes queues on the new master only; a pause on the old master would last
    // forever.
    until("queues that are not paused", async || {
        for queue in stage.queues() {
            if old.field(queue.name, "paused").await?.is_some() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await?;
    // The replica does not receive this write: so an answer of the old master is recognised by its
    // `seq` even if neither master changes the queue.
    for (queue, found) in stage.found_on(old).await? {
        if found.is_some() {
            old.raise_seq_by(&queue, 1).await?;
        }
    }
    let before = stage.found_on(old).await?;
    mark.begin(&format!(
        "SIGSTOP, {} stay with the old master, {}",
        behind.join(" and "),
        seqs(&before)
    ));
    let pid = old.pid()?;
    old.signal(Signal::STOP)?;
    until("a stopped server", async || {
        Ok((process_state(pid)? == 'T').then_some(()))
    })
    .await?;
    stage.leave_behind(behind);
    stage.away();
    last(rng, 0..1_500).await;
    link.set(Mode::Away);
    let survived = take_over(stage, servers, &before).await?;
    ensure!(
        changes(&survived) < changes(&before),
        "the replica had all that its master had"
    );
    old.signal(Signal::CONT)?;
    // Now both masters accept pushes and grant messages.
    let counters = async || {
        anyhow::Ok((
            old.counter(stage.queue(), "pushed").await?,
            old.counter(stage.queue(), "acked").await?,
        ))
    };
    let first = until("an answer of the old master", async || {
        counters().await.map(Some)
    })
    .await?;
    let served = until("work on the old master", async || {
        let now = counters().await?;
        Ok((now.0 > first.0 && now.1 > first.1).then_some((now.0 - first.0, now.1 - first.1)))
    });
    let served = served.await?;
    last(rng, 200..1_500).await;
    let void = changes(&stage.found_on(old).await?);
    stage.leave_behind(Vec::new());
    // This closes the harness's own connections to the old master, too.
    old.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await?;
    old.follow(Some(new.port)).await?;
    until_within(SYNC_LIMIT, "the old master in step", async || {
        Ok(old.is_in_step().await?.then_some(()))
    })
    .await?;
    ensure!(
        changes(&stage.found_on(old).await?) > void,
        "the old master has not what the new one has"
    );
    mark.trace(&format!(
        "another server is the master: {} changes were made and {} are there; the old one took {} pushes and {} acks and more, up to change {void}",
        changes(&before),
        changes(&survived),
        served.0,
        served.1
    ));
    Ok(())
}

/// The number of changes of all these queues.
fn changes(found: &[(String, Option<Found>)]) -> u64 {
    found
        .iter()
        .flat_map(|(_, found)| found)
        .map(|found| found.seq)
        .sum()
}

/// Cuts the replica off from its master, which goes on for a while.
async fn lag(stage: &Stage, rng: &mut Rng, Servers { old, new, link }: &Servers) -> Result<()> {
    link.set(Mode::Drop(Direction::Replies));
    until("a replica that hears nothing", async || {
        Ok((link.done() > 0).then_some(()))
    })
    .await?;
    last(rng, 100..1_000).await;
    until("a master that is ahead", async || {
        let (ahead, behind) = (stage.found_on(old).await?, stage.found_on(new).await?);
        Ok((changes(&ahead) > changes(&behind)).then_some(()))
    })
    .await
}

/// Makes the replica the server, once it has received all data under way. Returns the queues that
/// it has.
async fn take_over(
    stage: &Stage,
    servers: &Servers,
    before: &[(String, Option<Found>)],
) -> Result<Vec<(String, Option<Found>)>> {
    let new = &servers.new;
    let alone =
        async || Ok((new.info("replication", "master_link_status").await? == "down").then_some(()));
    until("a replica without a master", alone).await?;
    new.follow(None).await?;
    ensure!(
        new.info("replication", "role").await? == "master",
        "the replica is no master"
    );
    let survived = stage.found_on(new).await?;
    let mut undone = Vec::new();
    for ((queue, before), (_, found)) in before.iter().zip(&survived) {
        let Some(found) = found else {
            // The replica lacks the whole queue: it was created after the last write that the
            // replica received.
            undone.extend(before.as_ref().map(|before| Event::Emptied {
                queue: queue.clone(),
                incarnation: before.incarnation.clone(),
            }));
            continue;
        };
        let is_same = |before: &Found| before.incarnation == found.incarnation;
        ensure!(
            before.as_ref().is_none_or(is_same),
            "{queue} was {before:?} and is {found:?}"
        );
        // So that later answers of the old master have a `seq` between its last one and the raised
        // one.
        let next = new.raise_seq(queue).await?;
        undone.push(Event::Undone {
            queue: queue.clone(),
            incarnation: found.incarnation.clone(),
            survived: found.seq,
            next,
        });
    }
    new.fence()?;
    stage.replace_store(Arc::clone(new));
    undone.iter().for_each(|event| stage.log.write(event));
    stage.back();
    Ok(survived)
}
