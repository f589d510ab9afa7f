//! The names of steps and of their runs.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Error};

/// The number of steps of a chain.
pub(in crate::runs::uniqueness) const STEPS: usize = 5;

/// A step of a chain. The producer chose the id of the first step; the others have ids of
/// follow-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::runs::uniqueness) struct Step {
    pub(super) chain: u32,
    /// The number of the step in its chain, 0 to 4.
    pub(super) number: usize,
}

/// One run of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::runs::uniqueness) struct Uid {
    pub(in crate::runs::uniqueness) worker: u64,
    pub(in crate::runs::uniqueness) run: u64,
}

impl Step {
    pub(in crate::runs::uniqueness) fn parse(id: &str) -> Option<Self> {
        let (root, number) = match id.strip_prefix('{') {
            None => (id, 0),
            Some(rest) => {
                let (root, steps) = rest.split_once('}')?;
                let number = steps.len() / 2;
                (steps == "/1".repeat(number) && number > 0).then_some((root, number))?
            }
        };
        let chain = root.strip_prefix("chain:")?.parse().ok()?;
        (number < STEPS).then_some(Self { chain, number })
    }

    pub(in crate::runs::uniqueness) fn is_last(self) -> bool {
        self.number + 1 == STEPS
    }

    /// The id of a message that belongs to no step: the child of an ack that must be refused.
    pub(in crate::runs::uniqueness) fn stale_id(self, uid: Uid) -> String {
        format!("{{chain:{}}}/stale/{uid}", self.chain)
    }

    /// The index of this step among the steps of all chains.
    pub(super) fn index(self) -> usize {
        self.chain as usize * STEPS + self.number
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => write!(f, "chain:{}", self.chain),
            number => write!(f, "{{chain:{}}}{}", self.chain, "/1".repeat(number)),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.worker, self.run)
    }
}

impl FromStr for Uid {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (worker, run) = text
            .split_once('-')
            .with_context(|| format!("{text:?} is no run"))?;
        let (worker, run) = (worker.parse()?, run.parse()?);
        Ok(Self { worker, run })
    }
}
