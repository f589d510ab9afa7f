//! `dueq show`: one message.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::Args;
use comfy_table::{Table, presets};
use dueq::inspect::{LeaseInfo, NodeInfo};
use dueq::{MessageState, OnExpire, Queue, StoredMessage};

use crate::output::Outcome;
use crate::{Common, existing, output};

mod life;

#[derive(Args)]
#[command(after_help = "\
Prints state, due time, failures, crashes, expiry, cost, snoozes, the last error and the payload of a
message; of a leased one also since when which worker has it, and its process. Times are given for people and in Unix milliseconds. If there is no such message, the exit
code is 1, and the command prints absent; or finished, expired or cancelled and the time, if the
queue remembers how the message ended: for the rest of the push's --window, and for 12 s after a
cancel. Below are the last 20 events of the message, if the queue keeps them:
`dueq configure QUEUE --keep-life-for 1h`.

Examples:
  dueq show orders order:42
  dueq show orders order:42 --json | jq .due_ms
  dueq show orders order:42 --payload > payload")]
pub(crate) struct Show {
    /// The queue
    queue: String,
    /// The id
    id: OsString,
    /// Print only the payload, byte for byte; on a terminal, control characters are escaped
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

impl Show {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let id = self.id.into_vec();
        let (client, queue) = common.client_and_queue_to_read(&self.queue).await?;
        let Some(stored) = queue.get(&id).await? else {
            if self.payload {
                existing::require(&client, &queue).await?;
                anyhow::bail!(
                    "absent: {} has no message {}",
                    self.queue,
                    output::visible(&id)
                );
            }
            if let Some(end) = queue.end_of(&id).await? {
                let life = queue.life_of(&id).await?;
                let word = end.kind.as_str();
                let fields = [
                    ("ended_at_ms", end.ended_at_ms.into()),
                    ("remembered_until_ms", end.remembered_until_ms.into()),
                    ("life", life::fields(&life)),
                ];
                output::message(
                    common.json,
                    &id,
                    word,
                    &output::moment(end.ended_at_ms),
                    &fields,
                )?;
                if !common.json {
                    life::print(&life)?;
                }
                return Ok(Outcome::Refused);
            }
            output::message(common.json, &id, "absent", "", &[])?;
            existing::note(common, &client, &queue).await;
            return Ok(Outcome::Refused);
        };
        if self.payload {
            output::bytes(&stored.payload)?;
            return Ok(Outcome::Done);
        }
        let holder = holder(&queue, stored.lease.as_ref()).await;
        let time = time_name(stored.state);
        if common.json {
            let mut object = output::id_fields(&id);
            object.insert("state".to_owned(), stored.state.as_str().into());
            object.insert(format!("{time}_ms"), stored.time_ms.into());
            object.insert("failures".to_owned(), stored.failures.into());
            object.insert("crashes".to_owned(), stored.crashes.into());
            object.insert("max_attempts".to_owned(), stored.max_attempts.into());
            object.insert("traceparent".to_owned(), stored.trace_parent.into());
            object.insert("expires_at_ms".to_owned(), stored.expires_at_ms.into());
            object.insert(
                "expires_after_ms".to_owned(),
                stored.expires_after_ms.into(),
            );
            let is_dropped = stored.on_expire == OnExpire::Drop;
            let fate = if is_dropped { "drop" } else { "dead" };
            object.insert("on_expire".to_owned(), fate.into());
            object.insert("cost".to_owned(), stored.cost.into());
            object.insert("snoozes".to_owned(), stored.snoozes.into());
            object.insert("window_ms".to_owned(), stored.window_ms.into());
            object.insert("due_by_ms".to_owned(), stored.due_by_ms.into());
            object.insert("next_due_ms".to_owned(), stored.next_due_ms.into());
            lease_fields(&mut object, stored.lease);
            if let Some(process) = holder.as_ref().and_then(|node| node.process.as_ref()) {
                object.insert("host".to_owned(), process.host.clone().into());
                object.insert("pid".to_owned(), process.pid.into());
                object.insert("program".to_owned(), process.program.clone().into());
            }
            if let Some(node) = &holder {
                object.insert("is_alive".to_owned(), node.is_alive().into());
            }
            object.insert("error".to_owned(), stored.error.into());
            object.insert("life".to_owned(), life::fields(&stored.life));
            output::payload_fields(&mut object, &stored.payload);
            output::json_line(&object.into())?;
            return Ok(Outcome::Done);
        }
        let limit = stored
            .max_attempts
            .map_or("the queue's".to_owned(), |limit| limit.to_string());
        let expires = expiry(&stored);
        let mut table = table();
        for (name, value) in [
            ("id", output::shown_id(&id)),
            ("state", stored.state.to_string()),
            (
                time,
                format!("{} ({})", output::moment(stored.time_ms), stored.time_ms),
            ),
            ("failures", stored.failures.to_string()),
            ("crashes", stored.crashes.to_string()),
            ("max_attempts", limit),
            ("expires", expires),
            ("cost", stored.cost.to_string()),
            ("snoozes", stored.snoozes.to_string()),
            (
                "traceparent",
                output::visible(stored.trace_parent.unwrap_or_default().as_bytes()),
            ),
            ("error", output::visible(stored.error.as_bytes())),
            ("payload", output::visible(&stored.payload)),
        ] {
            table.add_row([name, &value]);
        }
        if let Some(ms) = stored.window_ms {
            table.add_row(["window", &format!("{:?}", Duration::from_millis(ms))]);
        }
        for (name, time) in [
            ("due_by", stored.due_by_ms),
            ("next_due", stored.next_due_ms),
        ] {
            if let Some(ms) = time {
                table.add_row([name, &format!("{} ({ms})", output::moment(ms))]);
            }
        }
        if let Some(lease) = &stored.lease {
            table.add_row(["lease", &lease.name]);
            table.add_row(["since", &since(lease)]);
            table.add_row(["node", lease.node.as_deref().unwrap_or("unknown")]);
            if let Some(process) = holder.as_ref().map(of_process) {
                table.add_row(["process", &process]);
            }
            if lease.is_to_bury {
                table.add_row(["then", "dead, unless it is acked"]);
            }
        }
        output::line(&table.trim_fmt())?;
        life::print(&stored.life)?;
        Ok(Outcome::Done)
    }
}

