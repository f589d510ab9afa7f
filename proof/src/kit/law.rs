//! The law of schedules: what one declares, the fires that follow from it, and that each of them is
//! made once or counted as missed, overlapped or paused.

use crate::ticks::period_ms;

/// What a call declares of a schedule, as far as it decides its fires. A cron of these runs fires
/// at the multiples of some seconds, so that its fires need no rules of time zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spec {
    pub(crate) every_ms: u64,
    pub(crate) anchor_ms: u64,
    pub(crate) jitter_ms: u64,
    pub(crate) replaces: bool,
    pub(crate) is_cron: bool,
    /// How many ticks it makes before it ends.
    pub(crate) limit: u64,
}

impl Spec {
    /// None without an interval, and without a pattern of these runs.
    pub(crate) fn read(words: &str, pattern: &str) -> Option<Self> {
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

    pub(crate) fn has_fire(&self, nominal_ms: u64) -> bool {
        nominal_ms % self.every_ms == self.anchor_ms % self.every_ms
    }

    /// As the scripts compute it.
    pub(crate) fn due_ms(&self, id: &str, nominal_ms: u64) -> u64 {
        if self.jitter_ms == 0 {
            return nominal_ms;
        }
        let [a, b, c, d, ..] = sha1_smol::Sha1::from(id).digest().bytes();
        nominal_ms + u64::from(u32::from_be_bytes([a, b, c, d])) % self.jitter_ms
    }

    /// How many fires are from one time to another, both included; None if these are no fires.
    pub(crate) fn fires(&self, since_ms: u64, last_ms: u64) -> Option<u64> {
        if last_ms < since_ms {
            return Some(0);
        }
        let is_whole = self.has_fire(since_ms) && self.has_fire(last_ms);
        is_whole.then(|| (last_ms - since_ms) / self.every_ms + 1)
    }
}

/// The schedule and the fire of a tick with this id.
pub(crate) fn tick(id: &str) -> Option<(&str, u64)> {
    let (name, ms) = id.rsplit_once('@')?;
    let nominal_ms: u64 = ms.parse().ok()?;
    (nominal_ms.to_string() == ms).then_some((name, nominal_ms))
}

/// The counts of a schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) made: u64,
    pub(crate) missed: u64,
    pub(crate) overlapped: u64,
    pub(crate) paused: u64,
}

impl Counts {
    pub(crate) fn all(self) -> u64 {
        self.made + self.missed + self.overlapped + self.paused
    }

    /// made + missed + overlapped + paused are its fires.
    pub(crate) fn breach(self, fires: u64) -> Option<String> {
        let counted = self.all();
        (counted != fires).then(|| format!("{fires} fires, {counted} counted: {self:?}"))
    }

    /// So many of its fires were granted. `perhaps` of these were not made by the schedule, and
    /// `unseen` that it made were perhaps granted to nobody.
    pub(crate) fn breach_of_granted(
        self,
        granted: u64,
        perhaps: u64,
        unseen: u64,
    ) -> Option<String> {
        let made = self.made;
        let is_broken = granted > made + perhaps || made > granted + perhaps + unseen;
        is_broken.then(|| format!("{granted} of its fires were granted, {made} made"))
    }
}

/// What is wrong with the ticks of a schedule that may leave some of its fires out.
pub(crate) fn misfit(fires: &[u64], ticks: &[u64]) -> Option<String> {
    if !ticks.windows(2).all(|pair| pair[0] < pair[1]) {
        return Some("a fire is granted twice, or after a later one".to_owned());
    }
    let other = ticks.iter().find(|ms| fires.binary_search(ms).is_err());
    other.map(|ms| format!("{ms} is no fire"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_breach_of_the_law_is_found() {
        let counts = |made, missed| Counts {
            made,
            missed,
            overlapped: 0,
            paused: 0,
        };
        let fires = [10, 20, 30];
        assert!(counts(2, 1).breach(3).is_none());
        assert!(counts(2, 2).breach(3).is_some(), "counted twice");
        assert!(counts(2, 1).breach_of_granted(2, 0, 0).is_none());
        assert!(counts(3, 0).breach_of_granted(2, 0, 0).is_some(), "lost");
        assert!(
            counts(1, 2).breach_of_granted(2, 0, 0).is_some(),
            "made twice"
        );
        assert!(misfit(&fires, &[10, 30]).is_none());
        assert!(misfit(&fires, &[10, 10]).is_some(), "twice");
        assert!(misfit(&fires, &[10, 25]).is_some(), "no fire");
    }
}
