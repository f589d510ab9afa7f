//! `dueq push`: stores one message, or a file of messages.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dueq::outcomes::PushOutcome;
use dueq::{Client, Message, MessageState, OnConflict};
use dueq_input::{Defaults, ServerClock, Wording, expiring};
use jiff::Timestamp;
use serde_json::Value;

use crate::commands::push_file::FileFlags;
use crate::failure::dueq;
use crate::flags::Durable;
use crate::flags::ExpiryFlags;
use crate::flags::UniqueFlags;
use crate::flags::{WhenFlags, default_timing, resolve, timing};
use crate::output::{Outcome, Usage};
use crate::{Common, output, time};

#[derive(Args)]
#[command(after_help = "\
Without --delay, --at and --within the message is due now. Pushing the same id again changes nothing
while its message waits, so a push may be repeated. --on-conflict changes the waiting message
instead.

Prints a word and the id:
  created   the message is stored
  exists    the queue has a message with this id, in the printed state; nothing was changed. With
            --on-conflict reschedule or replace this is a refusal (exit code 1): the message is
            dead, or a worker has it
  moved     the waiting message has the new due time; with --on-conflict replace or next also the
    new payload and options
  next      a worker has the message with this id, and the new one waits until the worker is done;
    only with --on-conflict next
  remembered  a push with --window stored a message with this id, which has ended; nothing was
    changed
  finished  an earlier try of this call stored the message, which was delivered or cancelled
    since
Exit code 0 if the queue has, or had, the message as asked. Exit code 1 if not, or if an error
leaves that unknown; the error says so.

--within 'Mon-Fri 09:00-18:00' --tz Europe/Paris moves a due time outside these hours to their next
opening. The due time is that of --delay or --at, or else now, by the server's clock. Only the due
time moves: a retry or a late worker can still handle the message outside the hours. Some hours:
  'Mon-Thu 09:00-12:00 13:00-18:00, Fri 09:00-12:00'   two ranges a day, and another day
  'Fri-Sat 22:00-02:00'                                until 02:00 of Saturday and of Sunday
  'Mon, Wed, Sat-Sun 00:00-24:00'                      whole days
If clocks skip the start of a range, it opens when the skipped time is over. A range that occurs
twice, because clocks are put back, is open both times.

--on-conflict replace with a --delay is a debounce: a burst of pushes becomes one delivery, --delay
after the last push, and --max-wait after the first one at the latest.

