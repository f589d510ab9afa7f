//! Measures Redis's cost of a message if the order of due times differs from that of the pushes, by
//! the number of waiting messages.

use anyhow::Result;
use dueq_bench_driver::{Dues, Order, Request, unix_us};

use super::{PATIENCE, until};
use crate::peers::systems::System;

/// The numbers of messages that wait beside the delivered ones.
const WAITING: [u64; 2] = [100_000, 1_000_000];
/// The number of messages that are delivered meanwhile.
const DELIVERED: u64 = 2_000;
const WORKER_BEFORE_MS: u64 = 600;

pub(crate) async fn run(system: &mut System) -> Result<()> {
    for waiting in WAITING {
        for (name, order) in [("forward", Order::Forward), ("backward", Order::Backward)] {
            let us = one(system, waiting, order).await?;
            system
                .measured
                .order_us
                .push((name.to_owned(), waiting, us));
            eprintln!(
                "        {}: {waiting} waiting, {name}: {us:.1} us",
                system.kind.key
            );
        }
    }
    Ok(())
}

/// Measures one case. Forward: the delivered messages are pushed first. Backward: they are pushed
/// last, after all messages that wait for longer.
async fn one(system: &mut System, waiting: u64, order: Order) -> Result<f64> {
    system.clear().await?;
    system.open().await?;
    let per_s = system.measured.push_bulk_per_s.about();
    let ahead_ms = (3_000.0 * waiting as f64 / per_s) as u64 + 20_000;
    let far = Dues {
        at_ms: unix_us() / 1_000 + ahead_ms + 3_600_000,
        spread_ms: 3_600_000,
        order,
    };
    let near = Dues {
        at_ms: unix_us() / 1_000 + ahead_ms,
        spread_ms: 1_000,
        order,
    };
    let (far, near) = (
        Request::Bulk {
            n: waiting,
            batch: 0,
            due: far,
        },
        Request::Bulk {
            n: DELIVERED,
            batch: 0,
            due: near,
        },
    );
    let pushes = if order == Order::Forward {
        [&near, &far]
    } else {
        [&far, &near]
    };
    for push in pushes {
        system.ask(push).await?;
    }
    let at_ms = match near {
        Request::Bulk { due, .. } => due.at_ms,
        _ => 0,
    };
    until(at_ms - WORKER_BEFORE_MS).await;
    system.ask(&Request::Work { concurrency: 0 }).await?;
    let before = system.server.cpu_us().await?;
    system.drain(DELIVERED, PATIENCE, false).await?;
    let after = system.server.cpu_us().await?;
    system.close().await?;
    Ok(before.zip(after).map_or(f64::NAN, |(before, after)| {
        (after - before) / DELIVERED as f64
    }))
}
