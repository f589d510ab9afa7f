//! The calls of a node that keep a queue going: beat, promote, reap.

use std::time::Duration;

use crate::error::{Applied, Error};
use crate::partition::Partition;
use crate::partition::reports::Report;
use crate::protocol::counts::{PROMOTE, REAP};
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::roles::{Beat, Moved, Watched};
use crate::protocol::verbs::Verb;
use crate::telemetry::events;
use crate::telemetry::metrics::Count;

/// What a beat says of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The node is alive. If it parks, it beats again after this time at the latest (1 s to 60 s),
    /// and waits for notices until then.
    Alive(Standing, Option<Duration>),
    /// The node stops.
    Leave,
}

/// How a node stands for the lead of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The queue has one partition: the first node to come leads.
    Any,
    /// It has the first rank: it takes the lead from a second.
    First,
    /// It has a later rank: it takes the lead only when it has been free for 1 s.
    Second,
}

impl Standing {
    fn word(self) -> &'static [u8] {
        match self {
            Self::Any => b"stay",
            Self::First => b"first",
            Self::Second => b"second",
        }
    }
}

impl Partition {
    /// Records that a node is alive or stops, and reports what its handlers took if `reports`. Sent
    /// once, without a repetition.
    pub(crate) async fn beat(
        &self,
        node: &str,
        presence: Presence,
        reports: bool,
    ) -> Result<Beat, Error> {
        let (word, park) = match presence {
            Presence::Leave => (&b"leave"[..], None),
            Presence::Alive(standing, park) => (standing.word(), park),
        };
        let park = park.map(|time| limits::park_ms(time).to_string());
        let report = reports.then(|| self.reports.take());
        let text = report.as_ref().map(Report::text);
        let mut args = vec![node.as_bytes(), word];
        args.extend([&park, &text].into_iter().flatten().map(String::as_bytes));
        let reply = self.call_once(Verb::Beat, &args).await;
        let reply = reply.inspect_err(|error| {
            // If Redis may have counted the report, it is lost: better than counted twice.
            if let Some(report) = report.filter(|_| error.was_applied() == Applied::No) {
                self.reports.give_back(&report);
            }
        })?;
        Beat::decode(reply)
    }

    /// Whether handlers of this node took messages since the last report.
    pub(crate) fn has_times(&self) -> bool {
        self.reports.has_times()
    }

    /// Enters the node in the roster, which forgets it after 3 s. Only for the home of a queue with a
    /// map. Replies with the nodes unless `known` is the number of the present roster. `help` are
    /// partitions that this node leads and whose nodes are all busy. Sent once.
    pub(crate) async fn watch(
        &self,
        node: &str,
        known: u64,
        help: &[Tag],
    ) -> Result<Watched, Error> {
        let help: Vec<_> = help.iter().map(Tag::to_string).collect();
        let (known, help) = (known.to_string(), help.join(" "));
        let args = [node.as_bytes(), b"watch", known.as_bytes(), help.as_bytes()];
        Watched::decode(self.call_once(Verb::Beat, &args).await?)
    }

    /// Takes the node out of the roster. Sent once.
    pub(crate) async fn unwatch(&self, node: &str) -> Result<(), Error> {
        let args = [node.as_bytes(), b"unwatch"];
        self.call_once(Verb::Beat, &args).await.map(drop)
    }

    /// Moves due messages to the ready list. Sent once, without a repetition.
    pub(crate) async fn promote(&self) -> Result<Moved, Error> {
        let moved = self.step(Verb::Promote, PROMOTE).await?;
        self.meters().add_many(Count::Promoted, moved.count);
        Ok(moved)
    }

    /// Takes back expired leases. Sent once, without a repetition.
    pub(crate) async fn reap(&self) -> Result<Moved, Error> {
        let moved = self.step(Verb::Reap, REAP).await?;
        if moved.count > 0 {
            self.meters().add_many(Count::Reaped, moved.count);
            events::reaped(self.queue_name(), moved.count);
        }
        Ok(moved)
    }

    async fn step(&self, verb: Verb, most: usize) -> Result<Moved, Error> {
        let most = most.to_string();
        Moved::decode(self.call_once(verb, &[most.as_bytes()]).await?)
    }
}
