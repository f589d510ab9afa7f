//! What the worker does with a message or a batch: --exec, --http or --print.

use std::sync::Arc;
use std::time::Duration;

use dueq::{Batch, Delivery, Queue, Settlement, Worker, in_batches};

use crate::commands::work::plan::Served;
use crate::commands::work::{exec, http, print};
use crate::log;

/// The handler of the command line.
pub(super) enum Handler {
    Exec(exec::Exec),
    Http(http::Http),
    Print(print::Print),
}

impl Handler {
    async fn handle(&self, queue: &str, delivery: &Delivery) -> Settlement {
        let settlement = match self {
            Self::Exec(exec) => exec.handle(queue, delivery).await,
            Self::Http(http) => http.handle(queue, delivery).await,
            Self::Print(print) => print.handle(queue, delivery),
        };
        log_failure(queue, delivery, &settlement);
        settlement
    }

    /// Handles the messages that never failed together, and each of the others alone: one that
    /// fails again then charges no other.
    async fn handle_batch(&self, queue: &str, deliveries: &[Delivery]) -> Vec<Settlement> {
        let is_new = |delivery: &&Delivery| delivery.attempt() == 1;
        let new: Vec<Delivery> = deliveries.iter().filter(is_new).cloned().collect();
        let mut of_new = self.handle_together(queue, &new).await.into_iter();
        let mut settlements = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let settlement = if delivery.attempt() == 1 {
                of_new.next()
            } else {
                self.handle_together(queue, std::slice::from_ref(delivery))
                    .await
                    .pop()
            };
            let settlement =
                settlement.unwrap_or_else(|| Settlement::retry("the batch gave no result"));
            // Ack now: the next command can take long.
            if settlement == Settlement::Ack && deliveries.len() > new.len() {
                let _ = delivery.ack().await;
            }
            settlements.push(settlement);
        }
        settlements
    }

    async fn handle_together(&self, queue: &str, deliveries: &[Delivery]) -> Vec<Settlement> {
        if deliveries.is_empty() {
            return Vec::new();
        }
        let settlements = match self {
            Self::Exec(exec) => exec.handle_batch(queue, deliveries).await,
            Self::Http(http) => http.handle_batch(queue, deliveries).await,
            // --batch conflicts with --print.
            Self::Print(print) => {
                let print = |delivery| print.handle(queue, delivery);
                deliveries.iter().map(print).collect()
            }
        };
        for (delivery, settlement) in deliveries.iter().zip(&settlements) {
            log_failure(queue, delivery, settlement);
        }
        settlements
    }
}

/// Adds a queue with its handler to the worker.
pub(super) fn serving(
    worker: Worker,
    queue: &Queue,
    served: &Served,
    batch: Option<(usize, Duration)>,
    handler: &Arc<Handler>,
) -> Worker {
    let (name, handler): (Arc<str>, _) = (queue.name().into(), Arc::clone(handler));
    let Some((max, linger)) = batch else {
        return worker.queue_with(queue, served.share, move |delivery: Delivery| {
            let (name, handler) = (Arc::clone(&name), Arc::clone(&handler));
            async move { handler.handle(&name, &delivery).await }
        });
    };
    let handler = move |batch: Batch<Vec<u8>>| {
        let (name, handler) = (Arc::clone(&name), Arc::clone(&handler));
        async move {
            let deliveries: Vec<Delivery> =
                batch.into_iter().map(|(_, delivery)| delivery).collect();
            handler.handle_batch(&name, &deliveries).await
        }
    };
    worker.queue_with(queue, served.share, in_batches(max, linger, handler))
}

fn log_failure(queue: &str, delivery: &Delivery, settlement: &Settlement) {
    let Settlement::Retry { error, .. } = settlement else {
        return;
    };
    let (id, attempt) = (delivery.id(), delivery.attempt());
    tracing::warn!(name: log::ATTEMPT_FAILED, target: "dueq", queue, %id, attempt, error, "an attempt failed");
}
