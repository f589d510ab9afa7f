//! A server whose memory is full refuses the verbs that add data and serves the verbs of consumers.

use anyhow::{Result, ensure};

use super::{plausible, seed};
use crate::queue::{Queue, T0};
use crate::reply::words;
use crate::scripts::VERBS;

fn full(queue: &mut Queue) -> Result<()> {
    ensure!(
        queue
            .command(words!["CONFIG", "SET", "maxmemory-policy", "noeviction"])?
            .code()
            .is_none()
    );
    ensure!(
        queue
            .command(words!["CONFIG", "SET", "maxmemory", "1"])?
            .code()
            .is_none()
    );
    Ok(())
}

#[test]
fn a_full_server_refuses_verbs_that_add_and_serves_the_rest() -> Result<()> {
    let mut queue = Queue::start()?;
    for row in VERBS {
        let verb = row.name;
        queue.command(words!["CONFIG", "SET", "maxmemory", "0"])?;
        queue.empty()?;
        seed(&mut queue)?;
        full(&mut queue)?;
        let before = queue.contents()?;
        let reply = queue.call(verb, T0, plausible(verb))?;
        if row.is_refused_when_full() {
            ensure!(reply.code() == Some("OOM"), "{verb}: {reply:?}");
            ensure!(queue.contents()? == before, "{verb} left a trace");
        } else {
            ensure!(reply.code().is_none(), "{verb}: {reply:?}");
        }
    }
    Ok(())
}

#[test]
fn a_first_push_into_a_full_server_creates_no_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    full(&mut queue)?;
    let before = queue.contents()?;
    ensure!(queue.call("push", T0, plausible("push"))?.code() == Some("OOM"));
    ensure!(queue.contents()? == before);
    Ok(())
}
