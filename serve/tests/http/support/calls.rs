//! A valid call of every operation in the OpenAPI document, and what it needs. Tests over all
//! routes take their calls from here, so that they include each new route, or fail if it is missing
//! here.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::instance::Instance;

/// What an operation needs to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// The server only, not Redis.
    Server,
    /// The poller's snapshot: the operation is also answered while Redis is unreachable, and says
    /// how old the data is.
    Snapshot,
    /// A read of Redis.
    Read,
    /// A change in Redis that takes no memory.
    Change,
    /// A change in Redis that takes memory.
    Memory,
    /// Work after the answer, or more than one valid call. Such operations have their own tests of
    /// faults.
    More,
}

/// A valid call of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) operation: String,
    pub(crate) method: String,
    /// The path template, with its placeholders.
    pub(crate) path: String,
    pub(crate) id: &'static str,
    /// Method, path and query.
    pub(crate) line: String,
    pub(crate) media_type: Option<&'static str>,
    pub(crate) body: &'static str,
    pub(crate) needs: Needs,
    /// Whether the response is a stream without an end.
    pub(crate) is_stream: bool,
}

/// The parts of a valid call, for the queue `orders` that [`prepare`] makes.
struct Fixture {
    needs: Needs,
    id: &'static str,
    query: &'static str,
    body: &'static str,
}

const JSON: &str = "application/json";
/// The body that names the lease of the message `held`.
const HELD: &str = "{\"lease\": \"7ee8b9b443515808\"}";
const LINES: &str = "application/x-ndjson";

/// The valid calls of an operation. An operation that accepts a body of lines has a second call.
fn fixtures(operation: &str) -> Option<Vec<Fixture>> {
    use Needs::{Change, Memory, More, Read, Server, Snapshot};
    let call = |needs, id, query, body| Fixture {
        needs,
        id,
        query,
        body,
    };
    let at = |needs, id| call(needs, id, "", "");
    Some(match operation {
        "healthz" | "openapi" | "read_caller" | "end_session" | "metrics" => vec![at(Server, "")],
        // The token is not valid; this operation answers without Redis.
        "begin_session" => vec![call(Server, "", "", "{\"token\": \"x\"}")],
        "readyz" => vec![at(Snapshot, "")],
        "list_queues" | "list_processes" => vec![at(Snapshot, "")],
        "events" => vec![call(Snapshot, "", "?queues=orders", "")],
        "examine_server" | "examine_queue" => vec![at(Read, "")],
        "read_queue" | "nodes" | "errors" | "backlog" | "history" => vec![at(Read, "")],
        "read_limits" | "list_schedules" => vec![at(Read, "")],
        "read_schedule" | "next_fires" => vec![at(Read, "nightly")],
        "preview_fires" => vec![call(Server, "", "?every=15m", "")],
        "list_operations" | "list_all_operations" => vec![at(Server, "")],
        "dues" => vec![call(Read, "", "?step_ms=60000&count=60", "")],
        "search" => vec![call(Read, "", "?id=1", "")],
        "list_messages" => vec![call(Read, "", "?state=scheduled", "")],
        "read_message" | "download_payload" => vec![at(Read, "1")],
        // A pause needs no memory, so it works while Redis is full.
        "pause_queue" => vec![call(Change, "", "", "{\"for_ms\": 60000}")],
        "resume_queue" => vec![at(Change, "")],
        "push_message" => {
            let body = "{\"payload\": \"x\", \"at\": \"2099-12-01T20:00:00Z\"}";
            vec![call(Memory, "new", "", body)]
        }
        "change_message" => {
            let body = "{\"at\": \"2099-12-01T20:00:00Z\"}";
            vec![call(Memory, "change", "", body)]
        }
        "cancel_message" => vec![at(Change, "cancel")],
        "change_limits" => vec![call(Change, "", "", "{\"max_attempts\": 7}")],
        "declare_schedule" => vec![call(Memory, "hourly", "", "{\"every\": \"1h\"}")],
        "apply_schedules" => {
            let body = "{\"schedules\": [{\"name\": \"daily\", \"every\": \"24h\"}]}";
            vec![call(Memory, "", "?set=other", body)]
        }
        "pause_schedule" | "resume_schedule" => vec![at(Change, "nightly")],
        "trigger_schedule" => vec![at(Memory, "nightly")],
        "remove_schedule" => vec![at(Change, "gone")],
        "claim_messages" => vec![call(More, "", "", "{\"max\": 1}")],
        "settle_deliveries" => vec![call(More, "", "", "{\"settlements\": []}")],
        "extend_deliveries" => vec![call(More, "", "", "{\"extensions\": []}")],
        "begin_operation" => vec![call(More, "", "", "{\"kind\": \"audit\"}")],
        "read_operation" | "stop_operation" | "cancelled_messages" => vec![at(More, "0")],
        "delete_queue" => vec![at(More, "")],
        // No such process has workers: the call reads them, and changes nothing.
        "drain_process" | "resume_process" => {
            vec![call(More, "", "", "{\"host\": \"h\", \"pid\": 1}")]
        }
        "requeue_message" => vec![at(Memory, "dead")],
        "bury_message" => vec![call(Change, "dead", "", "{\"reason\": \"poison\"}")],
        "end_lease" => vec![call(Change, "held", "", HELD)],
        "push_messages" => vec![
            call(
                Memory,
                "",
                "",
                "{\"messages\": [{\"id\": \"many\", \"payload\": \"x\"}]}",
            ),
            call(Memory, "", "", "{\"id\": \"one\", \"payload\": \"x\"}"),
            call(Memory, "", "", "{\"id\": \"line\", \"payload\": \"x\"}\n"),
        ],
        _ => return None,
    })
}

