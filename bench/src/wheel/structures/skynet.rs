//! One ring of 256 slots and four of 64, as in skynet and in old Linux kernels: every tick is walked, and a full turn of a
//! ring spreads a slot of the next.

use super::super::lists::Lists;
use super::super::timers::Timers;

const NEAR: usize = 256;
const LEVELS: usize = 4;
const SLOTS: usize = 64;

pub(crate) struct Skynet<T> {
    lists: Lists<T>,
    now: u32,
    len: usize,
}

impl<T> Skynet<T> {
    fn file(&mut self, index: u32) {
        let when = self.lists.timer(index).when as u32;
        if when >> 8 == self.now >> 8 {
            self.lists.push(when as usize % NEAR, index);
            return;
        }
        let level = (0..LEVELS - 1).find(|level| {
            let shift = 14 + 6 * level;
            when >> shift == self.now >> shift
        });
        let level = level.unwrap_or(LEVELS - 1);
        self.lists.push(
            NEAR + level * SLOTS + (when >> (8 + 6 * level)) as usize % SLOTS,
            index,
        );
    }

    fn fire_slot(&mut self, fired: &mut Vec<T>) {
        let mut cursor = self.lists.detach(self.now as usize % NEAR);
        while let Some(index) = cursor {
            cursor = self.lists.following(index);
            fired.extend(self.lists.take(index));
            self.len -= 1;
        }
    }

    fn spread(&mut self, level: usize, slot: usize) {
        let mut cursor = self.lists.detach(NEAR + level * SLOTS + slot);
        while let Some(index) = cursor {
            cursor = self.lists.following(index);
            self.file(index);
        }
    }

    fn tick(&mut self, fired: &mut Vec<T>) {
        self.now = self.now.wrapping_add(1);
        let mut digits = self.now;
        if digits == 0 {
            self.spread(LEVELS - 1, 0);
        } else if digits.is_multiple_of(NEAR as u32) {
            digits >>= 8;
            let mut level = 0;
            while digits.is_multiple_of(SLOTS as u32) {
                digits >>= 6;
                level += 1;
            }
            self.spread(level, digits as usize % SLOTS);
        }
        self.fire_slot(fired);
    }
}

impl<T> Timers<T> for Skynet<T> {
    type Key = ();

    const NAME: &'static str = "skynet";
    const LABEL: &'static str = "256 + 4 x 64, as skynet";
    const NOTE: &'static str = "can neither cancel nor reset; walks every tick, so it need not say when to look again (sparse: a day of it, times 30); 32 bits of time";
    const CANCELS: bool = false;
    const RESETS: bool = false;
    const TELLS_NEXT: bool = false;

    fn new() -> Self {
        Self {
            lists: Lists::new(NEAR + LEVELS * SLOTS),
            now: 0,
            len: 0,
        }
    }

    fn insert(&mut self, when: u64, value: T) {
        let index = self.lists.store(when, value);
        self.file(index);
        self.len += 1;
    }

    fn remove(&mut self, (): (), _removed: &mut Vec<T>) -> bool {
        false
    }

    fn reset(&mut self, (): &mut (), _when: u64) -> bool {
        false
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        while self.now < now as u32 && self.len > 0 {
            self.tick(fired);
        }
        self.now = now as u32;
    }

    fn next(&mut self) -> Option<u64> {
        None
    }
}
