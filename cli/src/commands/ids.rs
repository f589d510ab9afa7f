//! `dueq cancel`, `run-now`, `requeue`, `end-lease` and `bury`: commands that take ids and print an outcome for each.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use clap::{ArgGroup, Args};
use dueq::inspect::LeaseInfo;
use dueq::outcomes::{
    BuryOutcome, CancelOutcome, RequeueOutcome, RetryOutcome, RunNowOutcome as Ran,
};
use dueq::{MessageState, Queue};
use jiff::tz::TimeZone;

use crate::commands::ls::PAGE;
use crate::flags::Durable;
use crate::output::{Outcome, Usage};
use crate::picked::{Change, FilterFlags};
use crate::{Common, existing, flags, output, picked, time};

#[derive(Args)]
#[command(after_help = "\
A cancelled message is never delivered. A message that a handler has cannot be cancelled.

Prints a word for each id: cancelled; or the reason why not: leased (a handler has it), next (a
handler has it, and the message that push --on-conflict next kept for after it is cancelled), dead,
absent (no such message). Exit code 0 if all were cancelled, else 1.

Examples:
  dueq cancel orders order:42 && echo 'in time'
  dueq cancel orders order:42 order:43 --dead")]
pub(crate) struct Cancel {
    /// The queue
    queue: String,
    /// The ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<OsString>,
    /// Remove dead messages too
    #[arg(long)]
    dead: bool,
    #[command(flatten)]
    durable: Durable,
}

impl Cancel {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let (queue, mut outcome) = (queue.durability(self.durable.durability()), Outcome::Done);
        let mut absent = false;
        for id in self.ids.into_iter().map(OsString::into_vec) {
            let cancelled = if self.dead {
                queue.cancel_dead(&id).await?
            } else {
                queue.cancel(&id).await?
            };
            let word = match cancelled {
                CancelOutcome::Cancelled => "cancelled",
                CancelOutcome::Next => "next",
                CancelOutcome::Leased => "leased",
                CancelOutcome::Dead => "dead",
                CancelOutcome::Absent => "absent",
                _ => "unknown",
            };
            output::message(common.json, &id, word, "", &[])?;
            outcome = outcome.and(Outcome::done_if(cancelled == CancelOutcome::Cancelled));
            absent |= cancelled == CancelOutcome::Absent;
        }
        if absent {
            existing::note(common, &client, &queue).await;
        }
        Ok(outcome)
    }
}

#[derive(Args)]
#[command(after_help = "\
A worker receives the messages at once, instead of at their due time.

Prints a word for each id: moved, already (it was due); or the reason why not: leased (a handler has
it), dead, absent (no such message). Exit code 0 if all are due now, else 1.

Example:
  dueq run-now orders order:42")]
pub(crate) struct RunNow {
    /// The queue
    queue: String,
    /// The ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<OsString>,
    #[command(flatten)]
    durable: Durable,
}

impl RunNow {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let (queue, mut outcome) = (queue.durability(self.durable.durability()), Outcome::Done);
        let mut absent = false;
        for id in self.ids.into_iter().map(OsString::into_vec) {
            let (word, done) = match queue.run_now(&id).await? {
                Ran::Moved => ("moved", true),
                Ran::Already => ("already", true),
                Ran::Leased => ("leased", false),
                Ran::Dead => ("dead", false),
                Ran::Absent => ("absent", false),
                _ => ("unknown", false),
            };
            output::message(common.json, &id, word, "", &[])?;
            outcome = outcome.and(Outcome::done_if(done));
            absent |= word == "absent";
        }
        if absent {
            existing::note(common, &client, &queue).await;
        }
        Ok(outcome)
    }
}

#[derive(Args)]
#[command(after_help = "\
A requeued message is due now, and its attempts and crashes are counted from zero. Requeue dead
messages after the cause of their failures is fixed.

Prints a word for each id: requeued; or the reason why not: not_dead (and its state), absent (no
such message). Exit code 0 if all were requeued, else 1.

Examples:
  dueq requeue orders order:42
  dueq requeue orders --all
  dueq requeue orders --since 10m
  dueq requeue orders --all --error-text timeout
  dueq requeue orders --before 2026-12-01T20:00:00Z
  dueq requeue orders --after '2026-12-01 20:00' --before '2026-12-01 20:10' --tz Asia/Shanghai")]
