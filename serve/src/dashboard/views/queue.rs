//! `/queues/Q`: one queue.

use askama::Template;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use serde::Deserialize;
use serde_json::Value;

use crate::app::Shared;
use crate::dashboard::form::Form;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::{Answer, render, see};
use crate::problem::{Code, Problem};

#[derive(Deserialize)]
struct Queue {
    paused: bool,
    scheduled: u64,
    ready: u64,
    leased: u64,
    dead: u64,
}

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage {
    frame: Frame,
    name: String,
    segment: String,
    may_operate: bool,
    queue: Queue,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/queues/{queue}", get(queue).post(act))
}

async fn queue(page: Page) -> Answer {
    let name = page.queue_name()?;
    let segment = segment(name);
    let queue: Queue = page.api.get(&format!("/v1/queues/{segment}")).await?;
    render(&QueuePage {
        frame: page.frame(show::text(name), Here::Queue),
        name: show::text(name),
        may_operate: page.caller().may_operate,
        segment,
        queue,
    })
}

async fn act(page: Page, form: Form) -> Answer {
    let segment = segment(page.queue_name()?);
    let pause = format!("/v1/queues/{segment}/pause");
    let (method, did) = match form.get("action") {
        Some("pause") => (Method::PUT, "paused"),
        Some("resume") => (Method::DELETE, "resumed"),
        _ => return Err(Problem::new(Code::InvalidInput, "the form names no known action").into()),
    };
    let _: Value = page.api.send(method, &pause, None).await?;
    see(&page.base, &format!("/queues/{segment}?did={did}"))
}
