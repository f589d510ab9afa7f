//! `dueq schedule trigger`, `backfill`, `pause`, `resume`, `recompute` and `rm`.

use clap::Args;
use dueq::schedules::TriggerOutcome;
use dueq_input::Wording;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::commands::schedule::{absent, outcome};
use crate::output::{Outcome, Usage};
use crate::{Common, existing, time};

#[derive(Args)]
#[command(after_help = "\
The tick obeys the overlap of the schedule, and the next fire stays. Also a paused schedule makes it.

Prints created and the tick's id; or overlaps (an earlier tick waits or runs, and overlap is skip),
exists (a tick of this millisecond is there), absent. Exit code 0 if it was created, else 1.

Example:
  dueq schedule trigger reports nightly")]
pub(super) struct Trigger {
    /// The queue
    queue: String,
    /// The schedule
    name: String,
}

impl Trigger {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let (word, id) = match queue.schedule(&self.name).trigger().await? {
            TriggerOutcome::Created(id) => ("created", Some(id)),
            TriggerOutcome::Exists(id) => ("exists", Some(id)),
            TriggerOutcome::Overlaps => ("overlaps", None),
            TriggerOutcome::Gone => return absent(common, &client, &queue, &self.name).await,
            _ => ("unknown", None),
        };
        let shown = id.as_deref().filter(|_| !common.json);
        let shown = shown.unwrap_or(&self.name).to_owned();
        outcome(common.json, &shown, word, "", &[("id", id.into())])?;
        Ok(Outcome::done_if(word == "created"))
    }
}

#[derive(Args)]
#[command(after_help = "\
Makes a tick of each fire from --from to --to, both inclusive, the oldest first, and none that is
ahead. They are due at once. A tick that is in the queue is not made again. Ticks that were handled
are made again. The overlap and the limit of the schedule have no effect, and its next fire stays.
If the command is interrupted, run it again.

A moment is 2026-12-01T20:00:00+01:00, Unix milliseconds, or with --tz '2026-12-01 20:00', 'today
20:00' or now.

Example:
  dueq schedule backfill reports nightly --from '2026-11-01 00:00' --to '2026-11-08 00:00' --tz Europe/Paris")]
pub(super) struct Backfill {
    /// The queue
    queue: String,
    /// The schedule
    name: String,
    /// The first moment
    #[arg(long, value_name = "MOMENT")]
    from: String,
    /// The last moment
    #[arg(long, value_name = "MOMENT")]
    to: String,
    /// The time zone of moments without one: Europe/Paris
    #[arg(long, value_name = "ZONE", value_parser = time::zone)]
    tz: Option<TimeZone>,
}

impl Backfill {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let now = Timestamp::now();
        let moment = |text: &str| {
            let moment = time::moment(text, self.tz.as_ref(), now, Wording::Flags);
            moment.map_err(Usage::from)
        };
        let (from, to) = (moment(&self.from)?, moment(&self.to)?);
        if to < from {
            return Err(Usage(format!("--to {} is before --from {}", self.to, self.from)).into());
        }
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let schedule = queue.schedule(&self.name);
        if schedule.get().await?.is_none() {
            return absent(common, &client, &queue, &self.name).await;
        }
        let done = schedule.backfill(from, to).await?;
        let fields = [
            ("created", done.created.into()),
            ("existing", done.existing.into()),
        ];
        let detail = format!("{} ticks created, {} existing", done.created, done.existing);
        outcome(common.json, &self.name, "backfilled", &detail, &fields)?;
        Ok(Outcome::Done)
    }
}

/// The schedules of a command that changes each of them.
#[derive(Args)]
struct Named {
    /// The queue
    queue: String,
    /// The schedules
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

#[derive(Args)]
#[command(after_help = "\
The fires of a paused schedule make no ticks, and are counted as paused. Ticks that it has made are
delivered. `dueq pause` stops the deliveries of the whole queue instead.

Prints paused or absent for each schedule. Exit code 0 if all are there, else 1.

Example:
  dueq schedule pause reports nightly")]
pub(super) struct Pause {
    #[command(flatten)]
    named: Named,
}

#[derive(Args)]
#[command(after_help = "\
The next fire is the first one after now: fires of the pause are not made up for. `dueq schedule
backfill` makes their ticks.

Prints resumed or absent for each schedule. Exit code 0 if all are there, else 1.

Example:
  dueq schedule resume reports nightly")]
pub(super) struct Resume {
    #[command(flatten)]
    named: Named,
}

#[derive(Args)]
#[command(after_help = "\
While the server's clock is too far ahead, schedules fire too early. After it was set back, they make
no ticks until it reaches their last fire again, so that no fire makes two. This command gives such
a schedule its next fire after now. Its counts begin at 0, and fires that made a tick by the wrong
clock make another one at their time. Other schedules stay as they are.

Prints recomputed or absent for each schedule. Exit code 0 if all are there, else 1.

Example:
  dueq schedule recompute reports nightly")]
pub(super) struct Recompute {
    #[command(flatten)]
    named: Named,
}

#[derive(Args)]
#[command(after_help = "\
Ticks that a schedule has made stay in the queue. The next apply that declares the schedule creates
it again: remove it from the file too.

Prints removed or absent for each schedule. Exit code 0 if all were there, else 1.

Example:
  dueq schedule rm reports nightly heartbeat")]
pub(super) struct Rm {
    #[command(flatten)]
    named: Named,
}

#[derive(Clone, Copy)]
enum Change {
    Pause,
    Resume,
    Recompute,
    Remove,
}

impl Pause {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        change(self.named, Change::Pause, common).await
    }
}

impl Resume {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        change(self.named, Change::Resume, common).await
    }
}

impl Recompute {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        change(self.named, Change::Recompute, common).await
    }
}

impl Rm {
    pub(super) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        change(self.named, Change::Remove, common).await
    }
}

async fn change(named: Named, change: Change, common: &Common) -> anyhow::Result<Outcome> {
    let (client, queue) = common.client_and_queue(&named.queue).await?;
    let (mut result, mut is_absent) = (Outcome::Done, false);
    for name in &named.names {
        let schedule = queue.schedule(name);
        let (word, done) = match change {
            Change::Pause => ("paused", schedule.pause().await?),
            Change::Resume => ("resumed", schedule.resume().await?),
            Change::Recompute => ("recomputed", schedule.recompute().await?),
            Change::Remove => ("removed", schedule.remove().await?),
        };
        let word = if done { word } else { "absent" };
        outcome(common.json, name, word, "", &[])?;
        result = result.and(Outcome::done_if(done));
        is_absent |= !done;
    }
    if is_absent {
        existing::note(common, &client, &queue).await;
    }
    Ok(result)
}
