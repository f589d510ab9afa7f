//! `/queues/Q/messages`: a paged list of the queue's messages in one state.

mod asked;
mod matching;

use askama::Template;
pub(super) use asked::moment;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use serde_json::json;

use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::show::Markup;
use crate::dashboard::views::answer::{Answer, again, local, render, see};
use crate::dashboard::views::each::Change;
use crate::dashboard::views::message::shell_word;
use crate::dashboard::views::messages::asked::Asked;
use crate::dashboard::views::messages::matching::Matching;
use crate::edge::problem::{Code, Problem};
use crate::wire::messages::{Messages, Payload};
use crate::wire::operations::OperationReport;
use crate::wire::overview::Dues;
use crate::wire::queues::Queue;
use crate::work::Shared;

/// The number of messages on a page.
pub(super) const PAGE: usize = 100;

/// How many leased messages are read to find those that run longest: those whose leases end first.
const MOST_BY_START: usize = 1_000;

struct Tab {
    state: &'static str,
    count: u64,
    address: String,
}

struct Row {
    segment: String,
    id: String,
    time: Markup,
    failures: u32,
    crashes: u32,
    error: String,
    /// The first line of its payload.
    payload: Option<String>,
    /// When its handler began, and the end of the id of its worker; of a leased message.
    since: Option<Markup>,
    node: Option<String>,
}

#[derive(Template)]
#[template(path = "messages.html")]
struct MessagesPage {
    frame: Frame,
    name: String,
    /// The queue's name, quoted for a shell.
    word: String,
    segment: String,
    tabs: Vec<Tab>,
    asked: Asked,
    /// The parameters of this page, for the way back to it.
    back: String,
    rows: Vec<Row>,
    first: Option<String>,
    next: Option<String>,
    /// The form for all that match, if the caller may begin operations.
    matching: Option<Matching>,
    may_read_payloads: bool,
    may_produce: bool,
    may_cancel: bool,
    may_requeue: bool,
    is_operation: bool,
    fields: Fields,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/queues/{queue}/messages", get(messages).post(act))
}

async fn messages(page: Page) -> Answer {
    match Asked::of(&page) {
        Ok(asked) => list(page, asked).await,
        Err(problem) => {
            let page = page.without(problem)?;
            let asked = Asked::of(&page)?;
            again(list(page, asked).await)
        }
    }
}

async fn list(page: Page, asked: Asked) -> Answer {
    let name = page.queue_name()?;
    let segment = segment(name);
    let queue = format!("/v1/queues/{segment}");
    let now: Dues = page.api.get(&format!("{queue}/dues?count=1")).await?;
    let counts: Queue = page.api.get(&queue).await?;
    let limit = if asked.is_by_start {
        MOST_BY_START
    } else {
        PAGE
    };
    let address = format!("{queue}/messages?{}", asked.of_list(limit));
    let list: Messages = page.api.get(&address).await?;
    let clock = page.clock.clone().at(now.now_ms);
    let (mut found, mut next) = (list.messages, list.next);
    // `/v1` lists from the latest message on and has no lower bound; this page drops messages
    // before the bound.
    if let Some(least) = asked.least_ms() {
        let count = found.len();
        found.retain(|message| message.times.ms() >= least);
        if found.len() < count && asked.state != "ready" {
            next = None;
        }
    }
    if asked.is_by_start {
        found.sort_by_key(|message| message.since_ms.unwrap_or(0));
        found.truncate(PAGE);
        next = None;
    }
    let rows = found.iter().map(|message| Row {
        segment: message.segment().to_owned(),
        id: show::text(&message.id.id),
        time: clock.time(message.times.ms()),
        failures: message.failures,
        crashes: message.crashes,
        error: show::text(&message.error),
        payload: message.payload.as_ref().map(first_line),
        since: message.since_ms.map(|ms| clock.time(ms)),
        node: message.node.as_deref().map(show::text),
    });
    let counted = [
        ("scheduled", counts.scheduled),
        ("ready", counts.ready),
        ("leased", counts.leased),
        ("dead", counts.dead),
    ];
    let tabs = counted.map(|(state, count)| Tab {
        state,
        count,
        address: asked.in_state(state),
    });
    let caller = page.caller();
    let waits = matches!(asked.state, "scheduled" | "ready");
    render(&MessagesPage {
        frame: page
            .frame(format!("Messages of {}", show::text(name)), Here::Messages)
            .at(&clock),
        name: show::text(name),
        word: shell_word(name.as_bytes()),
        rows: rows.collect(),
        tabs: tabs.into(),
        back: asked.address(asked.cursor.as_deref()),
        first: asked.cursor.is_some().then(|| asked.address(None)),
        next: next
            .as_deref()
            .and_then(cursor_of)
            .map(|cursor| asked.address(Some(cursor))),
        matching: caller
            .may_operate
            .then(|| Matching::new(&asked, now.now_ms))
            .flatten(),
        may_read_payloads: caller.may_read_payloads,
        may_produce: caller.may_produce,
        may_cancel: waits && caller.may_produce,
        may_requeue: asked.state == "dead" && caller.may_operate,
        is_operation: caller.may_operate,
        fields: page.fields,
        asked,
        segment,
    })
}

