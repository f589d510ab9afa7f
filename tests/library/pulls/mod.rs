//! Pulls, and settlements by handle.

mod cancelling;
mod handles;
mod many;
mod node;
mod tokens;
mod waiting;

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::claims::Puller;
use dueq::{Delivery, Error};

use crate::support::{LIMIT, LONG, within};

const MS: Duration = Duration::from_millis(1);

/// Pulls one message as soon as it is due.
async fn pull_one(puller: &Puller) -> Result<Delivery> {
    let pulled = within("a pull", puller.pull(1, LONG, LIMIT)).await??;
    pulled
        .into_iter()
        .next()
        .context("no message within the wait")
}

/// Polls a future once that cannot be complete yet.
async fn begin<F>(future: &mut Pin<Box<F>>)
where
    F: Future<Output = Result<Vec<Delivery>, Error>>,
{
    let is_pending = std::future::poll_fn(|context| {
        let polled = future.as_mut().poll(context);
        Poll::Ready(polled.is_pending())
    });
    assert!(is_pending.await, "there is no message");
}
