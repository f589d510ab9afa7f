//! What a step of an audit costs if claims granted many ids.

use anyhow::{Result, ensure};

use super::cost::{five_ms, script_us};
use crate::queue::{HOUR, Queue, T0};
use crate::reply::{Text, words};

const STEPS: usize = 40;

/// This many leased messages under leases of 1,000 ids each, whose names have this many bytes.
fn leased(queue: &mut Queue, count: u64, bytes: usize) -> Result<()> {
    for first in (0..count).step_by(1_000) {
        let ids = (first..first + 1_000).map(|number| format!("{number:0bytes$}"));
        let items = ids.flat_map(|id| words![id, T0, "", ""]);
        queue.ok("push", T0, words![""].into_iter().chain(items).collect())?;
        let token = queue.new_token();
        queue.ok("claim", T0, words![1_000, token, HOUR])?;
    }
    Ok(())
}

/// The cheapest of many steps: other processes only add time.
#[test]
fn a_step_of_an_audit_beside_long_claims_takes_at_most_5_ms() -> Result<()> {
    for (count, bytes) in [(3_000, 200), (30_000, 20), (30_000, 100)] {
        let mut queue = Queue::start()?;
        leased(&mut queue, count, bytes)?;
        for (part, limit) in [("messages", 250), ("claims", 250)] {
            let (mut least, mut cursor) = (f64::INFINITY, Text::from("0"));
            for _ in 0..STEPS {
                let limit_us = five_ms(&mut queue)?;
                let before = script_us(&mut queue, "evalsha")?;
                let reply = queue.ok("audit", T0, words![part, &cursor, limit, ""])?;
                let us = script_us(&mut queue, "evalsha")? - before;
                least = least.min(us as f64 / limit_us as f64);
                ensure!(reply.part(3)?.list()?.is_empty(), "{reply:?}");
                cursor = reply.part(1)?.bytes()?.clone();
                if least <= 1.0 {
                    break;
                }
            }
            println!("{count} ids of {bytes} B, {part} {limit}: {least:.2} of 5 ms");
            // Before the lists were read once a step, it was 4.8 with 250 entries. Other programs slow it.
            ensure!(
                least <= 2.0,
                "{count} ids of {bytes} B, {part} {limit}: {least:.2}"
            );
        }
    }
    Ok(())
}
