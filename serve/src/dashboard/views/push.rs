//! `/queues/Q/push`: pushes a message, or a changed copy of one, after a preview.

use askama::Template;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dashboard::api::Failure;
use crate::dashboard::form::{Fields, Form};
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::answer::{Answer, again, render, see};
use crate::dashboard::views::dead::number;
use crate::dashboard::views::message::shell_word;
use crate::dashboard::views::messages::moment;
use crate::edge::path::read_id;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown;
use crate::wire::messages::Message;
use crate::work::Shared;

/// What a push will send.
struct WouldSend {
    json: String,
    shell: String,
}

/// The message that the form begins with.
#[derive(Default)]
struct Copied {
    id: String,
    payload: String,
    when: String,
    max_attempts: String,
    /// Why the form begins empty.
    problem: Option<&'static str>,
}

#[derive(Template)]
#[template(path = "message/push.html")]
struct PushPage {
    frame: Frame,
    name: String,
    segment: String,
    /// The parameters of this page.
    params: String,
    copied: Copied,
    is_edit: bool,
    preview: Option<WouldSend>,
    fields: Fields,
}

/// The response of `/v1` to a push.
#[derive(Deserialize)]
struct Pushed {
    id: String,
    outcome: String,
}

pub(super) fn routes() -> Router<Shared> {
    Router::new().route("/queues/{queue}/push", get(form).post(act))
}

async fn form(page: Page) -> Answer {
    show(page, None).await
}

async fn act(mut page: Page, form: Form) -> Answer {
    let made = message(&page, &form);
    let sent = match (made, form.get("action")) {
        (Ok(made), Some("preview")) => {
            let preview = WouldSend {
                json: serde_json::to_string_pretty(&made.body).unwrap_or_default(),
                shell: made.shell,
            };
            page.fields = Fields::typed(form.pairs());
            return show(page, Some(preview)).await;
        }
        (Ok(made), _) => match still_waits(&page).await {
            Ok(()) => push(&page, &made).await,
            Err(failure) => Err(failure),
        },
        (Err(problem), _) => Err(problem.into()),
    };
    match sent {
        Err(failure) => again(show(page.refused(&form, failure)?, None).await),
        done => done,
    }
}

async fn show(page: Page, preview: Option<WouldSend>) -> Answer {
    let name = page.queue_name()?;
    if !page.caller().may_produce {
        let detail = "your role may not push messages";
        return Err(Problem::new(Code::Forbidden, detail).into());
    }
    let (from, is_edit) = match (page.param("edit"), page.param("from")) {
        (Some(id), _) => (Some(id), true),
        (None, from) => (from, false),
    };
    let copied = match from {
        Some(id) => copy(&page, id, is_edit).await?,
        None => Copied::default(),
    };
    let params = from.map_or_else(String::new, |id| {
        let mut params = form_urlencoded::Serializer::new("?".to_owned());
        let field = if is_edit { "edit" } else { "from" };
        params.append_pair(field, id).finish()
    });
    render(&PushPage {
        frame: page.frame(format!("Push to {}", show::text(name)), Here::Messages),
        name: show::text(name),
        segment: segment(name),
        params,
        copied,
        is_edit,
        preview,
        fields: page.fields,
    })
}

/// Reads the message that is copied. Its id and due time are kept if it is edited.
async fn copy(page: &Page, id: &str, is_edit: bool) -> Result<Copied, Failure> {
    let id = dueq_input::id_path(&read_id(id)?);
    let address = format!("/v1/queues/{}/messages/{id}", segment(page.queue_name()?));
    let message: Message = page.api.get(&address).await?;
    let mut copied = Copied {
        max_attempts: message
            .max_attempts
            .map_or_else(String::new, |most| most.to_string()),
        ..Copied::default()
    };
    copied.problem = match (&message.payload.payload, &message.payload) {
        (_, payload) if payload.payload_withheld => Some("your role may not read its payload"),
        (_, payload) if payload.payload_truncated => {
            Some("its payload is longer than 65,536 bytes")
        }
        (Some(text), _) => {
            copied.payload = text.clone();
            None
        }
        (None, _) => Some("its payload is no text"),
    };
    if is_edit {
        copied.id = id;
        let due_ms = message.times.due_ms;
        copied.when = due_ms.map_or_else(String::new, shown::moment);
    }
    Ok(copied)
}

/// Refuses an edit of a message that waits no more: its push would deliver it once more. A message
/// that ends between this look and the push is pushed again.
async fn still_waits(page: &Page) -> Result<(), Failure> {
    let Some(id) = page.param("edit") else {
        return Ok(());
    };
    let copied = copy(page, id, true).await?;
    let (code, why) = match copied.problem {
        Some(problem) => (Code::InvalidInput, problem),
        None if copied.when.is_empty() => (Code::Leased, "it waits no more"),
        None => return Ok(()),
    };
    Err(Problem::new(code, format!("the message was not replaced: {why}")).into())
}

/// A message of the form: the body of its push, its id, and the same for a shell.
struct Made {
    id: Option<Vec<u8>>,
    body: Value,
    shell: String,
}

fn message(page: &Page, form: &Form) -> Result<Made, Problem> {
    // Browsers send each line break of a text area as two characters.
    let payload = form
        .get("payload")
        .unwrap_or_default()
        .replace("\r\n", "\n");
    let mut body = json!({ "payload": payload });
    let mut words = vec![
        shell_word(page.queue_name()?.as_bytes()),
        shell_word(payload.as_bytes()),
    ];
    let id = form.filled("id").map(|id| read_id(id.trim())).transpose()?;
    if let Some(id) = &id {
        words.push(format!("--id={}", shell_word(id)));
    }
    if let Some(when) = form.filled("when").map(str::trim) {
        let (field, value) = match dueq_input::delay(when) {
            Ok(_) => ("delay", when.to_owned()),
            Err(_) => ("at", shown::moment(moment(page, "when", when)?)),
        };
        words.push(format!("--{field}={}", shell_word(value.as_bytes())));
        body[field] = value.into();
    }
    if let Some(most) = number(form, "max_attempts")? {
        words.push(format!("--max-attempts={most}"));
        body["max_attempts"] = most.into();
    }
    let edited = page.param("edit").map(read_id).transpose()?;
    if edited.is_some() && edited == id {
        words.push("--on-conflict=replace".to_owned());
        body["on_conflict"] = "replace".into();
    }
    // Two dashes end the options, so that a payload may begin with one.
    let options = words.split_off(2).join(" ");
    let options = if options.is_empty() {
        options
    } else {
        format!(" {options}")
    };
    Ok(Made {
        id,
        body,
        shell: format!("dueq push{options} -- {}", words.join(" ")),
    })
}

async fn push(page: &Page, made: &Made) -> Answer {
    let messages = format!("/queues/{}/messages", segment(page.queue_name()?));
    let (method, address) = match &made.id {
        Some(id) => (
            Method::PUT,
            format!("/v1{messages}/{}", dueq_input::id_path(id)),
        ),
        None => (Method::POST, format!("/v1{messages}")),
    };
    let pushed: Pushed = page.api.send(method, &address, Some(&made.body)).await?;
    let id = made.id.as_deref().unwrap_or(pushed.id.as_bytes());
    let id = dueq_input::id_path(id);
    let did = match pushed.outcome.as_str() {
        "created" => "pushed",
        "moved" => "replaced",
        "exists" => "there",
        "next" => "follows",
        _ => "remembered",
    };
    see(&page.base, &format!("{messages}/{id}?did={did}"))
}
