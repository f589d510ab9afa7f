//! Listens for notices that the head has changed. A lost notice delays a message by at most the
//! fallback interval.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use crate::error::{Error, ErrorKind};
use crate::node::event::Event;
use crate::node::timers::FALLBACK_INTERVAL;
use crate::server::connector::Connector;
use crate::server::patience::reconnect_delays;
use crate::server::subscription::Subscription;
use crate::telemetry::events;

/// How long to wait before another attempt if the user has no right to subscribe.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

/// Subscribes to the channel and sends its notices to the coordinator. Reconnects with back-off,
/// and never returns.
pub(crate) async fn listen(
    queue: String,
    connector: Arc<Connector>,
    channel: String,
    sender: UnboundedSender<Event>,
) {
    let mut failures = 0;
    loop {
        let start = Instant::now();
        let Err(error) = listen_once(&connector, &channel, &sender).await;
        failures = if start.elapsed() > FALLBACK_INTERVAL {
            1
        } else {
            failures + 1
        };
        let pause = if error.kind() == ErrorKind::Denied {
            events::subscription_denied(&queue, &error);
            DENIED_PAUSE
        } else {
            events::subscription_failed(&queue, &error);
            reconnect_delays().delay(failures, fastrand::f64())
        };
        tokio::time::sleep(pause).await;
    }
}

/// Subscribes, asks for a resync, and then passes notices on until the connection is lost.
async fn listen_once(
    connector: &Connector,
    channel: &str,
    sender: &UnboundedSender<Event>,
) -> Result<Infallible, Error> {
    let mut subscription = Subscription::to(connector, channel).await?;
    // Notices before the subscription are missed. The sends cannot fail: the coordinator runs
    // longer than this task.
    let _ = sender.send(Event::Resync);
    loop {
        let _ = sender.send(Event::Notice(subscription.notice().await?));
    }
}
