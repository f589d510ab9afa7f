//! The end of a connection: the server drains what the peer still sends, so that the peer reads the
//! response.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The longest time for which the server drains.
const MOST: Duration = Duration::from_secs(5);
/// The most bytes that the server drains: the rest of the largest JSON body.
const MAX_BYTES: usize = 32 << 20;

/// Drains a connection whose peer may still send.
#[derive(Debug)]
pub(super) struct Linger {
    timer: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    pub(super) fn new() -> Self {
        Self {
            timer: Box::pin(sleep(MOST)),
            left: MAX_BYTES,
        }
    }

    /// Ready when the peer has closed its side, or when the limit of time or bytes is reached.
    pub(super) fn poll<S: AsyncRead + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut S,
    ) -> Poll<()> {
        let mut scratch = [0; 8 << 10];
        // A fast sender cannot keep this thread busy: tokio's budget makes a read pending.
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.left = self.left.saturating_sub(buffer.filled().len());
                    if self.left == 0 {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.timer.as_mut().poll(context),
            }
        }
    }
}
