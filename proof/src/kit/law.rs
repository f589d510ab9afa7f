//! The law of schedules: from what a call declares follow its fires, and each fire is made once, or
//! counted as missed, overlapped or paused.

use crate::ticks::period_ms;

/// The part of a declared schedule that decides its fires. The crons of these runs fire at
/// multiples of some seconds, so their fires need no rules of time zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spec {
    pub(crate) every_ms: u64,
    pub(crate) anchor_ms: u64,
    pub(crate) jitter_ms: u64,
    pub(crate) replaces: bool,
    pub(crate) is_cron: bool,
    /// The number of ticks after which the schedule ends.
    pub(crate) limit: u64,
}

impl Spec {
    /// Parses the words of a spec. `None` without an interval and without a pattern that these runs
    /// use.
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

    /// The due time of a tick with jitter, computed as the scripts do.
    pub(crate) fn due_ms(&self, id: &str, nominal_ms: u64) -> u64 {
        if self.jitter_ms == 0 {
            return nominal_ms;
        }
        let [a, b, c, d, ..] = sha1_smol::Sha1::from(id).digest().bytes();
        nominal_ms + u64::from(u32::from_be_bytes([a, b, c, d])) % self.jitter_ms
    }

    /// The number of fires between two times, both included; `None` if these are not fires.
    pub(crate) fn fires(&self, since_ms: u64, last_ms: u64) -> Option<u64> {
        if last_ms < since_ms {
            return Some(0);
        }
        let is_whole = self.has_fire(since_ms) && self.has_fire(last_ms);
        is_whole.then(|| (last_ms - since_ms) / self.every_ms + 1)
    }
}

/// Splits a tick's id into the schedule's name and the fire.
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

    /// Checks that made + missed + overlapped + paused equals the number of fires.
    pub(crate) fn breach(self, fires: u64) -> Option<String> {
        let counted = self.all();
        (counted != fires).then(|| format!("{fires} fires, {counted} counted: {self:?}"))
    }

    /// Checks the number of granted fires. `perhaps` of these may not be the schedule's; `unseen`
    /// that it made may not have been granted.
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

/// Describes a tick that fits no fire, or comes twice. The schedule may leave out fires.
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
