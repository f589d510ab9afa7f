//! Listening for hints that the head of the queue has moved. Losing them costs lateness of at most the floor.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::error::ErrorKind;
use crate::node::Event;
use crate::protocol::connect::Connector;
use crate::protocol::lane::reconnect_delays;
use crate::protocol::listening::Listening;

/// How long to leave a server alone that does not let us listen.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// Listens on the channel for ever, and reconnects by itself.
pub(super) async fn listen(connector: Arc<Connector>, channel: String, events: UnboundedSender<Event>) {
    let mut failures = 0;
    loop {
        let mut pause = None;
        match Listening::to(&connector, &channel).await {
            Ok(mut listening) => {
                // What was published before this is not coming any more: look at the head. The conductor outlives us.
                let _ = events.send(Event::Resync);
                while let Some(due_ms) = listening.notice().await {
                    failures = 0;
                    let _ = events.send(Event::Notice(due_ms));
                }
            }
            Err(error) if error.kind() == ErrorKind::Denied => {
                tracing::warn!(%error, "no right to listen for notices: messages may be up to a second late");
                pause = Some(DENIED_PAUSE);
            }
            Err(error) => tracing::warn!(%error, "listening for notices failed"),
        }
        failures += 1;
        tokio::time::sleep(pause.unwrap_or_else(|| reconnect_delays().delay(failures, fastrand::f64()))).await;
    }
}
