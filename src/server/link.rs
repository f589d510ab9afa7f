//! The connections of one client to one server, and its estimate of that server's clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::server::clock::Clock;
use crate::server::connect::connector::Connector;
use crate::server::lane::Lane;
use crate::server::patience::REACH_LIMIT;
use crate::server::rounds::Rounds;

/// Four connections to one server and the clock that they share. A client has one link for each
/// server that it uses; all its queues share it.
///
/// Each kind of calls has its own connection, so that none waits behind a slower kind: for example
/// a settlement behind a bulk push, or a beat behind 4 MB of claimed payloads.
pub(crate) struct ServerLink {
    /// The lane for push, cancel, reschedule, run_now and requeue.
    pub(crate) pushes: Arc<Lane>,
    /// The lane for settlements.
    pub(crate) settles: Arc<Lane>,
    /// The lane for claims.
    pub(crate) claims: Arc<Lane>,
    /// The lane for everything else: beat, promote, reap, extend, and the calls of operators.
    pub(crate) control: Arc<Lane>,
    /// The rounds of calls of producers, for queues of several partitions.
    pub(crate) rounds: Arc<Rounds>,
    /// When the last read was given up because no reply came in time.
    silent: Mutex<Option<Instant>>,
}

impl ServerLink {
    /// Makes a link without open connections: each opens with its first call.
    pub(crate) fn new(connector: &Arc<Connector>) -> Self {
        Self::with_clock(connector, &Arc::new(Clock::new()))
    }

    /// Makes a link to the same server whose connections live on `runtime`, whichever task makes a
    /// call. Both links share the estimate of the server's clock.
    pub(crate) fn on_runtime(&self, runtime: Handle) -> Self {
        let connector = Arc::new(self.connector().on_runtime(runtime));
        Self::with_clock(&connector, self.control.clock())
    }

    fn with_clock(connector: &Arc<Connector>, clock: &Arc<Clock>) -> Self {
        let lane = || Arc::new(Lane::new(Arc::clone(connector), Arc::clone(clock)));
        Self {
            pushes: Arc::new(Lane::for_pushes(Arc::clone(connector), Arc::clone(clock))),
            settles: lane(),
            claims: lane(),
            control: lane(),
            rounds: Arc::default(),
            silent: Mutex::default(),
        }
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        self.control.connector()
    }

    /// Records that a read of the server was given up. Reads of the next moments fail at once, so
    /// that a program that reads many queues waits only once.
    pub(crate) fn was_silent(&self) {
        *self.locked() = Some(Instant::now());
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.locked()
            .is_some_and(|since| since.elapsed() < REACH_LIMIT)
    }

    fn locked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::runtime::Builder;

    use super::*;
    use crate::error::ErrorKind;
    use crate::server::connect::options::ClientOptions;
    use crate::server::fake::{Fake, usual};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_connection_outlives_the_runtime_of_its_first_call() {
        let server = Fake::start(|_, words| ready(usual(&words))).await;
        let url = format!("redis://127.0.0.1:{}/", server.port);
        let connector = Arc::new(Connector::new(&url, &ClientOptions::new()).expect("a URL"));
        let client = ServerLink::new(&connector);
        let node = Arc::new(client.on_runtime(Handle::current()));
        let other = Arc::clone(&node);
        // This runtime ends after the first call.
        let first = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let info = redis::cmd("INFO");
            let call = other.control.query(&info);
            runtime.expect("a runtime").block_on(call).map(drop)
        });
        while !first.is_finished() {
            tokio::task::yield_now().await;
        }
        first.join().expect("no panic").expect("a reply");
        let info = redis::cmd("INFO");
        node.control.query(&info).await.expect("a reply");
        assert_eq!(connector.opened(), 1, "the client counts it");
        client.control.query(&info).await.expect("a reply");
        assert_eq!(connector.opened(), 2, "the links share no connection");
    }

    #[tokio::test]
    async fn a_call_after_the_end_of_the_links_runtime_connects() {
        let server = Fake::start(|_, words| ready(usual(&words))).await;
        let url = format!("redis://127.0.0.1:{}/", server.port);
        let connector = Arc::new(Connector::new(&url, &ClientOptions::new()).expect("a URL"));
        let (node, handle) = NodeRuntime::start();
        let link = ServerLink::new(&connector).on_runtime(handle);
        let info = redis::cmd("INFO");
        link.control.query(&info).await.expect("a reply");
        node.end();
        // The link's runtime has ended, and its connection with it.
        let error = link
            .control
            .query(&info)
            .await
            .expect_err("a lost connection");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        link.control.query(&info).await.expect("a reply");
        link.settles.query(&info).await.expect("a reply");
        assert_eq!(connector.opened(), 3);
    }

    /// A tokio runtime on a thread of its own, like that of a node.
    struct NodeRuntime {
        stop: tokio::sync::oneshot::Sender<()>,
        thread: std::thread::JoinHandle<()>,
    }

    impl NodeRuntime {
        fn start() -> (Self, Handle) {
            let (stop, stopped) = tokio::sync::oneshot::channel();
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let handle = runtime.handle().clone();
            let thread = std::thread::spawn(move || {
                let _ = runtime.block_on(stopped);
            });
            (Self { stop, thread }, handle)
        }

        /// Ends the runtime. Returns when it is dropped.
        fn end(self) {
            self.stop.send(()).expect("it waits");
            self.thread.join().expect("no panic");
        }
    }
}
