//! The internal tasks of a node, and their supervision: the first panic ends the worker.

use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::batch::Supervisor;
use crate::error::{Applied, Error, ErrorKind, panic_text};
use crate::node::runtime::catch_panic::catch_panic;
#[cfg(any(test, feature = "harness"))]
use crate::node::runtime::inject::QueueNames;
use crate::node::runtime::task::Task;
use crate::node::runtime::thread::NodeThread;

/// Spawns the internal tasks of a node on its runtime, and records the first panic. All clones
/// share the record.
#[derive(Clone)]
pub(crate) struct Tasks {
    runtime: Handle,
    /// Cancelled when `runtime` has ended, or is about to: it takes no new task.
    ended: CancellationToken,
    panics: Arc<Panics>,
}

#[derive(Default)]
struct Panics {
    happened: CancellationToken,
    first: OnceLock<Error>,
    #[cfg(any(test, feature = "harness"))]
    queues: QueueNames,
}

impl Panics {
    fn record(&self, task: Task, text: &str) {
        let message = format!(
            "the worker's {} panicked: {text}; its handlers were dropped and their deliveries \
             released",
            task.name()
        );
        let error = Error::new(ErrorKind::Internal, Applied::Unknown, message);
        // Only the first panic is kept.
        let _ = self.first.set(error);
        self.happened.cancel();
    }
}

impl Tasks {
    /// Makes the supervision of tasks on this runtime.
    #[cfg(test)]
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            runtime,
            ended: CancellationToken::new(),
            panics: Arc::default(),
        }
    }

    /// Makes the supervision of tasks on a thread of their own. The thread ends when it is dropped.
    ///
    /// # Errors
    /// `Unavailable` if the thread cannot be started.
    pub(crate) fn on_own_thread() -> Result<(Self, NodeThread), Error> {
        let panics = Arc::<Panics>::default();
        let recorded = Arc::clone(&panics);
        let panicked = move |panic: &(dyn Any + Send)| {
            recorded.record(Task::NodeThread, panic_text(panic));
        };
        #[cfg(not(any(test, feature = "harness")))]
        let beside = std::future::pending();
        #[cfg(any(test, feature = "harness"))]
        let beside = {
            let watched = Arc::clone(&panics);
            async move { watched.queues.panic_if_injected(Task::NodeThread).await }
        };
        let thread = NodeThread::start(beside, panicked)?;
        let tasks = Self {
            runtime: thread.handle().clone(),
            ended: thread.ended().clone(),
            panics,
        };
        Ok((tasks, thread))
    }

    /// Spawns a task whose panic ends the worker.
    pub(crate) fn spawn(
        &self,
        task: Task,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        self.spawn_on(&self.runtime, task, Box::pin(work))
    }

    /// Takes a boxed future of any type, so that the code of tokio's task is compiled once, and no
    /// layer below moves the future over the stack.
    fn spawn_on(
        &self,
        runtime: &Handle,
        task: Task,
        work: Pin<Box<dyn Future<Output = ()> + Send>>,
    ) -> JoinHandle<()> {
        let panics = Arc::clone(&self.panics);
        runtime.spawn(async move {
            #[cfg(any(test, feature = "harness"))]
            let work = {
                let panics = Arc::clone(&panics);
                async move {
                    tokio::select! {
                        biased;
                        () = panics.queues.panic_if_injected(task) => {}
                        () = work => {}
                    }
                }
            };
            if let Err(panic) = catch_panic(|| work).await {
                panics.record(task, panic_text(&*panic));
            }
        })
    }

    /// Records a panic that something else has caught.
    pub(crate) fn panicked(&self, task: Task, text: &str) {
        self.panics.record(task, text);
    }

    /// Completes when a task has panicked.
    pub(crate) async fn happened(&self) {
        self.panics.happened.cancelled().await;
    }

    /// The first panic, as an error.
    pub(crate) fn first(&self) -> Option<Error> {
        self.panics.first.get().cloned()
    }

    /// The runtime of the tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Records that the node attends this queue, because tests name a node by one of its queues.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn attends(&self, queue: &str) {
        self.panics.queues.add(queue);
    }

    /// Panics if a test has asked this task to panic. For tasks that are not spawned by this type.
    #[cfg(any(test, feature = "harness"))]
    pub(crate) fn check_injected(&self, task: Task) {
        self.panics.queues.check(task);
    }
}

