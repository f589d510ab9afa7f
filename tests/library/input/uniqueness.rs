//! Windows, debounces and revivals out of their ranges.

use std::time::Duration;

use anyhow::Result;
use dueq::{Due, Limits, Message, OnConflict};

use super::{CENTURY, no_trace, refused};
use crate::support::{HOUR, setup};

#[tokio::test]
async fn windows_and_debounces_out_of_range() -> Result<()> {
    let setup = setup().await?;
    let queue = &setup.queue;
    let month = Duration::from_secs(30 * 86_400);
    let new = || Message::new("").id("a");
    for (message, words) in [
        (
            new().window(Duration::ZERO),
            &["window is 0 ms", "30 days"][..],
        ),
        (new().window(month + HOUR), &["window is", "2592000000"]),
        (
            new().debounce(HOUR).max_wait(Duration::ZERO),
            &["max_wait is 0 ms", "100 years"],
        ),
        (
            new().debounce(HOUR).max_wait(CENTURY + HOUR),
            &["max_wait is", "100 years"],
        ),
        (
            new().debounce(HOUR).max_wait(HOUR / 2),
            &["max_wait", "at least the delay"],
        ),
        (
            new().debounce(HOUR).spread(HOUR).max_wait(HOUR),
            &["max_wait", "at least the delay"],
        ),
        (
            new()
                .debounce(HOUR)
                .due(Due::at_ms(4_000_000_000_000))
                .max_wait(HOUR),
            &["max_wait must be at least the delay"],
        ),
        (
            new().max_wait(HOUR),
            &["max_wait", "reschedule, replace or next"],
        ),
        (new().revive(), &["revive", "replace or next"]),
        (
            new().on_conflict(OnConflict::Reschedule).revive(),
            &["revive", "replace or next"],
        ),
        (
            new().on_conflict(OnConflict::Next),
            &["layout 3", "dueq configure orders --layout 3"],
        ),
    ] {
        refused("push", queue.push_message(message).await, words)?;
    }
    no_trace(&setup).await?;
    for limit in [0, 1_000_000_000_000_001] {
        let limits = Limits::new().max_remembered(limit);
        refused(
            "limit",
            queue.configure(limits).await,
            &["max_remembered must be 1 to"],
        )?;
    }
    no_trace(&setup).await
}
