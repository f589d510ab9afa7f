//! Shell scripts that use only curl push, claim by long poll, extend and settle, behind nginx and
//! two instances of `dueq serve`. Scripts and instances are killed at random. The test judges the
//! scripts' logs.
//!
//! `DUEQ_CONSUMERS_MESSAGES` sets the number of messages: 200 by default, and 10,000 by `make proof
//! NAME=consumers`. Without nginx the scripts use one instance directly.

mod judge;
mod scripts;
mod serving;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::judge::Log;
use crate::scripts::{Consumers, now_ms};
use crate::serving::{Random, Serving};

/// The length of a lease. After a lost answer, a claim is repeated within some seconds.
const LEASE: Duration = Duration::from_secs(10);
/// How long slow messages are handled: longer than a lease.
const SLOW: Duration = Duration::from_secs(13);
const SLOW_MESSAGES: usize = 4;
/// The longest time without any progress: far longer than a lost lease delays a message.
const STUCK: Duration = Duration::from_secs(600);

#[test]
fn curl_handles_each_message_while_scripts_and_servers_die() -> Result<()> {
    let messages = match std::env::var("DUEQ_CONSUMERS_MESSAGES") {
        Ok(text) => text.parse().context("DUEQ_CONSUMERS_MESSAGES")?,
        Err(_) => 200,
    };
    let mut random = Random::new();
    println!("seed {}", random.seed());
    let mut serving = Serving::start()?;
    let folder = serving.folder().to_owned();
    let mut consumers = Consumers::start(&serving, LEASE, SLOW)?;

    // Messages become due while scripts and instances are killed.
    let spread = Duration::from_millis(40 * messages as u64);
    let mut producer = consumers.producer("job", messages, now_ms() + 500, spread)?;
    let (mut kill_at, mut kill_server_at) = (Instant::now(), Instant::now());
    let mut progress = (0, Instant::now());
    let mut handled = 0;
    loop {
        let now = Instant::now();
        // Stop killing early enough: messages of the last killed consumers come back after their
        // leases.
        if now >= kill_at && handled * 20 < messages * 19 {
            kill_at = now + Duration::from_millis(random.below(2_000));
            match random.below(6) {
                0 => producer.kill()?,
                _ => consumers.kill_one(&mut random)?,
            }
        }
        if now >= kill_server_at {
            kill_server_at = now + Duration::from_millis(2_000 + random.below(4_000));
            serving.kill_one(&mut random)?;
        }
        consumers.restart_ended()?;
        serving.restart_ended()?;
        let is_pushed = producer.is_done()?;
        let log = Log::read(&folder)?;
        handled = log.ended("job-");
        if is_pushed && handled == messages {
            break;
        }
        advance(&mut progress, &log, &folder)?;
    }
    let kills = consumers.kills;

    // A handler that takes longer than its lease keeps it by extensions, while an instance is
    // killed.
    let mut producer = consumers.producer("slow", SLOW_MESSAGES, now_ms(), Duration::ZERO)?;
    let mut has_killed = false;
    loop {
        consumers.restart_ended()?;
        let is_pushed = producer.is_done()?;
        let log = Log::read(&folder)?;
        if !has_killed && log.started("slow-") > 0 {
            has_killed = true;
            serving.kill_one(&mut random)?;
        }
        serving.restart_ended()?;
        // A message whose consumer was killed before the ack comes back after its lease.
        if is_pushed && log.ended("slow-") == SLOW_MESSAGES && serving.holds_nothing()? {
            break;
        }
        advance(&mut progress, &log, &folder)?;
    }
    consumers.stop(STUCK)?;

    let log = Log::read(&folder)?;
    println!(
        "{messages} messages, {kills} consumers and {} instances killed: {}",
        serving.kills,
        log.summary()
    );
    log.judge(messages, SLOW_MESSAGES, kills)
        .with_context(|| format!("the logs in {}", folder.display()))?;
    ensure!(serving.holds_nothing()?, "the queue holds messages");
    serving.remove();
    Ok(())
}

/// Waits for some milliseconds. Fails if no message was handled for `STUCK`.
fn advance(progress: &mut (usize, Instant), log: &Log, folder: &std::path::Path) -> Result<()> {
    if log.lines() > progress.0 {
        *progress = (log.lines(), Instant::now());
    }
    if progress.1.elapsed() > STUCK {
        bail!("nothing happens any more: see {}", folder.display());
    }
    std::thread::sleep(Duration::from_millis(50));
    Ok(())
}
