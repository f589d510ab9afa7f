//! `dueq queues`, `pause`, `resume`, `purge` and `delete-queue`: commands on whole queues.

use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use dueq::MessageState;
use dueq::outcomes::UnusedOutcome;
use jiff::tz::TimeZone;

use crate::output::{Outcome, Usage};
use crate::picked::{Change, FilterFlags};
use crate::{Common, existing, flags, output, picked, time};

#[derive(Args)]
#[command(after_help = "\
Prints a name a line. The command scans all keys of the server in small steps, which takes seconds
on a large server: do not call it in a loop. If a master of a cluster does not reply, the command
names it after the queues of the others; the exit code is 1.

Examples:
  dueq queues
  dueq queues --json | jq -r .queue")]
pub(crate) struct Queues {}

impl Queues {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let names = common.client_to_read().await?.queues_reached().await?;
        for name in &names.value {
            if common.json {
                output::json_line(&serde_json::json!({ "queue": name }))?;
            } else {
                output::line(&output::visible(name.as_bytes()))?;
            }
        }
        if let Some(gap) = names.gap() {
            common.complain(&anyhow::anyhow!("{gap}"));
        }
        Ok(Outcome::done_if(names.unread.is_empty()))
    }
}

#[derive(Args)]
#[command(after_help = "\
Workers receive nothing from a paused queue. Producers continue to push, handlers finish their
messages, and messages of crashed workers return to the queue. `dueq resume` ends the pause. A queue
that does not exist is refused, because its name may be mistyped.

With --for the queue is closed for that long, by the clock of the server, and opens by itself. A
queue that is closed for longer stays so. Workers with the scripts of release 0.1 go on claiming.

Examples:
  dueq pause orders
  dueq pause webhooks --for 30s
  dueq pause campaign --create")]
pub(crate) struct Pause {
    /// The queue
    queue: String,
    /// How long: 1ms to 100 years, such as 30s or 2h; without it until `dueq resume`
    #[arg(long = "for", value_name = "DURATION", value_parser = time::period, allow_hyphen_values = true)]
    duration: Option<Duration>,
    /// Create the queue if it does not exist, so that it is paused before its first push
    #[arg(long)]
    create: bool,
}

impl Pause {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let made = self.create && !queue.exists().await?;
        if !self.create {
            existing::require(&client, &queue).await?;
        }
        match self.duration {
            None => queue.pause().await?,
            Some(duration) => queue.pause_for(duration).await?,
        }
        if common.json {
            let mut object = serde_json::json!({ "queue": self.queue, "outcome": "paused" });
            if self.create {
                object["made"] = made.into();
            }
            if let Some(duration) = self.duration {
                object["for_ms"] = serde_json::json!(duration.as_millis());
            }
            output::json_line(&object)?;
            return Ok(Outcome::Done);
        }
        if made {
            output::queue(false, &self.queue, existing::MADE, None)?;
        }
        output::queue(false, &self.queue, "paused", None)?;
        Ok(Outcome::Done)
    }
}

#[derive(Args)]
#[command(after_help = "\
Workers receive at once, in due order, the messages that became due during the pause.

Example:
  dueq resume orders")]
pub(crate) struct Resume {
    /// The queue
    queue: String,
}

impl Resume {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        common.existing_queue(&self.queue).await?.resume().await?;
        output::queue(common.json, &self.queue, "resumed", None)?;
        Ok(Outcome::Done)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Purgeable {
    /// Messages that wait for their due time
    Scheduled,
    /// Due messages that wait for a handler
    Ready,
    /// Messages that were given up
    Dead,
}

#[derive(Args)]
#[command(after_help = "\
The removed messages are never delivered and cannot be restored. Messages that a handler has cannot
be purged. Without --yes the command removes nothing: it prints the number of messages, and the exit
code is 1.

Examples:
  dueq purge orders --state dead --yes
  dueq purge orders --state dead --since 10m --yes
  dueq purge orders --state dead --error-text timeout --yes
  dueq purge orders --state dead --before 2026-11-01T00:00:00Z --yes")]
#[command(group(ArgGroup::new("times").args(["before", "after"]).multiple(true)))]
#[command(group(ArgGroup::new("first").args(["after", "since"])))]
pub(crate) struct Purge {
    /// The queue
    queue: String,
    /// The state of the messages
    #[arg(long, value_enum)]
    state: Purgeable,
    /// Only messages whose time is this moment or earlier: the due time of scheduled and ready ones,
    /// the time of death of dead ones
    #[arg(long, value_name = "MOMENT")]
    before: Option<String>,
    /// Only dead messages that died at this moment or later
    #[arg(long, value_name = "MOMENT")]
    after: Option<String>,
    /// Only dead messages that died at most this long ago: 10m
    #[arg(long, value_name = "DURATION", value_parser = time::period)]
    since: Option<Duration>,
    /// The time zone of a moment without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone, requires = "times")]
    tz: Option<TimeZone>,
    #[command(flatten)]
    filter: FilterFlags,
    /// Remove them; without this flag nothing is removed
    #[arg(long)]
    yes: bool,
}

impl Purge {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let ms = |text: &String| flags::moment_ms(text, self.tz.as_ref());
        let before_ms = self.before.as_ref().map(ms).transpose()?;
        let after_ms = flags::first_ms(self.after.as_deref(), self.since, self.tz.as_ref())?;
        let queue = common.existing_queue(&self.queue).await?;
        let state = match self.state {
            Purgeable::Scheduled => MessageState::Scheduled,
            Purgeable::Ready => MessageState::Ready,
            Purgeable::Dead => MessageState::Dead,
        };
        if after_ms.is_some() && state != MessageState::Dead {
            let reason = "--after and --since are of dead messages: only these have died";
            return Err(Usage(reason.to_owned()).into());
        }
        let filter = self.filter.read();
        let times = after_ms.unwrap_or(0)..=before_ms.unwrap_or(u64::MAX);
        if !self.yes {
            let count = picked::each(&queue, state, times, &filter, Change::Count).await?;
            let name = output::visible(self.queue.as_bytes());
            let what = if count == 1 { "message" } else { "messages" };
            let which = match filter.is_all() && after_ms.or(before_ms).is_none() {
                true => "",
                false => " that the flags select",
            };
            anyhow::bail!(
                "nothing was removed: {name} has {count} {state} {what}{which}; add --yes to remove them for ever"
            );
        }
        let count = match (after_ms, before_ms) {
            _ if !filter.is_all() => {
                picked::each(&queue, state, times, &filter, Change::Remove).await?
            }
            (Some(ms), _) => {
                let steps = queue.purge_steps(state, before_ms.unwrap_or(u64::MAX))?;
                flags::since(steps, ms).await?
            }
            (None, Some(ms)) => queue.purge_before(state, ms).await?,
            (None, None) => queue.purge(state).await?,
        };
        output::queue(common.json, &self.queue, "purged", Some(count))?;
        Ok(Outcome::Done)
    }
}

