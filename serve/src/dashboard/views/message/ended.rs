//! The page of a message that is not in the queue.

use std::time::Instant;

use askama::Template;
use axum::http::StatusCode;

use crate::dashboard::api::Failure;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::show::Markup;
use crate::dashboard::views::answer::{Answer, render};
use crate::dashboard::views::each;
use crate::dashboard::views::message::moments::{self, Moment};
use crate::edge::path::MessageId;
use crate::wire::life::LifeEntry;
use crate::wire::overview::Dues;

/// A cancelled message that an undo can restore.
struct Kept {
    seconds: u64,
    due: Option<Markup>,
    /// Whether its due time has passed: an undo delivers it at once.
    is_due: bool,
    /// Whether its id was pushed or cancelled since: an undo is refused.
    is_refused: bool,
    losses: Vec<&'static str>,
}

#[derive(Template)]
#[template(path = "message_ended.html")]
struct EndedPage {
    frame: Frame,
    name: String,
    segment: String,
    id: String,
    id_segment: String,
    /// How the message ended (`finished`, `expired` or `cancelled`), and when.
    ended: Option<(String, Markup)>,
    remembered: Option<Markup>,
    kept: Option<Kept>,
    /// What happened to it, if the queue keeps that after the end.
    moments: Vec<Moment>,
}

/// `failure` is the failure of the call that read the message.
pub(super) async fn page(page: &Page, id: &MessageId, failure: &Failure) -> Answer {
    let name = page.queue_name()?;
    let (segment, id_segment) = (segment(name), dueq_input::id_path(id.as_bytes()));
    let now: Dues = page
        .api
        .get(&format!("/v1/queues/{segment}/dues?count=1"))
        .await?;
    let clock = page.clock.clone().at(now.now_ms);
    let ended = &failure.document()["ended"];
    let life = failure.document()["life"].clone();
    let life: Vec<LifeEntry> = serde_json::from_value(life).unwrap_or_default();
    let time = |field: &str| ended[field].as_u64().map(|ms| clock.time(ms));
    let kept = page.undo.get(name, id.as_bytes(), Instant::now());
    let kept = kept.filter(|_| page.caller().may_produce);
    let shown_id = each::shown(&id_segment);
    let ended_page = EndedPage {
        frame: page
            .frame(
                format!("{shown_id} in {}", show::text(name)),
                Here::Messages,
            )
            .at(&clock),
        name: show::text(name),
        id: shown_id,
        ended: ended["how"].as_str().map(str::to_owned).zip(time("at_ms")),
        remembered: time("remembered_until_ms"),
        kept: kept.map(|(message, undo_ms, left)| Kept {
            seconds: left.as_secs(),
            due: message.due_ms().map(|ms| clock.time(ms)),
            is_due: message.due_ms().is_some_and(|ms| ms <= clock.now_ms()),
            is_refused: ended["at_ms"].as_u64().is_some_and(|ms| ms != undo_ms),
            losses: message.losses(),
        }),
        moments: moments::of_life(&life, &clock),
        segment,
        id_segment,
    };
    let is_known = ended_page.ended.is_some() || ended_page.kept.is_some();
    let mut response = render(&ended_page)?;
    if !is_known {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}
