//! Cancels or requeues the selected messages.

use axum::http::Method;
use serde::Deserialize;
use serde_json::json;

use crate::dashboard::form::Form;
use crate::dashboard::frame::{Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::views::each::Change;
use crate::dashboard::views::messages::PAGE;
use crate::dashboard::views::{Answer, local, see};
use crate::problem::{Code, Problem};

/// An operation that has begun, or ran already.
#[derive(Deserialize)]
pub(in crate::dashboard::views) struct Operation {
    pub(in crate::dashboard::views) id: String,
}

pub(super) async fn act(page: Page, form: Form) -> Answer {
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
            let begun: Operation = page.api.send(Method::POST, &address, Some(&body)).await?;
            return see(
                &page.base,
                &format!("/operations/{queue}/{}?did=begun", begun.id),
            );
        }
        Some("cancel") => Change::Cancel,
        Some("requeue") => Change::Requeue,
        _ => return Err(Problem::new(Code::InvalidInput, "the form names no known action").into()),
    };
    let outcome = change.each(&page.api, &queue, &ids).await?;
    outcome.page(&page, &queue, Here::Messages, back)
}

/// The id in the spelling that paths and operations share.
fn normal(spelled: &str) -> Result<String, Problem> {
    let id = dueq_input::path_id(spelled);
    let id = id.map_err(|error| Problem::new(Code::InvalidInput, format!("id: {error}")))?;
    Ok(dueq_input::id_path(&id))
}