#[derive(Args)]
#[command(after_help = "\
Removes all messages, limits and counters of the queue. Running handlers finish, but the
server ignores their results. A queue of another layout is refused, and so is a queue with a key
that another program uses. Without --yes the command removes nothing: it prints the numbers of
messages, and the exit code is 1.

With --empty-for the command removes each queue that matches the pattern, is empty, and was not used
for so long: nothing was pushed, delivered or settled, as the history of its workers shows. It keeps a
queue with messages in any state, schedules, several partitions, limits of its own, a pause or an
unfinished window, and one that no worker has served since release 0.1. A queue that it removed is
created again by the next push, which needs the rights of an operator.

Examples:
  dueq delete-queue orders --yes
  dueq delete-queue --empty-for 30d 'hook-*'
  dueq delete-queue --empty-for 30d 'hook-*' --yes")]
pub(crate) struct DeleteQueue {
    /// The queue; with --empty-for a pattern: * matches any characters, ? one
    queue: String,
    /// Only queues that are empty and were not used for so long: 1h to 89d, such as 30d
    #[arg(long, value_name = "DURATION", value_parser = time::period)]
    empty_for: Option<Duration>,
    /// Remove them; without this flag nothing is removed
    #[arg(long)]
    yes: bool,
}

impl DeleteQueue {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        if let Some(idle) = self.empty_for {
            return self.unused(common, idle).await;
        }
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        if !self.yes {
            existing::require(&client, &queue).await?;
            let (stats, name) = (queue.stats().await?, output::visible(self.queue.as_bytes()));
            anyhow::bail!(
                "nothing was removed: {name} has {} scheduled, {} ready, {} leased and {} dead messages; \
                 add --yes to remove them for ever",
                stats.scheduled,
                stats.ready,
                stats.leased,
                stats.dead
            );
        }
        let deleted = queue.delete().await?;
        output::queue(
            common.json,
            &self.queue,
            if deleted { "deleted" } else { "absent" },
            None,
        )?;
        if !deleted {
            existing::note(common, &client, &queue).await;
        }
        Ok(Outcome::done_if(deleted))
    }
    /// Deletes the unused queues that the pattern matches, or only lists them.
    async fn unused(self, common: &Common, idle: Duration) -> anyhow::Result<Outcome> {
        let client = common.client().await?;
        let pattern = client.pattern(&self.queue)?;
        let names = client.queues_reached().await?;
        let (mut count, mut has_failed) = (0, !names.unread.is_empty());
        for name in names.value.iter().filter(|name| pattern.matches(name)) {
            let queue = client.queue(name)?;
            let found = match self.yes {
                true => queue.delete_unused(idle).await,
                false => queue.unused(idle).await,
            };
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    common.complain(&anyhow::Error::from(error).context(name.clone()));
                    has_failed = true;
                    continue;
                }
            };
            let (word, since_ms, why) = match found {
                UnusedOutcome::Since(ms) if self.yes => ("deleted", Some(ms), None),
                UnusedOutcome::Since(ms) => ("unused", Some(ms), None),
                UnusedOutcome::Kept(why) => ("kept", None, Some(why.as_str())),
                _ => ("absent", None, None),
            };
            count += u64::from(since_ms.is_some());
            if common.json {
                output::json_line(&serde_json::json!({
                    "queue": name, "outcome": word, "since_ms": since_ms, "why": why,
                }))?;
            } else {
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                let name = output::visible(name.as_bytes());
                output::line(&format!("{word} {name}{why}"))?;
            }
        }
        if let Some(gap) = names.gap() {
            common.complain(&anyhow::anyhow!("{gap}"));
        }
        if !self.yes && count > 0 {
            anyhow::bail!(
                "nothing was removed: {count} queues are unused; add --yes to remove them"
            );
        }
        Ok(Outcome::done_if(!has_failed))
    }
}
