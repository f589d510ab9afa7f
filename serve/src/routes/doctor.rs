//! What is wrong with the server or a queue, and how to repair it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use dueq::{Checkup, Finding};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::edge::path::QueueName;
use crate::edge::problem::{Document, Problem};
use crate::work::Shared;

pub(super) fn routes() -> Vec<UtoipaMethodRouter<Shared>> {
    vec![routes!(examine_server), routes!(examine_queue)]
}

/// An examination.
#[derive(Serialize, ToSchema)]
struct Examination {
    /// Everything that is wrong.
    findings: Vec<Found>,
    /// What is worth knowing and not wrong.
    remarks: Vec<Found>,
    /// What could not be checked, and why.
    unchecked: Vec<Unchecked>,
    /// How old the examination is: at most 10 s.
    age_ms: u64,
}

/// Something that is wrong, or worth knowing.
#[derive(Serialize, ToSchema)]
#[schema(as = Finding)]
struct Found {
    /// A word for this kind of finding. It does not change between releases.
    code: &'static str,
    /// The id, key, field or setting.
    subject: String,
    problem: String,
    consequence: &'static str,
    /// The command that repairs it, or where to look.
    remedy: String,
}

/// What could not be checked.
#[derive(Serialize, ToSchema)]
struct Unchecked {
    what: &'static str,
    why: String,
}

/// Examine the Redis server
///
/// Version, eviction, persistence, replicas, memory, round trip and Functions library, as `dueq doctor`
/// does. All callers share an examination for 10 s.
#[utoipa::path(get, path = "/v1/doctor", tag = "about", responses((status = 200, body = Examination)))]
async fn examine_server(State(app): State<Shared>) -> Result<Json<Examination>, Problem> {
    let examined = app.doctor.server().await?;
    Ok(Examination::new(&examined))
}

/// Examine a queue
///
/// Whether due messages are delivered, and if not, why; its keys, limits, encodings and wake-up list.
/// Each message is examined by `dueq doctor QUEUE` only. If messages are late, the answer takes some
/// seconds. All callers share an examination for 10 s.
#[utoipa::path(
    get,
    path = "/v1/queues/{queue}/doctor",
    tag = "queues",
    params(("queue" = String, Path, description = "The name, percent-encoded, or `~` and its base64url")),
    responses(
        (status = 200, body = Examination),
        (status = 404, description = "The queue does not exist", body = Document, content_type = "application/problem+json"),
    )
)]
async fn examine_queue(
    State(app): State<Shared>,
    name: QueueName,
) -> Result<Json<Examination>, Problem> {
    let queue = app.client.queue(name.as_str())?;
    let examined = app.doctor.queue(&queue).await?;
    let (_, checkup) = &examined;
    if checkup.findings.is_empty() && checkup.facts.contains(&("exists", "false".to_owned())) {
        app.existing(&name).await?; // the problem that it does not
    }
    Ok(Examination::new(&examined))
}

impl Examination {
    fn new((age, checkup): &(Duration, Arc<Checkup>)) -> Json<Self> {
        let unchecked = checkup.unchecked.iter().map(|unchecked| Unchecked {
            what: unchecked.what,
            why: unchecked.why.clone(),
        });
        Json(Self {
            findings: checkup.findings.iter().map(Found::new).collect(),
            remarks: checkup.remarks.iter().map(Found::new).collect(),
            unchecked: unchecked.collect(),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

impl Found {
    fn new(finding: &Finding) -> Self {
        Self {
            code: finding.code,
            subject: String::from_utf8_lossy(&finding.subject).into_owned(),
            problem: finding.problem.clone(),
            consequence: finding.consequence,
            remedy: finding.remedy.clone(),
        }
    }
}
