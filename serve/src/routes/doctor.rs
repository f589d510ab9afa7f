//! What is wrong with the server or a queue, and how to repair it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use dueq::{Checkup, Error, Finding};
use serde::Serialize;
use tokio::sync::watch;
use utoipa::ToSchema;
use utoipa_axum::router::UtoipaMethodRouter;
use utoipa_axum::routes;

use crate::app::Shared;
use crate::path::QueueName;
use crate::problem::{Code, Document, Problem};

/// How old an examination may be. All viewers share it.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How many examinations are kept at most.
const MAX_KEPT: usize = 256;

type Kept = tokio::sync::Mutex<Option<(Instant, Arc<Checkup>)>>;

/// The last examinations.
#[derive(Default)]
pub(crate) struct Doctor {
    /// Of the server under no name, and of queues.
    kept: Mutex<HashMap<Option<String>, Arc<Kept>>>,
    /// The last one of the server, for those who cannot wait.
    latest: watch::Sender<Option<(Instant, Arc<Checkup>)>>,
    /// Whether one began for them that has not ended.
    is_running: AtomicBool,
}

/// How old an examination may be at a glance, if a new one does not end in time.
const MAX_AGE_AT_A_GLANCE: Duration = Duration::from_secs(60);

impl Doctor {
    /// The examination of the server that the callers share, for a reader who waits at most
    /// `patience`. `None` if none ended in the last minute. If the last one is older than 10 s, it
    /// begins one, which goes on after that.
    pub(crate) async fn glance(app: &Shared, patience: Duration) -> Option<Arc<Checkup>> {
        let mut latest = app.doctor.latest.subscribe();
        let is_new = |latest: &Option<(Instant, _)>, max: Duration| {
            latest.as_ref().is_some_and(|(at, _)| at.elapsed() < max)
        };
        if !is_new(&latest.borrow(), MAX_AGE) {
            app.doctor.begin(app);
            let examined = latest.wait_for(|latest| is_new(latest, MAX_AGE));
            let _ = tokio::time::timeout(patience, examined).await;
        }
        let latest = latest.borrow();
        let usable = latest
            .as_ref()
            .filter(|_| is_new(&latest, MAX_AGE_AT_A_GLANCE));
        usable.map(|(_, checkup)| Arc::clone(checkup))
    }

    /// Begins an examination of the server, unless one runs. The calls of the library end.
    fn begin(&self, app: &Shared) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let app = app.clone();
        tokio::spawn(async move {
            let _running = Running(&app.doctor.is_running);
            // Redis may be away: the page says so by the age of its counts.
            let _ = app.doctor.examined(None, app.client.examine()).await;
        });
    }

    /// The examination of this queue, or of the server. Who asks meanwhile waits for the same one.
    async fn examined(
        &self,
        queue: Option<&str>,
        examine: impl Future<Output = Result<Checkup, Error>>,
    ) -> Result<(Duration, Arc<Checkup>), Problem> {
        let kept = self.kept(queue)?;
        let mut kept = kept.lock().await;
        if let Some((at, checkup)) = &*kept
            && at.elapsed() < MAX_AGE
        {
            return Ok((at.elapsed(), Arc::clone(checkup)));
        }
        let (at, checkup) = (Instant::now(), Arc::new(examine.await?));
        *kept = Some((at, Arc::clone(&checkup)));
        if queue.is_none() {
            self.latest.send_replace(Some((at, Arc::clone(&checkup))));
        }
        Ok((at.elapsed(), checkup))
    }

    fn kept(&self, queue: Option<&str>) -> Result<Arc<Kept>, Problem> {
        let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let key = queue.map(str::to_owned);
        if all.len() >= MAX_KEPT && !all.contains_key(&key) {
            all.retain(|_, kept| {
                let is_new = |kept: &Option<(Instant, _)>| {
                    kept.as_ref().is_some_and(|(at, _)| at.elapsed() < MAX_AGE)
                };
                // One that is locked is examined now.
                Arc::strong_count(kept) > 1 || kept.try_lock().is_ok_and(|kept| is_new(&kept))
            });
            if all.len() >= MAX_KEPT {
                let detail = format!("{MAX_KEPT} queues were examined within 10 s; try again");
                return Err(Problem::new(Code::Busy, detail).retry_after_s(10));
            }
        }
        Ok(Arc::clone(all.entry(key).or_default()))
    }
}

/// Says at its end that no examination runs, also after a panic.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

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
    let examined = app.doctor.examined(None, app.client.examine()).await?;
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
    let examine = queue.examine_briefly();
    let examined = app.doctor.examined(Some(name.as_str()), examine).await?;
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