/// The worker that has the message. `None` if the lease does not tell it, the worker told nothing, or
/// the user may not read the nodes.
async fn holder(queue: &Queue, lease: Option<&LeaseInfo>) -> Option<NodeInfo> {
    let lease = lease.filter(|lease| lease.node.is_some())?;
    let nodes = queue.holders().await.ok()?;
    nodes.into_iter().find(|node| node.has(lease))
}

/// Since when a handler has the message.
fn since(lease: &LeaseInfo) -> String {
    let moment = |ms| format!("{} ({ms})", output::moment(ms));
    lease.since_ms.map_or("unknown".to_owned(), moment)
}

/// The process of a worker, and whether the worker is alive.
fn of_process(node: &NodeInfo) -> String {
    let life = match node.is_alive() {
        true => "alive".to_owned(),
        false => format!("silent for {} s", node.silent_ms / 1_000),
    };
    match &node.process {
        Some(process) => {
            let text = format!("{} on {}, {}", process.pid, process.host, process.program);
            format!("{}, {life}", output::visible(text.as_bytes()))
        }
        None => life,
    }
}

/// Adds the fields about the lease of a leased message.
pub(super) fn lease_fields(
    object: &mut serde_json::Map<String, serde_json::Value>,
    lease: Option<LeaseInfo>,
) {
    if let Some(lease) = lease {
        object.insert("lease".to_owned(), lease.name.into());
        object.insert("node".to_owned(), lease.node.into());
        object.insert("since_ms".to_owned(), lease.since_ms.into());
        object.insert("is_to_bury".to_owned(), lease.is_to_bury.into());
    }
}

/// When the message expires and what happens to it then, in words.
fn expiry(stored: &StoredMessage) -> String {
    let fate = match stored.on_expire {
        OnExpire::Drop => "removed then",
        _ => "dead then",
    };
    match (stored.expires_at_ms, stored.expires_after_ms) {
        (Some(ms), _) => format!("{} ({ms}), {fate}", output::moment(ms)),
        (None, Some(ms)) => {
            let time = Duration::from_millis(ms);
            format!("{time:?} after its due time, {fate}")
        }
        (None, None) => "never".to_owned(),
    }
}

/// The label of a message's time, by the state of the message.
pub(super) fn time_name(state: MessageState) -> &'static str {
    match state {
        MessageState::Scheduled | MessageState::Ready => "due",
        MessageState::Leased => "leased_until",
        MessageState::Dead => "died",
    }
}

pub(super) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}
