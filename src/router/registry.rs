//! The routers of a client by queue name.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::error::Error;
use crate::router::Router;
use crate::server::servers::Servers;
use crate::server::stores::OtherStores;

/// How many of the last requested names keep their router even without a handle.
const KEPT: usize = 64;
/// The smallest number of entries at which the registry drops dead routers. Otherwise it drops them
/// at twice the number of live ones.
const MIN_SWEEP: usize = 128;

/// The routers of a client by queue name. A name keeps its router as long as a handle of it lives,
/// or while it is among the last 64 requested names.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Routers>);

#[derive(Default)]
struct Routers {
    by_name: HashMap<String, Weak<Router>>,
    /// The routers of the last requested names, the latest at the end.
    kept: VecDeque<Arc<Router>>,
    /// The number of entries at which dead routers are dropped.
    sweep_at: usize,
}

impl Registry {
    /// Returns the router of the queue of this name.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not valid.
    pub(crate) fn router(
        &self,
        name: &str,
        servers: &Arc<Servers>,
        others: &Arc<OtherStores>,
    ) -> Result<Arc<Router>, Error> {
        let mut routers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = routers.by_name.get(name).and_then(Weak::upgrade);
        let router = match known {
            Some(known) => known,
            None => {
                let new = Arc::new(Router::new(name, servers, others)?);
                routers.insert(name, &new);
                new
            }
        };
        routers.keep(&router);
        Ok(router)
    }

    #[cfg(test)]
    fn entries(&self) -> usize {
        self.0.lock().expect("no panic").by_name.len()
    }
}

impl Routers {
    fn insert(&mut self, name: &str, router: &Arc<Router>) {
        if self.by_name.len() >= self.sweep_at {
            self.by_name.retain(|_, known| known.strong_count() > 0);
            self.sweep_at = MIN_SWEEP.max(2 * self.by_name.len());
        }
        let weak = Arc::downgrade(router);
        self.by_name.insert(name.to_owned(), weak);
    }

    fn keep(&mut self, router: &Arc<Router>) {
        let same = |kept: &Arc<Router>| Arc::ptr_eq(kept, router);
        if self.kept.back().is_some_and(same) {
            return;
        }
        match self.kept.iter().position(same) {
            Some(index) => drop(self.kept.remove(index)),
            None if self.kept.len() >= KEPT => drop(self.kept.pop_front()),
            None => {}
        }
        self.kept.push_back(Arc::clone(router));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_requests_for_a_name_return_one_router() {
        let (registry, servers) = (Registry::default(), Servers::unconnected());
        let first = registry
            .router("a", &servers, &Arc::default())
            .expect("a name");
        for n in 0..2 * KEPT {
            registry
                .router(&n.to_string(), &servers, &Arc::default())
                .expect("a name");
        }
        let second = registry
            .router("a", &servers, &Arc::default())
            .expect("a name");
        assert!(Arc::ptr_eq(&first, &second));
        assert!(registry.router("a/b", &servers, &Arc::default()).is_err());
    }

    #[test]
    fn routers_of_ten_thousand_names_used_once_are_dropped() {
        let (registry, servers) = (Registry::default(), Servers::unconnected());
        let mut weak = Vec::new();
        for n in 0..10_000 {
            let router = registry
                .router(&n.to_string(), &servers, &Arc::default())
                .expect("a name");
            weak.push(Arc::downgrade(&router));
        }
        let alive = weak.iter().filter(|known| known.strong_count() > 0).count();
        assert_eq!(alive, KEPT);
        let entries = registry.entries();
        assert!(entries <= MIN_SWEEP + KEPT, "{entries}");
    }
}
