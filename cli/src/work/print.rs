//! `--print`: a line a message.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dueq::{Delivery, Settlement};
use tokio_util::sync::CancellationToken;

use crate::output;

pub(super) struct Print {
    pub(super) json: bool,
    /// Nobody reads our output any more.
    pub(super) unread: CancellationToken,
}

impl Print {
    pub(super) fn handle(&self, delivery: &Delivery) -> Settlement {
        match self.print(delivery) {
            Ok(()) => Settlement::Ack,
            // What nobody could read is not done: it goes back, and the worker stops.
            Err(error) => {
                self.unread.cancel();
                Settlement::retry(error)
            }
        }
    }

    fn print(&self, delivery: &Delivery) -> io::Result<()> {
        let lateness_ms = delivery.lateness().as_secs_f64() * 1_000.0;
        let mut out = io::stdout().lock();
        if self.json {
            let line = serde_json::json!({
                "id": delivery.id(),
                "attempt": delivery.attempt(),
                "due_ms": delivery.due_ms(),
                "started_ms": delivery.due_ms() as f64 + lateness_ms,
                "lateness_ms": lateness_ms,
                "payload_base64": STANDARD.encode(delivery.payload()),
            });
            writeln!(out, "{line}")?;
        } else {
            let (id, payload) = (output::visible(delivery.id_bytes()), output::visible(delivery.payload()));
            writeln!(out, "{id} (attempt {}, {lateness_ms:.1} ms late): {payload}", delivery.attempt())?;
        }
        out.flush()
    }
}
