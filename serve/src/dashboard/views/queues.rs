//! `/`: all queues.

use askama::Template;
use axum::Router;
use axum::routing::get;
use serde::Deserialize;

use crate::app::Shared;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Markup};
use crate::dashboard::views::{Answer, render};

#[derive(Deserialize)]
struct Queues {
    queues: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    queue: String,
    counts: Option<Counts>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Counts {
    scheduled: u64,
    ready: u64,
    leased: u64,
    dead: u64,
    nodes: u64,
}

struct Row {
    name: String,
    segment: String,
    error: Option<String>,
    counts: Option<Counts>,
}

impl Row {
    fn short(&self, number: &u64) -> Markup {
        show::short(*number)
    }
}

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesPage {
    frame: Frame,
    rows: Vec<Row>,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/", get(queues))
}

async fn queues(page: Page) -> Answer {
    let found: Queues = page.api.get("/v1/queues?limit=100").await?;
    let rows = found.queues.into_iter().map(|listed| Row {
        segment: segment(&listed.queue),
        name: show::text(&listed.queue),
        error: listed.error.map(|error| show::text(&error)),
        counts: listed.counts,
    });
    render(&QueuesPage {
        frame: page.frame("Queues", Here::Queues),
        rows: rows.collect(),
    })
}
