//! Calls at a partition whose map changes, with right, old, newer and missing epochs, and random
//! maps.

use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};

use crate::model::client::driver::Driver;
use crate::model::client::operation::Operation;
use crate::model::windows::WINDOW_MOST;
use crate::model::world::{Now, REPEAT_MS, World};
use crate::model::{Kind, run, steps};
use crate::queue::Calls;
use crate::reply::{Reply, Text};
use crate::state::State;

/// Maps as old and new tags. The first map is for the home only.
const MAPS: [&str; 5] = ["-|-", "- 17|- 17", "-|- 17", "- 17|-", "- 17|"];

impl Operation {
    fn names_ids(&self) -> bool {
        matches!(
            self,
            Self::Push { .. }
                | Self::AckPush { .. }
                | Self::Cancel { .. }
                | Self::Reschedule(_)
                | Self::RunNow(_)
                | Self::RequeueIds(_)
                | Self::EndLeases(_)
                | Self::Get(_)
        )
    }
}

impl Driver {
    /// The epoch that the call carries: mostly the right one.
    pub(crate) fn known(&mut self, world: &World, operation: &Operation) -> Option<u64> {
        if !self.has_map || !operation.names_ids() {
            return None;
        }
        let right = world.map.as_ref().map(|_| world.epoch);
        let wrong = [
            None,
            Some(world.epoch.saturating_sub(1)),
            Some(world.epoch + 1),
        ];
        if self.chance(88) {
            right
        } else {
            self.pick(&wrong)
        }
    }

    pub(crate) fn remap(&mut self, world: &World) -> Operation {
        let expected = world.epoch + u64::from(self.chance(20));
        let maps = if world.is_home { &MAPS[..] } else { &MAPS[1..] };
        Operation::Remap {
            form: self.pick(&["change", "close", "forward"]),
            expected,
            epoch: expected + self.random.u64(1..3),
            tags: self.pick(maps),
        }
    }
}

impl World {
    /// The error of a call with this epoch, if the partition refuses it.
    pub(crate) fn refusal(
        &self,
        operation: &Operation,
        known: Option<u64>,
    ) -> Option<&'static str> {
        let own = self.map.as_ref().map(|_| self.epoch);
        let creates = matches!(operation, Operation::Pause(_) | Operation::Configure(_));
        let is_absent = own.is_none() && !self.is_home;
        // In a run without a map, calls go to the home and carry no epoch.
        match operation.names_ids() {
            _ if !self.is_home && self.incarnation.is_none() && creates => Some("BEHIND"),
            false => None,
            true if is_absent => Some("BEHIND"),
            true if known == own => None,
            true if own.is_some() && known > own => Some("BEHIND"),
            true => Some("REMAPPED"),
        }
    }

    pub(crate) fn map_fields(&self) -> Vec<(Text, Text)> {
        let epoch = (self.epoch > 0).then(|| ("epoch".into(), self.epoch.into()));
        let map = self.map.as_ref().map(|map| ("map".into(), map.into()));
        let rank = self
            .leader_rank
            .map(|rank| ("leader_rank".into(), rank.into()));
        let mapped = map
            .is_some()
            .then(|| ("mapped_ms".into(), self.mapped_ms.into()));
        [epoch, map, mapped, rank].into_iter().flatten().collect()
    }

    pub(crate) fn remap(
        &mut self,
        now: Now,
        (form, expected): (&str, u64),
        (epoch, tags): (u64, &str),
        after: &State,
    ) -> Result<Reply> {
        let map = (tags != "-|-").then(|| format!("{epoch}|{tags}"));
        let has = self.incarnation.is_some() && self.epoch == epoch && self.map == map;
        let live = |score: &&f64| {
            **score > now.floor() as f64 && **score <= (now.ceil() + REPEAT_MS + 1) as f64
        };
        // Names of how messages ended do not count: only `get` uses them.
        let names = self.recent.iter().filter(|(name, _)| name.0[0] != 6);
        let scores = names.map(|(_, score)| score).filter(live);
        let last = scores.copied().fold(0.0, f64::max);
        // A window that ends more than 30 days ahead was stored before the clock went back.
        let windows_until = match self.windows_until <= now.ceil() + WINDOW_MOST {
            true => self.windows_until as f64,
            false => 0.0,
        };
        let last = last.max(windows_until);
        let result = if has || form == "forward" && self.epoch >= epoch {
            "DONE".to_owned()
        } else if form != "forward" && self.epoch != expected {
            format!("EPOCH {}", self.epoch)
        } else if form == "change" && !self.messages.is_empty() {
            format!("HAS {}", self.messages.len())
        } else if form == "change" && last > now.floor() as f64 {
            format!("REMEMBERS {}", (last - now.0 as f64 / 1_000.0).ceil())
        } else {
            self.create(after)?;
            (self.epoch, self.map, self.mapped_ms) = (epoch, map, now.ceil());
            let header = self.finish(now, true, true);
            return Ok(Reply::List(vec![header, "DONE".into()]));
        };
        Ok(Reply::List(vec![
            self.finish(now, false, false),
            result.into(),
        ]))
    }
}

#[test]
fn partitions_with_changing_maps_match_the_model() -> Result<()> {
    for (seed, tag, calls) in [(7, "-", Calls::InTurn), (8, "17", Calls::ByRole)] {
        let failed = AtomicBool::new(false);
        let met = run(seed, Kind::Partition(tag), steps()?, calls, &failed)?;
        for result in [
            "remap DONE",
            "remap HAS",
            "remap EPOCH",
            "REMAPPED",
            "BEHIND",
        ] {
            ensure!(met.contains_key(result), "{tag}: no {result} in {met:#?}");
        }
    }
    Ok(())
}
