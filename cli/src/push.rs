//! `dueq push`: stores one message.

use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use dueq::{Message, OnConflict, Pushed};

use crate::{Common, output, time};

#[derive(Args)]
#[command(after_help = "\
Examples:
  dueq push orders 'rate order 42' --id order:42 --delay 48h
  dueq push campaign --at 2026-12-01T20:00:00+08:00 - < mail.json
  dueq push connections close --id conn:7 --delay 30s --on-conflict reschedule")]
pub(crate) struct Push {
    /// The queue: 1 to 128 bytes, none of / { }; it is made by its first push
    queue: String,
    /// The payload; - or nothing reads it from standard input
    payload: Option<String>,
    /// The id, 1 to 200 bytes: pushing the same id again changes nothing; a fresh one if not given
    #[arg(long)]
    id: Option<String>,
    /// Due so long from now: 48h, 1500ms, '1h 30m'; at once if neither --delay nor --at is given
    #[arg(long, value_parser = time::delay, allow_hyphen_values = true)]
    delay: Option<Duration>,
    /// Due at this moment: 2026-12-01T20:00:00+08:00
    #[arg(long, value_parser = time::moment, conflicts_with = "delay")]
    at: Option<SystemTime>,
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
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<()> {
        let payload = match self.payload.as_deref() {
            None | Some("-") => {
                let mut payload = Vec::new();
                io::stdin().lock().read_to_end(&mut payload)?;
                payload
            }
            Some(text) => text.as_bytes().to_vec(),
        };
        let mut message = Message::new(payload).on_conflict(match self.on_conflict {
            Conflict::Keep => OnConflict::Keep,
            Conflict::Reschedule => OnConflict::Reschedule,
            Conflict::Replace => OnConflict::Replace,
        });
        if let Some(id) = &self.id {
            message = message.id(id);
        }
        if let Some(delay) = self.delay {
            message = message.due(delay);
        } else if let Some(at) = self.at {
            message = message.due(at);
        }
        if let Some(max_attempts) = self.max_attempts {
            message = message.max_attempts(max_attempts);
        }
        let id = String::from_utf8_lossy(message.id_bytes()).into_owned();
        let pushed = common.queue(&self.queue).await?.push(message).await?;

        let (word, state) = match pushed {
            Pushed::Created => ("created", None),
            Pushed::Exists(state) => ("exists", Some(state.as_str())),
            Pushed::Moved => ("moved", None),
            Pushed::Finished => ("finished", None),
        };
        if common.json {
            let line = serde_json::json!({ "id": id, "outcome": word, "state": state });
            writeln!(io::stdout(), "{line}")?;
        } else {
            let state = state.map(|state| format!(" ({state})")).unwrap_or_default();
            writeln!(io::stdout(), "{word}{state} {}", output::visible(id.as_bytes()))?;
        }
        Ok(())
    }
}
