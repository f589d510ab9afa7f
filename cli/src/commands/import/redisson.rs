//! `dueq import redisson`: copies the elements of a Redisson RDelayedQueue.
//!
//! Redisson keeps each element twice, framed (see [`frame`]): in a ZSET with its due time, from which it is delivered, and in a
//! list in the order of the offers. An element that is due is moved to the destination, a list of bare elements.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use dueq::{Due, ErrorKind, Message, Pushed, Queue};
use sha1_smol::Sha1;

use super::codec::Codec;
use super::frame;
use super::store::Store;
use crate::{Common, output};

/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(1);
/// So many unreadable elements are told one by one; --json tells all.
const TOLD: u64 = 20;

#[derive(Args)]
#[command(after_help = "\
Stop the programs that use the RDelayedQueue first. Then:
  dueq import redisson orders --dry-run
  dueq import redisson orders
and start workers of the queue. Redisson's keys are only read, never changed: delete them when you are sure.

Interrupted or repeated it goes on where it was: an element has the same id each time, and the ids that were imported are
remembered in the set dueq-import:redisson:{INTO}:NAME until you delete it, so that what was handled in the meantime does
not come back.")]
pub(crate) struct Redisson {
    /// The name of the RDelayedQueue, that is of its destination queue
    #[arg(value_name = "QUEUE")]
    name: String,
    /// The queue to push to, if it is to have another name
    #[arg(long, value_name = "QUEUE")]
    into: Option<String>,
    /// The server that holds Redisson's keys, if it is another one
    #[arg(
        long,
        value_name = "URL",
        env = "DUEQ_IMPORT_FROM",
        hide_env_values = true
    )]
    from: Option<String>,
    /// What to make of the elements
    #[arg(long, value_enum, default_value_t = Codec::Raw)]
    codec: Codec,
    /// Leave out what is due already and waits in the destination list; otherwise it is due at once
    #[arg(long)]
    skip_due: bool,
    /// Only read and count
    #[arg(long)]
    dry_run: bool,
    /// Import even while Redisson clients are subscribed: they go on delivering what is imported
    #[arg(long)]
    live: bool,
    /// Forget what earlier runs imported: what was handled since is imported once more
    #[arg(long)]
    again: bool,
}

impl Redisson {
    pub(crate) async fn run(self, common: &Common) -> Result<()> {
        let into = self.into.clone().unwrap_or_else(|| self.name.clone());
        let queue = common
            .queue(&into)
            .await
            .map_err(|error| match &self.into {
                None if self.name.contains(['/', '{', '}']) => {
                    anyhow!("{error}; choose a name by --into")
                }
                _ => error,
            })?;
        let from = Store::open(self.from.as_deref().unwrap_or(common.url())).await?;
        let journal = Journal {
            store: Store::open(common.url()).await?,
            key: format!("dueq-import:redisson:{{{into}}}:{}", self.name),
            is_ignored: false,
        };
        let mut run = Run {
            keys: Keys::of(&self.name),
            options: self,
            queue,
            from,
            journal,
            tally: Tally::default(),
        };
        run.check().await?;
        let done = run.all(common.json).await;
        run.report(common.json, done.is_ok())?;
        if let Err(error) = done {
            bail!("{error:#}; run it again to go on");
        }
        match run.tally.unreadable {
            0 => Ok(()),
            count => {
                bail!("{count} elements could not be imported; they are still in Redisson's keys")
            }
        }
    }
}

/// The keys of an RDelayedQueue.
struct Keys {
    timeouts: String,
    list: String,
    destination: String,
    channel: String,
}

impl Keys {
    fn of(name: &str) -> Self {
        // As Redisson does: a name with a hash tag of its own keeps it.
        let tagged = if name.contains('{') {
            name.to_owned()
        } else {
            format!("{{{name}}}")
        };
        Self {
            timeouts: format!("redisson_delay_queue_timeout:{tagged}"),
            list: format!("redisson_delay_queue:{tagged}"),
            destination: name.to_owned(),
            channel: format!("redisson_delay_queue_channel:{tagged}"),
        }
    }
}

/// The ids that were imported, in a set beside the queue.
///
/// The queue itself forgets an id some seconds after its message was handled. An id is noted after its push: if the program
/// dies in between, and the message is handled and forgotten before the next run, that message comes once more; noted before,
/// it would be lost.
struct Journal {
    store: Store,
    key: String,
    is_ignored: bool,
}

#[derive(Default)]
struct Tally {
    read: u64,
    created: u64,
    known: u64,
    unreadable: u64,
}

/// An element that can be read.
struct Element {
    id: String,
    key: String,
    due: Due,
    payload: Vec<u8>,
}

struct Run {
    options: Redisson,
    keys: Keys,
    queue: Queue,
    from: Store,
    journal: Journal,
    tally: Tally,
}

impl Run {
    async fn all(&mut self, json: bool) -> Result<()> {
        let mut told = Instant::now();
        self.timeouts(json, &mut told).await?;
        self.list(json, &mut told).await?;
        if !self.options.skip_due {
            self.destination(json, &mut told).await?;
        }
        Ok(())
    }

