//! A connection that limits how long a request head takes, how long it may be idle between two
//! requests, and how long the peer may leave a response unread.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a request head may take.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may be idle. Proxies keep idle connections for 60 s: if the server closes
/// a connection earlier, a request that a proxy sends at that moment is lost.
const IDLE: Duration = Duration::from_secs(75);
/// How long the peer may leave a response unread.
const UNREAD: Duration = Duration::from_secs(30);

/// Counts the requests of a connection that have begun and ended. HTTP/1.1 runs one at a time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Phase(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    begun: AtomicUsize,
    ended: AtomicUsize,
    /// Whether the caller of the running request is known.
    is_admitted: AtomicBool,
    /// The time at which the connection was opened, or its last request ended.
    quiet_since: Mutex<Instant>,
    /// Woken when the running request ends.
    waiting: Mutex<Option<Waker>>,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            begun: AtomicUsize::default(),
            ended: AtomicUsize::default(),
            is_admitted: AtomicBool::default(),
            quiet_since: Mutex::new(Instant::now()),
            waiting: Mutex::default(),
        }
    }
}

/// A running request, from its head until its response is sent or dropped.
#[derive(Debug)]
pub(super) struct InRequest(Phase);

impl Phase {
    pub(super) fn in_request(&self) -> InRequest {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        InRequest(self.clone())
    }

    /// Wakes the task of this context when the running request ends.
    pub(super) fn wake_at_end(&self, context: &Context<'_>) {
        *self.waiting() = Some(context.waker().clone());
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> usize {
        self.0.ended.load(Ordering::Relaxed)
    }

    pub(super) fn has_request(&self) -> bool {
        self.0.begun.load(Ordering::Relaxed) > self.ended()
    }

    /// Marks the caller of the running request as known: then the connection is not closed to make
    /// room.
    pub(crate) fn admit(&self) {
        self.0.is_admitted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.0.is_admitted.load(Ordering::Relaxed)
    }

    /// The time since which the connection has had no admitted request; `None` if one runs.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        (!self.is_admitted()).then(|| *self.since())
    }

    fn since(&self) -> std::sync::MutexGuard<'_, Instant> {
        let since = self.0.quiet_since.lock();
        since.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InRequest {
    fn drop(&mut self) {
        *self.0.since() = Instant::now();
        self.0.0.is_admitted.store(false, Ordering::Relaxed);
        self.0.0.ended.fetch_add(1, Ordering::Relaxed);
        if let Some(waiting) = self.0.waiting().take() {
            waiting.wake();
        }
    }
}

impl InRequest {
    /// Wraps the response body: the request counts as running until the body is sent or dropped.
    pub(super) fn until_end_of(self, body: Body) -> Counted {
        Counted {
            body,
            _in_request: self,
        }
    }
}

/// A response body that ends its request when it is sent or dropped.
pub(super) struct Counted {
    body: Body,
    _in_request: InRequest,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection with time limits.
pub(super) struct Timed<S> {
    stream: S,
    phase: Phase,
    /// The number of ended requests at the last read.
    ended: usize,
    /// Whether bytes of the next request head have arrived.
    has_head: bool,
    /// When the wait for a head, or for the rest of one, times out.
    read_until: Instant,
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    outbox: Outbox,
}

impl<S> Timed<S> {
    pub(super) fn new(stream: S, phase: Phase, outbox: Outbox) -> Self {
        Self {
            stream,
            phase,
            outbox,
            ended: 0,
            // A new connection counts as one whose head has begun: the short limit applies.
            has_head: true,
            read_until: Instant::now() + HEAD,
            read_timer: None,
            write_timer: None,
        }
    }