/// The cursor in the address of the next page, in base64url.
fn cursor_of(next: &str) -> Option<&str> {
    let (_, cursor) = next.split_once("&cursor=")?;
    cursor.split('&').next()
}

/// The first line of a payload; of one that is no text, how long it is.
fn first_line(payload: &Payload) -> String {
    match &payload.payload {
        Some(text) => show::text(text.lines().next().unwrap_or_default()),
        None => format!("{} bytes", show::number(payload.payload_bytes)),
    }
}

async fn act(page: Page, form: Form) -> Answer {
    if form.get("all").is_none() {
        return selected(page, form).await;
    }
    let queue = segment(page.queue_name()?);
    match matching::begin(&page, &queue, &form).await {
        Ok(begun) => {
            let address = format!("/operations/{queue}/{}", begun.id());
            see(&page.base, &address)
        }
        Err(failure) => again(messages(page.refused(&form, failure)?).await),
    }
}

/// Acts on the messages whose boxes are ticked.
async fn selected(page: Page, form: Form) -> Answer {
    let queue = segment(page.queue_name()?);
    let ids: Vec<_> = form.all("id").map(str::to_owned).collect();
    let list = format!("/queues/{queue}/messages");
    let back = match form.filled("back").map(|params| format!("{list}?{params}")) {
        Some(back) if local(&back) == back => back,
        _ => list,
    };
    if ids.is_empty() {
        let and = if back.contains('?') { '&' } else { '?' };
        return see(&page.base, &format!("{back}{and}did=nothing_selected"));
    }
    if ids.len() > PAGE {
        let detail = format!("id: {} messages; a form names {PAGE} at most", ids.len());
        return Err(Problem::new(Code::InvalidInput, detail).into());
    }
    let ids = ids
        .iter()
        .map(|id| normal(id))
        .collect::<Result<Vec<_>, _>>()?;
    let change = match form.get("action") {
        Some("cancel") if page.caller().may_operate => {
            let body = json!({ "kind": "cancel", "ids": ids });
            let address = format!("/v1/queues/{queue}/operations");
            let begun: OperationReport = page.api.send(Method::POST, &address, Some(&body)).await?;
            return see(&page.base, &format!("/operations/{queue}/{}", begun.id()));
        }
        Some("cancel") => Change::Cancel,
        Some("requeue") => Change::Requeue,
        _ => return Err(Problem::new(Code::InvalidInput, "the form names no known action").into()),
    };
    let outcome = change.each(&page.api, &queue, &ids).await?;
    outcome.page(&page, &queue, Here::Messages, back)
}

/// Converts an id to the one spelling that paths and operations share.
fn normal(spelled: &str) -> Result<String, Problem> {
    let id = dueq_input::path_id(spelled);
    let id = id.map_err(|error| Problem::new(Code::InvalidInput, format!("id: {error}")))?;
    Ok(dueq_input::id_path(&id))
}
