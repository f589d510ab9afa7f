//! A hashed wheel with rounds, as Netty's `HashedWheelTimer`: one ring, and each timer counts how often the hand comes by.

use super::super::lists::Lists;
use super::super::timers::{Timers, keep};

/// As many as in Netty. A tick is a millisecond here, the precision of all structures; Netty's
/// default is 100 ms.
const SLOTS: u64 = 512;

pub(crate) struct Netty<T> {
    lists: Lists<T>,
    now: u64,
    len: usize,
}

impl<T> Netty<T> {
    fn file(&mut self, index: u32) {
        let timer = self.lists.timer(index);
        let when = timer.when;
        timer.rounds = (when - self.now - 1) / SLOTS;
        self.lists.push((when % SLOTS) as usize, index);
    }
}

impl<T> Timers<T> for Netty<T> {
    type Key = u32;

    const NAME: &'static str = "netty";
    const LABEL: &'static str = "rounds, as Netty";
    const NOTE: &'static str = "has no reset: the timer is unlinked and filed again; walks every tick, so it need not say when to look again (sparse: a day of it, times 30)";
    const TELLS_NEXT: bool = false;

    fn new() -> Self {
        Self {
            lists: Lists::new(SLOTS as usize),
            now: 0,
            len: 0,
        }
    }

    fn insert(&mut self, when: u64, value: T) -> u32 {
        let index = self.lists.store(when, value);
        self.file(index);
        self.len += 1;
        index
    }

    fn remove(&mut self, key: u32, removed: &mut Vec<T>) -> bool {
        self.lists.unlink(key);
        self.len -= 1;
        keep(self.lists.take(key), removed)
    }

    fn reset(&mut self, key: &mut u32, when: u64) -> bool {
        self.lists.unlink(*key);
        self.lists.timer(*key).when = when;
        self.file(*key);
        true
    }

    fn advance(&mut self, now: u64, fired: &mut Vec<T>) {
        while self.now < now && self.len > 0 {
            self.now += 1;
            let mut cursor = self.lists.first((self.now % SLOTS) as usize);
            while let Some(index) = cursor {
                cursor = self.lists.following(index);
                let timer = self.lists.timer(index);
                if timer.rounds > 0 {
                    timer.rounds -= 1;
                    continue;
                }
                self.lists.unlink(index);
                fired.extend(self.lists.take(index));
                self.len -= 1;
            }
        }
        self.now = now;
    }

    fn next(&mut self) -> Option<u64> {
        None
    }
}
