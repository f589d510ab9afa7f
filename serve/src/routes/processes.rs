//! The processes that work on the queues.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use dueq::inspect::WorkerProcess;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::auth::Principal;
use crate::edge::problem::Problem;
use crate::wire::workers::Processes;
use crate::work::Shared;
use crate::work::poll::View;

/// The longest wait for workers that were never read.
const PATIENCE: Duration = Duration::from_millis(500);

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(list_processes)]
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
