//! Streams of events (SSE): the latest counts of a stream's queues, at most once a second.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::request::Parts;
use http_body::{Body, Frame};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

use crate::edge::problem::{Code, Problem};
use crate::edge::{Edge, One};
use crate::wire::queues::Listed;
use crate::work::poll::{Entry, Poller, Snapshot};

/// The most streams.
const MAX_STREAMS: usize = 256;
/// The least time between two events.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest wait of the first event for counts.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval between comments, which keep proxies from closing the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The time after which a browser reconnects when the server stops, in milliseconds.
const RETRY_MS: u32 = 2_000;

/// The state that all streams share.
pub(crate) struct Streams {
    edge: Arc<Edge>,
    poller: Poller,
    room: Arc<Semaphore>,
}

/// One stream. It reads only the latest snapshot, so a slow reader costs no memory.
pub(crate) struct Stream {
    edge: Arc<Edge>,
    poller: Poller,
    /// The request's head: it identifies the caller again later, who may have lost access.
    head: Parts,
    queues: Vec<String>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The entry of each queue that the last event sent.
    said: Option<Vec<Option<Arc<Entry>>>>,
    begun: Instant,
    next_event: Instant,
    next_look: Instant,
    next_heartbeat: Instant,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
    _counted: One,
}

/// The JSON of an event.
#[derive(Serialize)]
struct Event {
    /// The queues of the stream.
    queues: Vec<Listed>,
    age_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Streams {
    pub(crate) fn new(edge: Arc<Edge>, poller: Poller) -> Self {
        let room = Arc::new(Semaphore::new(MAX_STREAMS));
        Self { edge, poller, room }
    }

    /// Begins a stream; refuses it if there are too many.
    pub(crate) fn begin(&self, head: Parts, queues: Vec<String>) -> Result<Stream, Problem> {
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
            let detail = format!("there are {MAX_STREAMS} streams already; poll instead");
            return Err(Problem::new(Code::Busy, detail).retry_after_s(30));
        };
        let now = Instant::now();
        Ok(Stream {
            head,
            queues,
            snapshots: self.poller.subscribe(),
            said: None,
            begun: now,
            next_event: now,
            next_look: now,
            next_heartbeat: now + HEARTBEAT,
            is_over: false,
            _permit: permit,
            _counted: self.edge.meters.streams.one(),
            edge: Arc::clone(&self.edge),
            poller: self.poller.clone(),
        })
    }
}

impl Stream {
    /// The next bytes of the stream; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let stopping = self.edge.life.stopping().clone();
        loop {
            let now = Instant::now();
            if self.next_look <= now {
                self.poller.look(self.queues.iter().map(String::as_str));
                self.next_look = now + PERIOD;
            }
            if self.next_heartbeat <= now {
                self.next_heartbeat = now + HEARTBEAT;
                if !self.has_access() {
                    return None;
                }
                return Some(Bytes::from_static(b":\n\n"));
            }
            if self.next_event <= now
                && let Some(event) = self.event()
            {
                (self.next_event, self.next_heartbeat) = (now + PERIOD, now + HEARTBEAT);
                if !self.has_access() {
                    return None;
                }
                return Some(event);
            }
            let timer = self.next_look.min(self.next_heartbeat);
            let timer = match self.next_event > now {
                true => timer.min(self.next_event),
                false => timer,
            };
            tokio::select! {
                () = stopping.cancelled() => {
                    self.is_over = true;
                    return Some(format!("retry: {RETRY_MS}\n\n").into());
                }
                changed = self.snapshots.changed(), if self.next_event <= now => if changed.is_err() {
                    return None;
                },
                () = sleep_until(timer) => {}
            }
        }
    }

    /// The next event; `None` if nothing has changed since the last one.
    fn event(&mut self) -> Option<Bytes> {
        let snapshot = Arc::clone(&self.snapshots.borrow_and_update());
        let entries = self.queues.iter().map(|name| snapshot.get(name).cloned());
        let entries: Vec<_> = entries.collect();
        // The first event waits for queues that the poller is about to ask.
        let is_early = snapshot.is_catching_up()
            && self.begun.elapsed() < PATIENCE
            && entries.iter().any(Option::is_none);
        let is_unknown = snapshot.age().is_none() || is_early;
        if self.said.is_none() && is_unknown && snapshot.failure().is_none() {
            return None;
        }
        if self
            .said
            .as_ref()
            .is_some_and(|said| is_same(said, &entries))
        {
            return None;
        }
        let queues = self.queues.iter().zip(&entries);
        let event = Event {
            queues: queues
                .map(|(name, entry)| match entry {
                    Some(entry) => entry.listed(name),
                    None => Entry::default().listed(name),
                })
                .collect(),
            age_ms: snapshot
                .age()
                .and_then(|age| u64::try_from(age.as_millis()).ok()),
            error: snapshot.failure().map(str::to_owned),
        };
        self.said = Some(entries);
        let data = serde_json::to_string(&event).ok()?;
        Some(format!("event: queues\ndata: {data}\n\n").into())
    }

    /// Whether the caller still has access: a stream ends when its token is removed.
    fn has_access(&self) -> bool {
        let principal = self.edge.gate.principal(&self.head);
        principal.is_ok_and(|principal| self.queues.iter().all(|name| principal.may_use(name)))
    }
}

fn is_same(said: &[Option<Arc<Entry>>], now: &[Option<Arc<Entry>>]) -> bool {
    said.iter().zip(now).all(|pair| match pair {
        (Some(said), Some(now)) => said.says(now),
        (None, None) => true,
        _ => false,
    })
}

/// The response body of a stream.
pub(crate) fn body(stream: Stream) -> axum::body::Body {
    let next = |mut stream: Stream| async move {
        let bytes = stream.next().await?;
        Some((bytes, stream))
    };
    axum::body::Body::new(Unfold::new(stream, next))
}

type Next<S> = Pin<Box<dyn Future<Output = Option<(Bytes, S)>> + Send>>;

/// A body that calls `next` for each part. It makes a part once the connection has sent the
/// previous one.
pub(crate) struct Unfold<S, F> {
    next: F,
    making: Option<Next<S>>,
}

impl<S, F, N> Unfold<S, F>
where
    F: FnMut(S) -> N,
    N: Future<Output = Option<(Bytes, S)>> + Send + 'static,
{
    pub(crate) fn new(state: S, mut next: F) -> Self {
        let making: Next<S> = Box::pin(next(state));
        Self {
            next,
            making: Some(making),
        }
    }
}

impl<S, F, N> Body for Unfold<S, F>
where
    F: FnMut(S) -> N + Unpin,
    N: Future<Output = Option<(Bytes, S)>> + Send + 'static,
{
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        let Some(making) = &mut this.making else {
            return Poll::Ready(None);
        };
        match ready!(making.as_mut().poll(context)) {
            Some((bytes, state)) => {
                this.making = Some(Box::pin((this.next)(state)));
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            None => {
                this.making = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.making.is_none()
    }
}
