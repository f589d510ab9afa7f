//! `/queues/Q/dead`: the dead messages in groups by their errors, and the actions on a group or on
//! all.

mod died;
mod export;

use askama::Template;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::show::Markup;
use crate::dashboard::views::answer::{Answer, again, render, see};
use crate::dashboard::views::dead::died::DeathTimes;
use crate::dashboard::views::each;
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
    /// The times of death that the page selects.
    died: DeathTimes,
    /// The groups that died by crashes, and the groups that died by failures.
    kinds: [(&'static str, Vec<Row>); 2],
    /// The group that the form requeues; `None` requeues all dead messages.
    chosen: Option<Chosen>,
    may_operate: bool,
    may_export: bool,
    fields: Fields,
}

/// The group that the address names.
struct Chosen {
    error: String,
    key: String,
    crashed: bool,
    /// The number of its messages; `None` if the group no longer exists.
    count: Option<u64>,
}

impl DeadPage {
    /// The number of messages that the button requeues, as its text.
    fn requeue_label(&self) -> String {
        let chosen = self.chosen.as_ref().map(|chosen| chosen.count.unwrap_or(0));
        let count = show::number(chosen.unwrap_or(self.read));
        match self.more {
            true => format!("Requeue {count} or more"),
            false => format!("Requeue {count}"),
        }
    }

    /// The number of messages that the purge removes: without times, also of those that were not read.
    fn to_purge(&self) -> u64 {
        if self.died.is_all() {
            self.dead
        } else {
            self.read
        }
    }
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

async fn dead(mut page: Page) -> Answer {
    let queue = format!("/v1/queues/{}", segment(page.queue_name()?));
    // First reads the time: the actions skip messages that die later.
    let now: Dues = page.api.get(&format!("{queue}/dues?count=1")).await?;
    page.clock = page.clock.at(now.now_ms);
    match DeathTimes::of(&page, now.now_ms) {
        Ok(died) => list(page, died).await,
        Err(problem) => {
            let page = page.without(problem)?;
            let died = DeathTimes::of(&page, now.now_ms)?;
            again(list(page, died).await)
        }
    }
}

async fn list(page: Page, died: DeathTimes) -> Answer {
    let name = page.queue_name()?;
    let segment = segment(name);
    let queue = format!("/v1/queues/{segment}");
    let counts: Queue = page.api.get(&queue).await?;
    let errors = format!("{queue}/errors?{}", died.bounds());
    let errors: Errors = page.api.get(&errors).await?;
    let clock = page.clock.clone();
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
    let (may_operate, may_export) = (caller.may_operate, caller.may_read_payloads);
    render(&DeadPage {
        frame: page
            .frame(format!("Dead messages of {}", show::text(name)), Here::Dead)
            .at(&clock),
        name: show::text(name),
        dead: counts.dead,
        read: errors.read as u64,
        more: errors.more,
        kinds: [("Failed", rows(false)), ("Crashed", rows(true))],
        died,
        fields: page.fields,
        may_operate,
        may_export,
        chosen,
        segment,
    })
}

pub(super) async fn act(page: Page, form: Form) -> Answer {
    match change(&page, &form).await {
        Err(failure) => again(dead(page.refused(&form, failure)?).await),
        done => done,
    }
}

async fn change(page: &Page, form: &Form) -> Answer {
    let queue = segment(page.queue_name()?);
    let before_ms = number(form, "before_ms")?
        .ok_or_else(|| invalid("the form does not say when its page was made"))?;
    let mut body = match form.get("action") {
        Some("requeue") => requeue(form)?,
        Some("count") => {
            let mut body = requeue(form)?;
            body["dry_run"] = true.into();
            body["canary"].take();
            body["pace"].take();
            body
        }
        Some("purge") => purge(form)?,
        _ => return Err(invalid("the form names no known action").into()),
    };
    body["before_ms"] = before_ms.into();
    if let Some(after_ms) = number(form, "after_ms")? {
        body["after_ms"] = after_ms.into();
    }
    let address = format!("/v1/queues/{queue}/operations");
    let begun: OperationReport = page.api.send(Method::POST, &address, Some(&body)).await?;
    see(&page.base, &format!("/operations/{queue}/{}", begun.id))
}

/// The body of a requeue of one group, or of all dead messages.
fn requeue(form: &Form) -> Result<Value, Problem> {
    let mut body = json!({ "kind": "requeue" });
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

fn purge(form: &Form) -> Result<Value, Problem> {
    let (count, typed) = (number(form, "count")?, number(form, "typed")?);
    if count.is_none() || count != typed {
        let count = count.unwrap_or_default();
        let detail = format!("typed: type the number of messages, {count}");
        return Err(invalid(detail));
    }
    let mut body = json!({ "kind": "purge", "state": "dead" });
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
pub(super) fn number(form: &Form, field: &str) -> Result<Option<u64>, Problem> {
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
