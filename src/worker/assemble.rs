//! Checks the settings of a worker, and turns them into the settings of its node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::model::codec::Codec;
use crate::node::consumers::consumer::Consumer;
use crate::node::consumers::handling::Handling;
use crate::node::coordinator::settings::{ForName, PatternEntry, Settings};
use crate::node::state::health::SharedHealth;
use crate::node::state::queue::QueueEntry;
use crate::protocol::limits;
use crate::protocol::pattern::Pattern;
use crate::router::Router;
use crate::server::servers::Servers;
use crate::worker::handler::IntoHandler;
use crate::worker::layer::Wrap;
use crate::worker::settings::{Defaults, QueueSettings};

/// The layers around handlers; the first is the outermost.
#[derive(Clone, Default)]
pub struct Layers(Vec<Wrap>);

/// A handler without its types.
pub struct Assembled {
    /// The handler, or why it cannot be used.
    handling: Result<Arc<dyn Handling>, String>,
    /// How long a batch waits for more deliveries; `None` for a handler of single deliveries.
    linger: Option<Duration>,
}

/// A queue that was added to a worker, before its settings are checked.
pub(crate) struct Added {
    router: Arc<Router>,
    settings: QueueSettings,
    assembled: Assembled,
}

/// A pattern that was added to a worker, before its settings are checked.
pub(crate) struct AddedPattern {
    pub(crate) pattern: Pattern,
    pub(crate) add: ForName<Added>,
}

impl AddedPattern {
    fn checked(self, defaults: &Defaults, servers: &Arc<Servers>) -> Result<PatternEntry, Error> {
        let Self { pattern, add } = self;
        let refused = |error: Error| Error::invalid(format!("pattern {}: {error}", pattern.text()));
        // The checks do not depend on the name, so they are made once with any name.
        let any = add("any").map_err(refused)?;
        let reserve = any.settings.share.reserves();
        if reserve > 0 {
            return Err(refused(Error::invalid(format!(
                "a reserve of {reserve} handlers; a pattern takes none, because the number of its \
                 queues has no bound"
            ))));
        }
        any.checked(defaults, servers).map_err(refused)?;
        let (defaults, servers) = (defaults.clone(), Arc::clone(servers));
        Ok(PatternEntry {
            pattern,
            make: Arc::new(move |name| add(name)?.checked(&defaults, &servers)),
        })
    }
}

impl Layers {
    pub(crate) fn push(&mut self, wrap: Wrap) {
        self.0.push(wrap);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Wrap> {
        self.0.iter()
    }
}

impl Assembled {
    /// Wraps a handler of single deliveries.
    pub(crate) fn one(handling: Arc<dyn Handling>) -> Self {
        Self {
            handling: Ok(handling),
            linger: None,
        }
    }

    /// Wraps a handler of batches.
    pub(crate) fn batch(handling: Arc<dyn Handling>, linger: Duration) -> Self {
        Self {
            handling: Ok(handling),
            linger: Some(linger),
        }
    }

    /// Stands for a handler that cannot be used, for this reason.
    pub(crate) fn refused(why: &str) -> Self {
        Self {
            handling: Err(why.to_owned()),
            linger: None,
        }
    }
}

impl Added {
    pub(crate) fn new<C: Codec, M>(
        router: &Arc<Router>,
        codec: &C,
        settings: QueueSettings,
        layers: &Layers,
        handler: impl IntoHandler<C::Value, M>,
    ) -> Self {
        Self {
            router: Arc::clone(router),
            settings,
            assembled: handler.assemble(codec, layers),
        }
    }

