//! How the random client moves the clock.

use crate::model::driver::Driver;
use crate::model::message::Message;
use crate::model::operation::Operation;
use crate::model::world::World;
use crate::queue::DAY;

impl Driver {
    /// Moves the clock: mostly a little, often exactly to a time that matters or close to it,
    /// sometimes back.
    pub(crate) fn pass_time(&mut self, world: &World) {
        let us = self.now.0;
        if let Some((_, us)) = self
            .set_back
            .take_if(|(left, _)| *left == self.planned.len())
        {
            self.now.0 -= us;
            self.at_once = true;
            return;
        }
        self.at_once &= !self.planned.is_empty();
        if !self.planned.is_empty() {
            self.now.0 += if self.at_once {
                self.random.u64(0..20_000)
            } else {
                self.random.u64(900_000..1_100_000)
            };
            return;
        }
        self.now.0 = match self.random.u32(0..100) {
            0..35 => us + 1,
            35..55 => us + self.random.u64(0..20_000),
            55..65 => us + self.random.u64(0..1_000_000),
            65..92 => self.moment(world, 2_000_000).unwrap_or(us),
            92..96 => self.moment(world, 15_000_000).unwrap_or(us),
            96..97 => self.moment(world, 40 * DAY * 1_000).unwrap_or(us),
            97..98 => us + self.random.u64(3_000_000..20_000_000),
            _ => us - self.random.u64(0..400_000),
        };
    }

    pub(super) fn moment(&mut self, world: &World, within_us: u64) -> Option<u64> {
        let mut moments: Vec<u64> = world
            .messages
            .values()
            .map(|message| message.place.time())
            .collect();
        moments.extend(world.closed_until);
        let expiry =
            |message: &Message| message.expiry(message.original.unwrap_or(message.place.time()));
        moments.extend(world.messages.values().filter_map(expiry));
        moments.extend(world.recent.values().map(|score| *score as u64));
        if let Some((_, leader_until, seen, reap_after)) = &world.beats {
            moments.extend([*leader_until, seen + 3_000, *reap_after, *reap_after]);
        }
        moments.extend(
            self.kept
                .iter()
                .filter_map(|(_, operation)| match operation {
                    Operation::Push {
                        attempt: Some(attempt),
                        ..
                    } => Some(attempt.until_us / 1_000),
                    _ => None,
                }),
        );
        let from = self.now.0.saturating_sub(300_000);
        moments.retain(|ms| (from..from.saturating_add(within_us)).contains(&(ms * 1_000)));
        let chosen = self.random.choice(moments)? * 1_000;
        let beside = [0, 0, 0, 1, 1_000, 500, -1, -500, -1_000];
        Some(chosen.saturating_add_signed(self.random.choice(beside)?))
    }
}
