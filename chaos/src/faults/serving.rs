//! Faults of the servers of HTTP.

use std::sync::Arc;

use anyhow::Result;
use fastrand::Rng;
use rustix::process::Signal;

use super::processes::{chosen, froze};
use super::{Mark, last, target, until};
use crate::history::{Event, Http, Role, now_us, read};
use crate::run::crew::Place;
use crate::run::stage::Stage;

/// Freezes a server until a claim that was sent to it meanwhile got no answer, and resumes it.
pub(super) async fn stop(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let consumers = stage
        .crew
        .iter()
        .filter(|place| place.role == Role::Consumer);
    let consumers: Vec<_> = consumers.collect();
    let frozen = until("a server that stops", async || {
        let place = chosen(&stage.crew, rng, Role::Serve)?;
        place.until("its start", |status| status.ready).await?;
        Ok(froze(&place).await?.map(|life| (place, life)))
    });
    let (place, life) = frozen.await?;
    let since_us = now_us();
    mark.begin(&place.process(life));
    let seen = target("claim to a frozen server", async || {
        for consumer in &consumers {
            if is_unanswered(consumer, &place.name, since_us)? {
                return Ok(Some(()));
            }
        }
        Ok(None)
    });
    let seen = seen.await;
    if seen.is_ok() {
        last(rng, 0..2_000).await;
    }
    place.signal(Signal::CONT)?;
    if seen.is_ok() {
        mark.trace(&format!("{}: a claim got no answer", place.process(life)));
    }
    mark.end(&place.process(life));
    seen
}

/// Whether a claim that the consumer sent to this server since then has ended without an answer.
fn is_unanswered(consumer: &Arc<Place>, server: &str, since_us: u64) -> Result<bool> {
    let mut sent = None;
    for line in read(&consumer.history(consumer.status().life))? {
        let Ok((t_us, Event::Http(event))) = line else {
            continue;
        };
        match event {
            Http::Claim {
                claim, server: to, ..
            } if t_us > since_us && to == server => sent = Some(claim),
            Http::Unanswered { claim, .. } if sent == Some(claim) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
