//! Captures the log of a test, in a format that escapes nothing.

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The log events of this thread until drop. To capture the server's events, a test uses a runtime
/// with one thread.
pub(crate) struct Captured {
    text: Arc<Mutex<String>>,
    _guard: DefaultGuard,
}

/// A second subscriber, which lives as long as the tests. With only one subscriber alive, `tracing`
/// disables an event for all threads if a thread without a subscriber meets it first.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(Writer(Arc::default())));

impl Captured {
    pub(crate) fn start() -> Self {
        LazyLock::force(&OTHER);
        let text = Arc::<Mutex<String>>::default();
        let guard = tracing::subscriber::set_default(Writer(Arc::clone(&text)));
        Self {
            text,
            _guard: guard,
        }
    }

    pub(crate) fn text(&self) -> String {
        lock(&self.text).clone()
    }
}

struct Writer(Arc<Mutex<String>>);

impl Subscriber for Writer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dueq")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().name().to_owned();
        event.record(&mut Fields(&mut line));
        lock(&self.0).push_str(&format!("{line}\n"));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = write!(self.0, " {field}={value}");
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

fn lock(text: &Mutex<String>) -> std::sync::MutexGuard<'_, String> {
    text.lock().unwrap_or_else(PoisonError::into_inner)
}
