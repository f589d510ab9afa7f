//! `dueq move`: moves a queue to another store.

use clap::{Args, value_parser};
use dueq::inspect::PartitionInfo;

use super::{PaceFlag, print};
use crate::output::Outcome;
use crate::{Common, existing, output};

#[derive(Args)]
#[command(after_help = "\
The queue moves from the server of --redis to the one of --to: a Redis server, the service of Sentinels,
or a Redis Cluster. Its messages, limits and pause come along, while producers and workers go on: nothing
is lost, early, delivered twice because of it, or delivered after it was cancelled.

Producers of this release that know only the old server follow to the new one, during the move and after
it; those in other languages get an error that says where the queue is. Workers serve one server each. So
first start workers at the new one, then move, and stop those at the old one in the end.

Both URLs are kept in Redis, without user and password: everybody uses their own at both servers. So
give --redis an address that all clients can reach, too. The queue must be empty or absent at the new
server. It must not have schedules: apply them there afterwards.

If it is interrupted, run it again, or take the move back with --abort. Where the queue was, a few bytes
say from now on where it is: `dueq delete-queue` there removes them, once nobody asks there any more.

Examples:
  dueq move orders --to redis+cluster://10.0.0.1,10.0.0.2 --partitions 12
  dueq partitions orders
  dueq move orders --abort")]
pub(crate) struct MoveQueue {
    /// The queue
    queue: String,
    /// The URL of the store to which the queue moves, without user and password
    #[arg(long, value_name = "URL", required_unless_present = "abort")]
    to: Option<String>,
    /// How many partitions the queue shall have there: 1 to 256 [default: 1, or as many as it has there]
    #[arg(long, value_name = "COUNT", value_parser = value_parser!(u16).range(1..=256), requires = "to")]
    partitions: Option<u16>,
    /// Take back the move that runs or was interrupted
    #[arg(long, conflicts_with = "to")]
    abort: bool,
    #[command(flatten)]
    pace: PaceFlag,
}

impl MoveQueue {
    pub(crate) async fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        let (client, queue) = common.client_and_queue(&self.queue).await?;
        existing::require(&client, &queue).await?;
        let (change, nothing) = match &self.to {
            Some(url) => {
                let change = queue.move_to(url, self.partitions.map(usize::from));
                (change, "has moved there already: nothing to do")
            }
            None => (queue.abort_repartition(), "is here again"),
        };
        if !self.pace.change(&self.queue, change, None, common).await? {
            output::note(&format!("queue {} {nothing}", self.queue));
        }
        print(&self.queue, &queue.partitions().await?, common)?;
        Ok(Outcome::Done)
    }
}

/// Where the queue moves, if it moves.
pub(super) fn moving(queue: &str, partitions: &[PartitionInfo]) -> Option<String> {
    let far = partitions.iter().find(|one| one.store.is_some())?;
    let url = far.store.as_deref()?;
    let moving: u64 = partitions.iter().map(|one| one.stats.moving).sum();
    let (direction, complete) = match far.joins {
        true => (
            "to",
            format!("`dueq move {queue} --to {url}` completes it, and"),
        ),
        false => (
            "from",
            "at the store from which it was begun `dueq move` completes it, and".to_owned(),
        ),
    };
    Some(format!(
        "moving {direction} {url}, {moving} messages on their way: {complete} `dueq move {queue} --abort` takes it back"
    ))
}
