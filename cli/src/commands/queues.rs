//! `dueq queues`, `pause`, `resume`, `purge` and `delete-queue`: what concerns a queue as a whole.

use clap::{Args, ValueEnum};
use dueq::State;

use crate::output::Outcome;
use crate::{Common, existing, output};

#[derive(Args)]
#[command(
    after_help = "Scans the server's whole key space in small steps: for people, not for loops."
)]
pub(crate) struct Queues {}

impl Queues {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        for name in common.client_to_read().await?.queues().await? {
            if common.json {
                output::json_line(&serde_json::json!({ "queue": name }))?;
            } else {
                output::line(&output::visible(name.as_bytes()))?;
            }
        }
        Ok(Outcome::Done)
    }
}

#[derive(Args)]
#[command(after_help = "\
While a queue is paused nothing is delivered. Pushes are taken, handlers finish what they have, and messages whose
workers died are taken back. A queue that does not exist is not paused, for its name may be mistyped.")]
pub(crate) struct Pause {
    /// The queue
    queue: String,
    /// Make the queue if there is none: one that is paused before its first push
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
        queue.pause().await?;
        if common.json && self.create {
            let object =
                serde_json::json!({ "queue": self.queue, "outcome": "paused", "made": made });
            output::json_line(&object)?;
            return Ok(Outcome::Done);
        }
        if made {
            output::queue(false, &self.queue, existing::MADE, None)?;
        }
        output::queue(common.json, &self.queue, "paused", None)?;
        Ok(Outcome::Done)
    }
}

#[derive(Args)]
#[command(after_help = "What became due meanwhile is delivered at once, in due order.")]
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
    /// Those that wait for their time
    Scheduled,
    /// Those that are due and wait for a handler
    Ready,
    /// Those that were given up
    Dead,
}

#[derive(Args)]
#[command(after_help = "\
What is removed is never delivered and cannot be brought back. Messages that a handler has cannot be purged.
Without --yes nothing is removed: the number is told, and the exit code is 1.

Example:
  dueq purge orders --state dead --yes")]
pub(crate) struct Purge {
    /// The queue
    queue: String,
    /// Which messages
    #[arg(long, value_enum)]
    state: Purgeable,
    /// Do it
    #[arg(long)]
    yes: bool,
}

impl Purge {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let queue = common.existing_queue(&self.queue).await?;
        let state = match self.state {
            Purgeable::Scheduled => State::Scheduled,
            Purgeable::Ready => State::Ready,
            Purgeable::Dead => State::Dead,
        };
        if !self.yes {
            let stats = queue.stats().await?;
            let count = match state {
                State::Scheduled => stats.scheduled,
                State::Ready => stats.ready,
                _ => stats.dead,
            };
            let name = output::visible(self.queue.as_bytes());
            anyhow::bail!(
                "nothing removed: {name} has {count} {state} messages; to remove them for ever, add --yes"
            );
        }
        let count = queue.purge(state).await?;
        output::queue(common.json, &self.queue, "purged", Some(count))?;
        Ok(Outcome::Done)
    }
}

#[derive(Args)]
#[command(after_help = "\
All messages, limits and counters of the queue are gone in one step. Handlers finish what they have, and find it gone.
A queue of another layout is refused, and so is one of whose keys another program has made something else.
Without --yes nothing is removed: the numbers are told, and the exit code is 1.

Example:
  dueq delete-queue orders --yes")]
pub(crate) struct DeleteQueue {
    /// The queue
    queue: String,
    /// Do it
    #[arg(long)]
    yes: bool,
}

impl DeleteQueue {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        if !self.yes {
            existing::require(&client, &queue).await?;
            let (stats, name) = (queue.stats().await?, output::visible(self.queue.as_bytes()));
            anyhow::bail!(
                "nothing removed: {name} has {} scheduled, {} ready, {} leased and {} dead messages; \
                 to remove it for ever, add --yes",
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
}
