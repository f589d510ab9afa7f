//! `dueq reschedule`: gives a waiting message another due time.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Args;
use dueq::outcomes::RescheduleOutcome;

use crate::flags::Durable;
use crate::flags::{WhenFlags, resolve, timing};
use crate::output::Outcome;
use crate::{Common, existing, output};

#[derive(Args)]
#[command(after_help = "\
Moves a waiting message to an earlier or later time. Payload, attempts and options stay.

--within moves a new due time outside these hours to their next opening: `dueq push --help` has the
notation.

Prints a word: moved (and the new due time); or the reason why not: conflict (the message is due at
another time than --expected), leased (a handler has it), dead, absent (no such message). Exit code
0 if it was moved, else 1.

Examples:
  dueq reschedule orders order:42 --delay 24h
  dueq reschedule campaign mail:7 --at 'tomorrow 20:00' --tz Asia/Shanghai
  dueq reschedule calls call:7 --delay 1h --within 'Mon-Fri 09:00-18:00' --tz Europe/Paris
  dueq reschedule orders order:42 --delay 24h --expected 1796126400000")]
pub(crate) struct Reschedule {
    /// The queue
    queue: String,
    /// The id
    id: OsString,
    #[command(flatten)]
    when: WhenFlags,
    /// Move only if the message is due at this Unix millisecond, the due_ms of `dueq show QUEUE ID
    /// --json`
    #[arg(long, value_name = "MS")]
    expected: Option<u64>,
    #[command(flatten)]
    durable: Durable,
}

impl Reschedule {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let timing = timing(&self.when.read(), None)?;
        let missing = || {
            output::Usage(
                "the due time is missing: add --delay or --at, such as --delay 1h or --at now"
                    .to_owned(),
            )
        };
        timing.due.ok_or_else(missing)?;
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let due = resolve(timing, &client).await?.ok_or_else(missing)?;
        let (queue, id) = (
            queue.durability(self.durable.durability()),
            self.id.into_vec(),
        );
        let rescheduled = match self.expected {
            Some(expected) => queue.reschedule_if(&id, due, expected).await?,
            None => queue.reschedule(&id, due).await?,
        };
        let (word, due_ms) = match rescheduled {
            RescheduleOutcome::Moved(due_ms) => ("moved", Some(due_ms)),
            RescheduleOutcome::Conflict(due_ms) => ("conflict", Some(due_ms)),
            RescheduleOutcome::Leased => ("leased", None),
            RescheduleOutcome::Dead => ("dead", None),
            RescheduleOutcome::Absent => ("absent", None),
            _ => ("unknown", None),
        };
        let detail = due_ms
            .map(|ms| format!("due {}", output::moment(ms)))
            .unwrap_or_default();
        output::message(
            common.json,
            &id,
            word,
            &detail,
            &[("due_ms", due_ms.into())],
        )?;
        if rescheduled == RescheduleOutcome::Absent {
            existing::note(common, &client, &queue).await;
        }
        Ok(Outcome::done_if(word == "moved"))
    }
}
