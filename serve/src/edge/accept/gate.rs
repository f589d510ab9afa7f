//! Wraps a connection: reads each request head before hyper does, and refuses heads that hyper
//! would accept or would answer without a problem document.
//!
//! hyper gets a head once it is complete and accepted. The gate knows the length of the body, and
//! so where the next head begins. It does not parse chunks: a request with a chunked body is the
//! last one of its connection.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::edge::accept::head::{self, Framing, MAX_HEAD_BYTES, Wrong};
use crate::edge::accept::linger::Linger;
use crate::edge::accept::timed::{Phase, Timed};
use crate::edge::problem::{Code, MEDIA_TYPE, Problem};

/// The problem code with which the gate refused the connection; the refusal is the last response.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals(Arc<OnceLock<Code>>);

impl Refusals {
    pub(super) fn last(&self) -> Option<Code> {
        self.0.get().copied()
    }
}

/// A connection with a gate before hyper.
pub(super) struct Gate<S> {
    stream: Timed<S>,
    phase: Phase,
    refusals: Refusals,
    next: Next,
    /// Bytes from the peer that hyper has not received yet.
    held: BytesMut,
    /// The number of bytes at the start of `held` that hyper may have.
    passed: usize,
    /// The length of `held` when a head was last parsed.
    seen: usize,
    /// Whether the last write was pending, because the peer did not read.
    is_blocked: bool,
    /// Woken when that write can go on.
    waiting: Option<Waker>,
    closing: Option<Closing>,
}

/// What the next bytes from the peer belong to.
#[derive(Debug)]
enum Next {
    Head,
    /// A body of which this number of bytes is missing.
    Body(u64),
    /// A chunked body: all bytes pass until the connection closes.
    Chunks,
    /// The gate reads nothing more. It sends this last response; the number counts the bytes that
    /// are already sent.
    Refused(Vec<u8>, usize),
}

/// The steps at the end of a connection.
#[derive(Debug)]
enum Closing {
    /// Send the rest of the responses, and close the server's side of the connection.
    Shutdown,
    Linger(Linger),
    Done,
}

impl<S> Gate<S> {
    pub(super) fn new(stream: Timed<S>, phase: Phase, refusals: Refusals) -> Self {
        Self {
            stream,
            phase,
            refusals,
            next: Next::Head,
            held: BytesMut::new(),
            passed: 0,
            seen: 0,
            is_blocked: false,
            waiting: None,
            closing: None,
        }
    }

    /// Copies bytes that may pass into hyper's buffer. Returns whether there were any.
    fn hand_over(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let length = self.passed.min(buffer.remaining());
        if length == 0 {
            return false;
        }
        buffer.put_slice(&self.held[..length]);
        self.held.advance(length);
        self.passed -= length;
        // A pipelining client may have sent far more than a head: free the large buffer.
        if self.held.is_empty() && self.held.capacity() > MAX_HEAD_BYTES {
            self.held = BytesMut::new();
        }
        true
    }

    /// Parses the held bytes, and moves `passed` over those that hyper may have. Returns whether
    /// more bytes are needed from the peer.
    fn examine(&mut self) -> bool {
        match &mut self.next {
            Next::Head if self.held.is_empty() => true,
            Next::Head => match head::read(&self.held, self.seen) {
                Ok(None) => {
                    self.seen = self.held.len();
                    true
                }
                Ok(Some(head)) => {
                    (self.passed, self.seen) = (head.bytes, 0);
                    self.next = match head.body {
                        Framing::Length(length) => Next::Body(length),
                        Framing::Chunks => Next::Chunks,
                    };
                    false
                }
                Err(wrong) => {
                    self.refuse(wrong);
                    false
                }
            },
            Next::Body(0) => {
                self.next = Next::Head;
                false
            }
            Next::Body(left) => {
                let held = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(self.held.len());
                (self.passed, *left) = (held, *left - held as u64);
                held == 0
            }
            Next::Chunks => {
                self.passed = self.held.len();
                self.passed == 0
            }
            Next::Refused(..) => false,
        }
    }

    fn refuse(&mut self, wrong: Wrong) {
        let problem = wrong.problem();
        let _ = self.refusals.0.set(problem.code);
        self.held = BytesMut::new();
        self.next = Next::Refused(response(&problem), 0);
    }

    fn blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
        if let Some(waiting) = self.waiting.take_if(|_| !is_blocked) {
            waiting.wake();
        }
    }

    /// Whether the peer may still send bytes that the server does not read.
    fn is_unread(&self) -> bool {
        match self.next {
            Next::Head | Next::Body(0) => !self.held.is_empty(),
            Next::Body(_) | Next::Chunks | Next::Refused(..) => true,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gate<S> {
    /// Reads from the peer, once hyper has all bytes that may pass. Bytes after the body stay in
    /// `held`.
    fn poll_more(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = &buffer.filled()[before..];
        let (length, own) = match &mut self.next {
            Next::Chunks => (read.len(), read.len()),
            Next::Body(left) => {
                let own = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
                *left -= own as u64;
                (read.len(), own)
            }
            Next::Head | Next::Refused(..) => (read.len(), 0),
        };
        self.held.extend_from_slice(&read[own..]);
        buffer.set_filled(before + own);
        Poll::Ready(Ok(length))
    }

    /// Sends the refusal after all earlier responses, and then closes the connection.
    fn poll_refuse(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.phase.has_request() {
            self.phase.wake_at_end(context);
            return Poll::Pending;
        }
        // hyper flushes each response before it reads the next head, unless the peer does not read.
        if self.is_blocked {
            self.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        if let Next::Refused(response, sent) = &mut self.next {
            while *sent < response.len() {
                match ready!(Pin::new(&mut self.stream).poll_write(context, &response[*sent..]))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    length => *sent += length,
                }
            }
        }
        self.poll_close(context)
    }

    /// Closes the own side. If the peer may still send, reads on for some time.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.closing.get_or_insert(Closing::Shutdown) {
                Closing::Shutdown => {
                    ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
                    self.closing = Some(match self.is_unread() {
                        true => Closing::Linger(Linger::new()),
                        false => Closing::Done,
                    });
                }
                Closing::Linger(linger) => {
                    ready!(linger.poll(context, &mut self.stream));
                    self.closing = Some(Closing::Done);
                }
                Closing::Done => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// The bytes of the response.
fn response(problem: &Problem) -> Vec<u8> {
    let (status, body) = (problem.code.status(), problem.to_json());
    let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT");
    let head = format!(
        "HTTP/1.1 {} {}\r\nconnection: close\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nx-content-type-options: nosniff\r\ndate: {date}\r\n\r\n",
        status.as_u16(),
        status.canonical_reason().unwrap_or_default(),
        body.len()
    );
    [head.into_bytes(), body].concat()
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.hand_over(buffer) {
                return Poll::Ready(Ok(()));
            }
            if matches!(this.next, Next::Refused(..)) {
                // To hyper a refused connection looks like an idle one that has ended.
                return this.poll_refuse(context);
            }
            if this.examine() {
                let before = buffer.filled().len();
                let length = ready!(this.poll_more(context, buffer))?;
                if length == 0 || buffer.filled().len() > before {
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.blocked(write.is_pending());
        write
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let write = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.blocked(write.is_pending());
        write
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_close(context)
    }
}
