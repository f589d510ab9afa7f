//! An operation: what it is, how far it is, its lines in the audit log, and how it is sent.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use crate::edge::audit::{Action, now_ms};
use crate::edge::shown::quoted;
use crate::work::operations::plan::{Kind, Plan};
use crate::work::operations::progress::{Phase, Progress};

/// An operation.
pub(crate) struct Operation {
    pub(super) id: String,
    pub(super) queue: String,
    pub(super) plan: Plan,
    /// The request that asked for it.
    pub(super) action: Action,
    pub(super) started_ms: u64,
    pub(super) progress: Mutex<Progress>,
    /// Ends it: a caller stops it, or the server stops.
    pub(super) stop: CancellationToken,
    /// Who stopped it.
    pub(super) stopped_by: Mutex<Option<String>>,
}

/// An operation on a queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Operation)]
pub(crate) struct Shown {
    id: String,
    queue: String,
    kind: Kind,
    /// Which messages a requeue or a purge deals with.
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<&'static str>,
    /// Of a requeue or a purge: only what died, or was due, at or before this time of Redis. The same
    /// call with this `before_ms` goes on where this one ended.
    before_ms: Option<u64>,
    /// Only what died at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    after_ms: Option<u64>,
    /// Of a requeue: only what died with this error.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Of a requeue: only what died because its leases ran out too often, or only the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    crashed: Option<bool>,
    dry_run: bool,
    /// How many messages a second.
    pace: u64,
    #[serde(flatten)]
    progress: Progress,
    /// Who asked for it.
    by: String,
    /// When it began, by the clock of the server.
    started_ms: u64,
    href: String,
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

    pub(super) fn update<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn is_running(&self) -> bool {
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
    pub(super) async fn stopped(&self) -> String {
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
    pub(super) fn start_line(&self) -> Value {
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
    pub(super) fn end_line(&self, last: &Progress) -> Value {
        json!({
            "at_ms": now_ms(),
            "event": "end",
            "action": self.id,
            "operation": last.clone().brief(),
        })
    }
}

impl Shown {
    pub(crate) fn new(operation: &Operation, href: String) -> Self {
        let plan = operation.plan();
        let selects = matches!(plan.kind, Kind::Requeue | Kind::Purge);
        Self {
            id: operation.id().to_owned(),
            queue: operation.queue().to_owned(),
            kind: plan.kind,
            messages: selects.then(|| plan.selected().as_str()),
            before_ms: plan.before_ms,
            after_ms: plan.group.after_ms,
            error: plan.group.error.clone(),
            crashed: plan.group.crashed,
            dry_run: plan.is_dry_run,
            pace: plan.pace,
            progress: operation.progress(),
            by: operation.by().to_owned(),
            started_ms: operation.started_ms(),
            href,
        }
    }

    /// The same for a list.
    pub(crate) fn brief(self) -> Self {
        Self {
            progress: self.progress.brief(),
            ..self
        }
    }
}
