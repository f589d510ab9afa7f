//! The thread of a node: its internal tasks run there, so that a handler that blocks threads of the
//! caller's runtime delays none of them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::dispatcher;
use tracing::subscriber::NoSubscriber;

use crate::error::{Applied, Error, ErrorKind};

/// An operating system thread with a tokio runtime of its own.
///
/// Dropping it ends the thread, and drops the runtime's tasks there. The drop does not wait, so it
/// may happen in a task of any runtime, including this one.
pub(crate) struct NodeThread {
    handle: Handle,
    ended: CancellationToken,
    _stop: DropGuard,
}

impl NodeThread {
    /// Starts the thread, which also polls `beside` until it is dropped.
    ///
    /// `panicked` is called on the thread if `beside` or the thread's own code panics. A panic in a
    /// task of the runtime is not reported here.
    ///
    /// # Errors
    /// `Unavailable` if the process can make no further thread or descriptor.
    pub(crate) fn start(
        beside: impl Future<Output = ()> + Send + 'static,
        panicked: impl FnOnce(&(dyn Any + Send)) + Send + 'static,
    ) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("dueq-node")
            // The one blocking thread is for name resolution.
            .max_blocking_threads(1)
            .build()
            .map_err(|error| not_started("runtime", error))?;
        let runtime = OwnRuntime(Some(runtime));
        let handle = runtime.handle();
        let ended = CancellationToken::new();
        let ending = ended.clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone().cancelled_owned();
        // Passed on, so that a tracing subscriber that the caller set only for its own thread also
        // gets the node's events.
        let dispatch = dispatcher::get_default(Clone::clone);
        std::thread::Builder::new()
            .name("dueq-node".to_owned())
            .spawn(move || {
                let _default =
                    (!dispatch.is::<NoSubscriber>()).then(|| dispatcher::set_default(&dispatch));
                let work = async {
                    tokio::select! {
                        () = stopped => {}
                        () = async { beside.await; std::future::pending().await } => {}
                    }
                };
                // Unwind safe: nothing that a panic could leave half changed is used afterwards.
                let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
                ending.cancel();
                // Dropped before the report: a task that starts after the report must not wait for
                // one of these tasks.
                drop(runtime);
                if let Err(panic) = result {
                    panicked(&*panic);
                }
            })
            .map_err(|error| not_started("thread", error))?;
        Ok(Self {
            handle,
            ended,
            _stop: stop.drop_guard(),
        })
    }

    /// The handle that spawns tasks on this thread.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Cancelled when the thread has stopped polling its tasks, or is about to: it takes no new task.
    pub(crate) fn ended(&self) -> &CancellationToken {
        &self.ended
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        // Cancelled before the thread notices its end, so that no work joins tasks that the thread
        // will drop.
        self.ended.cancel();
    }
}

/// A runtime that may be dropped in any task. Tokio's own runtime panics if it is dropped in a task
/// of another runtime.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn handle(&self) -> Handle {
        self.runtime().handle().clone()
    }

    fn block_on(&self, work: impl Future<Output = ()>) {
        self.runtime().block_on(work);
    }

    #[expect(clippy::expect_used, reason = "only the drop takes it")]
    fn runtime(&self) -> &Runtime {
        self.0
            .as_ref()
            .expect("the runtime is there until the drop")
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            // Does not wait for a name resolution that hangs.
            runtime.shutdown_background();
        }
    }
}

