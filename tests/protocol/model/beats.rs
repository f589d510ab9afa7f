//! Beats in the model.

use crate::model::consumers::TRIM;
use crate::model::operation::Presence;
use crate::model::schedule_fields::counted;
use crate::model::world::{Now, World};
use crate::reply::{Reply, Text};

const SILENCE_MS: u64 = 3_000;
const LEAD_MS: u64 = 2_500;
const HOLD_MS: u64 = 5_000;
const PARK_MOST: u64 = 60_000;

impl World {
    pub(super) fn beat(&mut self, now: Now, node: &Text, presence: Presence) -> Reply {
        if self.incarnation.is_none() {
            return Reply::List([vec![self.header(now)], vec![0i64.into(); 4]].concat());
        }
        let clock = now.floor();
        let never = || (Default::default(), 0, clock, 0);
        let (mut leader, mut until, seen, mut reap_after) = self.beats.take().unwrap_or_else(never);
        let parked_until = self.parked_until.unwrap_or(0);
        let mut announced = match parked_until > clock + PARK_MOST || self.is_frozen {
            true => 0,
            false => parked_until,
        };
        let all = self.nodes.len();
        self.nodes.retain(|_, seen| *seen + SILENCE_MS > clock);
        let silent = self.nodes.len() < all || announced + SILENCE_MS < clock;
        let reopened = seen > clock && !self.is_frozen && self.forget_rate_opening(now);
        if seen > clock || clock - seen > SILENCE_MS && silent {
            reap_after = clock + HOLD_MS;
        }
        self.nodes.retain(|_, seen| *seen <= clock.max(announced));
        if presence == Presence::Leave {
            self.nodes.remove(node);
            if leader == *node {
                leader = Text::default();
                until = if self.map.is_some() { clock } else { until };
            }
        } else {
            let park = match presence {
                Presence::Park(ms) => ms,
                _ => 0,
            };
            self.nodes.insert(node.clone(), clock + park);
            let most = announced.max(clock + LEAD_MS);
            if leader.0.is_empty() || until <= clock || until > most || leader == *node {
                (leader, until) = (node.clone(), clock + park.max(LEAD_MS));
            }
            if park > 0 {
                announced = announced.max(clock + park);
            }
        }
        if !self.is_frozen && announced != parked_until {
            self.parked_until = Some(announced);
        }
        let leads = i64::from(leader == *node);
        if leads == 1 && self.map.is_some() {
            self.leader_rank = Some("stay");
        }
        self.beats = Some((leader, until, clock, reap_after));

        self.forget(now, TRIM);
        let trimmed = self.trim_dead(clock);
        self.count("trimmed", trimmed);
        let header = self.finish(now, trimmed > 0 || reopened, false);
        let is_closed = self.closed(now).is_some();
        let [_, (_, low_lists), _] = counted(&self.schedules);
        let low_lists = self.has_layout_4.then(|| low_lists.into());
        let parts = [
            header,
            leads.into(),
            self.nodes.len().into(),
            reap_after.into(),
            if is_closed { 0 } else { self.ready.len() }.into(),
        ];
        Reply::List(parts.into_iter().chain(low_lists).collect())
    }
}
