//! Operations on whole queues: they go on after the answer to the call that began them, in steps,
//! at their pace. Each has a line in the audit log before it begins, and one when it has ended.
//!
//! An operation lives in the process that began it. Redis decides what each step does, so two
//! instances, or a crash and the same call again, do nothing twice.

mod canary;
mod cancel;
mod group;
mod pace;
mod plan;
mod progress;
mod run;
mod work;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use plan::{Plan, Request};
pub(crate) use progress::Shown;
use progress::{Phase, Progress};

use crate::app::Shared;
use crate::audit::{Action, now_ms};
use crate::problem::{Code, Problem};
use crate::shown::quoted;

/// How many operations run at once.
const MAX_RUNNING: usize = 16;
/// How many operations that have ended are remembered.
const MAX_ENDED: usize = 100;

/// The operations that run, and the last ones that have ended.
#[derive(Default)]
pub(crate) struct Operations {
    /// The oldest first.
    all: Mutex<VecDeque<Arc<Operation>>>,
    tasks: TaskTracker,
}

/// An operation.
pub(crate) struct Operation {
    id: String,
    queue: String,
    plan: Plan,
    /// The request that asked for it.
    action: Action,
    started_ms: u64,
    progress: Mutex<Progress>,
    /// Ends it: a caller stops it, or the server stops.
    stop: CancellationToken,
    /// Who stopped it.
    stopped_by: Mutex<Option<String>>,
}

/// What became of the wish for an operation.
pub(crate) enum Begun {
    New(Arc<Operation>),
    /// The same one runs already.
    Running(Arc<Operation>),
}

impl Operations {
    /// Begins an operation: its line is in the audit log before its first step.
    pub(crate) async fn begin(
        &self,
        app: &Shared,
        queue: &dueq::Queue,
        plan: Plan,
        action: Action,
    ) -> Result<Begun, Problem> {
        let operation = Arc::new(Operation {
            id: crate::audit::random_id(),
            queue: queue.name().to_owned(),
            plan,
            action,
            started_ms: now_ms(),
            progress: Mutex::default(),
            stop: app.life.stopping().child_token(),
            stopped_by: Mutex::default(),
        });
        if let Some(running) = self.reserve(&operation)? {
            return Ok(Begun::Running(running));
        }
        // The caller of this future does not drop it: see `audit::audited`.
        if let Err(error) = app.audit.write(&operation.start_line()).await {
            self.forget(&operation);
            return Err(crate::audit::refusal(&error));
        }
        let run = run::run(app.clone(), queue.clone(), Arc::clone(&operation));
        self.tasks.spawn(run);
        Ok(Begun::New(operation))
    }

    /// Takes a place for the operation, or returns the one that runs already.
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

impl Operation {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn queue(&self) -> &str {
        &self.queue
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn by(&self) -> &str {
        self.action.principal()
    }

    pub(crate) fn started_ms(&self) -> u64 {
        self.started_ms
    }

    pub(crate) fn progress(&self) -> Progress {
        self.update(|progress| progress.clone())
    }

    fn update<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_running(&self) -> bool {
        self.update(|progress| progress.state == Phase::Running)
    }

    /// Asks the operation to stop after its step. It has no effect on one that has ended.
    pub(crate) fn stop(&self, by: &str) {
        let mut stopped_by = self
            .stopped_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stopped_by.get_or_insert_with(|| by.to_owned());
        self.stop.cancel();
    }

    /// Completes when the operation shall stop: the reason.
    async fn stopped(&self) -> String {
        self.stop.cancelled().await;
        let by = self
            .stopped_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match &*by {
            Some(name) => format!("{} stopped it", quoted(name)),
            None => "the server stopped".to_owned(),
        }
    }

    /// The line of the audit log before the operation.
    fn start_line(&self) -> Value {
        let plan = &self.plan;
        let mut what = json!({
            "kind": plan.kind.name(),
            "before_ms": plan.before_ms,
            "dry_run": plan.is_dry_run,
            "pace": plan.pace,
        });
        if let Some(state) = plan.state {
            what["state"] = json!(state.as_str());
        }
        if let Some(after_ms) = plan.group.after_ms {
            what["after_ms"] = json!(after_ms);
        }
        if let Some(error) = &plan.group.error {
            what["error"] = json!(error);
        }
        if let Some(crashed) = plan.group.crashed {
            what["crashed"] = json!(crashed);
        }
        if let Some(canary) = plan.canary {
            what["canary"] = json!(canary.messages);
            what["canary_wait_ms"] = json!(canary.wait_ms);
        }
        if plan.ids.count > 0 {
            what["ids"] = json!(plan.ids.count);
            what["dead"] = json!(plan.with_dead);
        }
        let mut line = self.action.line("start", &self.id);
        line["queue"] = json!(self.queue);
        line["operation"] = what;
        line
    }

    /// The line of the audit log after the operation: its outcome and counts.
    fn end_line(&self, last: &Progress) -> Value {
        json!({
            "at_ms": now_ms(),
            "event": "end",
            "action": self.id,
            "operation": last.clone().brief(),
        })
    }
}
