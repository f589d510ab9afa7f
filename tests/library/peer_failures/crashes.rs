//! Processes that die, and the recovery of their messages.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::Message;
use dueq::outcomes::SettleOutcome;

use crate::support::child::{Process, Role};
use crate::support::{
    Setup, acking, command, connection, holding, ids, messages, push_all, reporting, setup,
    setup_with, stats_until, until,
};

/// Redisson's blocking queues, Sidekiq's basic fetch and Resque pop a message before they process
/// it. A process that dies loses its messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_loses_no_claimed_message() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    push_all(queue, messages(150)).await?;
    for _ in 0..3 {
        // Kill the process while it claims and starts handlers: right after the first line of the
        // first handler.
        let mut victim = Process::start(Role::Hold, &setup.server.url(), &[])?;
        victim.says().await?;
        victim.kill().await?;
    }
    assert_ne!(
        queue.stats().await?.leased,
        0,
        "each died while it held messages"
    );
    let (worker, mut seen) = reporting(queue.worker(), |delivery| {
        (delivery.id().into_owned(), delivery.payload().to_vec())
    });
    let mut handled = seen.take(150).await?;
    handled.sort_unstable();
    assert_eq!(
        handled,
        ids(150)
            .into_iter()
            .map(|id| (id.clone(), id.into_bytes()))
            .collect::<Vec<_>>()
    );
    worker.stop().await
}

/// asynq's recoverer reads leases only. An active task without a lease, as after a server that lost
/// part of its writes, stays active for ever. In dueq one transition writes claim and lease, so a
/// torn append-only file has both or neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_append_only_file_never_parts_claim_from_lease() -> Result<()> {
    let mut setup = setup_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--auto-aof-rewrite-percentage",
        "0",
    ])
    .await?;
    push_all(&setup.queue, messages(20)).await?;
    setup.promote(20).await?;
    let file = append_only_file(&setup)?;
    let before_claim = fs::metadata(&file)?.len();
    assert_eq!(
        setup.queue.claim(20, Duration::from_millis(1)).await?.len(),
        20
    );
    setup.server.kill()?;
    let written = fs::read(&file)?;
    let after_claim = u64::try_from(written.len())?;
    let mut counts = BTreeSet::new();
    for step in 0..=16 {
        let torn = usize::try_from(before_claim + (after_claim - before_claim) * step / 16)?;
        fs::write(&file, &written[..torn])?;
        setup.server.restart()?;
        let mut redis = connection(&setup.server.url()).await?;
        let key = |name: &str| format!("dueq:{{orders}}:{name}");
        let claims: Vec<Vec<u8>> = command(&mut redis, &["HKEYS", &key("claims")]).await?;
        let mut leases: Vec<Vec<u8>> =
            command(&mut redis, &["ZRANGE", &key("leases"), "0", "-1"]).await?;
        // A claim also stores the ids of its lease under the name of the lease.
        let (ids, beside): (Vec<_>, Vec<_>) = claims.into_iter().partition(|field| field[0] > 2);
        let mut granted: Vec<_> = beside.into_iter().filter(|field| field[0] != 2).collect();
        granted.sort_unstable();
        leases.sort_unstable();
        assert_eq!(granted, leases, "torn at {torn}");
        let stats = setup.queue.stats().await?;
        assert_eq!(ids.len() as u64, stats.leased, "torn at {torn}");
        assert_eq!(
            stats.scheduled + stats.ready + stats.leased,
            20,
            "torn at {torn}: {stats:?}"
        );
        counts.insert(stats.leased);
        setup.server.kill()?;
    }
    assert_eq!(
        counts,
        BTreeSet::from([0, 20]),
        "torn before the claim, and after it"
    );
    // The doctor scans leased messages.
    setup.server.restart()?;
    let (worker, mut seen) = acking(setup.queue.worker());
    let mut handled = seen.take(20).await?;
    handled.sort_unstable();
    assert_eq!(handled, ids(20));
    worker.stop().await
}

/// If another program removes the lease of a running handler, the node restores it after a third of
/// the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_lease_is_restored_while_its_handler_runs() -> Result<()> {
    let setup = setup().await?;
    // Long enough that it does not run out while the machine stands still.
    let (worker, mut seen) = holding(setup.queue.worker().lease(Duration::from_secs(9)));
    setup.queue.push("").id("id").await?;
    let delivery = seen.next().await?;
    assert_eq!(
        setup
            .command::<u64>(&["ZREMRANGEBYRANK", "dueq:{orders}:leases", "0", "0"])
            .await?,
        1
    );
    let leases = async || {
        setup
            .command::<u64>(&["ZCOUNT", "dueq:{orders}:leases", "-inf", "(inf"])
            .await
    };
    until("a lease", leases, |count| *count == 1).await?;
    assert_eq!(delivery.ack().await?, SettleOutcome::Done);
    worker.abort().await
}

/// The server's append-only file; versions name it differently.
fn append_only_file(setup: &Setup) -> Result<PathBuf> {
    let folder = setup.server.folder().join("appendonlydir");
    fs::read_dir(&folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".incr.aof"))
        .with_context(|| format!("no append-only file in {}", folder.display()))
}

/// In asynq an expired lease counts as a failed try. So a message that kills its process also
/// charges the messages that are handled beside it, and archives those that were at their last try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_charges_no_attempt_of_messages_beside_it() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    // Each message may be attempted once. Crashes must not use up that attempt.
    let innocent = messages(49)
        .into_iter()
        .map(|message| message.max_attempts(1));
    push_all(
        queue,
        innocent
            .chain([Message::new("").id("poison").max_attempts(1)])
            .collect(),
    )
    .await?;
    let url = setup.server.url();
    // Like a supervisor: start another process after each death.
    let supervisor = tokio::spawn(async move {
        loop {
            let mut process = Process::start(Role::Poisoned, &url, &[])?;
            while process.says().await.is_ok() {}
        }
        #[expect(unreachable_code, reason = "gives the closure its error type")]
        anyhow::Ok(())
    });
    let stats = stats_until(queue, "all innocent ones handled", |stats| {
        stats.acked == 49
    })
    .await?;
    println!("{} leases ran out until the 49 were handled", stats.crashed);
    assert!(
        stats.crashed >= 50,
        "the first crash held all of them: {stats:?}"
    );
    // Its back-off grows with each crash; this test does not check that.
    let dead = async || {
        let _ = queue.run_now("poison").await?;
        Ok(queue
            .get("poison")
            .await?
            .map(|stored| (stored.state, stored.failures, stored.crashes)))
    };
    let dead = until("the end of the poison", dead, |seen| {
        seen.is_some_and(|(state, ..)| state == dueq::MessageState::Dead)
    });
    assert_eq!(dead.await?, Some((dueq::MessageState::Dead, 0, 6)));
    supervisor.abort();
    let stats = queue.stats().await?;
    assert_eq!(
        (stats.acked, stats.died, stats.dead, stats.retried),
        (49, 1, 1, 0)
    );
    Ok(())
}
