//! The connections of one client to one server, and its estimate of that server's clock.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::server::clock::Clock;
use crate::server::connector::Connector;
use crate::server::lane::Lane;

/// Four connections to one server and the clock that they share. A client has one link for each
/// server that it uses; all its queues share it.
///
/// The calls are spread over four connections so that none waits behind a slower kind: neither a
/// settlement behind a bulk push, nor a beat behind either, nor any of them behind 4 MB of claimed
/// payloads.
pub(crate) struct ServerLink {
    /// Push, cancel, reschedule, run_now and requeue.
    pub(crate) pushes: Arc<Lane>,
    /// Ack, again, retry, release and bury.
    pub(crate) settles: Arc<Lane>,
    /// Claim.
    pub(crate) claims: Arc<Lane>,
    /// Everything else: beat, promote, reap, extend, and the calls of operators.
    pub(crate) control: Arc<Lane>,
}

impl ServerLink {
    /// A link without connections: each opens with its first call.
    pub(crate) fn new(connector: &Arc<Connector>) -> Self {
        Self::with_clock(connector, &Arc::new(Clock::new()))
    }

    /// A link to the same server whose connections live on `runtime`, whichever task makes a call.
    /// It shares the estimate of the server's clock.
    #[expect(dead_code, reason = "the new core of the node calls it")]
    pub(crate) fn on_runtime(&self, runtime: Handle) -> Self {
        let connector = Arc::new(self.connector().on_runtime(runtime));
        Self::with_clock(&connector, self.control.clock())
    }

    fn with_clock(connector: &Arc<Connector>, clock: &Arc<Clock>) -> Self {
        let lane = || Arc::new(Lane::new(Arc::clone(connector), Arc::clone(clock)));
        Self {
            pushes: lane(),
            settles: lane(),
            claims: lane(),
            control: lane(),
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        self.control.clock()
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        self.control.connector()
    }
}
