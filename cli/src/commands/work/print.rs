//! `--print`: prints a line for each message.

use std::io;
use std::sync::OnceLock;

use dueq::{Delivery, Settlement};
use tokio_util::sync::CancellationToken;

use crate::output;

pub(super) struct Print {
    json: bool,
    /// Whether each line for people begins with the queue's name.
    is_plural: bool,
    /// Stops the worker.
    stop: CancellationToken,
    /// Why standard output cannot be written: the disk is full, or the reader has closed the pipe.
    failure: OnceLock<io::Error>,
}

impl Print {
    pub(super) fn new(json: bool, is_plural: bool, stop: CancellationToken) -> Self {
        Self {
            json,
            is_plural,
            stop,
            failure: OnceLock::new(),
        }
    }

    /// The error that stopped the worker, if there was one.
    pub(super) fn failure(&self) -> Option<&io::Error> {
        self.failure.get()
    }

    /// Prints and acks the message. If printing fails, releases this message and all later ones,
    /// without counting an attempt, and stops the worker.
    pub(super) fn handle(&self, delivery: &Delivery) -> Settlement {
        if self.failure.get().is_some() {
            return Settlement::Release;
        }
        match self.print(delivery) {
            Ok(()) => Settlement::Ack,
            Err(error) => {
                let _ = self.failure.set(error);
                self.stop.cancel();
                Settlement::Release
            }
        }
    }

    fn print(&self, delivery: &Delivery) -> io::Result<()> {
        let queue = delivery.queue();
        let lateness_ms = delivery.lateness().as_micros() as f64 / 1_000.0;
        if !self.json {
            let (id, payload) = (
                output::shown_id(delivery.id_bytes()),
                output::visible(delivery.payload()),
            );
            let queue = match self.is_plural {
                true => format!("{} ", output::visible(queue.as_bytes())),
                false => String::new(),
            };
            return output::line(&format!(
                "{queue}{id} (attempt {}, {lateness_ms:.1} ms late): {payload}",
                delivery.attempt()
            ));
        }
        let mut object = output::id_fields(delivery.id_bytes());
        object.insert("queue".to_owned(), queue.into());
        object.insert("attempt".to_owned(), delivery.attempt().into());
        object.insert("due_ms".to_owned(), delivery.due_ms().into());
        object.insert(
            "started_ms".to_owned(),
            (delivery.due_ms() as f64 + lateness_ms).into(),
        );
        object.insert("lateness_ms".to_owned(), lateness_ms.into());
        output::tick_fields(&mut object, delivery.tick());
        output::payload_fields(&mut object, delivery.payload());
        output::json_line(&object.into())
    }
}
