//! The processes that work on the queues.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use dueq::Error;
use dueq::inspect::{NodeInfo, WorkerProcess};
use dueq::outcomes::DrainOutcome;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::auth::Principal;
use crate::edge::body::JsonBody;
use crate::edge::problem::{Code, Problem};
use crate::wire::workers::Processes;
use crate::work::poll::View;
use crate::work::{App, Shared};

/// The longest wait for workers that were never read.
const PATIENCE: Duration = Duration::from_millis(500);
/// The most queues that a drain changes at once.
const AT_ONCE: usize = 16;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list_processes)]
}

/// The routes that drain and resume a process.
pub(super) fn changes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(drain_process), routes!(resume_process)]
}

/// List the processes with workers
///
/// Those that work on queues of the caller, with what their workers told: host, process id, program,
/// start, handlers. The server keeps the workers of queues for some seconds, and reads them again when
/// somebody asks.
#[utoipa::path(
    get,
    path = "/v1/processes",
    tag = "queues",
    responses((status = 200, body = Processes)),
)]
async fn list_processes(
    State(app): State<Shared>,
    principal: Principal,
) -> Result<Json<Processes>, Problem> {
    let snapshot = app.poller.looked().await;
    let age_ms = snapshot.known_age_ms()?;
    let allowed = snapshot.after(None);
    let allowed = allowed.filter(|(name, _)| principal.may_use(name));
    let attended = allowed.filter_map(|(name, entry)| {
        let counts = entry.listed(name).counts?;
        (counts.nodes > 0).then_some(name)
    });
    let names: Vec<&str> = attended.map(AsRef::as_ref).collect();
    let known = app.poller.details(View::Workers, &names, PATIENCE).await;
    let (mut workers, mut unread) = (Vec::new(), 0);
    for name in names {
        match known.get(name).and_then(|known| known.nodes.as_ref()) {
            Some((nodes, _)) => {
                workers.extend(nodes.iter().map(|node| (name.to_owned(), node.clone())));
            }
            None => unread += 1,
        }
    }
    let processes = WorkerProcess::group(workers).into_iter();
    Ok(Json(Processes {
        processes: processes.map(Into::into).collect(),
        unread,
        age_ms,
    }))
}

/// The process that is meant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MeantProcess {
    /// As the list of processes has it.
    host: String,
    #[schema(format = Int64, maximum = 4_294_967_295_u64)]
    pid: u32,
}

/// What was done.
#[derive(Default, Serialize, ToSchema)]
struct Drained {
    /// `drained`, `resumed`; or `gone`: the process has no live worker on a queue of the caller.
    outcome: &'static str,
    /// The queues of which it takes nothing new, or messages again.
    queues: Vec<String>,
    /// Queues in which 100 other workers are drained: there it goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    full: Vec<String>,
    /// Queues that Redis did not answer for, whole or in part: send the call again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreached: Vec<String>,
}

/// Drain a process
///
/// Its workers claim nothing more from the caller's queues. They go on with what they have, extend
/// and settle it. Their next report tells them, within a second. The drain ends with a resume, and
/// with the process. A process that serves claims over HTTP gives its consumers no messages.
#[utoipa::path(
    post,
    path = "/v1/processes/drain",
    tag = "queues",
    request_body = MeantProcess,
    responses((status = 200, body = Drained)),
)]
async fn drain_process(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(meant): JsonBody<MeantProcess>,
) -> Result<Json<Drained>, Problem> {
    change(&app, &principal, Arc::new(meant), true).await
}

/// Resume a drained process
///
/// Its workers take messages again after their next report.
#[utoipa::path(
    post,
    path = "/v1/processes/resume",
    tag = "queues",
    request_body = MeantProcess,
    responses((status = 200, body = Drained)),
)]
async fn resume_process(
    State(app): State<Shared>,
    principal: Principal,
    JsonBody(meant): JsonBody<MeantProcess>,
) -> Result<Json<Drained>, Problem> {
    change(&app, &principal, Arc::new(meant), false).await
}

/// Drains or resumes the workers of the process in each queue of the caller. It reads the workers
/// first, because the poller's may be old.
async fn change(
    app: &Shared,
    principal: &Principal,
    meant: Arc<MeantProcess>,
    drains: bool,
) -> Result<Json<Drained>, Problem> {
    let snapshot = app.poller.looked().await;
    snapshot.known_age_ms()?;
    let mut done = Drained::default();
    let mut failed = None;
    let allowed = snapshot.after(None).map(|(name, _)| name.to_string());
    let mut allowed = allowed.filter(|name| principal.may_use(name));
    let mut calls = JoinSet::new();
    loop {
        while calls.len() < AT_ONCE
            && let Some(name) = allowed.next()
        {
            let (app, meant) = (Arc::clone(app), Arc::clone(&meant));
            calls.spawn(async move {
                let changed = change_queue(&app, &name, &meant, drains).await;
                (name, changed)
            });
        }
        let Some(ended) = calls.join_next().await else {
            break;
        };
        let Ok((name, changed)) = ended else {
            return Err(Problem::new(Code::Internal, "a call panicked"));
        };
        match changed {
            Ok(None) => {}
            Ok(Some(DrainOutcome::Full)) => done.full.push(name),
            Ok(Some(_)) => done.queues.push(name),
            Err(error) => {
                done.unreached.push(name);
                failed = failed.or(Some(error));
            }
        }
    }
    for names in [&mut done.queues, &mut done.full, &mut done.unreached] {
        names.sort_unstable();
    }
    done.outcome = match (done.queues.is_empty() && done.full.is_empty(), drains) {
        (true, _) => "gone",
        (_, true) => "drained",
        (_, false) => "resumed",
    };
    match failed.filter(|_| done.outcome == "gone") {
        Some(error) => Err(error.into()),
        None => Ok(Json(done)),
    }
}

/// Drains or resumes the workers that are meant in one queue. Returns none if it has none of them.
async fn change_queue(
    app: &App,
    name: &str,
    meant: &MeantProcess,
    drains: bool,
) -> Result<Option<DrainOutcome>, Error> {
    let queue = app.client.queue(name)?;
    let mut nodes = queue.nodes().await?;
    let is_meant = |node: &NodeInfo| {
        let told = node.process.as_ref();
        told.is_some_and(|told| told.host == meant.host && told.pid == meant.pid)
    };
    let ids = nodes.iter().filter(|node| is_meant(node));
    let ids: Vec<_> = ids.map(|node| node.id.clone()).collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let outcomes = match drains {
        true => queue.drain_nodes(&ids).await?,
        false => queue.resume_nodes(&ids).await?,
    };
    for (id, outcome) in ids.iter().zip(&outcomes) {
        let mut nodes = nodes.iter_mut();
        if let Some(node) = nodes.find(|node| node.id == *id && *outcome == DrainOutcome::Done) {
            node.is_drained = drains;
        }
    }
    app.poller.saw_nodes(name, nodes);
    let is_full = outcomes.contains(&DrainOutcome::Full);
    Ok(Some(if is_full {
        DrainOutcome::Full
    } else {
        DrainOutcome::Done
    }))
}
