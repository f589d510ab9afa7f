//! The signals that ask a program to end, or to read its files again.

use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

const SIGHUP: i32 = 1;

/// Catches Ctrl-C, SIGTERM, SIGQUIT, and SIGHUP, which a program gets when its terminal is closed.
/// While caught, none of them kills the program.
pub(crate) struct EndSignals {
    ends: Vec<Signal>,
    hang_up: Option<HangUp>,
}

/// SIGHUP: the kernel and the shell send it when the terminal is closed, a supervisor to make a
/// service read its files again.
struct HangUp {
    signal: Signal,
    /// Whether the signal that came means a closed terminal.
    is_end: fn() -> bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    End,
    Reload,
}

impl EndSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        let mut signals = Self::without_hang_up()?;
        // nohup makes a program ignore SIGHUP. Catching it would undo that.
        if !is_ignored(SIGHUP) {
            signals.hang_up = Some(HangUp {
                signal: signal(SignalKind::hangup())?,
                is_end: || true,
            });
        }
        Ok(signals)
    }

    /// For a service: SIGHUP asks to reload, unless it says that the terminal is closed.
    pub(crate) fn of_service() -> io::Result<Self> {
        let mut signals = Self::without_hang_up()?;
        // Look before catching SIGHUP: tokio replaces "ignored", by which nohup asks that a closed
        // terminal does not end the program, by its own handler.
        let ends_with_terminal = !is_ignored(SIGHUP) && has_terminal();
        signals.hang_up = Some(HangUp {
            signal: signal(SignalKind::hangup())?,
            is_end: match ends_with_terminal {
                true => || !has_terminal(),
                false => || false,
            },
        });
        Ok(signals)
    }

    fn without_hang_up() -> io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::quit(),
        ];
        Ok(Self {
            ends: kinds.into_iter().map(signal).collect::<Result<_, _>>()?,
            hang_up: None,
        })
    }

    /// Waits for the next signal that asks to end.
    pub(crate) async fn recv(&mut self) {
        while self.next().await == Asked::Reload {}
    }

    /// Waits for the next signal that asks to end, and calls `reload` for each that asks to reload.
    /// A signal during a reload begins it again: the files may have changed after they were read.
    pub(crate) async fn recv_reloading(&mut self, reload: impl AsyncFn()) {
        let mut asked = self.next().await;
        while asked == Asked::Reload {
            asked = tokio::select! {
                asked = self.next() => asked,
                () = reload() => self.next().await,
            };
        }
    }

    async fn next(&mut self) -> Asked {
        std::future::poll_fn(|context| {
            let mut is_there = |signal: &mut Signal| signal.poll_recv(context).is_ready();
            // Poll each of them: a signal that is not polled does not wake this task.
            let ends = self.ends.iter_mut().map(&mut is_there);
            let is_end = ends.fold(false, |any, one| any | one);
            let hang_up = self
                .hang_up
                .as_mut()
                .and_then(|hang_up| is_there(&mut hang_up.signal).then(hang_up.is_end));
            if hang_up == Some(true) {
                // The kernel and the shell each report the same closed terminal. tokio's handler
                // stays, so the next report does nothing.
                self.hang_up = None;
            }
            match (is_end, hang_up) {
                (true, _) | (_, Some(true)) => Poll::Ready(Asked::End),
                (false, Some(false)) => Poll::Ready(Asked::Reload),
                (false, None) => Poll::Pending,
            }
        })
        .await
    }
}

/// Whether this process has a controlling terminal that is still open.
fn has_terminal() -> bool {
    std::fs::File::open("/dev/tty").is_ok()
}

/// Whether the parent process made this program ignore the signal. Only Linux can tell.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
