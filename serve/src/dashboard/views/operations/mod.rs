//! `/operations`: the list of operations on whole queues, and the page of one.

mod read;

use askama::Template;
use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::Method;
use axum::http::request::Parts;
use axum::routing::get;
use serde_json::{Value, json};

use crate::dashboard::form::Form;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Clock};
use crate::dashboard::views::answer::{Answer, render, see};
use crate::dashboard::views::message::shell_word;
use crate::edge::problem::{Code, Problem};
use crate::wire::operations::OperationReport;
use crate::work::Shared;

pub(super) use read::all;

#[derive(Template)]
#[template(path = "operations.html")]
struct OperationsPage {
    frame: Frame,
    running: Vec<OperationReport>,
    ended: Vec<OperationReport>,
    clock: Clock,
}

#[derive(Template)]
#[template(path = "operation.html")]
struct OperationPage {
    frame: Frame,
    operation: OperationReport,
    clock: Clock,
    may_operate: bool,
    may_read_payloads: bool,
    /// The queue's name, quoted for a shell.
    queue_word: String,
    /// The path of the operation in `/v1`.
    path: String,
}

pub(super) fn routes() -> Router<Shared> {
    let one = get(show_operation).post(change);
    Router::new()
        .route("/operations", get(list))
        .route("/operations/{queue}/{operation}", one)
}

/// The operation's id in the path, as a path segment.
struct Id(String);

impl FromRequestParts<Shared> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let raw = crate::edge::path::segment(parts, "{operation}");
        let raw = raw.ok_or_else(|| Problem::new(Code::Internal, "the path has no operation"))?;
        let id = crate::edge::path::decode(raw)?;
        Ok(Self(dueq_input::id_path(&id)))
    }
}

async fn list(page: Page) -> Answer {
    let all = all(&page).await?;
    let (running, ended) = all.into_iter().partition(OperationReport::is_running);
    render(&OperationsPage {
        frame: page.frame("Operations", Here::Operations),
        running,
        ended,
        clock: page.clock,
    })
}

async fn show_operation(page: Page, id: Id) -> Answer {
    let queue = segment(page.queue_name()?);
    let path = format!("/v1/queues/{queue}/operations/{}", id.0);
    let operation: OperationReport = page.api.get(&path).await?;
    render(&OperationPage {
        frame: page.frame(operation.title(), Here::Operations),
        may_operate: page.caller().may_operate,
        may_read_payloads: page.caller().may_read_payloads,
        queue_word: shell_word(operation.queue.as_bytes()),
        path,
        operation,
        clock: page.clock,
    })
}

async fn change(page: Page, id: Id, form: Form) -> Answer {
    let queue = segment(page.queue_name()?);
    let at = format!("{queue}/{}", id.0);
    match form.get("action") {
        Some("stop") => {
            let stop = format!("/v1/queues/{queue}/operations/{}/stop", id.0);
            let _: Value = page.api.send(Method::POST, &stop, None).await?;
            see(&page.base, &format!("/operations/{at}?did=stopping"))
        }
        Some("repair") => begin(&page, &queue, "repair").await,
        _ => Err(Problem::new(Code::InvalidInput, "the form names no known action").into()),
    }
}

/// Begins an operation that needs no further fields, and redirects to its page. `queue` is a path
/// segment.
pub(super) async fn begin(page: &Page, queue: &str, kind: &str) -> Answer {
    let path = format!("/v1/queues/{queue}/operations");
    let body = json!({ "kind": kind });
    let begun: OperationReport = page.api.send(Method::POST, &path, Some(&body)).await?;
    let address = format!("/operations/{queue}/{}", begun.id());
    see(&page.base, &address)
}