    /// Checks the queue, and makes its entry for the node.
    ///
    /// # Errors
    /// `InvalidInput` if a setting is out of its range, or the queue belongs to another client.
    pub(crate) fn checked(
        self,
        defaults: &Defaults,
        servers: &Arc<Servers>,
    ) -> Result<QueueEntry, Error> {
        let of = format!("queue {}", self.router.queue_name());
        let refused = |why: String| Error::invalid(format!("{of}: {why}"));
        if !Arc::ptr_eq(self.router.servers(), servers) {
            return Err(refused(
                "it was made by another client than the worker".to_owned(),
            ));
        }
        let handling = self.assembled.handling.map_err(refused)?;
        let lease = self.settings.lease.unwrap_or(defaults.lease);
        limits::lease_ms(lease).map_err(|error| refused(error.to_string()))?;
        if let Some(linger) = self.assembled.linger.filter(|linger| *linger > lease / 3) {
            return Err(refused(format!(
                "a linger time of {linger:?} is not in the range from 0 to {:?}, a third of the \
                 lease",
                lease / 3
            )));
        }
        let time_limit = self.settings.time_limit.or(defaults.time_limit);
        if time_limit == Some(Duration::ZERO) {
            return Err(refused(
                "a time limit of 0ns ends a handler at its first await; without a call of \
                 `time_limit` there is no limit"
                    .to_owned(),
            ));
        }
        let share = self.settings.share.checked(&of)?;
        if share.reserve > defaults.concurrency {
            return Err(refused(over_reserve(
                share.reserve,
                0,
                defaults.concurrency,
            )));
        }
        Ok(QueueEntry {
            router: self.router,
            consumer: Consumer::Handler(handling),
            share,
            lease,
            retry: self.settings.retry.unwrap_or(defaults.retry),
            time_limit,
        })
    }
}

/// Checks the settings, and makes those of the node.
///
/// # Errors
/// `InvalidInput` if a setting is out of its range. The error names the queue.
pub(crate) fn checked(
    servers: &Arc<Servers>,
    defaults: &Defaults,
    added: Vec<Added>,
    patterns: Vec<AddedPattern>,
) -> Result<Settings, Error> {
    let concurrency = defaults.concurrency;
    if !(1..=Semaphore::MAX_PERMITS).contains(&concurrency) {
        return Err(Error::invalid(format!(
            "concurrency {concurrency} is not in the range from 1 to {}: at least one handler is \
             needed",
            Semaphore::MAX_PERMITS
        )));
    }
    let parking = defaults.parking;
    if !parking.is_zero() && !limits::PARK.contains(&parking) {
        return Err(Error::invalid(format!(
            "a parking time of {parking:?} is not in the range from {:?} to {:?}; 0 parks no queue",
            limits::PARK.start(),
            limits::PARK.end()
        )));
    }
    if added.is_empty() && patterns.is_empty() {
        return Err(Error::invalid(
            "the worker has no queue: add one by `queue` or `pattern` before it starts",
        ));
    }
    let mut names = BTreeSet::new();
    let mut reserved = 0_usize;
    let mut queues = Vec::with_capacity(added.len());
    for one in added {
        let entry = one.checked(defaults, servers)?;
        let name = entry.router.queue_name();
        if !names.insert(name.to_owned()) {
            return Err(Error::invalid(format!(
                "queue {name}: it was added twice; give it one handler"
            )));
        }
        if entry.share.reserve > concurrency - reserved {
            return Err(Error::invalid(format!(
                "queue {name}: {}",
                over_reserve(entry.share.reserve, reserved, concurrency)
            )));
        }
        reserved += entry.share.reserve;
        queues.push(entry);
    }
    let health = Arc::new(SharedHealth::default());
    health.scan_is_answered(patterns.is_empty());
    Ok(Settings {
        servers: Arc::clone(servers),
        queues,
        patterns: patterns
            .into_iter()
            .map(|pattern| pattern.checked(defaults, servers))
            .collect::<Result<_, _>>()?,
        concurrency,
        strict: defaults.strict,
        parking: defaults.parking,
        grace: defaults.grace,
        health,
        abort: CancellationToken::new(),
    })
}

fn over_reserve(reserve: usize, of_others: usize, concurrency: usize) -> String {
    format!(
        "a reserve of {reserve} handlers is not in the range from 0 to {}: the concurrency is \
         {concurrency}, and other queues reserve {of_others}",
        concurrency - of_others
    )
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}

impl std::fmt::Debug for Assembled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assembled")
            .field("linger", &self.linger)
            .finish_non_exhaustive()
    }
}
