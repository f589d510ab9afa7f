//! `/queues/Q/dead.ndjson`: the dead messages with their payloads, one JSON line each.
//!
//! The export keeps one page of the list and one message in memory. Its last line says whether the
//! file is complete.

use std::collections::VecDeque;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::dashboard::api::{Api, Failure};
use crate::dashboard::frame::segment;
use crate::dashboard::page::Page;
use crate::dashboard::views::answer::Answer;
use crate::edge::body::Reserved;
use crate::edge::problem::{Code, Problem};
use crate::edge::shown::moment;
use crate::wire::messages::Messages;
use crate::work::Shared;
use crate::work::events::Unfold;

const PAGE: usize = 250;

/// The state of a running export.
struct Export {
    app: Shared,
    api: Api,
    next: Option<String>,
    /// The addresses of the messages on this page that are not yet exported.
    page: VecDeque<String>,
    lines: u64,
    /// The reserved memory of the line that is being sent.
    sent: Option<Reserved>,
    is_over: bool,
}

pub(super) async fn export(State(app): State<Shared>, page: Page) -> Answer {
    if !page.caller().may_read_payloads {
        let detail = "the file has the payloads, which your role may not read";
        return Err(Problem::new(Code::Forbidden, detail).into());
    }
    let queue = segment(page.queue_name()?);
    let mut first = format!("/v1/queues/{queue}/messages?state=dead&limit={PAGE}");
    if let Some(ms) = bound(&page, "before_ms")? {
        first.push_str(&format!("&before={}", moment(ms.saturating_add(1))));
    }
    if let Some(ms) = bound(&page, "after_ms")? {
        first.push_str(&format!("&from={}", moment(ms)));
    }
    let mut export = Export {
        app,
        api: page.api.clone(),
        next: Some(first),
        page: VecDeque::new(),
        lines: 0,
        sent: None,
        is_over: false,
    };
    // Read the first page now: a missing queue or an unreachable Redis then gives a problem, not a
    // file.
    export.turn().await?;
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CONTENT_DISPOSITION, "attachment; filename=\"dead.ndjson\""),
    ];
    let body = Unfold::new(export, |mut export: Export| async move {
        let line = export.line().await?;
        Some((line, export))
    });
    Ok((headers, Body::new(body)).into_response())
}

/// A time of death in a parameter, in Unix milliseconds.
fn bound(page: &Page, name: &str) -> Result<Option<u64>, Problem> {
    let ms = page.param(name).map(str::parse);
    ms.transpose().map_err(|_| {
        let detail = format!("{name}: it is no time in Unix milliseconds");
        Problem::new(Code::InvalidInput, detail)
    })
}

impl Export {
    /// Reads the next page of the list.
    async fn turn(&mut self) -> Result<(), Failure> {
        let Some(address) = self.next.take() else {
            return Ok(());
        };
        let list: Messages = self.api.get(&address).await?;
        self.page = list
            .messages
            .into_iter()
            .map(|message| message.href)
            .collect();
        self.next = list.next;
        Ok(())
    }

    /// Makes the next line; `None` after the last one.
    async fn line(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        drop(self.sent.take());
        let line = match self.message().await {
            Ok(Some(line)) => {
                self.lines += 1;
                line
            }
            Ok(None) => {
                self.is_over = true;
                json!({ "exported": self.lines, "complete": true }).to_string()
            }
            Err(failure) => {
                self.is_over = true;
                json!({
                    "exported": self.lines, "complete": false, "reason": failure.detail(),
                })
                .to_string()
            }
        };
        Some(Bytes::from(line + "\n"))
    }

    async fn message(&mut self) -> Result<Option<String>, Failure> {
        loop {
            let Some(address) = self.page.pop_front() else {
                if self.next.is_none() {
                    return Ok(None);
                }
                self.turn().await?;
                continue;
            };
            match self.read(&address).await {
                // The message was requeued or removed since the list was read.
                Err(failure) if failure.code() == "no_such_message" => {}
                Ok(message) if message["state"] != "dead" => {}
                other => return other.map(|message| Some(message.to_string())),
            }
        }
    }

    /// Reads the message with its whole payload. A long payload is read in base64: JSON could
    /// escape many of its characters.
    async fn read(&mut self, address: &str) -> Result<Value, Failure> {
        let mut message: Value = self.api.get(address).await?;
        if message["payload_truncated"] == true {
            let length = message["payload_bytes"].as_u64().unwrap_or_default();
            let mut memory = self.app.edge.bodies.none();
            // Memory for the payload, and twice for its base64.
            memory.grow(usize::try_from(length.saturating_mul(4)).unwrap_or(usize::MAX))?;
            let payload = self.api.bytes(&format!("{address}/payload")).await?;
            if let Some(fields) = message.as_object_mut() {
                fields.remove("payload");
            }
            message["payload_base64"] = STANDARD.encode(&payload).into();
            message["payload_truncated"] = false.into();
            message["payload_bytes"] = payload.len().into();
            self.sent = Some(memory);
        }
        Ok(message)
    }
}
