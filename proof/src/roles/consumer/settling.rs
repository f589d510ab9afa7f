//! Decides what a consumer does with a message, and settles it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Own;
use super::calls::{Patience, post};
use super::claims::Got;
use crate::history::{BY_HAND, Event, Handed, Http, Verb};

/// A delivery above this attempt is always settled: from the third crash on, the back-off becomes
/// long.
const PATIENT_ATTEMPTS: u32 = 2;
/// How long a handler runs, in ms.
const WORK_MS: std::ops::Range<u64> = 0..60;
/// The most tries of a settlement: the servers may be unreachable for some seconds.
const SENDINGS: usize = 100;
const AGAIN: Duration = Duration::from_millis(50);
/// How long an answer may take: a server repeats its own call for 10 s.
const ANSWER: Duration = Duration::from_secs(12);

/// The fields of a server's answer that are read here.
#[derive(Debug, Deserialize)]
struct Results {
    results: Vec<Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    outcome: String,
    due_ms: Option<u64>,
    leased_until_ms: Option<u64>,
    closed_until_ms: Option<u64>,
}

pub(super) async fn handle(own: Arc<Own>, queue: &'static str, got: Got) {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(WORK_MS))).await;
    let settling = Settling {
        own: &own,
        queue,
        got: &got,
    };
    let ms = |most| format!("{}ms", fastrand::u64(1..most));
    match fastrand::u32(0..100) {
        0..8 => settling.retry().await,
        8..16 => settling.settle(Verb::Release, json!({})).await,
        16..19 => settling.settle(Verb::Bury, json!({"error": "chaos"})).await,
        19..25 => {
            settling
                .settle(Verb::Snooze, json!({"delay": ms(500)}))
                .await
        }
        25..28 => {
            settling
                .settle(Verb::Again, json!({"delay": ms(500)}))
                .await
        }
        28 => {
            let for_ms = fastrand::u64(1..120);
            settling
                .settle(Verb::Throttle, json!({"for_ms": for_ms}))
                .await;
        }
        29..36 => {
            let lease_ms = fastrand::u64(1_000..5_000);
            settling
                .settle(Verb::Extend, json!({"lease_ms": lease_ms}))
                .await;
            settling.settle(Verb::Ack, json!({})).await;
        }
        36..42 => {
            settling.settle(Verb::Ack, json!({})).await;
            settling.settle(Verb::Ack, json!({})).await;
        }
        // Releases the message, and then settles it: the settlement must have no effect.
        42..48 => {
            settling.settle(Verb::Release, json!({})).await;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(WORK_MS))).await;
            settling.settle(Verb::Ack, json!({})).await;
        }
        // Does nothing: the message comes back when its lease has expired.
        48..50 if got.handed.4 <= PATIENT_ATTEMPTS => {}
        _ => settling.settle(Verb::Ack, json!({})).await,
    }
    own.diary.write(&Event::Ended {
        queue: queue.to_owned(),
        id: got.handed.0.clone(),
        wants: BY_HAND.to_owned(),
    });
}

struct Settling<'a> {
    own: &'a Own,
    queue: &'a str,
    got: &'a Got,
}

impl Settling<'_> {
    async fn retry(&self) {
        let delay = format!("{}ms", fastrand::u64(1..500));
        let fields = json!({"delay": delay, "error": "chaos"});
        self.settle(Verb::Retry, fields).await;
    }

    /// Sends a settlement to one server after the other, until one answers.
    async fn settle(&self, verb: Verb, mut fields: Value) {
        let (op, Handed(id, token, ..)) = (self.own.number(), &self.got.handed);
        fields["handle"] = self.got.handle.clone().into();
        let (what, list) = match verb {
            Verb::Extend => ("extensions", json!({"extensions": [fields]})),
            _ => {
                fields["action"] = verb.name().into();
                ("settlements", json!({"settlements": [fields]}))
            }
        };
        self.own.write(Http::Settle {
            op,
            queue: self.queue.to_owned(),
            verb,
            id: id.clone(),
            token: token.clone(),
        });
        let path = format!("/v1/queues/{}/{what}", self.queue);
        let mut outcome = "? no answer".to_owned();
        for server in self.own.turn().take(SENDINGS) {
            let patience = match fastrand::u32(0..10) {
                0 => Patience::long(Duration::from_millis(fastrand::u64(0..10))),
                _ => Patience::long(ANSWER),
            };
            let answer = post(server, &path, list.to_string(), patience).await;
            match answer.and_then(|(status, body)| word(verb, status, &body)) {
                Ok(word) => {
                    outcome = word;
                    break;
                }
                Err(error) => {
                    tracing::info!(%error, "a settlement got no outcome");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        self.own.write(Http::Settled { op, outcome });
    }
}

/// The outcome in the words of the script. An error means that the call must be sent again.
fn word(verb: Verb, status: u16, body: &[u8]) -> Result<String> {
    if status != 200 {
        bail!("status {status}: {}", String::from_utf8_lossy(body));
    }
    let Results { results } = serde_json::from_slice(body)?;
    let [result] = &results[..] else {
        bail!("{} results of one settlement", results.len());
    };
    let time = |ms: Option<u64>, what| ms.with_context(|| format!("{verb:?}: no {what}"));
    Ok(match &*result.outcome {
        "done" => "OK".to_owned(),
        "scheduled" => format!("SCHEDULED {}", time(result.due_ms, "due_ms")?),
        "extended" => format!("OK {}", time(result.leased_until_ms, "leased_until_ms")?),
        "closed" => format!("OK {}", time(result.closed_until_ms, "closed_until_ms")?),
        other => other.to_uppercase(),
    })
}
