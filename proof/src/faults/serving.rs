//! A fault of the servers of HTTP.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use fastrand::Rng;
use rustix::process::Signal;

use super::processes::{chosen, froze};
use super::{Mark, last, target, until};
use crate::history::{Event, Http, Role};
use crate::run::stage::Stage;

/// How long a server stays frozen after a lost claim, in ms: some leases expire in that time.
const FROZEN_MS: std::ops::Range<u64> = 500..4_000;

/// Freezes a server until a claim that was sent to it gets no answer, and for some time longer.
pub(super) async fn stop(stage: &Stage, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    let mut consumers = stage.crew.iter();
    let consumer = consumers.find(|place| place.role == Role::Consumer);
    let consumer = consumer.context("no consumer over HTTP")?;
    let frozen = until("a server that stops", async || {
        let place = chosen(&stage.crew, rng, Role::Serve)?;
        place.until("its start", |status| status.ready).await?;
        Ok(froze(&place).await?.map(|life| (place, life)))
    });
    let (place, life) = frozen.await?;
    mark.begin(&place.process(life));
    let mut tail = Tail::default();
    let seen = target("claim to a frozen server", async || {
        tail.follow(consumer.history(consumer.status().life));
        Ok(tail.is_unanswered(&place.name)?.then_some(()))
    });
    let seen = seen.await;
    if seen.is_ok() {
        last(rng, FROZEN_MS).await;
    }
    place.signal(Signal::CONT)?;
    if seen.is_ok() {
        mark.trace(&format!("{}: a claim got no answer", place.process(life)));
    }
    mark.end(&place.process(life));
    seen
}

/// Reads the lines that are appended to a consumer's history.
#[derive(Default)]
struct Tail {
    path: PathBuf,
    /// The offset from which on lines are read.
    from: u64,
}

impl Tail {
    /// Begins at the present end of a history. A consumer that has just started has no history yet.
    fn follow(&mut self, path: PathBuf) {
        if self.path != path {
            self.from = std::fs::metadata(&path).map_or(0, |found| found.len());
            self.path = path;
        }
    }

    /// Whether a claim that was sent to this server since then has ended without an answer.
    fn is_unanswered(&self, server: &str) -> Result<bool> {
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(false);
        };
        file.seek(SeekFrom::Start(self.from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut sent = Vec::new();
        // The first and the last line may be incomplete.
        let lines = text.lines();
        let lines = lines.filter_map(|line| serde_json::from_str::<(u64, Event)>(line).ok());
        for (_, event) in lines {
            match event {
                Event::Http(Http::Claim {
                    claim, server: to, ..
                }) if to == server => sent.push(claim),
                Event::Http(Http::Unanswered { claim, .. }) if sent.contains(&claim) => {
                    return Ok(true);
                }
                _ => {}
            }
        }
        Ok(false)
    }
}
