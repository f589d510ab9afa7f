//! `--print`: a line a message.

use std::io;

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
        let lateness_ms = delivery.lateness().as_micros() as f64 / 1_000.0;
        if !self.json {
            let (id, payload) = (output::shown_id(delivery.id_bytes()), output::visible(delivery.payload()));
            return output::line(&format!(
                "{id} (attempt {}, {lateness_ms:.1} ms late): {payload}",
                delivery.attempt()
            ));
        }
        let mut object = output::id_fields(delivery.id_bytes());
        object.insert("attempt".to_owned(), delivery.attempt().into());
        object.insert("due_ms".to_owned(), delivery.due_ms().into());
        object.insert("started_ms".to_owned(), (delivery.due_ms() as f64 + lateness_ms).into());
        object.insert("lateness_ms".to_owned(), lateness_ms.into());
        output::payload_fields(&mut object, delivery.payload());
        output::json_line(&object.into())
    }
}
