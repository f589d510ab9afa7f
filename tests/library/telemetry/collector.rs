//! A subscriber that records the library's events and spans.
//!
//! Each test records its own thread and the threads of its workers: a worker inherits the
//! subscriber of the thread that starts it. The process has one more subscriber, which records
//! nothing: without it, `tracing` can cache that an event has no subscriber when a thread without
//! one emits it first.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread::{ThreadId, current};

use anyhow::Result;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Metadata, Subscriber};

use crate::support::until;

/// A span or an event of the library.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) level: String,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// Name of the span that contains the event; empty for a span.
    pub(crate) within: String,
    /// Whether a span has ended.
    pub(crate) closed: bool,
    handles: usize,
}

impl Entry {
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
    spans: BTreeMap<u64, Entry>,
    events: Vec<Entry>,
    entered: Vec<(ThreadId, u64)>,
}

/// Everything emitted on this thread and by its workers since the collector was created. The test's
/// runtime must have one thread.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    kept: Arc<Mutex<Kept>>,
    next: Arc<AtomicU64>,
}

/// Stops recording on drop.
pub(crate) struct Hearing {
    _default: DefaultGuard,
}

impl Collector {
    pub(crate) fn start() -> (Self, Hearing) {
        static SUBSCRIBED: Once = Once::new();
        SUBSCRIBED.call_once(|| {
            tracing::subscriber::set_global_default(Recorder(None)).expect("the only subscriber")
        });
        let collector = Self::default();
        let _default = tracing::subscriber::set_default(Recorder(Some(collector.clone())));
        (collector, Hearing { _default })
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Entry> {
        self.kept()
            .events
            .iter()
            .filter(|event| event.name == name)
            .cloned()
            .collect()
    }

    pub(crate) fn spans(&self) -> Vec<Entry> {
        self.kept().spans.values().cloned().collect()
    }

    /// Waits for this many events of this name.
    pub(crate) async fn wait(&self, name: &str, count: usize) -> Result<Vec<Entry>> {
        until(
            name,
            async || Ok(self.events(name)),
            |events| events.len() >= count,
        )
        .await
    }

    /// Waits until this many spans have ended.
    pub(crate) async fn closed(&self, count: usize) -> Result<Vec<Entry>> {
        let closed = |spans: &Vec<Entry>| spans.iter().filter(|span| span.closed).count() >= count;
        until("ended spans", async || Ok(self.spans()), closed).await
    }
}

/// Passes each event and span to a collector, if there is one.
struct Recorder(Option<Collector>);

impl Subscriber for Recorder {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "dueq" && self.0.is_some()
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut entry = Entry {
            handles: 1,
            ..entry(attributes.metadata())
        };
        attributes.record(&mut entry);
        assert!(attributes.is_root(), "a handler's run begins a trace");
        let Some(collector) = &self.0 else {
            return Id::from_u64(u64::MAX);
        };
        let id = collector.next.fetch_add(1, Ordering::Relaxed) + 1;
        collector.kept().spans.insert(id, entry);
        Id::from_u64(id)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.with_span(id, |entry| values.record(entry));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(collector) = &self.0 else { return };
        let mut entry = entry(event.metadata());
        event.record(&mut entry);
        let mut kept = collector.kept();
        let here = current().id();
        let entered = kept.entered.iter().rfind(|(thread, _)| *thread == here);
        let within = entered.and_then(|(_, id)| kept.spans.get(id));
        entry.within = within.map(|span| span.name.clone()).unwrap_or_default();
        kept.events.push(entry);
    }

    fn enter(&self, id: &Id) {
        if let Some(collector) = &self.0 {
            collector
                .kept()
                .entered
                .push((current().id(), id.into_u64()));
        }
    }

    fn exit(&self, id: &Id) {
        let Some(collector) = &self.0 else { return };
        let mut kept = collector.kept();
        if let Some(place) = kept
            .entered
            .iter()
            .rposition(|entered| *entered == (current().id(), id.into_u64()))
        {
            kept.entered.remove(place);
        }
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.with_span(id, |entry| entry.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let close = |entry: &mut Entry| {
            entry.handles -= 1;
            entry.closed = entry.handles == 0;
            entry.closed
        };
        self.with_span(&id, close).unwrap_or_default()
    }
}

impl Recorder {
    fn with_span<T>(&self, id: &Id, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut kept = self.0.as_ref()?.kept();
        kept.spans.get_mut(&id.into_u64()).map(work)
    }
}

fn entry(metadata: &Metadata<'_>) -> Entry {
    let name = metadata.name().to_owned();
    Entry {
        name,
        level: metadata.level().to_string(),
        ..Entry::default()
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}