fn not_started(part: &str, error: std::io::Error) -> Error {
    let message = format!(
        "the worker cannot start the {part} of its node: {error}; check the limits of this process for threads and open files"
    );
    Error::with_source(ErrorKind::Unavailable, Applied::No, message, error)
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use tokio::sync::oneshot;

    use super::*;

    fn thread() -> NodeThread {
        NodeThread::start(std::future::pending(), |_| {}).expect("a thread")
    }

    /// Sends the id of the thread on which it is dropped.
    struct OnDrop(Option<oneshot::Sender<ThreadId>>);

    impl Drop for OnDrop {
        fn drop(&mut self) {
            if let Some(sender) = self.0.take() {
                let _ = sender.send(current().id());
            }
        }
    }

    /// Spawns a task that never ends. Returns its thread, and the thread on which it is dropped.
    async fn occupy(thread: &NodeThread) -> (ThreadId, oneshot::Receiver<ThreadId>) {
        let (sender, dropped) = oneshot::channel();
        let (began, begun) = oneshot::channel();
        thread.handle().spawn(async move {
            let _guard = OnDrop(Some(sender));
            let _ = began.send((current().id(), current().name().map(str::to_owned)));
            std::future::pending::<()>().await;
        });
        let (id, name) = begun.await.expect("the task ran");
        assert_eq!(name.as_deref(), Some("dueq-node"));
        (id, dropped)
    }

    #[tokio::test]
    async fn dropping_the_thread_in_a_task_drops_its_tasks_on_it() {
        let thread = thread();
        let (id, dropped) = occupy(&thread).await;
        assert_ne!(id, current().id());
        drop(thread);
        assert_eq!(dropped.await, Ok(id));
    }

    #[tokio::test]
    async fn dropping_the_thread_on_itself_ends_it() {
        let thread = thread();
        let (id, dropped) = occupy(&thread).await;
        let handle = thread.handle().clone();
        handle.spawn(async move { drop(thread) });
        assert_eq!(dropped.await, Ok(id));
    }

    #[test]
    fn dropping_the_thread_beside_another_shutdown_ends_it() {
        let other = Builder::new_multi_thread().build().expect("a runtime");
        let thread = thread();
        let (id, dropped) = other.block_on(occupy(&thread));
        other.spawn(async move {
            let _kept = thread;
            std::future::pending::<()>().await;
        });
        drop(other);
        assert_eq!(dropped.blocking_recv(), Ok(id));
    }

    #[tokio::test]
    async fn a_blocked_runtime_of_the_caller_delays_no_task() {
        let thread = thread();
        let (sender, receiver) = std::sync::mpsc::channel();
        thread.handle().spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            let _ = sender.send(());
        });
        // Blocks the only thread of this test's runtime.
        receiver.recv().expect("the task has ended");
    }

    #[tokio::test]
    async fn a_panic_of_the_thread_is_reported_and_ends_its_tasks() {
        let (sender, reported) = oneshot::channel();
        let (start, started) = oneshot::channel::<()>();
        let panics = async {
            let _ = started.await;
            panic!("injected");
        };
        let thread = NodeThread::start(panics, |panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let _ = sender.send(text.unwrap_or_default().to_owned());
        })
        .expect("a thread");
        let (id, dropped) = occupy(&thread).await;
        start.send(()).expect("it waits");
        assert_eq!(reported.await.as_deref(), Ok("injected"));
        assert_eq!(dropped.await, Ok(id));
        assert!(thread.ended().is_cancelled());
        let late = thread.handle().spawn(async {}).await;
        assert!(late.is_err_and(|error| error.is_cancelled()));
    }

    #[tokio::test]
    async fn a_task_of_the_thread_emits_to_the_subscriber_of_its_starter() {
        struct Marked;
        impl tracing::Subscriber for Marked {
            fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
                false
            }
            fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
                tracing::span::Id::from_u64(1)
            }
            fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
            fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
            fn event(&self, _: &tracing::Event<'_>) {}
            fn enter(&self, _: &tracing::span::Id) {}
            fn exit(&self, _: &tracing::span::Id) {}
        }
        let thread = dispatcher::with_default(&tracing::Dispatch::new(Marked), thread);
        let is_marked = || dispatcher::get_default(|dispatch| dispatch.is::<Marked>());
        let task = thread.handle().spawn(async move { is_marked() });
        assert_eq!(task.await.ok(), Some(true));
        assert!(!is_marked());
    }
}
