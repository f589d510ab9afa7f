//! Claims by hand under short leases, beside a worker's handlers. These leases are never extended,
//! so that leases expire even in a run without faults.

use std::sync::Arc;
use std::time::Duration;

use dueq::outcomes::ExtendOutcome;
use dueq::{Delivery, Queue};
use tokio::task::JoinSet;

use super::worker::Notes;
use super::{Pace, Stop};
use crate::history::{BY_HAND, Verb};
use crate::recorder::outcome;

/// A delivery above this attempt is settled: from the third crash on, the back-off would become
/// long.
const PATIENT_ATTEMPTS: u32 = 2;
/// The most deliveries held at once.
const HELD: usize = 64;

pub(super) async fn run(
    queue: Queue,
    notes: Arc<Notes>,
    lease: Duration,
    per_second: u32,
    mut stop: Stop,
) {
    let (mut pace, mut held) = (Pace::new(per_second), JoinSet::new());
    loop {
        let owed = tokio::select! {
            () = super::stopped(&mut stop) => break,
            owed = pace.owed(1) => owed,
        };
        pace.did(owed);
        while held.try_join_next().is_some() {}
        let number = usize::try_from(owed)
            .unwrap_or(1)
            .min(HELD.saturating_sub(held.len()));
        if number == 0 {
            continue;
        }
        let lease = lease.mul_f64(0.1 + 0.4 * fastrand::f64());
        match queue.claim(number, lease).await {
            Ok(deliveries) => deliveries.into_iter().for_each(|delivery| {
                let notes = Arc::clone(&notes);
                held.spawn(async move { handle(&notes, &delivery, lease).await });
            }),
            Err(error) => tracing::warn!(%error, "claiming by hand failed"),
        }
    }
    while held.join_next().await.is_some() {}
}

async fn handle(notes: &Notes, delivery: &Delivery, lease: Duration) {
    let id = notes.started(delivery, true);
    let choice = if delivery.attempt() > PATIENT_ATTEMPTS {
        0
    } else {
        fastrand::u32(0..10)
    };
    match choice {
        0..3 => drop(notes.settle(delivery, Verb::Ack).await),
        3 => {
            notes.settle(delivery, Verb::Ack).await;
            notes.settle(delivery, Verb::Ack).await;
        }
        4 => {
            extend(notes, delivery, lease).await;
            notes.settle(delivery, Verb::Ack).await;
        }
        // Does nothing: the message comes back when its lease has expired.
        5 | 6 => {}
        // Settles after the lease, when another process may have the message or have finished it.
        _ => {
            tokio::time::sleep(lease + Duration::from_millis(fastrand::u64(0..600))).await;
            match fastrand::u32(0..9) {
                0..3 => drop(notes.settle(delivery, Verb::Ack).await),
                3 => drop(notes.settle(delivery, Verb::Retry).await),
                4 => drop(notes.settle(delivery, Verb::Release).await),
                5 => drop(notes.settle(delivery, Verb::Bury).await),
                6 => drop(notes.settle(delivery, Verb::Again).await),
                7 => drop(notes.settle(delivery, Verb::Snooze).await),
                _ => extend(notes, delivery, lease).await,
            }
        }
    }
    notes.ended(&id, BY_HAND);
}

async fn extend(notes: &Notes, delivery: &Delivery, lease: Duration) {
    let op = notes.diary.asked(
        notes.queue.name(),
        Verb::Extend,
        vec![delivery.id().into_owned()],
    );
    let told = outcome(delivery.extend(lease).await, |extended| match extended {
        ExtendOutcome::Until(deadline_ms) => format!("OK {deadline_ms}"),
        ExtendOutcome::Gone => "GONE".to_owned(),
        ExtendOutcome::Lost => "LOST".to_owned(),
        other => format!("{other:?}"),
    });
    notes.diary.told(op, vec![told]);
}
