//! `dueq push`: stores one message, or a file of them.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

use clap::{Args, ValueEnum};
use dueq::{Message, OnConflict, Pushed, State};

use crate::commands::push_file::FileFlags;
use crate::durable::Durable;
use crate::failure::dueq;
use crate::ndjson::Defaults;
use crate::output::Outcome;
use crate::when::When;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Prints a word and the id:
  created   the message is stored
  exists    a message of this id is there, in the state that is told; nothing was changed. With --on-conflict reschedule
            or replace that is a refusal (exit code 1): the message is dead, or a worker has it
  moved     the message that waited has the new due time; with --on-conflict replace also the new payload and options
  finished  an earlier attempt of this very call stored the message, and it is gone already: delivered or cancelled
Exit code 0 if the message is, or was, in the queue as asked; 1 if not, or if an error leaves it open, which it then says.

A line of --ndjson holds payload or payload_base64; optionally id, delay or at, max_attempts and traceparent. A payload
that is a text is stored without its quotes, any other JSON value as it is written. What a line does not say is taken
from the flags. A line without id gets one made of file, line number and text: so an interrupted push can be run again,
and changes no message that is still there. A line whose message was delivered or cancelled in the meantime is pushed
once more: --from-line leaves it out.
  {\"payload\": \"rate order 42\", \"id\": \"order:42\", \"delay\": \"48h\"}
  {\"payload\": {\"mail\": 7}, \"at\": \"2026-12-01T20:00:00+08:00\"}

Examples:
  dueq push orders 'rate order 42' --id order:42 --delay 48h
  dueq push campaign --at 'tomorrow 20:00' --tz Asia/Shanghai - < mail.json
  dueq push connections close --id conn:7 --delay 30s --on-conflict reschedule
  dueq push orders 'rate order 43' --delay 48h --replicas 2
  dueq push orders --ndjson orders.ndjson
  dueq push campaign --ndjson recipients.ndjson --at 'tomorrow 20:00' --tz Asia/Shanghai")]
pub(crate) struct Push {
    /// The queue: 1 to 128 bytes, none of / { }; it is made by its first push
    queue: String,
    /// The payload; - or nothing reads it from standard input
    payload: Option<OsString>,
    /// The id, 1 to 200 bytes: pushing the same id again changes nothing; a fresh one if not given
    #[arg(long)]
    id: Option<OsString>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    file: FileFlags,
    /// Dead after so many failed attempts, instead of the queue's limit
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// What to do if the id waits already
    #[arg(long, value_enum, default_value_t = Conflict::Keep)]
    on_conflict: Conflict,
    /// The W3C trace context of the push, 00-TRACE-SPAN-FLAGS: handed on to whoever handles the message
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    #[command(flatten)]
    durable: Durable,
}

/// Why a message was neither moved nor replaced, and what can be done.
pub(crate) fn refusal(queue: &str, id: &[u8], state: State) -> String {
    let (queue, shown) = (queue.as_bytes(), output::visible(id));
    if state != State::Dead {
        return format!(
            "nothing was changed: a worker has {shown}; push it again when it has ended, or under another id"
        );
    }
    let (requeue, cancel) = (
        dueq("requeue", &[queue, id]),
        dueq("cancel --dead", &[queue, id]),
    );
    format!(
        "nothing was changed: {shown} is dead; {requeue} makes it due as it is, {cancel} makes room for a new push"
    )
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Conflict {
    /// Leave the waiting message as it is
    Keep,
    /// Give it the new due time
    Reschedule,
    /// Replace payload, due time and options
    Replace,
}

impl Push {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (due, durability) = (self.when.due()?, self.durable.durability());
        if let Some(path) = &self.file.ndjson {
            let queue = common.queue(&self.queue).await?.durability(durability);
            let (max_attempts, on_conflict) = (self.max_attempts, self.on_conflict.into());
            let (source, when, traceparent) = (String::new(), self.when, self.traceparent);
            let defaults = Defaults {
                source,
                due,
                when,
                max_attempts,
                on_conflict,
                traceparent,
            };
            return self.file.run(path, queue, defaults, common).await;
        }
        let payload = match self.payload {
            Some(payload) if payload != "-" => payload.into_vec(),
            _ => {
                let mut payload = Vec::new();
                io::stdin().lock().read_to_end(&mut payload)?;
                payload
            }
        };
        let mut message = Message::new(payload)
            .on_conflict(self.on_conflict.into())
            .durability(durability);
        let has_id = self.id.is_some();
        if let Some(id) = self.id {
            message = message.id(id.into_vec());
        }
        if let Some(due) = due {
            message = message.due(due);
        }
        if let Some(max_attempts) = self.max_attempts {
            message = message.max_attempts(max_attempts);
        }
        if let Some(traceparent) = self.traceparent {
            message = message.trace_parent(traceparent);
        }
        let id = message.id_bytes().to_vec();
        let pushed = common
            .queue(&self.queue)
            .await?
            .push(message)
            .await
            .map_err(|error| {
                let told = common.told(&error);
                if has_id { told } else { told.of_made_id(&id) }
            })?;
        let (word, state) = match pushed {
            Pushed::Created => ("created", None),
            Pushed::Exists(state) => ("exists", Some(state.as_str())),
            Pushed::Moved => ("moved", None),
            Pushed::Finished => ("finished", None),
        };
        output::message(
            common.json,
            &id,
            word,
            state.unwrap_or_default(),
            &[("state", state.into())],
        )?;
        match pushed {
            Pushed::Exists(state) if self.on_conflict != Conflict::Keep => {
                common.remark(&refusal(&self.queue, &id, state));
                Ok(Outcome::Refused)
            }
            _ => Ok(Outcome::Done),
        }
    }
}

impl From<Conflict> for OnConflict {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::Keep => Self::Keep,
            Conflict::Reschedule => Self::Reschedule,
            Conflict::Replace => Self::Replace,
        }
    }
}
