//! Orderly early ends.

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// The result of `measuring`, unless SIGINT or SIGTERM comes first: then it is dropped, which ends
/// its servers and processes.
pub(crate) async fn unless_interrupted<T>(measuring: impl Future<Output = Result<T>>) -> Result<T> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    tokio::select! {
        result = measuring => result,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("interrupted"),
    }
}
