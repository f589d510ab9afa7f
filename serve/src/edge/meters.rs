//! The server's own counts: connections, streams, claims; requests by route, method and class of
//! status; problems by code.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Counts things that exist at present, such as open connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gauge(Arc<AtomicU64>);

/// Counts as one of these things until it is dropped.
#[derive(Debug)]
pub(crate) struct One(Gauge);

impl Gauge {
    pub(crate) fn one(&self) -> One {
        self.0.fetch_add(1, Ordering::Relaxed);
        One(self.clone())
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server's own counts.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    pub(crate) requests: Requests,
    pub(crate) connections: Gauge,
    pub(crate) streams: Gauge,
    pub(crate) claims: Gauge,
}

/// The number of classes of status codes: 1xx to 5xx.
const CLASSES: usize = 5;

/// Counts requests and problems.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Requests by route and method. The routes are the router's patterns, so there are few.
    routes: RwLock<BTreeMap<(String, &'static str), [AtomicU64; CLASSES]>>,
    problems: RwLock<BTreeMap<&'static str, AtomicU64>>,
}

impl Requests {
    /// Counts a request.
    pub(crate) fn count(&self, route: &str, method: &'static str, status: u16) {
        let class = usize::from((status / 100).clamp(1, 5)) - 1;
        let key = (route.to_owned(), method);
        {
            let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(counts) = routes.get(&key) {
                counts[class].fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        routes.entry(key).or_default()[class].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a problem.
    pub(crate) fn problem(&self, code: &'static str) {
        {
            let problems = self.problems.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = problems.get(code) {
                count.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let mut problems = self
            .problems
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        problems
            .entry(code)
            .or_default()
            .fetch_add(1, Ordering::Relaxed);
    }

    /// The number of requests by route, method and class of status, from 1 for 1xx.
    pub(crate) fn counts(&self) -> Vec<(String, &'static str, usize, u64)> {
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        for ((route, method), counts) in &*routes {
            for (class, count) in (1..).zip(counts) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    all.push((route.clone(), *method, class, count));
                }
            }
        }
        all
    }

    /// The number of problems by code.
    pub(crate) fn problems(&self) -> Vec<(&'static str, u64)> {
        let problems = self.problems.read().unwrap_or_else(PoisonError::into_inner);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let all = problems.iter().map(|(code, number)| (*code, count(number)));
        all.collect()
    }
}