#[command(group(ArgGroup::new("died").args(["before", "after"]).multiple(true)))]
#[command(group(ArgGroup::new("first").args(["after", "since"])))]
pub(crate) struct Requeue {
    /// The queue
    queue: String,
    /// The ids, unless --all, --before, --after or --since
    #[arg(required_unless_present_any = ["all", "before", "first"], value_name = "ID")]
    ids: Vec<OsString>,
    /// Requeue all messages that are dead now, the oldest first
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    /// Requeue all messages that died at this moment or earlier, the oldest first
    #[arg(long, value_name = "MOMENT", conflicts_with_all = ["ids", "all"])]
    before: Option<String>,
    /// Requeue all messages that died at this moment or later, the oldest first
    #[arg(long, value_name = "MOMENT", conflicts_with_all = ["ids", "all"])]
    after: Option<String>,
    /// Requeue all messages that died at most this long ago, the oldest first: 10m
    #[arg(long, value_name = "DURATION", value_parser = time::period, conflicts_with_all = ["ids", "all"])]
    since: Option<Duration>,
    /// The time zone of a moment without one: Asia/Shanghai
    #[arg(long, value_name = "ZONE", value_parser = time::zone, requires = "died")]
    tz: Option<TimeZone>,
    #[command(flatten)]
    filter: FilterFlags,
}

impl Requeue {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let ms = |text: &String| flags::moment_ms(text, self.tz.as_ref());
        let before_ms = self.before.as_ref().map(ms).transpose()?;
        let after_ms = flags::first_ms(self.after.as_deref(), self.since, self.tz.as_ref())?;
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let (mut outcome, mut absent) = (Outcome::Done, false);
        let filter = self.filter.read();
        if !filter.is_all() && !self.ids.is_empty() {
            let reason =
                "--error-text, --min-failures and --min-crashes are not for ids: use --all";
            return Err(Usage(reason.to_owned()).into());
        }
        if self.all || before_ms.or(after_ms).is_some() {
            existing::require(&client, &queue).await?;
            let count = match (after_ms, before_ms) {
                _ if !filter.is_all() => {
                    // What dies again after this moment stays dead.
                    let now_ms = queue.dues(&[]).await?.now_ms;
                    let until_ms = before_ms.map_or(now_ms, |ms| ms.min(now_ms));
                    let times = after_ms.unwrap_or(0)..=until_ms;
                    picked::each(&queue, MessageState::Dead, times, &filter, Change::Requeue)
                        .await?
                }
                (Some(ms), _) => {
                    let steps = queue.requeue_steps(before_ms.unwrap_or(u64::MAX));
                    flags::since(steps, ms).await?
                }
                (None, Some(ms)) => queue.requeue_before(ms).await?,
                (None, None) => queue.requeue_all().await?,
            };
            output::queue(common.json, &self.queue, "requeued", Some(count))?;
        }
        for id in self.ids.into_iter().map(OsString::into_vec) {
            let (word, state) = match queue.requeue(&id).await? {
                RequeueOutcome::Requeued => ("requeued", None),
                RequeueOutcome::NotDead(state) => ("not_dead", Some(state.as_str())),
                RequeueOutcome::Absent => ("absent", None),
                _ => ("unknown", None),
            };
            output::message(
                common.json,
                &id,
                word,
                state.unwrap_or_default(),
                &[("state", state.into())],
            )?;
            outcome = outcome.and(Outcome::done_if(word == "requeued"));
            absent |= word == "absent";
        }
        if absent {
            existing::note(common, &client, &queue).await;
        }
        Ok(outcome)
    }
}

#[derive(Args)]
#[command(after_help = "\
The message is delivered again, as if its lease had run out: it counts as a crash, so the message is
dead after the queue's limit of crashes, and waits longer after each but the first. Use it for a
worker that is gone and had a long --lease, or whose handler hangs. A worker that still runs learns of
it at its next extension; what it settles later changes nothing.

Prints a word for each id: ended, and when the message is due; died (the limit is reached); or the
reason why not: not_leased (no handler has it, or not under --lease), absent (no such message). Exit
code 0 if all leases were ended, else 1. With --node it prints their number.

dueq show prints the lease and the node of a message. Give --lease if you repeat the command, so that
it cannot end the lease of the next worker.

Examples:
  dueq end-lease orders order:42
  dueq end-lease orders order:42 --lease 5d41402abc4b2a76
  dueq end-lease orders --node 3kTMd9b")]