/// Prepares the queue that the calls need.
pub(crate) async fn prepare(instance: &Instance) -> Result<dueq::Queue> {
    let queue = instance.client.queue("orders")?;
    let due = dueq::Due::at_ms(4_000_000_000_000);
    queue.push("secret").id("dead").await?;
    for delivery in queue.claim(1, std::time::Duration::from_secs(60)).await? {
        let _ = delivery.bury("by the test").await?;
    }
    let (token, hour) = (
        dueq::claims::LeaseToken::from_bytes([7; 16]),
        std::time::Duration::from_secs(3_600),
    );
    queue.push("secret").id("held").await?;
    while queue.claim_with_token(token, 1, hour).await?.is_empty() {} // it is due within 1 ms
    for id in ["1", "change", "cancel"] {
        queue.push("secret").id(id).due(due).await?;
    }
    for name in ["nightly", "gone"] {
        let line = format!("PUT /v1/queues/orders/schedules/{name}");
        let body = "{\"cron\": \"0 2 1 1 *\", \"zone\": \"Europe/Paris\"}";
        let declared = instance.ask_as("operator", &line, body).await?;
        anyhow::ensure!(declared.status == 201, "{declared:?}");
    }
    Ok(queue)
}

/// The calls of all operations of the document.
pub(crate) async fn calls(instance: &Instance) -> Result<Vec<Call>> {
    let document = instance.ask_as("operator", "GET /openapi.json", "").await?;
    let document = document.json()?;
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().context("paths")? {
        for (method, described) in item.as_object().context("operations")? {
            let operation = described["operationId"].as_str().context("an id")?;
            let fixtures = fixtures(operation).with_context(|| {
                format!("{operation} is missing in the table of serve/tests/http/support/calls.rs")
            })?;
            for fixture in fixtures {
                calls.push(call(path, method, operation, described, &fixture)?);
            }
        }
    }
    Ok(calls)
}

fn call(
    path: &str,
    method: &str,
    operation: &str,
    described: &Value,
    fixture: &Fixture,
) -> Result<Call> {
    let filled = path
        .replace("{queue}", "orders")
        .replace("{id}", fixture.id)
        .replace("{name}", fixture.id)
        .replace("{operation}", fixture.id);
    anyhow::ensure!(!filled.contains('{'), "{path} has another placeholder");
    let media_type = match fixture.body {
        "" => None,
        body if body.ends_with('\n') => Some(LINES),
        _ => Some(JSON),
    };
    let content = &described["requestBody"]["content"];
    anyhow::ensure!(
        media_type.is_none_or(|media_type| content[media_type].is_object()),
        "{operation} takes no {media_type:?}"
    );
    let responses = described["responses"].to_string();
    Ok(Call {
        operation: operation.to_owned(),
        method: method.to_uppercase(),
        path: path.to_owned(),
        id: fixture.id,
        line: format!("{} {filled}{}", method.to_uppercase(), fixture.query),
        media_type,
        body: fixture.body,
        needs: fixture.needs,
        is_stream: responses.contains("text/event-stream"),
    })
}
