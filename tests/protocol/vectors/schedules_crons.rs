//! Crons: lists of fires that clients make, and refills.

use anyhow::{Result, ensure};

use super::schedules::{cron, cron_queue, declare, listed, refill, show, ticks};
use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::words;

const FIRES: [u64; 3] = [T0 + 1_000, T0 + 2_500, T0 + 4_000];

fn queue(spec: &str) -> Result<Queue> {
    cron_queue(spec, &FIRES)
}

#[test]
fn a_list_holds_512_fires_and_is_low_below_256() -> Result<()> {
    let mut queue = Queue::start()?;
    let fires: Vec<u64> = (1..=512).map(|at| T0 + at * SECOND).collect();
    declare(&mut queue, T0, &[cron("s", "missed=all", &fires)])?;
    ensure!(refill(&mut queue, T0, "2026a", 0, &[T0 + HOUR])?.starts_with("INVALID a list holds"));
    let low = |queue: &mut Queue| -> Result<i64> {
        let beat = queue.ok("beat", T0 + HOUR, words!["n", "stay"])?;
        beat.part(5)?.int()
    };
    for at in 1..=257 {
        ensure!(low(&mut queue)? == i64::from(at > 257));
        ensure!(ticks(&mut queue, T0 + at * SECOND)?.len() == 1);
    }
    ensure!(low(&mut queue)? == 1 && show(&mut queue, "s")?.listed == 255);
    Ok(())
}

#[test]
fn a_claim_outlives_a_lost_list_and_a_lost_record() -> Result<()> {
    let mut queue = queue("")?;
    queue.command(words!["HDEL", "dueq:{q}:meta", "fires:s"])?;
    queue.push(T0, "a", T0, "")?;
    let token = queue.new_token();
    let reply = queue.ok("claim", FIRES[0], words![9, token, SECOND])?;
    ensure!(reply.deliveries()?.len() == 1);
    ensure!(show(&mut queue, "s")?.state == "dry");
    let shown = show(&mut queue, "s")?;
    let words = words!["s", shown.version, 0, listed("2026a", 0, &[T0 + 9_000])];
    ensure!(queue.items("refill", T0, words)? == ["OK 1"]);
    queue.command(words!["HDEL", "dueq:{q}:meta", "schedule:s"])?;
    let token = queue.new_token();
    queue.ok("claim", T0 + HOUR, words![9, token, SECOND])?;
    ensure!(!queue.state()?.messages.contains_key(&"\u{4}s".into()));
    Ok(())
}