pub(crate) struct EndLease {
    /// The queue
    queue: String,
    /// The ids, unless --node
    #[arg(required_unless_present = "node", value_name = "ID")]
    ids: Vec<OsString>,
    /// Only the lease of this name
    #[arg(long, value_name = "NAME")]
    lease: Option<String>,
    /// All leases of the worker with this node id, or whose id ends so
    #[arg(long, value_name = "NODE", conflicts_with_all = ["ids", "lease"])]
    node: Option<String>,
}

impl EndLease {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        if let Some(node) = &self.node {
            existing::require(&client, &queue).await?;
            let mut ended = 0;
            for (id, lease) in leases_of(&queue, node).await? {
                let result = queue.end_lease(&id, &lease.name).await?;
                ended += u64::from(matches!(
                    result,
                    RetryOutcome::Scheduled(_) | RetryOutcome::Dead
                ));
            }
            output::queue(common.json, &self.queue, "ended", Some(ended))?;
            return Ok(Outcome::done_if(ended > 0));
        }
        let (mut outcome, mut absent) = (Outcome::Done, false);
        for id in self.ids.into_iter().map(OsString::into_vec) {
            let stored = queue.get_up_to(&id, 0).await?;
            let is_meant =
                |lease: &LeaseInfo| self.lease.as_ref().is_none_or(|it| *it == lease.name);
            let result = match stored.map(|stored| stored.lease.filter(is_meant)) {
                None => RetryOutcome::Gone,
                Some(None) => RetryOutcome::Lost,
                Some(Some(lease)) => queue.end_lease(&id, &lease.name).await?,
            };
            let (word, due_ms) = match result {
                RetryOutcome::Scheduled(due_ms) => ("ended", Some(due_ms)),
                RetryOutcome::Dead => ("died", None),
                RetryOutcome::Gone => ("absent", None),
                _ => ("not_leased", None),
            };
            let due = due_ms.map_or_else(String::new, |ms| format!("due {}", output::moment(ms)));
            output::message(common.json, &id, word, &due, &[("due_ms", due_ms.into())])?;
            outcome = outcome.and(Outcome::done_if(["ended", "died"].contains(&word)));
            absent |= word == "absent";
        }
        if absent {
            existing::note(common, &client, &queue).await;
        }
        Ok(outcome)
    }
}

#[derive(Args)]
#[command(after_help = "\
For a poison message, which breaks every handler or kills the workers: the queue goes on without it. A
message that waits is dead at once. One that a handler has is marked: however its lease ends, it is
dead then; only an ack ends it as usual. To end the lease now, add `dueq end-lease`. `dueq requeue`
brings a dead message back.

Prints a word for each id: buried; marked (a handler has it); or the reason why not: dead (it was
dead), absent (no such message). Exit code 0 if all are dead or marked, else 1.

Examples:
  dueq bury orders order:42 --reason 'kills the workers'
  dueq bury orders order:42 && dueq end-lease orders order:42")]
pub(crate) struct BuryIds {
    /// The queue
    queue: String,
    /// The ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<OsString>,
    /// Why, for messages that wait: the error of the dead message
    #[arg(long, value_name = "TEXT", default_value = "buried by an operator")]
    reason: String,
}

impl BuryIds {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        let (mut outcome, mut absent) = (Outcome::Done, false);
        for id in self.ids.into_iter().map(OsString::into_vec) {
            let (word, done) = match queue.bury(&id, &self.reason).await? {
                BuryOutcome::Buried => ("buried", true),
                BuryOutcome::Marked => ("marked", true),
                BuryOutcome::Dead => ("dead", true),
                BuryOutcome::Absent => ("absent", false),
                _ => ("unknown", false),
            };
            output::message(common.json, &id, word, "", &[])?;
            outcome = outcome.and(Outcome::done_if(done));
            absent |= word == "absent";
        }
        if absent {
            existing::note(common, &client, &queue).await;
        }
        Ok(outcome)
    }
}

/// The messages that this node has leased, and their leases.
async fn leases_of(queue: &Queue, node: &str) -> anyhow::Result<Vec<(Vec<u8>, LeaseInfo)>> {
    let node = node.rsplit_once('#').map_or(node, |(unique, _)| unique);
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = queue
            .list(MessageState::Leased, cursor.as_ref(), PAGE)
            .await?;
        for listed in page.messages {
            let is_its =
                |lease: &LeaseInfo| lease.node.as_ref().is_some_and(|end| node.ends_with(end));
            found.extend(listed.lease.filter(is_its).map(|lease| (listed.id, lease)));
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}
