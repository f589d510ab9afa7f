//! `dueq schedule`: recurring schedules of a queue.

mod apply;
mod change;
mod file;
mod keep;
mod list;
mod next;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use dueq::{Client, Queue};
use serde_json::Value;

use crate::output::{self, Outcome};
use crate::{Common, existing};

#[cfg(any(test, feature = "harness"))]
pub(crate) use file::read as read_file;

#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
A schedule makes a message, its tick, at each of its fires. Redis makes the ticks, and `dueq work` or
any other worker handles them as any message. The id of a tick is NAME@FIRE, the fire in Unix
milliseconds.

Redis knows no time zones, so the fires of a cron are listed ahead, up to 512. The leader of the
queue's workers refills the lists. Without a worker in Rust, `dueq schedule keep` does it.

Examples:
  dueq schedule apply reports schedules.toml --set billing --revision 42 --prune
  dueq schedule ls reports
  dueq schedule next reports nightly -n 5
  dueq schedule trigger reports nightly"
)]
pub(crate) struct ScheduleCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Declare the schedules of a file: create, change and remove them
    Apply(apply::Apply),
    /// List the schedules of a queue, with their counts
    Ls(list::Ls),
    /// Show one schedule
    Show(list::Show),
    /// Show the next fires of a schedule, or of a pattern without a server
    Next(next::Next),
    /// Make a tick now
    Trigger(change::Trigger),
    /// Make the ticks of past fires
    Backfill(change::Backfill),
    /// Pause schedules: they make no ticks
    Pause(change::Pause),
    /// Resume schedules: the next fire is the first one after now
    Resume(change::Resume),
    /// After the server's clock was set back: compute the next fires of schedules from now on
    Recompute(change::Recompute),
    /// Remove schedules; ticks that they have made stay
    Rm(change::Rm),
    /// List the next fires of the crons, each minute until Ctrl-C
    Keep(keep::Keep),
}

impl ScheduleCommand {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Apply(apply) => apply.run(common).await,
            Command::Ls(ls) => ls.run(common).await,
            Command::Show(show) => show.run(common).await,
            Command::Next(next) => next.run(common).await,
            Command::Trigger(trigger) => trigger.run(common).await,
            Command::Backfill(backfill) => backfill.run(common).await,
            Command::Pause(pause) => pause.run(common).await,
            Command::Resume(resume) => resume.run(common).await,
            Command::Recompute(recompute) => recompute.run(common).await,
            Command::Rm(rm) => rm.run(common).await,
            Command::Keep(keep) => keep.run(common).await,
        }
    }
}

/// Prints the outcome of a schedule: `WORD [(DETAIL)] NAME`, or an object.
fn outcome(
    json: bool,
    name: &str,
    word: &str,
    detail: &str,
    fields: &[(&str, Value)],
) -> std::io::Result<()> {
    if json {
        let mut object = serde_json::json!({ "schedule": name, "outcome": word });
        for (field, value) in fields {
            object[*field] = value.clone();
        }
        return output::json_line(&object);
    }
    let detail = match detail {
        "" => String::new(),
        detail => format!(" ({})", output::visible(detail.as_bytes())),
    };
    output::line(&format!(
        "{word}{detail} {}",
        output::visible(name.as_bytes())
    ))
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// Reports that there is no such schedule, or no such queue.
async fn absent(
    common: &Common,
    client: &Client,
    queue: &Queue,
    name: &str,
) -> anyhow::Result<Outcome> {
    outcome(common.json, name, "absent", "", &[])?;
    existing::note(common, client, queue).await;
    Ok(Outcome::Refused)
}
