//! Listening for hints that the head of the queue has moved. Losing them costs lateness of at most the floor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::error::{Error, ErrorKind};
use crate::node::Event;
use crate::node::timers::FALLBACK_INTERVAL;
use crate::server::connector::Connector;
use crate::server::lane::reconnect_delays;
use crate::server::subscription::Listening;
use crate::telemetry::events;

/// How long to leave a server alone that does not let us listen.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// Listens on the channel for ever, and reconnects by itself.
pub(crate) async fn listen(
    queue: String,
    connector: Arc<Connector>,
    channel: String,
    sender: UnboundedSender<Event>,
) {
    let mut failures = 0;
    loop {
        let began = Instant::now();
        let Err(error) = listen_once(&connector, &channel, &sender).await;
        failures = if began.elapsed() > FALLBACK_INTERVAL {
            1
        } else {
            failures + 1
        };
        let pause = if error.kind() == ErrorKind::Denied {
            events::listening_denied(&queue, &error);
            DENIED_PAUSE
        } else {
            events::listening_failed(&queue, &error);
            reconnect_delays().delay(failures, fastrand::f64())
        };
        tokio::time::sleep(pause).await;
    }
}

/// Subscribes, has the head read, then passes notices on until the connection is lost.
async fn listen_once(
    connector: &Connector,
    channel: &str,
    sender: &UnboundedSender<Event>,
) -> Result<std::convert::Infallible, Error> {
    let mut listening = Listening::to(connector, channel).await?;
    // What was published before this is not coming any more: look at the head. The coordinator outlives us.
    let _ = sender.send(Event::Resync);
    loop {
        let _ = sender.send(Event::Notice(listening.notice().await?));
    }
}
