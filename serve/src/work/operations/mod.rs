//! Operations on whole queues. An operation goes on after the answer to the call that began it, in
//! steps, at its pace. The audit log has a line before it begins, and one when it has ended.
//!
//! An operation lives in the process that began it. Redis decides what each step does, so no
//! message is changed twice if two instances run one, or if it is begun again after a crash.

mod canary;
mod cancel;
mod kept;
mod named;
mod operation;
mod pace;
mod picked;
mod plan;
mod progress;
mod repartition;
mod run;
mod selection;
mod steps;
mod work;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;

pub(crate) use operation::Operation;
pub(crate) use plan::{Plan, Request};
pub(crate) use selection::{died_by_crash, error_line, filter};

use crate::edge::Edge;
use crate::edge::audit::{Action, now_ms};
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::quoted;
use crate::wire::operations::Kind;
use crate::work::operations::kept::{MAX_BYTES, Rooms};

/// The most operations that run at once.
const MAX_RUNNING: usize = 16;
/// The most ended operations that are remembered.
const MAX_ENDED: usize = 100;

/// The running operations, and the last ones that have ended.
pub(crate) struct Operations {
    edge: Arc<Edge>,
    /// All operations, the oldest first.
    all: Mutex<VecDeque<Arc<Operation>>>,
    /// The room of the files with cancelled messages.
    rooms: Rooms,
    tasks: TaskTracker,
}

/// The result of a request to begin an operation.
pub(crate) enum Begun {
    New(Arc<Operation>),
    /// An equal operation is already running.
    Running(Arc<Operation>),
}

impl Operations {
    pub(crate) fn new(edge: Arc<Edge>) -> Self {
        Self {
            edge,
            all: Mutex::default(),
            rooms: Rooms::new(),
            tasks: TaskTracker::new(),
        }
    }

    /// Begins an operation. Its audit line is written before its first step.
    pub(crate) async fn begin(
        &self,
        queue: &dueq::Queue,
        plan: Plan,
        action: Action,
    ) -> Result<Begun, Problem> {
        let keeps = plan.kind == Kind::Cancel && plan.selection.is_some() && !plan.is_dry_run;
        let operation = Arc::new(Operation {
            kept: keeps.then(|| Arc::new(self.rooms.file())),
            id: crate::edge::audit::random_id(),
            queue: queue.name().to_owned(),
            plan,
            action,
            started_ms: now_ms(),
            progress: Mutex::default(),
            stop: self.edge.life.stopping().child_token(),
            stopped_by: Mutex::default(),
        });
        if let Some(running) = self.reserve(&operation)? {
            return Ok(Begun::Running(running));
        }
        // The caller does not drop this future: see `audit::audited`.
        if let Err(error) = self.edge.audit.write(&operation.start_line()).await {
            self.forget(&operation);
            return Err(crate::edge::audit::refusal(&error));
        }
        let run = run::run(
            Arc::clone(&self.edge),
            queue.clone(),
            Arc::clone(&operation),
        );
        self.tasks.spawn(run);
        Ok(Begun::New(operation))
    }

    /// Adds the operation to the list, or returns an equal one that is already running.
    fn reserve(&self, operation: &Arc<Operation>) -> Result<Option<Arc<Operation>>, Problem> {
        let mut all = self.lock();
        let running: Vec<_> = all.iter().filter(|one| one.is_running()).collect();
        let same_kind = |one: &&&Arc<Operation>| {
            one.queue == operation.queue && one.plan.kind == operation.plan.kind
        };
        if let Some(other) = running.iter().find(same_kind) {
            if other.plan.is_wished_by(&operation.plan) {
                return Ok(Some(Arc::clone(other)));
            }
            let detail = format!(
                "the {} {} of queue {} runs: wait for its end, or stop it",
                operation.plan.kind.name(),
                other.id,
                quoted(&operation.queue)
            );
            return Err(Problem::new(Code::OperationRunning, detail).operation(&other.id));
        }
        if running.len() >= MAX_RUNNING {
            let detail = format!("{MAX_RUNNING} operations run already; try again");
            return Err(Problem::new(Code::Busy, detail).retry_after_s(10));
        }
        let ended = all.len() - running.len();
        if ended >= MAX_ENDED
            && let Some(oldest) = all.iter().position(|one| !one.is_running())
        {
            all.remove(oldest);
        }
        // The oldest files go, so that a new one has half of the room, unless running ones have it.
        let mut old = all.iter().filter(|one| !one.is_running());
        while operation.kept.is_some()
            && self.rooms.free() < MAX_BYTES / 2
            && let Some(one) = old.next()
        {
            one.kept.as_ref().inspect(|kept| kept.clear());
        }
        all.push_back(Arc::clone(operation));
        Ok(None)
    }

    fn forget(&self, operation: &Arc<Operation>) {
        self.lock().retain(|one| !Arc::ptr_eq(one, operation));
    }

    /// All operations, the newest first.
    pub(crate) fn all(&self) -> Vec<Arc<Operation>> {
        self.lock().iter().rev().cloned().collect()
    }

    /// The operations of this queue, the newest first.
    pub(crate) fn of_queue(&self, queue: &str) -> Vec<Arc<Operation>> {
        let all = self.lock();
        let of_queue = all.iter().rev().filter(|one| one.queue == queue);
        of_queue.cloned().collect()
    }

    /// The operation of this queue with this id.
    pub(crate) fn get(&self, queue: &str, id: &str) -> Result<Arc<Operation>, Problem> {
        let all = self.lock();
        let mut found = all.iter();
        let found = found.find(|one| one.queue == queue && one.id == id);
        found.cloned().ok_or_else(|| {
            let detail = format!(
                "this instance has no operation {} of queue {}; it remembers the last {MAX_ENDED}, until it stops",
                quoted(id),
                quoted(queue)
            );
            Problem::new(Code::NoSuchOperation, detail)
        })
    }

    /// Waits until all operations have ended, after the stop of the server.
    pub(crate) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Operation>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
