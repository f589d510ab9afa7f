//! The page of a message that is not in the queue, and the moments in a message's life.

use std::time::Instant;

use askama::Template;
use axum::http::StatusCode;

use crate::dashboard::api::Failure;
use crate::dashboard::frame::{Frame, Here, segment};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::show::{Clock, Markup};
use crate::dashboard::undo::Undone;
use crate::dashboard::views::answer::{Answer, render};
use crate::dashboard::views::each;
use crate::edge::path::MessageId;
use crate::wire::messages::Message;
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

const NOW: &str = "Now";

/// An event in the life of a message.
pub(super) struct Moment {
    pub(super) what: String,
    pub(super) time: Markup,
    /// `past`, `now` or `ahead`.
    pub(super) class: &'static str,
}

/// The known events in order of time, with now among them.
pub(super) fn moments(message: &Message, undone: Option<&Undone>, clock: &Clock) -> Vec<Moment> {
    let now_ms = clock.now_ms();
    let is_past = |ms: Option<u64>| ms.is_some_and(|ms| ms <= now_ms);
    let expiry = match message.on_expire.as_str() {
        "drop" => "It expires, and is dropped",
        _ => "It expires, and is dead then",
    };
    let due = if is_past(message.times.due_ms) {
        "It was due"
    } else {
        "It is due"
    };
    let times = [
        (message.times.due_ms, due),
        (message.since_ms, "A handler began"),
        (
            message.times.leased_until_ms,
            "The lease of its handler ends",
        ),
        (message.times.died_ms, "It died"),
        (message.expires_at_ms, expiry),
        (message.due_by_ms, "Pushes can postpone it until then"),
        (message.next_due_ms, "The message that follows it is due"),
    ];
    let known = times
        .into_iter()
        .filter_map(|(ms, what)| Some((ms?, what.to_owned())));
    let mut known: Vec<_> = known.collect();
    if let Some(undone) = undone {
        let by = show::text(&undone.by);
        known.push((undone.cancelled_ms, format!("It was cancelled by {by}")));
        known.push((undone.undone_ms, "The cancel was undone".to_owned()));
    }
    known.push((now_ms, NOW.to_owned()));
    known.sort_by_key(|(ms, _)| *ms);
    let moment = |(ms, what): (u64, String)| match what.as_str() {
        NOW => Moment {
            what: format!("{NOW}, {}", clock.absolute(ms)),
            time: Markup::default(),
            class: "now",
        },
        _ => Moment {
            time: clock.time(ms),
            class: if ms <= now_ms { "past" } else { "ahead" },
            what,
        },
    };
    let mut moments: Vec<_> = known.into_iter().map(moment).collect();
    if let (Some(after), None) = (message.expires_after_ms, message.expires_at_ms) {
        moments.push(Moment {
            what: format!("{}, {} after it is due", expiry, show::duration(after)),
            time: Markup::default(),
            class: "ahead",
        });
    }
    moments
}
