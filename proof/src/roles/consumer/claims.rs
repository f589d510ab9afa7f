//! Claims: each is repeated at the other server until one answers; then its messages are handled.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::calls::{Patience, post};
use super::{Own, Server, settling};
use crate::broken::Program;
use crate::history::{Event, Handed, Http};
use crate::payload;
use crate::roles::{Stop, stopped};
use crate::workload::trace_parent;

/// The pause between two claims of a loop, in ms.
const PAUSE_MS: std::ops::Range<u64> = 20..250;
const MAX: std::ops::RangeInclusive<u32> = 1..=4;
const WAIT_MS: std::ops::Range<u64> = 100..1_500;
/// The number of different leases. Claims of half a minute all have different ones.
const LEASES: u64 = 500;
const LEAST_LEASE_MS: u64 = 2_500;
/// The number of successive processes of a place that have different leases.
const LIVES: u64 = 4;
/// How long an answer may take, in addition to the claim's wait.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause before a claim is sent again.
const AGAIN: Duration = Duration::from_millis(20);
/// The most tries of a claim: the servers may be unreachable for some seconds.
const SENDINGS: usize = 100;

/// The JSON of a delivery, as a server writes it.
#[derive(Debug, Deserialize)]
pub(super) struct Delivery {
    pub(super) handle: String,
    due_ms: u64,
    pub(super) attempt: u32,
    traceparent: Option<String>,
    payload: Option<String>,
    payload_base64: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Grant {
    deliveries: Vec<Delivery>,
    #[serde(default)]
    more: u64,
}

/// A message that was handed to this consumer.
pub(super) struct Got {
    pub(super) handle: String,
    pub(super) handed: Handed,
    traceparent: Option<String>,
}

impl Got {
    fn read(delivery: Delivery) -> Result<Self> {
        // The handle contains the id's bytes and the token.
        let handle: dueq::claims::DeliveryHandle = delivery.handle.parse()?;
        let id = String::from_utf8_lossy(handle.id_bytes()).into_owned();
        let token = delivery
            .handle
            .split('.')
            .nth(1)
            .and_then(|token| token.get(16..32));
        let token = token.context("a handle without a token")?.to_owned();
        let payload = match (delivery.payload, delivery.payload_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => STANDARD.decode(text)?,
            _ => anyhow::bail!("{id} has no payload, or two"),
        };
        let version = payload::version_of(&id, &payload);
        Ok(Self {
            handle: delivery.handle,
            handed: Handed(id, token, version, delivery.due_ms, delivery.attempt),
            traceparent: delivery.traceparent,
        })
    }
}

/// Makes one claim after the other, until the process must end.
pub(super) async fn run(own: Arc<Own>, queue: &'static str, mut stop: Stop) -> Result<()> {
    let mut handlers = JoinSet::new();
    while !*stop.borrow() {
        for got in claim(&own, queue, &mut stop).await? {
            start(&own, queue, &got);
            handlers.spawn(settling::handle(Arc::clone(&own), queue, got));
        }
        while handlers.try_join_next().is_some() {}
        tokio::select! {
            () = stopped(&mut stop) => {}
            () = tokio::time::sleep(Duration::from_millis(fastrand::u64(PAUSE_MS))) => {}
        }
    }
    while let Some(ended) = handlers.join_next().await {
        ended?;
    }
    Ok(())
}

/// Records the start of a handler.
fn start(own: &Own, queue: &str, got: &Got) {
    let Handed(id, _, version, due_ms, attempt) = &got.handed;
    own.diary.write(&Event::Started {
        queue: queue.to_owned(),
        id: id.clone(),
        version: *version,
        attempt: *attempt,
        due_ms: *due_ms,
        started_us: 0,
        by_hand: true,
    });
    // If the library made the id, the message has neither a version nor a trace.
    if *version > 0 && got.traceparent != trace_parent(id) {
        own.diary.write(&Event::Broken {
            queue: queue.to_owned(),
            what: format!("{id} was delivered with the trace {:?}", got.traceparent),
        });
    }
}

/// Makes one claim, and returns its messages.
async fn claim(own: &Own, queue: &str, stop: &mut Stop) -> Result<Vec<Got>> {
    let (claim, max, wait_ms) = (own.number(), fastrand::u32(MAX), fastrand::u64(WAIT_MS));
    let lease_ms = LEAST_LEASE_MS + LEASES * (own.life() % LIVES) + claim % LEASES;
    let repeatable = fastrand::u32(0..4) > 0;
    let mut asked = json!({"max": max, "lease_ms": lease_ms, "wait_ms": wait_ms});
    let is_sent = own.broken != Some(Program::ClaimIdForgotten);
    if repeatable && is_sent {
        asked["claim_id"] = format!("{}-{claim}", own.name).into();
    }
    let (mut all, mut is_answered) = (Vec::new(), false);
    for (number, server) in own.turn().enumerate().take(SENDINGS) {
        if number > 0 && !repeatable {
            break;
        }
        if number > 0 && own.broken == Some(Program::ClaimIdRenewed) {
            asked["claim_id"] = format!("{}-{claim}-{number}", own.name).into();
        }
        own.write(Http::Claim {
            claim,
            queue: queue.to_owned(),
            server: server.name.clone(),
            max,
            lease_ms,
            repeatable,
        });
        let patience = patience(Duration::from_millis(wait_ms) + ANSWER);
        let got = send(server, queue, asked.to_string(), patience).await;
        let (status, grant) = match got {
            Ok(answer) => answer,
            Err(error) => {
                let error = format!("{error:#}");
                own.write(Http::Unanswered { claim, error });
                pause(stop).await;
                continue;
            }
        };
        let got = grant.deliveries.into_iter().map(Got::read);
        let got = got.collect::<Result<Vec<_>>>()?;
        own.write(Http::Claimed {
            claim,
            status,
            more: grant.more,
            deliveries: got.iter().map(|got| got.handed.clone()).collect(),
        });
        let has_some = !got.is_empty();
        all.extend(got);
        match status {
            // A consumer that is broken on purpose sends the claim once more.
            200 if own.broken == Some(Program::AnswersHandledTwice) && has_some && !is_answered => {
                is_answered = true;
            }
            200 | 204 => break,
            // The server stops, is busy, or cannot reach Redis.
            _ => pause(stop).await,
        }
        // Messages of a lost answer come back after their lease.
        if *stop.borrow() {
            break;
        }
    }
    Ok(all)
}

/// Some claims are given up during the wait, others within the answer.
fn patience(longest: Duration) -> Patience {
    match fastrand::u32(0..10) {
        0..3 => Patience::long(Duration::from_millis(fastrand::u64(0..60))),
        3 => Patience {
            time: longest,
            bytes: 1,
        },
        _ => Patience::long(longest),
    }
}

async fn send(
    server: &Server,
    queue: &str,
    asked: String,
    patience: Patience,
) -> Result<(u16, Grant)> {
    let path = format!("/v1/queues/{queue}/claims");
    let (status, body) = post(server, &path, asked, patience).await?;
    let grant = match status {
        200 => serde_json::from_slice(&body)?,
        _ => Grant {
            deliveries: Vec::new(),
            more: 0,
        },
    };
    Ok((status, grant))
}

async fn pause(stop: &mut Stop) {
    tokio::select! {
        () = stopped(stop) => {}
        () = tokio::time::sleep(AGAIN) => {}
    }
}
