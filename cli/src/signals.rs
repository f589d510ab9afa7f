//! The signals that ask a program to end.

use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

const SIGHUP: i32 = 1;

/// Ctrl-C, SIGTERM, SIGQUIT, and SIGHUP, which a program gets when its terminal is closed. None of
/// them kills the program from now on.
pub(crate) struct EndSignals(Vec<Signal>);

impl EndSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self::without_hangup()?;
        // nohup asks for it. A handler would undo that.
        if !is_ignored(SIGHUP) {
            signals.0.push(signal(SignalKind::hangup())?);
        }
        Ok(signals)
    }

    /// For a program in which SIGHUP means something else.
    pub(crate) fn without_hangup() -> io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::quit(),
        ];
        Ok(Self(
            kinds.into_iter().map(signal).collect::<Result<_, _>>()?,
        ))
    }

    /// The next of them.
    pub(crate) async fn recv(&mut self) {
        std::future::poll_fn(|context| {
            let is_there = |signal: &mut Signal| signal.poll_recv(context).is_ready();
            match self
                .0
                .iter_mut()
                .map(is_there)
                .fold(false, |any, one| any | one)
            {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// Whether the caller of this program had it ignore this signal. Only Linux tells.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