/// The batchers of a node's settlements and extensions run on its runtime. After that runtime's end
/// they run on the runtime of their caller, so that dropped handlers can still release their
/// deliveries.
impl Supervisor for Tasks {
    fn spawn(&self, work: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let caller = self.ended.is_cancelled().then(Handle::try_current);
        let runtime = caller.and_then(Result::ok);
        self.spawn_on(
            runtime.as_ref().unwrap_or(&self.runtime),
            Task::Batcher,
            work,
        );
    }

    fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    fn panicked(&self, text: &str) {
        self.panicked(Task::Batcher, text);
    }
}

/// The supervisor of a node's batchers. It keeps the thread of the node alive until the last
/// delivery is dropped, so that a delivery can be settled after the worker has ended.
pub(crate) struct NodeSupervisor {
    pub(crate) tasks: Tasks,
    pub(crate) _thread: Arc<NodeThread>,
}

impl Supervisor for NodeSupervisor {
    fn spawn(&self, work: Pin<Box<dyn Future<Output = ()> + Send>>) {
        Supervisor::spawn(&self.tasks, work);
    }

    fn has_ended(&self) -> bool {
        self.tasks.has_ended()
    }

    fn panicked(&self, text: &str) {
        Supervisor::panicked(&self.tasks, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::runtime::inject::inject;
    use crate::node::runtime::precise_timer::PreciseTimer;

    fn named(tasks: &Tasks) -> String {
        tasks.first().expect("a panic").to_string()
    }

    #[tokio::test]
    async fn the_first_panic_of_a_task_is_kept() {
        let tasks = Tasks::new(Handle::current());
        tasks
            .spawn(Task::Scanner, async {})
            .await
            .expect("no panic");
        assert!(tasks.first().is_none() && !tasks.panics.happened.is_cancelled());
        tasks
            .spawn(Task::Coordinator, async { panic!("one") })
            .await
            .expect("caught");
        tasks.happened().await;
        tasks
            .spawn(Task::Listener, async { panic!("two") })
            .await
            .expect("caught");
        assert_eq!(
            tasks.first().map(|error| error.kind()),
            Some(ErrorKind::Internal)
        );
        assert!(
            named(&tasks).contains("coordinator panicked: one;"),
            "{}",
            named(&tasks)
        );
    }

    #[tokio::test]
    async fn an_injected_panic_of_each_task_is_recorded() {
        for task in Task::ALL {
            let queue = format!("injected-{}", task.name());
            let (tasks, thread) = Tasks::on_own_thread().expect("a thread");
            tasks.attends(&queue);
            let timer = PreciseTimer::supervised(&tasks);
            if !matches!(task, Task::Timer | Task::NodeThread) {
                tasks.spawn(task, std::future::pending());
            }
            inject(&queue, task);
            if task == Task::Timer {
                tokio::select! {
                    () = tasks.happened() => {}
                    () = timer.wait(Some(std::time::Instant::now())) => {}
                }
            }
            tasks.happened().await;
            let text = named(&tasks);
            let expected = format!("the worker's {} panicked: injected;", task.name());
            assert!(text.contains(&expected), "{text}");
            drop(thread);
        }
    }

    #[tokio::test]
    async fn a_batcher_uses_its_callers_runtime_if_the_thread_ended() {
        let (tasks, thread) = Tasks::on_own_thread().expect("a thread");
        tasks.attends("ended-thread");
        inject("ended-thread", Task::NodeThread);
        tasks.happened().await;
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = async {
            let _ = sender.send(std::thread::current().id());
        };
        Supervisor::spawn(&tasks, Box::pin(work));
        assert_eq!(receiver.await, Ok(std::thread::current().id()));
        drop(thread);
    }

    #[tokio::test]
    async fn a_task_spawned_after_the_injection_panics_once() {
        let tasks = Tasks::new(Handle::current());
        tasks.attends("injected-before");
        inject("injected-before", Task::Call);
        tasks
            .spawn(Task::Call, async { unreachable!("it runs") })
            .await
            .expect("caught");
        assert!(named(&tasks).contains("call panicked: injected"));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tasks.spawn(Task::Call, async {
            let _ = sender.send(());
        });
        receiver.await.expect("the second call ran");
    }
}
