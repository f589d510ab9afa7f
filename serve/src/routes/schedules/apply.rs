//! Declares the schedules of a set together.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{FromRequest, Request, State};
use dueq::Queue;
use dueq::schedules::{Schedule, ScheduleChanges};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::edge::body::{Whole, code_of, require_json, whole};
use crate::edge::path::Query;
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};
use crate::routes::schedules::outcome::ScheduleOutcome;
use crate::routes::schedules::schema::NewSchedules;
use crate::work::Shared;

/// The most bytes of a body. The audit log cannot read a longer one.
const MAX_BYTES: usize = 1 << 20;
/// The set of a declared schedule, unless the call names another one.
const SET: &str = "http";

/// The JSON of schedules, not yet parsed.
pub(super) struct ScheduleBody(Whole);

impl FromRequest<Shared> for ScheduleBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        require_json(&parts.headers)?;
        let whole = whole(&app.edge.bodies, &parts.headers, body, MAX_BYTES).await?;
        Ok(Self(whole))
    }
}

impl ScheduleBody {
    /// Parses the body. Checking the fires of a thousand crons takes time, so it runs on a blocking
    /// thread.
    pub(super) async fn read<T: Send + 'static>(
        self,
        read: impl FnOnce(&[u8]) -> Result<T, dueq_input::Error> + Send + 'static,
    ) -> Result<T, Problem> {
        let reading = tokio::task::spawn_blocking(move || {
            let text = &self.0.bytes;
            read(text).map_err(|error| Problem::new(code_of(text), error.to_string()))
        });
        match reading.await {
            Ok(read) => read,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Problem::new(Code::Stopping, "the server stops")),
            },
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// The set that the call declares; `http` without it
    #[param(
        pattern = "^[A-Za-z0-9._:/-]+$",
        min_length = 1,
        max_length = 100,
        default = "http"
    )]
    set: Option<String>,
    /// The revision of the set, such as the number of a deploy. A lower one than the stored is refused
    #[param(maximum = 9_007_199_254_740_992_u64)]
    revision: Option<u64>,
    /// Whether to remove the schedules of the set that the call does not declare
    prune: Option<bool>,
    /// Whether each schedule that is created makes a tick at once
    now: Option<bool>,
    /// Whether the call only says what it would change
    dry_run: Option<bool>,
    /// Whether to begin although live workers may be older than release 0.2
    allow_older: Option<bool>,
}

/// The request to declare schedules.
pub(super) struct Declaring {
    pub(super) set: Option<String>,
    pub(super) revision: Option<u64>,
    pub(super) prune: bool,
    pub(super) now: bool,
    pub(super) dry_run: bool,
    pub(super) allow_older: bool,
}

/// What became of the schedules of a set.
#[derive(Serialize, ToSchema)]
pub(super) struct AppliedSchedules {
    set: String,
    /// Whether nothing was changed, because the call asked for that.
    dry_run: bool,
    /// Those that were created, changed, kept and removed.
    schedules: Vec<ScheduleOutcome>,
}

/// Declare the schedules of a set
///
/// Up to 1,000. If one is wrong, none is changed. More than 24 are several calls of Redis: if one
/// of them fails, send the call again. A schedule that is stored with the same content keeps its
/// next fire and its counts. A set belongs to one team or service: the call changes no schedule of
/// another set.
///
/// The first schedule gives the queue layout 4, which workers before release 0.2 refuse.
#[utoipa::path(
    post,
    path = "/v1/queues/{queue}/schedules",
    tag = "schedules",
    params(Options),
    request_body = NewSchedules,
    responses(
        (status = 200, body = AppliedSchedules),
        (status = 409, description = "A newer revision has declared the set, a schedule belongs to another set, live workers are too old, or the queue has several partitions"),
        (status = 504),
        (status = 507),
    )
)]
pub(super) async fn apply_schedules(
    State(app): State<Shared>,
    name: QueueName,
    Query(options): Query<Options>,
    body: ScheduleBody,
) -> Result<Json<AppliedSchedules>, Problem> {
    let read = body.read(|text| dueq_input::schedules_json(text, SystemTime::now()));
    let schedules = read.await?.into_iter().map(|declared| declared.schedule);
    let schedules = schedules.collect();
    let declaring = Declaring {
        set: options.set,
        revision: options.revision,
        prune: options.prune.unwrap_or(false),
        now: options.now.unwrap_or(false),
        dry_run: options.dry_run.unwrap_or(false),
        allow_older: options.allow_older.unwrap_or(false),
    };
    let queue = app.client.queue(name.as_str())?;
    let changes = declaring.apply(&queue, schedules).await?;
    Ok(Json(AppliedSchedules {
        set: declaring.set().to_owned(),
        dry_run: declaring.dry_run,
        schedules: outcomes(&changes),
    }))
}

impl Declaring {
    pub(super) fn set(&self) -> &str {
        self.set.as_deref().unwrap_or(SET)
    }

    /// Declares the schedules: the script changes all of them or none.
    pub(super) async fn apply(
        &self,
        queue: &Queue,
        schedules: Vec<Schedule>,
    ) -> Result<ScheduleChanges, Problem> {
        if !self.allow_older {
            refuse_older_workers(queue).await?;
        }
        let mut set = queue.schedules(self.set());
        if let Some(revision) = self.revision {
            set = set.revision(revision);
        }
        let set = set
            .prune(self.prune)
            .fire_now(self.now)
            .dry_run(self.dry_run);
        let error = match set.apply(schedules).await {
            Ok(changes) => return Ok(changes),
            Err(error) => error,
        };
        if error.code() == Some("STALE") {
            return Err(Problem::new(Code::Stale, error.to_string()));
        }
        if !error.refused_schedules().is_empty() && queue.partitions().await?.len() > 1 {
            return Err(Problem::new(Code::Partitioned, error.to_string()));
        }
        // Each schedule that belongs to another set is a reason; five of them suffice.
        for (name, _) in error.refused_schedules().iter().take(5) {
            let stored = queue.schedule(name.as_str()).get().await;
            if matches!(stored, Ok(Some(stored)) if stored.set != self.set()) {
                return Err(Problem::new(Code::OtherSet, error.to_string()));
            }
        }
        Err(Problem::from(error))
    }
}

/// The first schedule raises the layout of a queue. Refuses that while older workers are live: they
/// would stop.
async fn refuse_older_workers(queue: &Queue) -> Result<(), Problem> {
    if !queue.exists().await? || queue.stats().await?.schedules > 0 {
        return Ok(());
    }
    let older = queue.older_nodes().await?;
    let Some(first) = older.first() else {
        return Ok(());
    };
    let detail = format!(
        "nothing was changed: schedules give the queue layout 4, which workers before release 0.2 refuse, and {} of its \
         live workers may be older, such as {first:?}; update them, or add ?allow_older=true if they know layout 4",
        older.len()
    );
    Err(Problem::new(Code::OlderWorkers, detail))
}

/// The outcome of each schedule.
pub(super) fn outcomes(changes: &ScheduleChanges) -> Vec<ScheduleOutcome> {
    let declared = [
        ("created", &changes.created),
        ("changed", &changes.changed),
        ("kept", &changes.kept),
    ];
    let declared = declared.into_iter().flat_map(|(word, list)| {
        list.iter().map(move |declared| ScheduleOutcome {
            next_ms: declared.next_ms,
            ..ScheduleOutcome::new(&*declared.name, word)
        })
    });
    let removed = changes.removed.iter();
    let removed = removed.map(|name| ScheduleOutcome::new(&**name, "removed"));
    declared.chain(removed).collect()
}
