//! The steps of an import: reads Redisson's keys and pushes their elements.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use dueq::outcomes::PushOutcome;
use dueq::{Due, ErrorKind, Message};
use sha1_smol::Sha1;

use super::frame;
use super::redisson::{Run, Tally};
use crate::output;

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_secs(1);
/// The number of unreadable elements that are shown. Further ones are counted; --json shows all.
const SHOWN: u64 = 20;

/// A readable element.
struct Element {
    id: String,
    key: String,
    due: Due,
    payload: Vec<u8>,
}

impl Run {
    /// Imports all elements.
    pub(super) async fn all(&mut self, json: bool) -> Result<()> {
        let mut shown = Instant::now();
        self.timeouts(json, &mut shown).await?;
        self.list(json, &mut shown).await?;
        if !self.options.skip_due {
            self.destination(json, &mut shown).await?;
        }
        Ok(())
    }

    /// Imports the delayed elements of the ZSET.
    async fn timeouts(&mut self, json: bool, shown: &mut Instant) -> Result<()> {
        let mut cursor = 0;
        loop {
            let (next, members) = self.from.scan(&self.keys.timeouts, cursor).await?;
            self.tally.read += members.len() as u64;
            let mut elements = Vec::with_capacity(members.len());
            for (member, score) in members {
                match self.delayed(&member, score) {
                    Ok(element) => elements.push(element),
                    Err(reason) => {
                        self.unreadable(&self.keys.timeouts.clone(), &member, &reason, json)?
                    }
                }
            }
            self.tally.known += self.push(elements, json).await?;
            self.progress("delayed elements", shown);
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Reads Redisson's list, which contains the elements of the ZSET, too. Reports elements
    /// without a due time, and imports those that Redisson added during the scan of the ZSET.
    async fn list(&mut self, json: bool, shown: &mut Instant) -> Result<()> {
        let mut start = 0;
        loop {
            let members = self.from.range(&self.keys.list, start).await?;
            if members.is_empty() {
                return Ok(());
            }
            start += members.len();
            let scores = self.from.scores(&self.keys.timeouts, &members).await?;
            let mut elements = Vec::new();
            for (member, score) in members.into_iter().zip(scores) {
                match score {
                    Some(score) => elements.extend(self.delayed(&member, score)),
                    None => {
                        self.tally.read += 1;
                        let reason =
                            format!("it has no due time: it is not in {}", self.keys.timeouts);
                        self.unreadable(&self.keys.list.clone(), &member, &reason, json)?;
                    }
                }
            }
            if !self.options.dry_run {
                let count = elements.len() as u64;
                // Elements that were already pushed were counted during the scan of the ZSET.
                self.tally.read += count - self.push(elements, json).await?;
            }
            self.progress(&format!("comparing the list, {start} done"), shown);
        }
    }

    /// Imports the due elements of the destination list, which may contain equal elements. This
    /// step needs about 40 bytes of memory for each distinct element.
    async fn destination(&mut self, json: bool, shown: &mut Instant) -> Result<()> {
        let (mut start, mut counts) = (0, HashMap::<[u8; 16], u32>::new());
        loop {
            let values = self.from.range(&self.keys.destination, start).await?;
            if values.is_empty() {
                return Ok(());
            }
            start += values.len();
            self.tally.read += values.len() as u64;
            let mut elements = Vec::with_capacity(values.len());
            for value in values {
                let mut hash = [0; 16];
                hash.copy_from_slice(&Sha1::from(&value).digest().bytes()[..16]);
                // The number among equal elements is part of the id. If the list is shorter in a
                // later run, no new ids arise.
                let count = counts
                    .entry(hash)
                    .and_modify(|count| *count += 1)
                    .or_insert(1);
                let id = format!("redisson:due:{}:{count}", hex(&hash));
                match self.options.codec.payload(&value) {
                    Ok(payload) => {
                        let key = self.keys.destination.clone();
                        elements.push(Element {
                            id,
                            key,
                            due: Due::AfterMs(0),
                            payload,
                        });
                    }
                    Err(reason) => {
                        self.unreadable(&self.keys.destination.clone(), &value, &reason, json)?
                    }
                }
            }
            self.tally.known += self.push(elements, json).await?;
            self.progress("due elements", shown);
        }
    }

    fn delayed(&self, member: &[u8], score: f64) -> Result<Element, String> {
        let frame = frame::parse(member).ok_or("it has no frame of Redisson")?;
        if !(0.0..9e15).contains(&score) {
            return Err(format!("its due time is {score}"));
        }
        Ok(Element {
            id: format!("redisson:{}", hex(frame.id)),
            key: self.keys.timeouts.clone(),
            due: Due::at_ms(score.ceil() as u64),
            payload: self.options.codec.payload(frame.value)?,
        })
    }

    /// Pushes the elements that the journal does not have. Returns how many it has.
    async fn push(&mut self, mut elements: Vec<Element>, json: bool) -> Result<u64> {
        let total = elements.len();
        if !self.journal.is_ignored || !self.options.dry_run {
            let ids: Vec<&str> = elements.iter().map(|element| element.id.as_str()).collect();
            let mut known = self
                .journal
                .store
                .remembers(&self.journal.key, &ids)
                .await?
                .into_iter();
            elements.retain(|_| !known.next().unwrap_or(false));
        }
        let mut known = (total - elements.len()) as u64;
        if self.options.dry_run {
            self.tally.created += elements.len() as u64;
            return Ok(known);
        }
        let messages = elements.iter_mut().map(|element| {
            Message::new(std::mem::take(&mut element.payload))
                .id(&element.id)
                .due(element.due)
        });
        let results = self.queue.push_many(messages.collect::<Vec<_>>()).await;
        let (mut stored, mut failed) = (Vec::new(), None);
        for (element, result) in elements.iter().zip(results) {
            match result.map(|receipt| receipt.outcome()) {
                Ok(PushOutcome::Created) => self.tally.created += 1,
                Ok(_) => known += 1,
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    self.unreadable(
                        &element.key,
                        element.id.as_bytes(),
                        &format!("refused: {error}"),
                        json,
                    )?;
                    continue;
                }
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            }
            stored.push(element.id.as_str());
        }
        self.journal
            .store
            .remember(&self.journal.key, &stored)
            .await?;
        match failed {
            Some(error) => Err(anyhow!(error)),
            None => Ok(known),
        }
    }

    /// Reports an element that cannot be imported: its key, its first bytes and the reason.
    fn unreadable(&mut self, key: &str, member: &[u8], reason: &str, json: bool) -> Result<()> {
        self.tally.unreadable += 1;
        let (start, bytes) = (&member[..member.len().min(40)], member.len());
        if json {
            let line = serde_json::json!({ "unreadable": {
                "key": key, "bytes": bytes, "start": output::visible(start), "start_hex": hex(start), "reason": reason,
            }});
            output::json_line(&line)?;
        } else if self.tally.unreadable <= SHOWN {
            let [key, reason, start] =
                [key.as_bytes(), reason.as_bytes(), start].map(output::visible);
            output::note(&format!(
                "dueq: not imported from {key}: {reason} ({bytes} bytes: {start})"
            ));
        } else if self.tally.unreadable == SHOWN + 1 {
            output::note("dueq: further ones are only counted; --json shows all");
        }
        Ok(())
    }

    fn progress(&self, step: &str, shown: &mut Instant) {
        if shown.elapsed() >= PROGRESS {
            *shown = Instant::now();
            let Tally {
                read,
                created,
                known,
                unreadable,
            } = self.tally;
            output::note(&format!(
                "{step}: {read} read, {created} imported, {known} known, {unreadable} unreadable"
            ));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
