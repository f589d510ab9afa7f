//! `dueq partitions`: the partitions of a queue, or their number. `dueq move`: another store for them.

mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum, value_parser};
use comfy_table::{CellAlignment, Table, presets};
use dueq::admin::{Repartition, RepartitionPhase, RepartitionProgress};
use dueq::inspect::PartitionInfo;

use crate::output::Outcome;
use crate::{Common, existing, output};

pub(crate) use store::MoveQueue;

#[derive(Args)]
#[command(after_help = "\
Without COUNT the command prints a line for each partition: its index, the number that distinguishes
its keys, its slot, its server, and how many messages it holds. While the number changes it also says
which partitions are new, which ones go, and how many messages are on their way.

With COUNT the queue gets so many partitions, spread evenly over the masters of a Redis Cluster, and its
messages move to them while producers and workers go on. It takes at least 13 s if the queue was in use,
and until leased messages are settled. If it is interrupted, run it again, or take the change back with
--abort. Workers put back what was on its way, within 5 s.

One partition suffices until one server does not. About four for each master are a good number; of more
the command warns. It refuses a change that a server has no memory for, as far as maxmemory is set.
Order by due time holds within a partition. Upgrade all clients and workers of the queue first.

Examples:
  dueq partitions orders
  dueq partitions orders 12
  dueq partitions orders --abort")]
pub(crate) struct Partitions {
    /// The queue
    queue: String,
    /// How many partitions the queue shall have: 1 to 256
    #[arg(value_parser = value_parser!(u16).range(1..=256))]
    count: Option<u16>,
    /// Take back the change of the number that runs or was interrupted
    #[arg(long, conflicts_with = "count")]
    abort: bool,
    #[command(flatten)]
    pace: PaceFlag,
}

#[derive(Args)]
struct PaceFlag {
    /// How fast messages move: gentle leaves three quarters of the time to others, and keeps each call short
    #[arg(long, value_enum, default_value = "gentle")]
    pace: Pace,
}

#[derive(Clone, Copy, ValueEnum)]
enum Pace {
    Gentle,
    Open,
}

impl Partitions {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        match self.count {
            Some(count) => {
                let count = usize::from(count);
                let warning = crowded(count, client.masters());
                let is_new = !queue.exists().await?;
                let change = queue.partition_into(count);
                if !self
                    .pace
                    .change(&self.queue, change, warning, common)
                    .await?
                {
                    let name = &self.queue;
                    output::note(&format!(
                        "queue {name} has {count} partitions: nothing to do"
                    ));
                }
                if is_new && queue.exists().await? {
                    common.remark(&format!("{} {}", existing::MADE, self.queue));
                    existing::note_near(common, &client, &self.queue).await;
                }
            }
            None => existing::require(&client, &queue).await?,
        }
        if self.abort {
            let change = queue.abort_repartition();
            self.pace.change(&self.queue, change, None, common).await?;
        }
        print(&self.queue, &queue.partitions().await?, common)?;
        Ok(Outcome::Done)
    }
}

impl PaceFlag {
    /// Returns whether there was something to change. Prints the warning before the change begins.
    async fn change(
        &self,
        queue: &str,
        change: Repartition<'_>,
        warning: Option<String>,
        common: &Common,
    ) -> Result<bool, dueq::Error> {
        let change = match self.pace {
            Pace::Gentle => change,
            Pace::Open => change.without_rests(),
        };
        let (queue, json) = (queue.to_owned(), common.json);
        let has_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&has_begun);
        let report = move |now: &RepartitionProgress| {
            if !begun.swap(true, Ordering::Relaxed)
                && let Some(warning) = &warning
            {
                output::note(warning);
            }
            if json {
                // The change goes on without a reader of its progress.
                let _ = output::json_line(&progress(&queue, now));
            } else {
                show(now);
            }
        };
        change.on_progress(report).await?;
        Ok(has_begun.load(Ordering::Relaxed))
    }
}

/// About how many partitions of one master are a good number.
const GOOD_PARTITIONS: usize = 4;

/// A warning if the partitions are too many for the masters.
fn crowded(count: usize, masters: usize) -> Option<String> {
    (count > GOOD_PARTITIONS * masters).then(|| {
        let each = count.div_ceil(masters);
        let needed = count.div_ceil(GOOD_PARTITIONS);
        format!(
            "warning: {count} partitions on {masters} masters are up to {each} on each. About {GOOD_PARTITIONS} \
             are a good number, so {needed} masters for {count}: more of them make calls smaller, and small \
             calls cost Redis more. Take them only if each holds more than 5 million messages"
        )
    })
}

fn show(now: &RepartitionProgress) {
    let (phase, moved, left) = (now.phase.name(), now.moved, now.left);
    let rate = now.per_second;
    let text = format!("{phase}: {moved} messages moved, about {left} left, {rate:.0} a second");
    output::progress(&text, now.phase == RepartitionPhase::Complete);
}

fn progress(queue: &str, now: &RepartitionProgress) -> serde_json::Value {
    serde_json::json!({
        "queue": queue,
        "phase": now.phase.name(),
        "moved": now.moved,
        "left": now.left,
        "per_second": now.per_second.round(),
    })
}

/// Prints the partitions, and what they change to.
fn print(queue: &str, partitions: &[PartitionInfo], common: &Common) -> anyhow::Result<()> {
    if common.json {
        for partition in partitions {
            output::json_line(&object(queue, partition))?;
        }
        return Ok(());
    }
    output::line(table(partitions).trim_end())?;
    let change = store::moving(queue, partitions).or_else(|| changing(queue, partitions));
    if let Some(change) = change {
        output::line(&change)?;
    }
    Ok(())
}

/// What the number of partitions changes to, if it changes.
fn changing(queue: &str, partitions: &[PartitionInfo]) -> Option<String> {
    let leave = partitions.iter().filter(|one| one.leaves).count();
    let join = partitions.iter().filter(|one| one.joins).count();
    let (all, moving) = (
        partitions.len(),
        partitions.iter().map(|one| one.stats.moving),
    );
    (leave + join > 0).then(|| {
        format!(
            "changing from {} to {} partitions, {} messages on their way: `dueq partitions {queue} {}` \
             completes it, --abort takes it back",
            all - join,
            all - leave,
            moving.sum::<u64>(),
            all - leave
        )
    })
}

fn held(partition: &PartitionInfo) -> u64 {
    let stats = &partition.stats;
    stats.scheduled + stats.ready + stats.leased + stats.dead
}

fn object(queue: &str, partition: &PartitionInfo) -> serde_json::Value {
    serde_json::json!({
        "queue": queue,
        "index": partition.index,
        "tag": partition.tag,
        "slot": partition.slot,
        "server": partition.server,
        "store": partition.store,
        "messages": held(partition),
        "moving": partition.stats.moving,
        "change": change(partition),
    })
}

/// What a change of the number does to this partition.
fn change(partition: &PartitionInfo) -> &'static str {
    match (partition.leaves, partition.joins) {
        (true, _) => "leaves",
        (_, true) => "joins",
        _ => "",
    }
}

fn table(partitions: &[PartitionInfo]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["partition", "tag", "slot", "server", "messages", ""]);
    for partition in partitions {
        table.add_row([
            partition.index.to_string(),
            partition.tag.clone(),
            partition.slot.to_string(),
            partition.server.clone(),
            held(partition).to_string(),
            change(partition).to_owned(),
        ]);
    }
    for index in [0, 1, 2, 4] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}
