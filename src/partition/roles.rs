//! The calls that nodes make for a partition: beat, watch, promote, reap, claim, held.

use std::time::Duration;

use crate::error::{Applied, Error};
use crate::model::lease_token::LeaseToken;
use crate::partition::Partition;
use crate::partition::reports::Report;
use crate::protocol::counts::{PROMOTE, REAP};
use crate::protocol::keys::obeys_limits;
use crate::protocol::limits;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::{Beat, Moved, Watched};
use crate::protocol::results::claim::Claim;
use crate::protocol::verbs::Verb;
use crate::server::patience::Repeat;
use crate::telemetry::events;
use crate::telemetry::metrics::Counter;

/// What a beat says about its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The node is alive. If it parks, it beats again after this time at the latest (1 s to 60 s),
    /// and waits for notices until then.
    Alive(Standing, Option<Duration>),
    /// The node leaves the partition.
    Leave,
}

/// The claim of a node to the lead of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The queue has one partition: the first node that beats becomes the leader.
    Any,
    /// The node has rank 0: it takes the lead from any node of a later rank.
    First,
    /// The node has a later rank: it takes the lead only after nobody had it for 1 s.
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
    /// Records that a node is alive or stops, and what it tells of its process. Reports what its
    /// handlers took if `reports`. The call is not repeated.
    pub(crate) async fn beat(
        &self,
        node: &str,
        presence: Presence,
        told: Option<String>,
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
        args.extend(
            [&park, &told, &text]
                .into_iter()
                .flatten()
                .map(String::as_bytes),
        );
        let reply = self.call_once(Verb::Beat, &args).await;
        let reply = reply.inspect_err(|error| {
            // If Redis may have counted the report, its counts are dropped: lost counts are better
            // than doubled ones.
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

    /// Enters the node in the roster, which forgets it after 3 s. Only for a partition of a queue
    /// with a map. The reply lists the nodes, unless `known` is the number of the present roster.
    /// `help` names partitions that this node leads and whose nodes are all busy. The call is not
    /// repeated.
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

    /// Removes the node from the roster. The call is not repeated.
    pub(crate) async fn unwatch(&self, node: &str) -> Result<(), Error> {
        let args = [node.as_bytes(), b"unwatch"];
        self.call_once(Verb::Beat, &args).await.map(drop)
    }

    /// Moves due messages to the ready list. The call is not repeated.
    pub(crate) async fn promote(&self) -> Result<Moved, Error> {
        let moved = self.step(Verb::Promote, PROMOTE).await?;
        self.meters().add_many(Counter::Promoted, moved.count);
        Ok(moved)
    }

    /// Takes back expired leases. The call is not repeated.
    pub(crate) async fn reap(&self) -> Result<Moved, Error> {
        let moved = self.step(Verb::Reap, REAP).await?;
        if moved.count > 0 {
            self.meters().add_many(Counter::Reaped, moved.count);
            events::reaped(self.queue_name(), moved.count);
        }
        Ok(moved)
    }

    async fn step(&self, verb: Verb, most: usize) -> Result<Moved, Error> {
        let most = most.to_string();
        Moved::decode(self.call_once(verb, &[most.as_bytes()]).await?)
    }
}

impl Partition {
    /// Claims ready messages first, then due ones that are not promoted yet. With `count` 0 it only
    /// returns a wake-up token.
    pub(crate) async fn claim(&self, count: usize, lease_ms: u64) -> Result<Claim, Error> {
        // Each call draws a new token, so that it cannot be refused as HELD.
        self.claim_with(LeaseToken::random(), count, lease_ms).await
    }

    /// Claims as [`claim`](Self::claim) does, with the caller's token. Fails with the code `HELD`
    /// if that token already has a lease.
    pub(crate) async fn claim_with(
        &self,
        LeaseToken(token): LeaseToken,
        count: usize,
        lease_ms: u64,
    ) -> Result<Claim, Error> {
        let (count_text, lease_text) = (count.to_string(), lease_ms.to_string());
        let claim: [&[u8]; 4] = [b"", count_text.as_bytes(), &token, lease_text.as_bytes()];
        let answer = self.claims.call(Verb::Claim, &self.keys, &claim).await;
        let claim = Claim::decode(
            answer.inspect_err(|error| self.meters().call_failed(error))?,
            token,
        )?;
        self.meters()
            .add_many(Counter::Claimed, claim.granted.len() as u64);
        Ok(claim)
    }

    /// Reads what the lease with this token holds. The call is not repeated.
    pub(crate) async fn held_once(&self, LeaseToken(token): LeaseToken) -> Result<Claim, Error> {
        let reply = self.call_once(Verb::Held, &[&token]).await?;
        Ok(Claim::decode_held(reply, token)?.0)
    }

    /// Reads what the lease with this token holds, and how many messages the reply leaves out.
    pub(crate) async fn held(&self, LeaseToken(token): LeaseToken) -> Result<(Claim, u64), Error> {
        let reply = self.call(Verb::Held, &[&token], Repeat::Harmless).await?;
        Claim::decode_held(reply, token)
    }
}

/// The most nodes that are examined.
const MOST_NODES: usize = 100;
/// How long after its last beat a node counts as alive.
const ALIVE_MS: i64 = 3_000;

impl Partition {
    /// The ids of live nodes whose release may be older than this one.
    pub(crate) async fn older_nodes(&self) -> Result<Vec<String>, Error> {
        let reply = self.call(Verb::Stats, &[], Repeat::Harmless).await?;
        let since_ms = reply.header.now_us / 1_000 - ALIVE_MS;
        let nodes = self
            .control()
            .members_above(self.keys().nodes(), since_ms, MOST_NODES)
            .await?;
        Ok(nodes.into_iter().filter(|id| !obeys_limits(id)).collect())
    }
}
