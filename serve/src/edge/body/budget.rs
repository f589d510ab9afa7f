//! The memory budget that all request bodies and all responses with deliveries share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::edge::problem::{Code, Problem};

/// The budget, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Bodies(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max: usize,
    used: AtomicUsize,
    /// The number of bodies that have a share.
    bodies: AtomicUsize,
}

/// Reserved bytes of the budget; a drop gives them back.
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

    /// The size of the budget in bytes.
    pub(crate) fn max_bytes(&self) -> usize {
        self.0.max
    }

    /// An empty reservation, which can grow.
    pub(crate) fn none(&self) -> Reserved {
        self.0.bodies.fetch_add(1, Ordering::Relaxed);
        Reserved {
            bodies: self.clone(),
            bytes: 0,
        }
    }

    /// Refuses a body of this length, if the budget has no room for it now.
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

    /// The number of bodies in memory, and their bytes.
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
    /// Reserves further bytes, or refuses.
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

    /// Keeps `kept` bytes, and returns the rest as a reservation of its own.
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
    fn dropped_reservation_returns_its_bytes() {
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