    /// Fails a write that has made no progress for `UNREAD`.
    fn limited<T>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.write_timer = None;
            return write;
        }
        let timer = self
            .write_timer
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + UNREAD)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S> Drop for Timed<S> {
    fn drop(&mut self) {
        self.outbox.closed();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.phase.has_request() {
            // A request runs: another timer limits its body.
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        if this.ended != this.phase.ended() {
            this.ended = this.phase.ended();
            (this.has_head, this.read_timer) = (false, None);
            this.read_until = Instant::now() + IDLE;
        }
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                if !this.has_head {
                    (this.has_head, this.read_timer) = (true, None);
                    this.read_until = Instant::now() + HEAD;
                }
                Poll::Ready(read)
            }
            Poll::Pending => {
                let until = this.read_until;
                let timer = this
                    .read_timer
                    .get_or_insert_with(|| Box::pin(sleep_until(until)));
                match timer.as_mut().poll(context) {
                    // A late head is an error; an idle connection ends without one.
                    Poll::Ready(()) if this.has_head => {
                        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                    }
                    Poll::Ready(()) => Poll::Ready(Ok(())),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limited(context, write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.limited(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes after it has written all bytes of a response that it has.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flush = Pin::new(&mut this.stream).poll_flush(context);
        let flush = this.limited(context, flush);
        if matches!(flush, Poll::Ready(Ok(()))) {
            this.outbox.flushed();
        }
        flush
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Called when the response is sent. If it is dropped without a call, the response was not sent.
type OnSent = Box<dyn FnOnce() + Send>;

/// Tells a response whether it was sent. The response puts a callback here when its last byte is
/// written. The connection's next flush calls it; if the connection ends before that, it is
/// dropped.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<Mutex<Vec<OnSent>>>);

impl Outbox {
    pub(crate) fn put(&self, on_sent: impl FnOnce() + Send + 'static) {
        self.lock().push(Box::new(on_sent));
    }

    /// The operating system has taken all bytes: calls the callbacks.
    pub(crate) fn flushed(&self) {
        let sent = std::mem::take(&mut *self.lock());
        sent.into_iter().for_each(|on_sent| on_sent());
    }

    /// The connection has ended: drops the callbacks.
    pub(crate) fn closed(&self) {
        let unsent = std::mem::take(&mut *self.lock());
        drop(unsent);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OnSent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn unread_response_is_cut_off_after_30_s() {
        let (stream, mut peer) = duplex(64);
        let mut timed = Timed::new(stream, Phase::default(), Outbox::default());
        let begun = Instant::now();
        let written = timed.write_all(&[0; 100]).await;
        assert_eq!(
            written.map_err(|error| error.kind()),
            Err(io::ErrorKind::TimedOut)
        );
        assert_eq!(begun.elapsed().as_secs(), UNREAD.as_secs());
        // Each byte that a slow reader takes restarts the time limit, so that it gets the whole
        // response.
        let (stream, mut slow) = duplex(1);
        let mut timed = Timed::new(stream, Phase::default(), Outbox::default());
        let reading = async {
            for _ in 0..5 {
                tokio::time::sleep(UNREAD - Duration::from_secs(1)).await;
                assert!(slow.read_u8().await.is_ok());
            }
        };
        let (written, ()) = tokio::join!(timed.write_all(&[0; 5]), reading);
        assert!(written.is_ok(), "{written:?}");
        drop(peer.shutdown().await);
    }

    #[tokio::test(start_paused = true)]
    async fn head_times_out_after_10_s_idle_connection_after_75_s() {
        let (stream, mut peer) = duplex(64);
        let phase = Phase::default();
        let mut timed = Timed::new(stream, phase.clone(), Outbox::default());
        let begun = Instant::now();
        assert!(timed.read_u8().await.is_err());
        assert_eq!(begun.elapsed(), HEAD);
        // After a request the idle limit applies from its start, and then the limit of a head.
        drop(phase.in_request());
        let begun = Instant::now();
        let byte = async {
            tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
            peer.write_u8(b'G').await
        };
        let (read, written) = tokio::join!(timed.read_u8(), byte);
        assert!(read.is_ok() && written.is_ok());
        assert!(timed.read_u8().await.is_err());
        assert_eq!(begun.elapsed(), IDLE - Duration::from_secs(1) + HEAD);
        // While a request runs, another timer limits its body.
        let _running = phase.in_request();
        let late = tokio::time::timeout(Duration::from_secs(600), timed.read_u8()).await;
        assert!(late.is_err(), "{late:?}");
    }
}
