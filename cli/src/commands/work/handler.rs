//! How the worker handles a message or a batch: --exec, --http or --print; and the meaning of exit
//! codes.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use dueq::{Batch, Client, Delivery, Settlement, Worker, in_batches};
use dueq_opentelemetry::process;

use crate::commands::work::plan::Served;
use crate::commands::work::{exec, http, print};
use crate::{log, traces};

/// The handler of the command line.
pub(super) enum WorkHandler {
    Exec(exec::Exec),
    Http(Box<http::Http>),
    Print(print::Print),
}

impl WorkHandler {
    /// Reads the secrets for signatures again. Other handlers have no files.
    pub(super) fn reload(&self) -> anyhow::Result<()> {
        match self {
            Self::Http(http) => http.reload(),
            Self::Exec(_) | Self::Print(_) => Ok(()),
        }
    }

    async fn handle(&self, delivery: &Delivery) -> Settlement {
        let settlement = match self {
            Self::Exec(exec) => exec.handle(delivery).await,
            Self::Http(http) => http.handle(delivery).await,
            Self::Print(print) => print.handle(delivery),
        };
        log_failure(delivery, &settlement);
        settlement
    }

    /// Handles together the messages that never failed, and each of the others alone: if one of
    /// these fails again, no other message is charged. After a throttle it handles no further
    /// message.
    async fn handle_batch(&self, deliveries: &[Delivery]) -> Vec<Settlement> {
        let is_new = |delivery: &&Delivery| delivery.attempt() == 1;
        let new: Vec<Delivery> = deliveries.iter().filter(is_new).cloned().collect();
        let of_new = self.handle_together(&new).await;
        let mut throttle = of_new
            .iter()
            .find(|settlement| is_throttle(settlement))
            .cloned();
        let mut of_new = of_new.into_iter();
        let mut settlements = Vec::with_capacity(deliveries.len());
        for delivery in deliveries {
            let settlement = if delivery.attempt() == 1 {
                of_new.next()
            } else if throttle.is_some() {
                throttle.clone()
            } else {
                self.handle_together(std::slice::from_ref(delivery))
                    .await
                    .pop()
            };
            let settlement =
                settlement.unwrap_or_else(|| Settlement::retry("the batch gave no result"));
            if is_throttle(&settlement) {
                throttle = Some(settlement.clone());
            }
            // Ack this delivery now, because the next command can take long.
            if settlement == Settlement::Ack && deliveries.len() > new.len() {
                let _ = delivery.ack().await;
            }
            settlements.push(settlement);
        }
        settlements
    }

    async fn handle_together(&self, deliveries: &[Delivery]) -> Vec<Settlement> {
        if deliveries.is_empty() {
            return Vec::new();
        }
        let handled = async {
            match self {
                Self::Exec(exec) => exec.handle_batch(deliveries).await,
                Self::Http(http) => http.handle_batch(deliveries).await,
                // --batch conflicts with --print.
                Self::Print(print) => {
                    let print = |delivery| print.handle(delivery);
                    deliveries.iter().map(print).collect()
                }
            }
        };
        let settlements = match traces::is_on() {
            true => process(deliveries, handled).await,
            false => handled.await,
        };
        for (delivery, settlement) in deliveries.iter().zip(&settlements) {
            log_failure(delivery, settlement);
        }
        settlements
    }
}

/// Adds a queue or a pattern with its handler to the worker.
pub(super) fn serving(
    worker: Worker,
    client: &Client,
    served: &Served,
    batch: Option<(usize, Duration)>,
    handler: &Arc<WorkHandler>,
) -> Result<Worker, dueq::Error> {
    let (name, share) = (&*served.name, served.share);
    let (one, together) = (Arc::clone(handler), Arc::clone(handler));
    let one = move |delivery: Delivery| {
        let handler = Arc::clone(&one);
        async move { handler.handle(&delivery).await }
    };
    let together = move |batch: Batch<Vec<u8>>| {
        let handler = Arc::clone(&together);
        async move {
            let deliveries: Vec<Delivery> =
                batch.into_iter().map(|(_, delivery)| delivery).collect();
            handler.handle_batch(&deliveries).await
        }
    };
    Ok(match (served.is_pattern, batch) {
        (false, None) => worker.queue_with(&client.queue(name)?, share, one),
        (true, None) => worker.pattern_with(&client.pattern(name)?, share, one),
        (false, Some((max, linger))) => {
            let together = in_batches(max, linger, together);
            worker.queue_with(&client.queue(name)?, share, together)
        }
        (true, Some((max, linger))) => {
            let together = in_batches(max, linger, together);
            worker.pattern_with(&client.pattern(name)?, share, together)
        }
    })
}

/// The trace context that a receiver continues: that of this attempt, or else of the push of the
/// only message.
pub(super) fn trace_parent(single: Option<&Delivery>) -> Option<String> {
    let of_push = || single.and_then(Delivery::trace_parent).map(str::to_owned);
    dueq_opentelemetry::trace_parent().or_else(of_push)
}

fn is_throttle(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Throttle(_))
}

fn log_failure(delivery: &Delivery, settlement: &Settlement) {
    let Settlement::Retry { error, .. } = settlement else {
        return;
    };
    let (queue, id, attempt) = (delivery.queue(), delivery.id(), delivery.attempt());
    tracing::warn!(name: log::ATTEMPT_FAILED, target: "dueq", queue, %id, attempt, error, "an attempt failed");
}

/// The exit code for "no further attempt will help": EX_DATAERR of sysexits.h.
const BURY: i32 = 65;
pub(super) fn settlement(status: ExitStatus, stderr: &[u8]) -> Settlement {
    let said = String::from_utf8_lossy(stderr);
    let said = said.trim();
    let said = if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Settlement::Ack,
        (Some(BURY), _) => Settlement::bury(format!("exit status {BURY}{said}")),
        (Some(code), _) => Settlement::retry(format_args!("exit status {code}{said}")),
        (None, Some(signal)) => Settlement::retry(format_args!("killed by signal {signal}{said}")),
        (None, None) => Settlement::retry(format_args!("{status}{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_map_to_settlements() {
        let exit =
            |code: i32, said: &str| settlement(ExitStatus::from_raw(code << 8), said.as_bytes());
        assert_eq!(exit(0, "only a warning\n"), Settlement::Ack);
        assert_eq!(
            exit(65, "no such order\n"),
            Settlement::bury("exit status 65: no such order")
        );
        assert_eq!(exit(1, ""), Settlement::retry("exit status 1"));
        assert_eq!(
            exit(127, "sh: x: not found\n"),
            Settlement::retry("exit status 127: sh: x: not found")
        );
        assert_eq!(
            settlement(ExitStatus::from_raw(9), b""),
            Settlement::retry("killed by signal 9")
        );
    }
}
