//! The same call for several messages, one after the other, and what each of them answered.

use std::time::{Duration, Instant};

use askama::Template;
use axum::http::Method;
use serde_json::Value;

use crate::dashboard::api::{Api, Failure};
use crate::dashboard::frame::{Frame, Here};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::answer::{Answer, render};

/// After this time no further call begins.
const LIMIT: Duration = Duration::from_secs(20);
/// How many refusals are shown.
const MAX_SHOWN: usize = 100;

/// What is done with each message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Cancel,
    Requeue,
}

/// What became of the messages.
pub(super) struct Outcome {
    change: Change,
    all: usize,
    done: usize,
    refused: Vec<Refused>,
    refusals: usize,
    untried: usize,
    /// Why the calls ended before the last message.
    stopped: Option<String>,
}

/// A message that is as it was.
struct Refused {
    segment: String,
    id: String,
    reason: String,
}

#[derive(Template)]
#[template(path = "each.html")]
struct EachPage {
    frame: Frame,
    segment: String,
    result: Outcome,
    /// The address of the list, below the base.
    back: String,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Cancel => "Cancelled",
            Self::Requeue => "Requeued",
        }
    }

    async fn call(self, api: &Api, address: &str) -> Result<Value, Failure> {
        match self {
            Self::Cancel => api.send(Method::DELETE, address, None).await,
            Self::Requeue => {
                let address = format!("{address}/requeue");
                api.send(Method::POST, &address, None).await
            }
        }
    }

    /// Changes the messages of these ids, which are spelled as segments of an address. The first
    /// failure that is not of one message ends it.
    pub(super) async fn each(
        self,
        api: &Api,
        queue: &str,
        ids: &[String],
    ) -> Result<Outcome, Failure> {
        let begin = Instant::now();
        let mut result = Outcome {
            change: self,
            all: ids.len(),
            done: 0,
            refused: Vec::new(),
            refusals: 0,
            untried: ids.len(),
            stopped: None,
        };
        for id in ids {
            if begin.elapsed() > LIMIT {
                result.stopped =
                    Some("it took too long: send the form again for the rest".to_owned());
                break;
            }
            result.untried -= 1;
            match self
                .call(api, &format!("/v1/queues/{queue}/messages/{id}"))
                .await
            {
                Ok(_) => result.done += 1,
                // The caller may not: so it is for all of them.
                Err(failure) if failure.is_refusal() => return Err(failure),
                Err(failure) if failure.is_of_server() => {
                    let unknown = failure.document()["applied"] != "no";
                    let doubt = if unknown {
                        "; it is unknown whether this one was changed"
                    } else {
                        ""
                    };
                    result.refuse(id, &failure);
                    result.stopped = Some(format!("{}{doubt}", show::text(failure.detail())));
                    break;
                }
                Err(failure) => result.refuse(id, &failure),
            }
        }
        Ok(result)
    }
}

impl Outcome {
    fn refuse(&mut self, id: &str, failure: &Failure) {
        self.refusals += 1;
        if self.refused.len() < MAX_SHOWN {
            self.refused.push(Refused {
                segment: id.to_owned(),
                id: shown(id),
                reason: show::text(failure.detail()),
            });
        }
    }

    /// The page that says it.
    pub(super) fn page(self, page: &Page, queue: &str, here: Here, back: String) -> Answer {
        render(&EachPage {
            frame: page.frame(
                format!("{} {} of {}", self.change.word(), self.done, self.all),
                here,
            ),
            segment: queue.to_owned(),
            result: self,
            back,
        })
    }
}

/// The id behind a segment of an address, as it is shown.
pub(super) fn shown(segment: &str) -> String {
    let id = dueq_input::path_id(segment);
    id.map_or_else(
        |_| show::text(segment),
        |id| show::text(&String::from_utf8_lossy(&id)),
    )
}