--spread adds up to its time to the due time: crc32(\"spread\" + id) % (window in ms + 1) ms. The same
id gets the same due time each time; no message is due earlier than without it. It is added after
--within, and may exceed the hours.

--expires 2h lets no attempt start later than this after the due time; --expires-at 'today 22:00' --tz
Europe/Paris lets none start after that moment. Then the message is dead, or with --on-expire drop
it is removed. A retry that would start later ends the message at once. A running handler is not
interrupted. While no worker runs, an expired message stays in the queue.

--ndjson pushes a file with one JSON object a line. A line has payload or payload_base64, and
optionally id, delay or at, within, tz, spread_ms, expires or expires_at, on_expire, cost,
max_attempts, traceparent, on_conflict, window, max_wait, reuse, revive and undo_ms; the flags give the
values that a line leaves out. on_expire needs an expiry; that of the flags has no effect on lines
without one. A payload that is a JSON string is stored without its quotes, any other JSON value as
its text.
The id of a line without id is computed from the idempotency key of the run, line number and text.
The key of a file is its path and modification time, so an interrupted push can be run again: it
changes no waiting message. It pushes again each line whose message was delivered or cancelled
since; --from-line skips those lines. A pipe has a random key, so each run of it pushes new
messages. Errors print the key: --idempotency-key with it continues the run of a pipe, or of a file
that was changed since. Exit code 1 if a line without id stored nothing because of an earlier run
with the same key, unless --idempotency-key asked for that.
  {\"payload\": \"rate order 42\", \"id\": \"order:42\", \"delay\": \"48h\"}
  {\"payload\": {\"mail\": 7}, \"at\": \"2026-12-01T20:00:00+08:00\"}
  {\"payload\": {\"call\": 7}, \"within\": \"Mon-Fri 09:00-18:00\", \"tz\": \"Asia/Tokyo\"}

Examples:
  dueq push orders 'rate order 42' --id order:42 --delay 48h
  dueq push campaign --at 'tomorrow 20:00' --tz Asia/Shanghai - < mail.json
  dueq push calls 'call back' --delay 2h --within 'Mon-Fri 09:00-18:00' --tz Europe/Paris
  dueq push connections close --id conn:7 --delay 30s --on-conflict reschedule
  dueq push index doc-7 --id doc:7 --delay 5s --on-conflict replace --max-wait 1m
  dueq push reports weekly --id report:7 --window 1h
  dueq push orders 'rate order 43' --delay 48h --replicas 2
  dueq push sale 'sale!' --expires-at 'today 22:00' --tz Europe/Paris --on-expire drop
  dueq push webhook:example.com '{\"rows\": 5000}' --expires 3d --cost 3
  dueq push orders --ndjson orders.ndjson
  dueq push campaign --ndjson recipients.ndjson --at 'tomorrow 20:00' --tz Asia/Shanghai --spread 5m")]
pub(crate) struct Push {
    /// The queue: 1 to 128 bytes, none of / { }; its first push creates it
    queue: String,
    /// The payload; - or no payload reads standard input
    payload: Option<OsString>,
    /// The id, 1 to 200 bytes: pushing the same id again changes nothing [default: a new random id]
    #[arg(long)]
    id: Option<OsString>,
    #[command(flatten)]
    when: WhenFlags,
    /// Due up to this much later, by the id: 30s. Spreads messages with one due time
    #[arg(long, value_name = "WINDOW", value_parser = time::delay, allow_hyphen_values = true)]
    spread: Option<Duration>,
    #[command(flatten)]
    expiry: ExpiryFlags,
    /// Each attempt uses N starts of the queue's rate, at most its burst [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cost: Option<u32>,
    #[command(flatten)]
    file: FileFlags,
    /// Dead after N failed attempts, instead of the queue's limit
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// What to do if a message with this id waits already
    #[arg(long, value_enum, default_value_t = Conflict::Keep)]
    on_conflict: Conflict,
    #[command(flatten)]
    unique: UniqueFlags,
    /// The W3C trace context of the push, 00-TRACE-SPAN-FLAGS: the handler receives it
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    #[command(flatten)]
    durable: Durable,
}

/// The text for a message that the push neither moved nor replaced: why, and what to do.
pub(crate) fn refusal(queue: &str, id: &[u8], state: MessageState) -> String {
    let (queue, shown) = (queue.as_bytes(), output::visible(id));
    if state != MessageState::Dead {
        return format!(
            "nothing was changed: a worker has {shown}; push it again when the worker is done, or under another id"
        );
    }
    let (requeue, cancel) = (
        dueq("requeue", &[queue, id]),
        dueq("cancel --dead", &[queue, id]),
    );
    format!(
        "nothing was changed: {shown} is dead; {requeue} makes it due again, {cancel} removes it for a new push"
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
    /// As replace; if a worker has the message, keep the new one until the worker is done. Needs
    /// layout 3: dueq configure QUEUE --layout 3
    Next,
}

impl Push {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (durability, now) = (self.durable.durability(), Timestamp::now());
        let (when, expiry, unique) = (self.when.read(), self.expiry.read(), self.unique.read());
        let timing = match &self.file.ndjson {
            Some(_) => default_timing(&when)?,
            None => timing(&when, expiry.expires_at.as_deref())?,
        };
        let last = expiry.last(when.tz.as_ref(), now, Wording::Flags);
        let last = last.map_err(Usage::from)?;
        if let Some(path) = &self.file.ndjson {
            let (client, queue) = common.client_and_queue(&self.queue).await?;
            let queue = queue.durability(durability);
            let server_clock = server_clock(&client, timing.hours.is_some()).await?;
            let defaults = Defaults {
                when,
                timing,
                spread: self.spread,
                expiry,
                last,
                cost: self.cost,
                max_attempts: self.max_attempts,
                on_conflict: self.on_conflict.into(),
                unique,
                traceparent: self.traceparent,
                ..Defaults::new(Wording::Flags, Box::new(Timestamp::now), server_clock)
            };
            return self.file.run(path, queue, defaults, common).await;
        }
        let fate = expiry.refuse_idle_fate(Wording::Flags);
        fate.map_err(Usage::from)?;
        let payload = match self.payload {
            Some(payload) if payload != "-" => payload.into_vec(),
            _ => {
                let mut payload = Vec::new();
                io::stdin().lock().read_to_end(&mut payload)?;
                payload
            }
        };
        let mut message = unique
            .apply(Message::new(payload))
            .on_conflict(self.on_conflict.into())
            .durability(durability);
        let has_id = self.id.is_some();
        if let Some(id) = self.id {
            message = message.id(id.into_vec());
        } else {
            message = message.new_id();
        }
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        if let Some(due) = resolve(timing, &client).await? {
            message = message.due(due);
        }
        if let Some(window) = self.spread {
            message = message.spread(window);
        }
        message = expiring(message, last, expiry.on_expire);
        if let Some(cost) = self.cost {
            message = message.cost(cost);
        }
        if let Some(max_attempts) = self.max_attempts {
            message = message.max_attempts(max_attempts);
        }
        if let Some(traceparent) = self.traceparent {
            message = message.trace_parent(traceparent);
        }
        let id = message.id_bytes().unwrap_or_default().to_vec();
        let pushed = queue
            .push_message(message)
            .await
            .map_err(|error| {
                let explained = common.explain(&error);
                if has_id {
                    explained
                } else {
                    explained.of_generated_id(&id)
                }
            })?
            .outcome();
        let (word, state) = match pushed {
            PushOutcome::Next => ("next", None),
            PushOutcome::Remembered(until_ms) => {
                let detail = format!("until {}", output::moment(until_ms));
                let fields = [
                    ("state", Value::Null),
                    ("remembered_until_ms", until_ms.into()),
                ];
                output::message(common.json, &id, "remembered", &detail, &fields)?;
                return Ok(Outcome::Done);
            }
            PushOutcome::Created => ("created", None),
            PushOutcome::Exists(state) => ("exists", Some(state.as_str())),
            PushOutcome::Moved => ("moved", None),
            PushOutcome::Finished => ("finished", None),
            _ => ("unknown", None),
        };
        output::message(
            common.json,
            &id,
            word,
            state.unwrap_or_default(),
            &[("state", state.into())],
        )?;
        match pushed {
            PushOutcome::Exists(state) if self.on_conflict != Conflict::Keep => {
                common.remark(&refusal(&self.queue, &id, state));
                Ok(Outcome::Refused)
            }
            _ => Ok(Outcome::Done),
        }
    }
}

/// Reads the server's clock once, for the lines of a file. Only lines with business hours need it:
/// so without `--within` a failed read makes only those lines fail.
async fn server_clock(client: &Client, needed: bool) -> Result<ServerClock, dueq::Error> {
    match client.server_time().await {
        Ok(time) => Ok(Box::new(move || Ok(time.now_ms()))),
        Err(error) if needed => Err(error),
        Err(error) => Ok(Box::new(move || {
            Err(format!(
                "within needs the server's clock, which cannot be read: {error}"
            ))
        })),
    }
}

impl From<Conflict> for OnConflict {
    fn from(conflict: Conflict) -> Self {
        match conflict {
            Conflict::Keep => Self::Keep,
            Conflict::Reschedule => Self::Reschedule,
            Conflict::Replace => Self::Replace,
            Conflict::Next => Self::Next,
        }
    }
}
