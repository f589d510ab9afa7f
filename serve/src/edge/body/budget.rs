//! How many bytes of bodies are in memory, of requests and of answers with deliveries: a budget that
//! all share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::edge::problem::{Code, Problem};

/// The budget.
#[derive(Debug, Clone)]
pub(crate) struct Bodies(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    used: AtomicUsize,
    /// How many bodies have a share.
    bodies: AtomicUsize,
}

/// Some bytes of the budget, given back on drop.
#[derive(Debug)]
pub(crate) struct Reserved {
    bodies: Bodies,
    bytes: usize,
}

impl Bodies {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(Inner {
            max,
            used: AtomicUsize::new(0),
            bodies: AtomicUsize::new(0),
        }))
    }

    /// How many bytes the budget has.
    pub(crate) fn max_bytes(&self) -> usize {
        self.0.max
    }

    /// Nothing of the budget yet.
    pub(crate) fn none(&self) -> Reserved {
        self.0.bodies.fetch_add(1, Ordering::Relaxed);
        Reserved {
            bodies: self.clone(),
            bytes: 0,
        }
    }

    /// Refuses a body of this length, if it has no room now.
    pub(crate) fn check(&self, length: usize) -> Result<(), Problem> {
        let used = self.0.used.load(Ordering::Relaxed);
        if used
            .checked_add(length)
            .is_some_and(|sum| sum <= self.0.max)
        {
            Ok(())
        } else {
            Err(self.full())
        }
    }

    /// How many bodies are in memory, and their bytes.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let inner = &self.0;
        (
            inner.bodies.load(Ordering::Relaxed),
            inner.used.load(Ordering::Relaxed),
        )
    }

    fn full(&self) -> Problem {
        let detail = format!(
            "bodies use the {} bytes that they may; try again",
            self.0.max
        );
        Problem::new(Code::BodiesFull, detail)
    }
}

impl Reserved {
    /// Reserves more, or refuses.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Problem> {
        let inner = &self.bodies.0;
        let add = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= inner.max);
        let grown = inner
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        if grown.is_err() {
            return Err(self.bodies.full());
        }
        self.bytes += bytes;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes all but `kept` bytes out of it, to give them back apart.
    pub(crate) fn split_but(&mut self, kept: usize) -> Self {
        let bytes = self.bytes.saturating_sub(kept);
        self.bytes -= bytes;
        self.bodies.0.bodies.fetch_add(1, Ordering::Relaxed);
        Self {
            bodies: self.bodies.clone(),
            bytes,
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.bodies.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bodies.0.bodies.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_given_back_on_drop() {
        let bodies = Bodies::new(100);
        let (mut one, mut other) = (bodies.none(), bodies.none());
        assert!(one.grow(60).is_ok() && other.grow(40).is_ok());
        assert!(other.grow(1).is_err() && bodies.check(1).is_err());
        assert!(bodies.check(usize::MAX).is_err());
        drop(one);
        assert!(other.grow(60).is_ok() && bodies.check(0).is_ok());
        let (part, nothing) = (other.split_but(10), other.split_but(11));
        drop((other, nothing));
        assert!(bodies.check(10).is_ok() && bodies.check(11).is_err());
        assert_eq!(bodies.in_use(), (1, 90));
        drop(part);
        assert_eq!(bodies.in_use(), (0, 0));
    }
}
