//! How a node watches the roster of a queue with a map, and which partitions it attends because of
//! the roster. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::node::state::ranking::{Ranking, Roster, watch_interval};
use crate::partition::Partition;
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::Watched;
use crate::router::Partitions;
use crate::wheel::Key;

/// How long a node helps in a partition whose leader asked for help.
const HELP_TIME: Duration = Duration::from_secs(10);
/// How old a request for help may be before it counts as ended.
const REQUEST_TIME: Duration = Duration::from_secs(3);
/// The number of nodes that help at first: those of the highest ranks. After each `HELP_STEP` twice
/// as many help.
const FIRST_HELPERS: usize = 8;
const HELP_STEP: Duration = Duration::from_secs(2);
/// How many partitions may stand in for the home. Neighbouring indexes are on different masters.
const DEPUTIES: usize = 8;
/// For this long after a deputy took over, its roster may lack nodes, so the last roster of the
/// home counts.
const ROSTER_TIME: Duration = Duration::from_secs(3);

/// The roster of a queue, as the node knows it, and the node's ranks in the partitions.
pub(crate) struct RosterWatch {
    pub(crate) partitions: Arc<Partitions>,
    ranking: Ranking,
    roster: Roster,
    /// The number of the roster; 0 before the first.
    pub(crate) number: u64,
    /// The partition that keeps this roster.
    pub(crate) watched_at: Tag,
    /// The partitions that are watched, in this order, while the home is unreachable or has no map.
    /// All nodes have the same order.
    pub(crate) own_deputies: Vec<Arc<Partition>>,
    /// Since when a deputy has answered in place of the home.
    deputized: Option<Instant>,
    /// Until when the node helps in each partition.
    helping: BTreeMap<Tag, Instant>,
    /// The partitions whose leaders ask for help, each with the times of the first and the last
    /// request.
    asked: BTreeMap<Tag, (Instant, Instant)>,
    /// The timer of the next watch.
    pub(crate) timer: Option<Key>,
    /// Whether a watch is in flight.
    pub(crate) is_watching: bool,
    /// How many watches failed since the last successful one.
    pub(crate) failures: u32,
}

impl RosterWatch {
    /// Makes the watch of a queue; `None` if there is no map.
    pub(crate) fn of(partitions: &Arc<Partitions>, node: &str) -> Option<Self> {
        partitions.map()?;
        Some(Self {
            ranking: ranking(partitions, node),
            partitions: Arc::clone(partitions),
            roster: Roster::default(),
            number: 0,
            watched_at: Tag::Home,
            own_deputies: Vec::new(),
            deputized: None,
            helping: BTreeMap::new(),
            asked: BTreeMap::new(),
            timer: None,
            is_watching: false,
            failures: 0,
        })
    }

    /// Replaces the map of the queue.
    pub(crate) fn remap(&mut self, partitions: &Arc<Partitions>, node: &str) {
        self.ranking = ranking(partitions, node);
        self.ranking.update(&self.roster);
        self.partitions = Arc::clone(partitions);
        self.own_deputies.clear();
        let tags: BTreeSet<_> = partitions.near_list().iter().map(|one| one.tag()).collect();
        self.helping.retain(|tag, _| tags.contains(tag));
        self.asked.retain(|tag, _| tags.contains(tag));
    }

    /// The deputies to which the node has no connections yet, if deputies are needed.
    pub(crate) fn missing_deputies(&self) -> Vec<Arc<Partition>> {
        let others = self.partitions.near_list()[1..].iter();
        let missing = self.needs_deputies() && self.own_deputies.is_empty();
        others
            .take(if missing { DEPUTIES } else { 0 })
            .cloned()
            .collect()
    }

    /// The partitions to watch if the home does not answer. Empty while the home answers.
    pub(crate) fn deputies(&self) -> &[Arc<Partition>] {
        if self.needs_deputies() {
            &self.own_deputies
        } else {
            &[]
        }
    }

    fn needs_deputies(&self) -> bool {
        self.failures > 0 || self.watched_at != Tag::Home
    }

    /// The deputy whose roster has this node, if there is one.
    pub(crate) fn watched_deputy(&self) -> Option<&Arc<Partition>> {
        let mut deputies = self.own_deputies.iter();
        deputies.find(|deputy| deputy.tag() == self.watched_at)
    }

    /// Handles the answer of a partition to a watch.
    pub(crate) fn watched(
        &mut self,
        tag: Tag,
        watched: &Watched,
        has_free_handlers: bool,
        now: Instant,
    ) {
        self.failures = 0;
        if watched.roster == 0 {
            // The partition has no map. The next watch goes to a deputy, if one has the map.
            self.failures = 1;
            return;
        }
        if tag == Tag::Home {
            self.deputized = None;
        } else {
            let since = *self.deputized.get_or_insert(now);
            let holds = self.number != 0 && now.duration_since(since) < ROSTER_TIME;
            if holds && self.watched_at == Tag::Home {
                self.failures = 1;
                return;
            }
        }
        if (tag, watched.roster) != (self.watched_at, self.number) {
            (self.watched_at, self.number) = (tag, watched.roster);
            self.roster = Roster::of(watched.nodes.iter().map(String::as_str));
            self.ranking.update(&self.roster);
        }
        self.asked
            .retain(|_, (_, last)| now.duration_since(*last) < REQUEST_TIME);
        for tag in &watched.help {
            let tag = Tag::parse(tag);
            let Some((tag, rank)) = tag.and_then(|tag| Some((tag, self.ranking.rank(tag)?))) else {
                continue;
            };
            let (since, last) = self.asked.entry(tag).or_insert((now, now));
            *last = now;
            if has_free_handlers && rank < helpers(now.duration_since(*since)) {
                self.helping.insert(tag, now + HELP_TIME);
            }
        }
        self.helping.retain(|_, until| now < *until);
    }

    /// The partitions to attend, with the node's rank in each; `None` before the first roster.
    pub(crate) fn ranks(&self) -> Option<BTreeMap<Tag, usize>> {
        if self.number == 0 {
            return None;
        }
        let helped = self.helping.keys();
        let helped = helped.filter_map(|tag| Some((*tag, self.ranking.rank(*tag)?)));
        Some(self.ranking.ranks().chain(helped).collect())
    }

    /// How many nodes the roster has.
    pub(crate) fn nodes(&self) -> u64 {
        self.roster.nodes() as u64
    }

    pub(crate) fn watch_interval(&self, part: f64) -> Duration {
        watch_interval(self.roster.nodes(), part)
    }
}

fn ranking(partitions: &Partitions, node: &str) -> Ranking {
    let list = partitions.near_list();
    let tags: Vec<_> = list.iter().map(|partition| partition.tag()).collect();
    let name = partitions.home().queue_name();
    Ranking::new(name, &tags, node)
}

/// How many nodes may help after a leader has asked for this long.
fn helpers(asked: Duration) -> usize {
    let steps = asked.as_millis() / HELP_STEP.as_millis();
    u32::try_from(steps)
        .ok()
        .and_then(|steps| FIRST_HELPERS.checked_shl(steps))
        .filter(|helpers| *helpers > 0)
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_nodes_help_the_longer_a_leader_asks() {
        let after = |seconds| helpers(Duration::from_secs(seconds));
        assert_eq!([after(0), after(1), after(2), after(5)], [8, 8, 16, 32]);
        assert!(after(60) > 1_000_000 && after(100_000) > 1_000_000);
    }
}
