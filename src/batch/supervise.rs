//! Supervision of a batcher's tasks: if one panics, each of its items still gets a result.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use crate::batch::call::CallSpec;
use crate::error::panic_text;

/// Runs the tasks of batchers, and learns of their panics. Without a supervisor, a batcher runs its
/// tasks on the runtime of its callers.
pub(crate) trait Supervisor: Send + Sync {
    /// Spawns the task that gathers the items of a batcher.
    fn spawn(&self, work: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Whether the supervisor's own runtime has ended, or is about to. Then `spawn` uses the
    /// runtime of the caller.
    fn has_ended(&self) -> bool {
        false
    }

    /// Reports that a call of a batcher panicked. The items of the call already have their errors.
    fn panicked(&self, text: &str);
}

/// Awaits one call, and reports its panic to the supervisor. The call is boxed, so that the code of
/// its task is compiled once for all verbs.
pub(crate) async fn supervise(
    spec: Arc<CallSpec>,
    mut work: Pin<Box<dyn Future<Output = ()> + Send>>,
) {
    let result = std::future::poll_fn(|context| {
        // Unwind safe: the unwinding drops all that the call holds, and each dropped item gets an
        // error.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => std::task::Poll::Ready(Err(panic)),
        }
    });
    if let Err(panic) = result.await
        && let Some(supervisor) = &spec.supervisor
    {
        supervisor.panicked(panic_text(&*panic));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::batch::batcher::Batcher;
    use crate::batch::item::Item;
    use crate::batch::verb::BatchVerb;
    use crate::error::{Applied, Error, ErrorKind};
    use crate::protocol::keys::Keys;
    use crate::protocol::verbs::Verb;
    use crate::server::patience::Repeat;
    use crate::server::route::RoutedLane;
    use crate::server::servers::Servers;
    use crate::telemetry::metrics::{Counter, Meters};

    struct Ack;

    impl BatchVerb for Ack {
        const VERB: Verb = Verb::Ack;
        type Output = ();

        fn decode(_: &str, _: i64) -> Result<(), Error> {
            Ok(())
        }

        fn count(_: &Result<(), Error>) -> Option<Counter> {
            None
        }
    }

    /// A supervisor that records which tasks panicked.
    #[derive(Default)]
    struct Recorder(Arc<Mutex<Vec<&'static str>>>);

    impl Supervisor for Recorder {
        fn spawn(&self, work: Pin<Box<dyn Future<Output = ()> + Send>>) {
            let record = Arc::clone(&self.0);
            tokio::spawn(async move {
                if tokio::spawn(work).await.is_err() {
                    record.lock().expect("no panic").push("gathering");
                }
            });
        }

        fn panicked(&self, text: &str) {
            assert!(text.contains("timers are disabled"), "{text}");
            self.0.lock().expect("no panic").push("call");
        }
    }

    /// On a runtime without timers every call panics, and so does the linger between two calls.
    #[test]
    fn panic_of_a_call_fails_its_items_and_spares_the_batcher() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let keys = Arc::new(Keys::of_queue("orders").expect("a name"));
            let lane = RoutedLane::settles(&Servers::unconnected().route(&keys));
            let lane = Arc::new(lane);
            let recorder = Arc::new(Recorder::default());
            let spec = CallSpec {
                linger: Duration::from_secs(3_600),
                ..CallSpec::new(&keys, &lane, &Arc::new(Meters::new()))
            };
            let panics = Arc::clone(&recorder.0);
            let batcher = Batcher::<Ack>::new(spec.with_supervisor(Some(recorder)));
            for expected in [1, 2, 3] {
                let item = Item {
                    granted: None,
                    args: vec![b"id".to_vec()],
                    repeat: Repeat::Harmless,
                };
                let error = batcher.submit(item).await.expect_err("a panic");
                assert_eq!(
                    (error.kind(), error.was_applied()),
                    (ErrorKind::Internal, Applied::Unknown)
                );
                while panics.lock().expect("no panic").len() < expected {
                    tokio::task::yield_now().await;
                }
            }
            let panics = panics.lock().expect("no panic").clone();
            assert_eq!(panics, ["call", "gathering", "call"]);
        });
    }
}
