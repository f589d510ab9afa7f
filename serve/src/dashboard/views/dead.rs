//! `/queues/Q/dead`: the dead messages in groups by their errors, and the actions on a group or on
//! all.

mod export;

use askama::Template;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::{Form, Page};
use crate::dashboard::show;
use crate::dashboard::show::Markup;
use crate::dashboard::views::answer::{Answer, render, see};
use crate::dashboard::views::each;
use crate::dashboard::views::messages::moment;
use crate::edge::problem::{Code, Problem};
use crate::wire::operations::OperationReport;
use crate::wire::overview::{Dues, Errors, Group};
use crate::wire::queues::Queue;
use crate::work::Shared;

/// A group of dead messages, formatted.
struct Row {
    error: String,
    /// The exact error, encoded for the form.
    key: String,
    crashed: bool,
    count: u64,
    newest: Markup,
    oldest: Markup,
    /// Example messages: path segment and id.
    examples: Vec<(String, String)>,
    /// Whether the form below requeues this group.
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "dead.html")]
struct DeadPage {
    frame: Frame,
    name: String,
    segment: String,
    dead: u64,
    read: u64,
    more: bool,
    /// The groups that died by crashes, and the groups that died by failures.
    kinds: [(&'static str, Vec<Row>); 2],
    /// The group that the form requeues; `None` requeues all dead messages.
    chosen: Option<Chosen>,
    before_ms: u64,
    before: String,
    may_operate: bool,
    may_export: bool,
}

/// The group that the address names.
struct Chosen {
    error: String,
    key: String,
    crashed: bool,
    /// The number of its messages; `None` if the group no longer exists.
    count: Option<u64>,
}

impl Chosen {
    /// The group that the parameters name, or `None`. Parameters that cannot be read are refused:
    /// otherwise the form would requeue all messages.
    fn of(page: &Page, groups: &[Group]) -> Result<Option<Self>, Problem> {
        let Some(key) = page.param("group") else {
            return Ok(None);
        };
        let (error, crashed) = (
            read_key("group", key)?,
            page.param("crashed") == Some("true"),
        );
        let found = groups.iter();
        let mut found = found.filter(|group| group.crashed == crashed && group.error == error);
        Ok(Some(Self {
            count: found.next().map(|group| group.count as u64),
            key: key.to_owned(),
            crashed,
            error: show::text(&error),
        }))
    }
}

pub(super) fn routes() -> Router<Shared> {
    Router::new()
        .route("/queues/{queue}/dead", get(dead).post(act))
        .route("/queues/{queue}/dead.ndjson", get(export::export))
}

async fn dead(page: Page) -> Answer {
    let name = page.queue_name()?;
    let segment = segment(name);
    let queue = format!("/v1/queues/{segment}");
    // First reads the time: the actions skip messages that die later.
    let now: Dues = page.api.get(&format!("{queue}/dues?count=1")).await?;
    let counts: Queue = page.api.get(&queue).await?;
    let errors: Errors = page.api.get(&format!("{queue}/errors")).await?;
    let clock = page.clock.clone().at(now.now_ms);
    let chosen = Chosen::of(&page, &errors.groups)?;
    let is_chosen = |key: &str, crashed: bool| {
        chosen
            .as_ref()
            .is_some_and(|chosen| chosen.key == key && chosen.crashed == crashed)
    };
    let row = |group: &Group| Row {
        is_chosen: is_chosen(&URL_SAFE_NO_PAD.encode(&group.error), group.crashed),
        error: show::text(&group.error),
        key: URL_SAFE_NO_PAD.encode(&group.error),
        crashed: group.crashed,
        count: group.count as u64,
        newest: clock.time(group.newest_ms),
        oldest: clock.time(group.oldest_ms),
        examples: group
            .examples
            .iter()
            .map(|example| (example.segment(), each::shown(&example.segment())))
            .collect(),
    };
    let rows = |crashed: bool| {
        let groups = errors
            .groups
            .iter()
            .filter(|group| group.crashed == crashed);
        groups.map(row).collect::<Vec<_>>()
    };
    let caller = page.caller();
    render(&DeadPage {
        frame: page
            .frame(format!("Dead messages of {}", show::text(name)), Here::Dead)
            .at(&clock),
        name: show::text(name),
        dead: counts.dead,
        read: errors.read as u64,
        more: errors.more,
        kinds: [("Failed", rows(false)), ("Crashed", rows(true))],
        before_ms: now.now_ms,
        before: clock.absolute(now.now_ms),
        may_operate: caller.may_operate,
        may_export: caller.may_read_payloads,
        chosen,
        segment,
    })
}

pub(super) async fn act(page: Page, form: Form) -> Answer {
    let queue = segment(page.queue_name()?);
    let before_ms = number(&form, "before_ms")?
        .ok_or_else(|| invalid("before_ms: the form does not say when its page was made"))?;
    let body = match form.get("action") {
        Some("requeue") => requeue(&page, &form, before_ms)?,
        Some("purge") => purge(&form, before_ms)?,
        _ => return Err(invalid("the form names no known action").into()),
    };
    let address = format!("/v1/queues/{queue}/operations");
    let begun: OperationReport = page.api.send(Method::POST, &address, Some(&body)).await?;
    see(
        &page.base,
        &format!("/operations/{queue}/{}?did=begun", begun.id),
    )
}

/// The body of a requeue of one group, or of all dead messages.
fn requeue(page: &Page, form: &Form, before_ms: u64) -> Result<Value, Problem> {
    let until_ms = match form.filled("until") {
        Some(typed) => moment(page, "until", typed)?,
        None => before_ms,
    };
    let mut body = json!({ "kind": "requeue", "before_ms": until_ms.min(before_ms) });
    if let Some(key) = form.get("error") {
        body["error"] = read_key("error", key)?.into();
        body["crashed"] = (form.get("crashed") == Some("true")).into();
    }
    for field in ["canary", "pace"] {
        if let Some(number) = number(form, field)? {
            body[field] = number.into();
        }
    }
    Ok(body)
}

fn purge(form: &Form, before_ms: u64) -> Result<Value, Problem> {
    let (count, typed) = (number(form, "count")?, number(form, "typed")?);
    if count.is_none() || count != typed {
        let count = count.unwrap_or_default();
        let detail =
            format!("typed: nothing was purged; type the number of dead messages, {count}");
        return Err(invalid(detail));
    }
    let mut body = json!({ "kind": "purge", "state": "dead", "before_ms": before_ms });
    if let Some(pace) = number(form, "pace")? {
        body["pace"] = pace.into();
    }
    Ok(body)
}

/// Decodes the error in a form or an address. It is base64url, because an error may contain any
/// bytes.
pub(super) fn read_key(field: &str, key: &str) -> Result<String, Problem> {
    let bytes = URL_SAFE_NO_PAD.decode(key).ok();
    let error = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    error.ok_or_else(|| invalid(format!("{field}: it is not base64url of a text")))
}

/// The number in a field, with or without commas; `None` if the field is empty.
fn number(form: &Form, field: &str) -> Result<Option<u64>, Problem> {
    let Some(typed) = form.filled(field) else {
        return Ok(None);
    };
    let digits = typed.trim().replace(',', "");
    let number = digits.parse().map_err(|_| {
        let typed = crate::edge::shown::quoted(typed);
        invalid(format!("{field}: {typed} is no whole number"))
    })?;
    Ok(Some(number))
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, detail)
}
