//! The notice of a new queue.

use anyhow::{Context, Result, ensure};
use redis::Value;

use super::plausible;
use crate::queue::{Queue, T0, connect};
use crate::reply::{Reply, words};
use crate::scripts::SCRIPTS;

#[test]
fn only_the_call_that_creates_a_queue_publishes_it() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut listener = connect(&queue.server.url())?;
    let subscribe = redis::cmd("PSUBSCRIBE").arg("dueq:{*}:notice").to_owned();
    listener.send_packed_command(&subscribe.get_packed_command())?;
    listener.recv_response()?;
    let mut creators = Vec::new();
    for (verb, _) in SCRIPTS {
        queue.empty()?;
        let mut published = Vec::new();
        for _ in 0..2 {
            queue.call(verb, T0, plausible(verb))?;
        }
        let meta = queue.state()?.meta;
        queue.command(words!["PUBLISH", "dueq:{q}:notice", "mark"])?;
        loop {
            let message = match listener.recv_response()? {
                Value::Push { data, .. } => Reply::from_server(Ok(Value::Array(data)))?,
                other => Reply::from_server(Ok(other))?,
            };
            let text = message
                .list()?
                .last()
                .context("an empty message")?
                .bytes()?;
            if *text == "mark".into() {
                break;
            }
            published.push(text.clone());
        }
        let incarnation: Vec<_> = meta
            .get(&"incarnation".into())
            .cloned()
            .into_iter()
            .collect();
        ensure!(published == incarnation, "{verb}: {published:?}");
        if !published.is_empty() {
            creators.push(*verb);
        }
    }
    creators.sort_unstable();
    // Verify does as well, when it repairs.
    let expected = ["configure", "pause", "push", "remap", "schedule", "upsert"];
    ensure!(creators == expected, "{creators:?}");
    Ok(())
}
