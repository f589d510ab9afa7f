//! `/server`: the doctor's findings about the Redis server, audits, and the configuration of this
//! instance.

use std::time::Duration;

use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::routing::get;

use crate::dashboard::findings::worst_first;
use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::answer::{Answer, again, render};
use crate::dashboard::views::operations::{all, begin};
use crate::edge::problem::{Code, Problem};
use crate::wire::about::{Examination, Session, Unchecked};
use crate::wire::operations::OperationReport;
use crate::work::Shared;

/// The longest wait for the doctor's findings: while Redis is unreachable, they take seconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// The version and the configuration of this instance.
struct Instance {
    version: &'static str,
    uptime: String,
    queues: String,
    rate: String,
    bodies: String,
    is_read_only: bool,
}

#[derive(Template)]
#[template(path = "server.html")]
struct ServerPage {
    frame: Frame,
    /// The doctor's findings, or why there are none.
    examination: Result<Examination, String>,
    audits: Vec<OperationReport>,
    may_operate: bool,
    instance: Instance,
    caller: Session,
    fields: Fields,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/server", get(server).post(act))
}

async fn server(State(app): State<Shared>, page: Page) -> Answer {
    let examined = page.api.get::<Examination>("/v1/doctor");
    let examination = match tokio::time::timeout(PATIENCE, examined).await {
        Ok(Ok(examination)) => Ok(examination_shown(examination)),
        Ok(Err(failure)) => Err(show::text(failure.detail())),
        Err(_) => Err("the examination has not ended yet: look again in some seconds".to_owned()),
    };
    let caller: Session = page.api.get("/v1/caller").await?;
    let mut audits = all(&page).await?;
    audits.retain(OperationReport::is_audit);
    audits.truncate(10);
    render(&ServerPage {
        frame: page.frame("Server", Here::Server),
        examination,
        audits,
        may_operate: page.caller().may_operate,
        instance: Instance::of(&app),
        caller: caller_shown(caller),
        fields: page.fields,
    })
}

async fn act(app: State<Shared>, page: Page, form: Form) -> Answer {
    match change(&page, &form).await {
        Err(failure) => again(server(app, page.refused(&form, failure)?).await),
        done => done,
    }
}

async fn change(page: &Page, form: &Form) -> Answer {
    let refused = |detail: &str| Problem::new(Code::InvalidInput, detail).into();
    if form.get("action") != Some("audit") {
        return Err(refused("the form names no known action"));
    }
    match form.filled("queue") {
        Some(queue) => match begin(page, &segment(queue.trim()), "audit").await {
            Err(failure) if matches!(failure.code(), "no_such_queue" | "invalid_path") => {
                Err(refused(&format!("queue: {}", failure.detail())))
            }
            begun => begun,
        },
        None => Err(refused("queue: name the queue to audit")),
    }
}

fn examination_shown(examination: Examination) -> Examination {
    let unchecked = examination.unchecked.iter().map(|unchecked| Unchecked {
        what: show::text(&unchecked.what),
        why: show::text(&unchecked.why),
    });
    Examination {
        unchecked: unchecked.collect(),
        findings: worst_first(examination.findings),
        remarks: worst_first(examination.remarks),
        age_ms: examination.age_ms,
    }
}

fn caller_shown(caller: Session) -> Session {
    let queues = caller.queues.iter().map(|queue| show::text(queue));
    Session {
        queues: queues.collect(),
        name: show::text(&caller.name),
        ..caller
    }
}

impl Instance {
    fn of(app: &Shared) -> Self {
        let uptime = u64::try_from(app.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let patterns: Vec<_> = app.edge.served().iter().map(ToString::to_string).collect();
        let bytes = app.edge.bodies.max_bytes();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            uptime: show::duration(uptime),
            queues: match patterns.join(", ") {
                patterns if patterns.is_empty() => "all".to_owned(),
                patterns => show::text(&patterns),
            },
            rate: match app.edge.rate_limit.per_second() {
                Some(rate) => format!("{rate} a second from each caller"),
                None => "no limit".to_owned(),
            },
            bodies: format!("{} MiB in memory at most", bytes >> 20),
            is_read_only: app.edge.is_read_only,
        }
    }
}
