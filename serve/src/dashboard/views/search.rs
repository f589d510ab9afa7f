//! `/search` finds the queues that hold a message id. `/go` redirects to a queue by its name.

use askama::Template;
use axum::Router;
use axum::routing::get;
use form_urlencoded::Serializer;
use serde_json::Value;

use crate::dashboard::form::Fields;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show::{self, Markup};
use crate::dashboard::views::answer::{Answer, again, render, see};
use crate::edge::path::read_id;
use crate::wire::about::{Hit, SearchResult};
use crate::work::Shared;

/// The most names of unsearched queues that the page shows.
const MAX_NAMES: usize = 20;

struct Row {
    name: String,
    address: String,
    state: String,
    time: Markup,
    failures: u32,
    crashes: u32,
    error: String,
}

/// The results of a search, and the queues that were not searched.
struct Searched {
    rows: Vec<Row>,
    asked: u64,
    failed: Vec<(String, String)>,
    not_asked: usize,
    names: Vec<String>,
    complete: bool,
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage {
    frame: Frame,
    /// The typed id, or another spelling of it that makes invisible characters visible.
    typed: String,
    id: String,
    searched: Option<Searched>,
    fields: Fields,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/search", get(search))
        .route("/go", get(go))
}

async fn search(page: Page) -> Answer {
    let spelled = page.param("id").unwrap_or_default().trim().to_owned();
    let mut shown = SearchPage {
        frame: page.frame("Search", Here::Search),
        id: String::new(),
        searched: None,
        typed: spelled.clone(),
        fields: Fields::default(),
    };
    if spelled.is_empty() {
        return render(&shown);
    }
    let id = match read_id(&spelled) {
        Ok(id) => id,
        Err(problem) => {
            shown.fields = page.without(problem)?.fields;
            return again(render(&shown));
        }
    };
    let params = Serializer::new(String::new())
        .append_pair("id", &spelled)
        .finish();
    let found: SearchResult = page.api.get(&format!("/v1/search?{params}")).await?;
    let id_segment = dueq_input::id_path(&id);
    let address = |hit: &Hit| format!("/queues/{}/messages/{id_segment}", segment(&hit.queue));
    // The page of the only message says more than a table of one row.
    if let ([hit], true) = (&found.found[..], found.complete) {
        return see(&page.base, &address(hit));
    }
    shown.id = show::text(&String::from_utf8_lossy(&id));
    if show::text(&shown.typed) != shown.typed {
        shown.typed.clone_from(&id_segment);
    }
    let row = |hit: &Hit| Row {
        name: show::text(&hit.queue),
        address: address(hit),
        state: hit.state.clone(),
        time: page.clock.time(hit.time_ms),
        failures: hit.failures,
        crashes: hit.crashes,
        error: show::text(hit.error.lines().next().unwrap_or_default()),
    };
    let failed = found.failed.iter();
    let names = found.not_asked.iter().take(MAX_NAMES);
    shown.searched = Some(Searched {
        rows: found.found.iter().map(row).collect(),
        asked: found.asked as u64,
        failed: failed
            .map(|failed| (show::text(&failed.queue), show::text(&failed.error)))
            .collect(),
        not_asked: found.not_asked.len(),
        names: names.map(|name| show::text(name)).collect(),
        complete: found.complete,
    });
    render(&shown)
}

async fn go(page: Page) -> Answer {
    let name = page.param("queue").unwrap_or_default().trim();
    if name.is_empty() {
        return see(&page.base, "/");
    }
    let segment = segment(name);
    match page
        .api
        .get::<Value>(&format!("/v1/queues/{segment}"))
        .await
    {
        Ok(_) => see(&page.base, &format!("/queues/{segment}")),
        Err(failure) if matches!(failure.code(), "no_such_queue" | "invalid_path") => {
            see(&page.base, "/?did=no_queue")
        }
        Err(failure) => Err(failure),
    }
}
