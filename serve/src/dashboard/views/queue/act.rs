//! The forms on the page of a queue: each makes a call of `/v1`.

use axum::http::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::dashboard::api::Failure;
use crate::dashboard::form::Form;
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::views::answer::{Answer, see};
use crate::dashboard::views::queue::limits;
use crate::edge::problem::{Code, Problem};
use crate::wire::schedules::Schedule;

/// Lets one trigger run at a time, so that the second click of a double click sees the tick of the
/// first.
static TRIGGER: Mutex<()> = Mutex::const_new(());

pub(super) async fn change(page: &Page, form: &Form) -> Answer {
    let segment = segment(page.queue_name()?);
    let queue = format!("/v1/queues/{segment}");
    let pause = format!("{queue}/pause");
    let send = async |method, path: &str, body: Option<&Value>| {
        page.api.send::<Value>(method, path, body).await.map(drop)
    };
    let did = match form.get("action").unwrap_or_default() {
        "pause" => {
            send(Method::PUT, &pause, None).await?;
            "paused"
        }
        "pause_for" => {
            let text = form.get("for").unwrap_or_default().trim();
            let time =
                dueq_input::period(text).map_err(|error| invalid(format!("for: {error}")))?;
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            send(Method::PUT, &pause, Some(&json!({ "for_ms": ms }))).await?;
            "closed"
        }
        "resume" => {
            send(Method::DELETE, &pause, None).await?;
            "resumed"
        }
        "limits" => match limits::change(form)? {
            Some(body) => {
                let limits = format!("{queue}/limits");
                send(Method::PATCH, &limits, Some(&body)).await?;
                "limits"
            }
            None => return see(&page.base, &format!("/queues/{segment}")),
        },
        "schedule_pause" => {
            let pause = format!("{}/pause", schedule(&queue, form)?);
            send(Method::PUT, &pause, None).await?;
            "schedule_paused"
        }
        "schedule_resume" => {
            let pause = format!("{}/pause", schedule(&queue, form)?);
            send(Method::DELETE, &pause, None).await?;
            "schedule_resumed"
        }
        "schedule_trigger" => {
            trigger(page, &schedule(&queue, form)?, form).await?;
            "triggered"
        }
        "schedule_remove" => {
            let removed = send(Method::DELETE, &schedule(&queue, form)?, None).await;
            match removed {
                // A second click: the schedule is already removed.
                Err(failure) if failure.code() == Code::NoSuchSchedule.word() => {}
                removed => removed?,
            }
            "schedule_removed"
        }
        _ => return Err(invalid("the form names no known action".to_owned()).into()),
    };
    // The new limits are far below the top of the page.
    let place = if did == "limits" { "#limits" } else { "" };
    see(&page.base, &format!("/queues/{segment}?did={did}{place}"))
}

/// Triggers a tick, unless a tick was triggered since the form was rendered: each call of `/v1`
/// makes another tick.
async fn trigger(page: &Page, address: &str, form: &Form) -> Result<(), Failure> {
    let seen = form.get("triggered").and_then(|text| text.parse().ok());
    let seen: u64 =
        seen.ok_or_else(|| invalid("triggered: the form names no number".to_owned()))?;
    let _one = TRIGGER.lock().await;
    let schedule: Schedule = page.api.get(address).await?;
    // A caller without the right must get the refusal of the call.
    if schedule.triggered > seen && page.caller().may_operate {
        return Ok(());
    }
    let trigger = format!("{address}/trigger");
    page.api
        .send::<Value>(Method::POST, &trigger, None)
        .await
        .map(drop)
}

/// The address of the schedule that the form names.
fn schedule(queue: &str, form: &Form) -> Result<String, Problem> {
    let name = form.get("schedule").unwrap_or_default();
    // The name is decoded and encoded again, so that the field can address nothing but a schedule.
    let name = dueq_input::path_id(name).map_err(|error| invalid(error.to_string()))?;
    Ok(format!("{queue}/schedules/{}", dueq_input::id_path(&name)))
}

fn invalid(detail: String) -> Problem {
    Problem::new(Code::InvalidInput, detail)
}
