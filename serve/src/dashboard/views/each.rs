//! Makes one call for each of several messages, in turn, and collects the results.

use std::time::{Duration, Instant};

use askama::Template;
use axum::http::Method;
use serde_json::Value;

use crate::dashboard::api::{Api, Failure};
use crate::dashboard::frame::{Frame, Here};
use crate::dashboard::page::Page;
use crate::dashboard::show;
use crate::dashboard::views::answer::{Answer, render};

/// No further call begins after this time.
const LIMIT: Duration = Duration::from_secs(20);
/// The most refusals that the page shows.
const MAX_SHOWN: usize = 100;

/// The change that is made to each message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Cancel,
    Requeue,
}

/// The results of all calls.
pub(super) struct Outcome {
    change: Change,
    all: usize,
    done: usize,
    refused: Vec<Refused>,
    refusals: usize,
    untried: usize,
    /// Why the calls stopped before the last message.
    stopped: Option<String>,
}

/// A message that was not changed, and why.
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
    /// The address of the list of messages, below the base path.
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

    /// Changes the messages with these ids, which are path segments. Stops at the first failure
    /// that would affect every message.
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
                // The caller lacks the right, so every call would be refused.
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

    /// The page with the results.
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

/// The id that a path segment encodes, for display.
pub(super) fn shown(segment: &str) -> String {
    let id = dueq_input::path_id(segment);
    id.map_or_else(
        |_| show::text(segment),
        |id| show::text(&String::from_utf8_lossy(&id)),
    )
}
