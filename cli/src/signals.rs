//! The signals that ask a program to end.

use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

const SIGHUP: i32 = 1;

/// Catches Ctrl-C, SIGTERM, SIGQUIT, and SIGHUP, which a program gets when its terminal is closed.
/// While caught, none of them kills the program.
pub(crate) struct EndSignals(Vec<Signal>);

impl EndSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self::without_hangup()?;
        // nohup makes a program ignore SIGHUP. Catching it would undo that.
        if !is_ignored(SIGHUP) {
            signals.0.push(signal(SignalKind::hangup())?);
        }
        Ok(signals)
    }

    /// Catches all but SIGHUP, for a program in which SIGHUP means something else.
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

    /// Waits for the next of these signals.
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

/// Whether the parent process made this program ignore the signal. Only Linux can tell.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
