//! An operation: its plan, its progress, its audit lines, and its JSON.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::edge::audit::{Action, now_ms};
use crate::edge::shown::quoted;
use crate::wire::operations::{Kind, OperationReport, Phase, Progress};
use crate::work::operations::kept::Kept;
use crate::work::operations::plan::{Change, Plan};

/// An operation.
pub(crate) struct Operation {
    pub(super) id: String,
    pub(super) queue: String,
    pub(super) plan: Plan,
    /// The action of the caller that began it.
    pub(super) action: Action,
    pub(super) started_ms: u64,
    pub(super) progress: Mutex<Progress>,
    /// The file of the messages that a cancel without ids cancels.
    pub(super) kept: Option<Arc<Kept>>,
    /// Cancelled when a caller stops the operation, or the server stops.
    pub(super) stop: CancellationToken,
    /// The name of the caller who stopped it.
    pub(super) stopped_by: Mutex<Option<String>>,
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

    /// The lines that push the messages again that the operation has cancelled; `None` if they were
    /// dropped.
    pub(crate) fn cancelled(&self) -> Option<Vec<Bytes>> {
        match &self.kept {
            Some(kept) => kept.lines(),
            None => Some(Vec::new()),
        }
    }

    pub(crate) fn by(&self) -> &str {
        self.action.principal()
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

    /// Makes the operation stop after its current step. No effect on an ended operation.
    pub(crate) fn stop(&self, by: &str) {
        let mut stopped_by = self
            .stopped_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        stopped_by.get_or_insert_with(|| by.to_owned());
        self.stop.cancel();
    }

    /// Completes with a reason when the operation must stop.
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

    /// The audit line before the operation.
    pub(super) fn start_line(&self) -> Value {
        let plan = &self.plan;
        let mut what = json!({
            "kind": plan.kind.name(),
            "before_ms": plan.before_ms(),
            "dry_run": plan.is_dry_run,
        });
        match plan.change {
            Some(Change {
                partitions,
                is_gentle,
            }) => {
                what["partitions"] = json!(partitions);
                what["abort"] = json!(partitions.is_none());
                what["gentle"] = json!(is_gentle);
            }
            None => what["pace"] = json!(plan.pace),
        }
        if let Some(selection) = &plan.selection {
            let filter = &selection.filter;
            let own = json!({
                "state": (plan.kind != Kind::Requeue).then(|| selection.state.as_str()), "after_ms": selection.after_ms, "error": selection.error,
                "crashed": selection.crashed, "error_text": filter.error_text,
                "min_failures": filter.min_failures, "min_crashes": filter.min_crashes, "limit": selection.limit,
            });
            let set = own.as_object().into_iter().flatten();
            for (name, value) in set.filter(|(_, value)| !value.is_null()) {
                what[name] = value.clone();
            }
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

    /// The audit line after the operation: its outcome and counts.
    pub(super) fn end_line(&self, last: &Progress) -> Value {
        json!({
            "at_ms": now_ms(),
            "event": "end",
            "action": self.id,
            "operation": last.clone().brief(),
        })
    }

    /// The operation as JSON.
    pub(crate) fn report(&self, href: String) -> OperationReport {
        let plan = &self.plan;
        let (selection, filter) = (
            plan.selection.as_ref(),
            plan.selection.as_ref().map(|one| &one.filter),
        );
        let has_file = self.kept.as_ref().is_some_and(|kept| kept.has_lines());
        OperationReport {
            id: self.id.clone(),
            queue: self.queue.clone(),
            kind: plan.kind,
            messages: selection.map(|one| one.state.as_str().to_owned()),
            before_ms: plan.before_ms(),
            after_ms: selection.and_then(|one| one.after_ms),
            error: selection.and_then(|one| one.error.clone()),
            crashed: selection.and_then(|one| one.crashed),
            error_text: filter.and_then(|filter| filter.error_text.clone()),
            min_failures: filter.and_then(|filter| filter.min_failures),
            min_crashes: filter.and_then(|filter| filter.min_crashes),
            limit: selection.and_then(|one| one.limit),
            cancelled_href: has_file.then(|| format!("{href}/cancelled")),
            dry_run: plan.is_dry_run,
            pace: plan.change.is_none().then_some(plan.pace),
            partitions: plan.change.and_then(|change| change.partitions),
            abort: plan
                .change
                .and_then(|change| change.partitions.is_none().then_some(true)),
            gentle: plan.change.map(|change| change.is_gentle),
            progress: self.progress(),
            by: self.by().to_owned(),
            started_ms: self.started_ms,
            href,
        }
    }
}
