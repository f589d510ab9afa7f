//! The audit log: for each action of a person, a JSON line before the action and one with its
//! outcome. If the second line is missing, a crash interrupted the action.

mod log;

use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::{Extensions, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use dueq::Applied;
use serde_json::{Map, Value, json};

pub(crate) use log::Audit;

use crate::edge::Edge;
use crate::edge::auth::{Principal, Right};
use crate::edge::body::whole;
use crate::edge::path::QueueName;
use crate::edge::problem::{Code, Problem};

/// The most bytes of an audited call's body: the audit log has the body without payloads.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The most bytes of an audited call's body if a page makes the call: an undo pushes a payload.
const MAX_BODY_BYTES_OF_PAGE: usize = 24 << 20;

/// A marker on requests that a dashboard page makes for its caller.
#[derive(Clone, Copy)]
pub(crate) struct ByPage;

/// Whether a call is an action that the audit log records. Actions are all calls that need the
/// right to operate, all changes made by pages, and changes of a waiting message by an operator.
/// Other pushes, claims and settlements are the work of programs.
pub(crate) fn asks_for_lines(right: Right, caller: &Principal, request: &Request) -> bool {
    match right {
        Right::Operate => true,
        Right::Produce => {
            let amends = matches!(*request.method(), Method::PATCH | Method::DELETE);
            is_by_page(request.extensions()) || amends && caller.has(Right::Operate)
        }
        Right::Read | Right::ReadPayload | Right::Consume => false,
    }
}

fn is_by_page(extensions: &Extensions) -> bool {
    extensions.get::<ByPage>().is_some()
}

/// The action of an operator, as the guard adds it to the request. The audit lines of an operation
/// name the action that began it.
#[derive(Debug, Clone)]
pub(crate) struct Action {
    id: String,
    principal: String,
    via: &'static str,
    peer: Option<String>,
}

impl Action {
    /// The name of the caller.
    pub(crate) fn principal(&self) -> &str {
        &self.principal
    }

    /// The audit line of an operation with this id. The field `request` names the action that began
    /// it.
    pub(crate) fn line(&self, event: &str, operation: &str) -> Value {
        json!({
            "at_ms": now_ms(),
            "event": event,
            "action": operation,
            "request": self.id,
            "principal": self.principal,
            "via": self.via,
            "peer": self.peer,
        })
    }
}

/// Runs an action between its two audit lines. The action goes on if the caller disconnects, so
/// that its outcome is known.
pub(crate) async fn audited(
    edge: &Edge,
    principal: &Principal,
    queue: Option<&QueueName>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let max = match is_by_page(&parts.extensions) {
        true => MAX_BODY_BYTES_OF_PAGE,
        false => MAX_BODY_BYTES,
    };
    let body = match whole(&edge.bodies, &parts.headers, body, max).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    let action = random_id();
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map(|peer| peer.0.to_string());
    parts.extensions.insert(Action {
        id: action.clone(),
        principal: principal.name().to_owned(),
        via: principal.via().name(),
        peer: peer.clone(),
    });
    let start = json!({
        "at_ms": now_ms(),
        "event": "start",
        "action": action,
        "principal": principal.name(),
        "via": principal.via().name(),
        "peer": peer,
        "method": parts.method.as_str(),
        "path": parts.uri.path(),
        "query": parts.uri.query(),
        "queue": queue.map(QueueName::as_str),
        "body": shown_body(&body.bytes),
    });
    let request = Request::from_parts(parts, Body::from(body.bytes.clone()));
    let audit = edge.audit.clone();
    // Run the action in its own task: if the caller disconnects, the server drops this future. The
    // stop of the server waits for the task.
    let run = edge.actions.spawn(async move {
        let _body = body; // Held: its share of the body budget.
        if let Err(error) = audit.write(&start).await {
            return refusal(&error).into_response();
        }
        let response = next.run(request).await;
        let end = json!({
            "at_ms": now_ms(),
            "event": "end",
            "action": action,
            "status": response.status().as_u16(),
        });
        // The action is done, so its caller gets the outcome even if the audit log cannot be
        // written.
        if let Err(error) = audit.write(&end).await {
            tracing::error!(name: "dueq_serve.audit_failed", ?error, "the audit log misses the outcome of an action");
        }
        response
    });
    match run.await {
        Ok(response) => response,
        Err(error) => match error.try_into_panic() {
            // The last layer turns the panic into a problem.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => {
                let problem = Problem::new(Code::Internal, "the action was cut off");
                problem.applied(Applied::Unknown).into_response()
            }
        },
    }
}

/// The problem if the first audit line cannot be written: the action is not run.
pub(crate) fn refusal(error: &io::Error) -> Problem {
    tracing::error!(name: "dueq_serve.audit_failed", ?error, "the audit log cannot be written: the action is refused");
    let detail = format!("nothing was done, because its line cannot be written: {error}");
    let problem = Problem::new(Code::AuditFailed, detail);
    problem.retry_after_s(5)
}

/// The body as the log shows it: JSON without payloads, which may be long and secret.
fn shown_body(bytes: &[u8]) -> Value {
    match serde_json::from_slice(bytes) {
        Ok(value) => without_payloads(value),
        Err(_) if bytes.is_empty() => Value::Null,
        Err(_) => json!({ "unreadable_bytes": bytes.len() }),
    }
}

fn without_payloads(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let shown = fields.into_iter().map(|(name, value)| {
                let value = if name.starts_with("payload") {
                    json!({ "bytes": value.as_str().map_or_else(|| value.to_string().len(), str::len) })
                } else {
                    without_payloads(value)
                };
                (name, value)
            });
            Value::Object(shown.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(without_payloads).collect(),
        value => value,
    }
}

/// A random id, which an action's two lines share or which names an operation.
pub(crate) fn random_id() -> String {
    let mut bytes = [0; 8];
    // Without random bytes a reader can match the two lines by principal and path.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_log_leaves_out_payloads() {
        let body = json!({ "for_ms": 5, "tasks": [{ "payload": "secret", "id": "a" }] });
        let logged = shown_body(body.to_string().as_bytes());
        let expected = json!({ "for_ms": 5, "tasks": [{ "payload": { "bytes": 6 }, "id": "a" }] });
        assert_eq!(logged, expected);
        assert_eq!(shown_body(b""), Value::Null);
        assert_eq!(shown_body(b"{\x1b"), json!({ "unreadable_bytes": 2 }));
    }
}