    async fn check(&mut self) -> Result<()> {
        let Keys {
            timeouts,
            list,
            destination,
            channel,
        } = &self.keys;
        if self.from.existing(&[timeouts]).await? + self.from.existing(&[list]).await? == 0
            && (self.options.skip_due || self.from.existing(&[destination]).await? == 0)
        {
            bail!(
                "there is no such RDelayedQueue: neither {timeouts} nor {list} nor {destination} exists"
            );
        }
        // A user without the right to ask is not kept from importing.
        let clients = self.from.subscribers(channel).await.unwrap_or(0);
        if clients > 0 && !self.options.live && !self.options.dry_run {
            bail!(
                "{clients} Redisson clients serve this queue and would deliver it too: stop them, or say --live"
            );
        }
        let Journal {
            store,
            key,
            is_ignored,
        } = &mut self.journal;
        let remembered = store.remembered(key).await?;
        // Each remembered id was a push: with fewer pushes than ids, this is another queue than the one they went to.
        if self.options.again || self.queue.stats().await?.pushed < remembered {
            *is_ignored = true;
            if !self.options.dry_run {
                store.forget(key).await?;
            }
        }
        Ok(())
    }

    /// What is delayed, from the ZSET: what Redisson itself delivers from.
    async fn timeouts(&mut self, json: bool, told: &mut Instant) -> Result<()> {
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
            self.progress("delayed elements", told);
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// The list of the same elements: tells those without a due time, and takes those that came in meanwhile.
    async fn list(&mut self, json: bool, told: &mut Instant) -> Result<()> {
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
                        let reason = format!(
                            "it has no due time: {} does not hold it",
                            self.keys.timeouts
                        );
                        self.unreadable(&self.keys.list.clone(), &member, &reason, json)?;
                    }
                }
            }
            if !self.options.dry_run {
                let count = elements.len() as u64;
                // Nearly all were counted as they came from the ZSET.
                self.tally.read += count - self.push(elements, json).await?;
            }
            self.progress(&format!("comparing the list, {start} done"), told);
        }
    }

    /// What is due and not taken yet: bare elements, the same one perhaps many times. The one step whose memory grows, by some
    /// 40 bytes a distinct element.
    async fn destination(&mut self, json: bool, told: &mut Instant) -> Result<()> {
        let (mut start, mut seen) = (0, HashMap::<[u8; 16], u32>::new());
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
                // Counted, so that equal elements stay as many as they are, and a shorter list later makes no new ids.
                let count = seen
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
            self.progress("due elements", told);
        }
    }

    fn delayed(&self, member: &[u8], score: f64) -> Result<Element, String> {
        let frame = frame::parse(member).ok_or("it is not framed as Redisson does")?;
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

    /// Pushes what is not yet pushed; returns how many were.
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
            match result {
                Ok(Pushed::Created) => self.tally.created += 1,
                Ok(Pushed::Exists(_) | Pushed::Moved | Pushed::Finished) => known += 1,
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

    /// Tells one that stays behind: where it is, what it begins with, why.
    fn unreadable(&mut self, key: &str, member: &[u8], reason: &str, json: bool) -> Result<()> {
        self.tally.unreadable += 1;
        let (start, bytes) = (&member[..member.len().min(40)], member.len());
        if json {
            let line = serde_json::json!({ "unreadable": {
                "key": key, "bytes": bytes, "start": output::visible(start), "start_hex": hex(start), "reason": reason,
            }});
            output::json_line(&line)?;
        } else if self.tally.unreadable <= TOLD {
            let [key, reason, start] =
                [key.as_bytes(), reason.as_bytes(), start].map(output::visible);
            output::note(&format!(
                "dueq: not imported from {key}: {reason} ({bytes} bytes: {start})"
            ));
        } else if self.tally.unreadable == TOLD + 1 {
            output::note("dueq: more are only counted; --json tells all");
        }
        Ok(())
    }

    fn progress(&self, step: &str, told: &mut Instant) {
        if told.elapsed() >= PROGRESS {
            *told = Instant::now();
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

    fn report(&self, json: bool, is_complete: bool) -> Result<()> {
        let Tally {
            read,
            created,
            known,
            unreadable,
        } = self.tally;
        let (from, into, dry_run) = (&self.options.name, self.queue.name(), self.options.dry_run);
        if json {
            let line = serde_json::json!({
                "from": from, "into": into, "dry_run": dry_run, "complete": is_complete,
                "read": read, "created": created, "known": known, "unreadable": unreadable,
                "journal": self.journal.key,
            });
            output::json_line(&line)?;
        } else {
            let would = if dry_run { "would be " } else { "" };
            let (from, into) = (
                output::visible(from.as_bytes()),
                output::visible(into.as_bytes()),
            );
            output::line(&format!(
                "{read} elements of {from} read: {created} {would}imported into {into}, {known} known from before, {unreadable} unreadable"
            ))?;
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
