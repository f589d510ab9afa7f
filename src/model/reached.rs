//! The result of a read that may not reach all parts of a queue or of a cluster.

use crate::error::Error;

/// What was read of a queue or of all servers, and what could not be read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PartialRead<T> {
    /// What the parts that replied hold.
    pub value: T,
    /// The parts that did not reply within 2 s: partitions of the queue, or masters. Empty if all
    /// did.
    pub unread: Vec<UnreadPart>,
    /// How many parts there are.
    pub parts: usize,
}

/// A partition or a master that could not be read.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnreadPart {
    /// `partition 3 (22)`, with its index and its tag, or `the master at HOST:PORT`.
    pub name: String,
    /// Why it could not be read.
    pub error: Error,
}

impl UnreadPart {
    pub(crate) fn master(address: &str, error: Error) -> Self {
        Self {
            name: format!("the master at {address}"),
            error: error.of_read(),
        }
    }
}

impl<T> PartialRead<T> {
    /// What could not be read, and why, in one sentence; `None` if everything was read.
    pub fn gap(&self) -> Option<String> {
        let first = self.unread.first()?;
        Some(format!("{}: {}", self.names(), first.error))
    }

    /// The value, if all parts replied; otherwise an error.
    pub(crate) fn whole(self) -> Result<T, Error> {
        match self.unread.first() {
            Some(first) => Err(first.error.clone().about(&self.names())),
            None => Ok(self.value),
        }
    }

    pub(crate) fn map<U>(
        self,
        change: impl FnOnce(T) -> Result<U, Error>,
    ) -> Result<PartialRead<U>, Error> {
        Ok(PartialRead {
            value: change(self.value)?,
            unread: self.unread,
            parts: self.parts,
        })
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.unread.iter().map(|one| one.name.as_str()).collect();
        match self.parts {
            1 => format!("{} cannot be read", names.join(", ")),
            parts => format!(
                "{} of {parts} cannot be read: {}",
                names.len(),
                names.join(", ")
            ),
        }
    }
}
