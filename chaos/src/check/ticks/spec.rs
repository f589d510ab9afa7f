//! What a schedule declares, and the fires that follow from it.

use crate::ticks::period_ms;

/// What a call declares of a schedule, as far as it decides its fires. A cron of these runs fires
/// at the multiples of some seconds, so that its fires need no rules of time zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Spec {
    pub(super) every_ms: u64,
    pub(super) anchor_ms: u64,
    pub(super) jitter_ms: u64,
    pub(super) replaces: bool,
    pub(super) is_cron: bool,
    /// How many ticks it makes before it ends.
    pub(super) limit: u64,
}

impl Spec {
    /// None without an interval, and without a pattern of these runs.
    pub(super) fn read(words: &str, pattern: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut pairs = words.split(' ').filter_map(|word| word.split_once('='));
            let (_, value) = pairs.find(|(word, _)| *word == name)?;
            value.parse().ok()
        };
        let is_cron = words.split(' ').any(|word| word.starts_with("zone="));
        let every_ms = match is_cron {
            true => period_ms(pattern),
            false => number("every").filter(|every_ms| *every_ms > 0),
        };
        Some(Self {
            every_ms: every_ms?,
            anchor_ms: number("anchor").unwrap_or(0),
            jitter_ms: number("jitter").unwrap_or(0),
            replaces: words.split(' ').any(|word| word == "overlap=replace"),
            is_cron,
            limit: number("limit").unwrap_or(u64::MAX),
        })
    }

    pub(super) fn has_fire(&self, nominal_ms: u64) -> bool {
        nominal_ms % self.every_ms == self.anchor_ms % self.every_ms
    }

    /// As the scripts compute it.
    pub(super) fn due_ms(&self, id: &str, nominal_ms: u64) -> u64 {
        if self.jitter_ms == 0 {
            return nominal_ms;
        }
        let [a, b, c, d, ..] = sha1_smol::Sha1::from(id).digest().bytes();
        nominal_ms + u64::from(u32::from_be_bytes([a, b, c, d])) % self.jitter_ms
    }

    /// How many fires are from one time to another, both included; None if these are no fires.
    pub(super) fn fires(&self, since_ms: u64, last_ms: u64) -> Option<u64> {
        if last_ms < since_ms {
            return Some(0);
        }
        let is_whole = self.has_fire(since_ms) && self.has_fire(last_ms);
        is_whole.then(|| (last_ms - since_ms) / self.every_ms + 1)
    }
}
