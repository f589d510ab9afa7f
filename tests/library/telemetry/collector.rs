//! A subscriber that keeps what the library tells.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

use crate::support::until;

/// A span or an event of the library.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    pub(crate) name: String,
    pub(crate) level: String,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// The name of the span in which it was told; a span's is always empty.
    pub(crate) within: String,
    /// Of a span: whether it is over.
    pub(crate) closed: bool,
    handles: usize,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// The names of the fields, sorted.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.fields.keys().copied().collect()
    }
}

#[derive(Default)]
struct Kept {
    spans: BTreeMap<u64, Told>,
    events: Vec<Told>,
    entered: Vec<u64>,
}

/// What was told on this thread since it was made. The test's runtime must have one thread.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    kept: Arc<Mutex<Kept>>,
    next: Arc<AtomicU64>,
}

impl Collector {
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let collector = Self::default();
        let guard = tracing::subscriber::set_default(collector.clone());
        (collector, guard)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Told> {
        self.kept().events.iter().filter(|event| event.name == name).cloned().collect()
    }

    pub(crate) fn spans(&self) -> Vec<Told> {
        self.kept().spans.values().cloned().collect()
    }

    /// Waits until there are so many events of this name.
    pub(crate) async fn wait(&self, name: &str, count: usize) -> Result<Vec<Told>> {
        until(name, async || Ok(self.events(name)), |events| events.len() >= count).await
    }

    /// Waits until so many spans are over.
    pub(crate) async fn closed(&self, count: usize) -> Result<Vec<Told>> {
        let closed = |spans: &Vec<Told>| spans.iter().filter(|span| span.closed).count() >= count;
        until("spans that are over", async || Ok(self.spans()), closed).await
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "dueq"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut told = Told { handles: 1, ..told(attributes.metadata()) };
        attributes.record(&mut told);
        assert!(attributes.is_root(), "a handler's run begins a trace");
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.kept().spans.insert(id, told);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some(told) = self.kept().spans.get_mut(&id.into_u64()) {
            values.record(told);
        }
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = told(event.metadata());
        event.record(&mut told);
        let mut kept = self.kept();
        told.within =
            kept.entered.last().and_then(|id| kept.spans.get(id)).map(|span| span.name.clone()).unwrap_or_default();
        kept.events.push(told);
    }

    fn enter(&self, id: &Id) {
        self.kept().entered.push(id.into_u64());
    }

    fn exit(&self, id: &Id) {
        let mut kept = self.kept();
        if let Some(place) = kept.entered.iter().rposition(|entered| *entered == id.into_u64()) {
            kept.entered.remove(place);
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(told) = self.kept().spans.get_mut(&id.into_u64()) {
            told.handles += 1;
        }
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.kept().spans.get_mut(&id.into_u64()).is_some_and(|told| {
            told.handles -= 1;
            told.closed = told.handles == 0;
            told.closed
        })
    }
}

fn told(metadata: &Metadata<'_>) -> Told {
    let name = metadata.name().to_owned();
    Told { name, level: metadata.level().to_string(), ..Told::default() }
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}
