//! `dueq push`: stores one message.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;

use clap::{Args, ValueEnum};
use dueq::{Message, OnConflict, Pushed};

use crate::output::Outcome;
use crate::when::When;
use crate::{Common, output};

#[derive(Args)]
#[command(after_help = "\
Examples:
  dueq push orders 'rate order 42' --id order:42 --delay 48h
  dueq push campaign --at 'tomorrow 20:00' --tz Asia/Shanghai - < mail.json
  dueq push connections close --id conn:7 --delay 30s --on-conflict reschedule")]
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
    /// Dead after so many failed attempts, instead of the queue's limit
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// What to do if the id waits already
    #[arg(long, value_enum, default_value_t = Conflict::Keep)]
    on_conflict: Conflict,
}

#[derive(Clone, Copy, ValueEnum)]
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
        let due = self.when.due()?;
        let payload = match self.payload {
            Some(payload) if payload != "-" => payload.into_vec(),
            _ => {
                let mut payload = Vec::new();
                io::stdin().lock().read_to_end(&mut payload)?;
                payload
            }
        };
        let mut message = Message::new(payload).on_conflict(self.on_conflict.into());
        if let Some(id) = self.id {
            message = message.id(id.into_vec());
        }
        if let Some(due) = due {
            message = message.due(due);
        }
        if let Some(max_attempts) = self.max_attempts {
            message = message.max_attempts(max_attempts);
        }
        let id = message.id_bytes().to_vec();
        let (word, state) = match common.queue(&self.queue).await?.push(message).await? {
            Pushed::Created => ("created", None),
            Pushed::Exists(state) => ("exists", Some(state.as_str())),
            Pushed::Moved => ("moved", None),
            Pushed::Finished => ("finished", None),
        };
        output::message(common.json, &id, word, state.unwrap_or_default(), &[("state", state.into())])?;
        Ok(Outcome::Done)
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
