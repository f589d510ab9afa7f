//! Moves the messages of one partition to the partitions that they belong to after a change of the
//! map: in batches, of which one at a time is on its way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Applied, Error, ErrorKind};
use crate::partition::{Carrier, Fate, Partition};
use crate::protocol::partition_map::Tag;
use crate::protocol::results::administer::{Arrived, Departed};
use crate::router::job::Job;
use crate::server::scan::Walk;
use crate::telemetry::events;

/// A batch with fewer messages than names was cut by its size if it has at least so many bytes.
const CUT_BYTES: usize = 128 * 1024;
/// The least time between the beginnings of two passes over a partition.
const PASS: Duration = Duration::from_secs(1);
/// What is due within this time stays: it would be late if this process died meanwhile.
const STAY: Duration = Duration::from_secs(5);
/// After this time with nothing else left, everything moves that is not leased: some messages are
/// always due soon.
const STAY_LIMIT: Duration = Duration::from_secs(60);
/// For how long after the change of the map a partition may remember calls from before.
const MEMORY: Duration = Duration::from_secs(13);

/// A partition whose messages move to others.
pub(super) struct Source {
    job: Arc<Job>,
    from: Carrier,
    to: BTreeMap<Tag, Carrier>,
    /// What became of the batch that the partition reported last.
    fate: Fate,
    /// The number of an earlier batch that a target knows; the next one gets a larger number.
    after: u64,
    stay: Duration,
    /// Since when all messages that are left are leased or due soon.
    only_kept: Option<Instant>,
    /// When the last call succeeded.
    worked: Instant,
}

/// For how long a source whose server is away tries again.
const OUTAGE_LIMIT: Duration = Duration::from_secs(120);

/// What a partition says about its batches.
#[derive(PartialEq, Eq)]
struct SourceState {
    departed: Option<String>,
    mapped_ms: u64,
    value_bytes: u64,
}

impl Source {
    pub(super) fn new(job: &Arc<Job>, partition: &Arc<Partition>) -> Result<Self, Error> {
        Ok(Self {
            job: Arc::clone(job),
            from: Carrier::new(partition)?,
            to: BTreeMap::new(),
            fate: Fate::default(),
            after: 0,
            stay: STAY,
            only_kept: None,
            worked: Instant::now(),
        })
    }

    fn tag(&self) -> Tag {
        self.from.partition().tag()
    }

    /// Moves all messages and all memory that belong elsewhere. Ends when nothing is left: what is
    /// due soon or leased is waited for. `was_empty` says that the partition remembers no calls from
    /// before the change. While a server is away, the other sources go on.
    pub(super) async fn drain(mut self, was_empty: bool) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let began = Instant::now();
            let rest = match self.pass(was_empty, started).await {
                Ok(None) => return Ok(()),
                Ok(Some(rest)) => rest,
                Err(error) if error.is_remapped() => return Err(self.job.refused(error)),
                Err(error) if error.is_retryable() && self.worked.elapsed() < OUTAGE_LIMIT => {
                    let queue = self.from.partition().queue_name();
                    events::call_failed(queue, "depart", &error, "it is tried again");
                    Duration::ZERO
                }
                Err(error) => return Err(error),
            };
            tokio::time::sleep(PASS.saturating_sub(began.elapsed()).max(rest)).await;
            self.from.forget_replicas();
        }
    }

    /// Moves what may move now. Returns `None` when nothing is left, otherwise for how long the next
    /// pass would find nothing to do.
    async fn pass(&mut self, was_empty: bool, started: Instant) -> Result<Option<Duration>, Error> {
        self.settle().await?;
        let before = self.state().await?;
        let strays = self.move_messages(&before).await?;
        // Of an id whose message is still here, the memory stays as well.
        let now_ms = self.now_ms().await?;
        let remembered = match strays {
            0 => self.move_memory(now_ms).await?,
            _ => 0,
        };
        self.settle().await?;
        // Another process may have put a batch back meanwhile.
        if strays + remembered > 0 || before != self.state().await? {
            return Ok(Some(Duration::ZERO));
        }
        let mapped_for = Duration::from_millis(now_ms.saturating_sub(before.mapped_ms));
        // The server's clock may have been set back.
        let rest = match was_empty {
            true => Duration::ZERO,
            false => MEMORY.saturating_sub(mapped_for.max(started.elapsed())),
        };
        Ok(Some(rest).filter(|rest| !rest.is_zero()))
    }

    /// Brings the batch that is on its way to its end. Returns whether there was one.
    async fn settle(&mut self) -> Result<bool, Error> {
        self.end_batch(|batch| batch).await
    }

    /// Ends the batch that a change before this one left on its way: it comes back, unless it has
    /// arrived. Its target may have been asked already by the map of this change, and must not get
    /// what it said it had not. Returns whether there was such a batch.
    pub(super) async fn end_earlier(&mut self) -> Result<bool, Error> {
        let emptied = |batch| Departed {
            bytes: Vec::new(),
            ..batch
        };
        let ended = self.end_batch(emptied).await;
        ended.map_err(|error| self.job.refused(error))
    }

    async fn end_batch(&mut self, sent: impl Fn(Departed) -> Departed) -> Result<bool, Error> {
        let mut was_moving = false;
        while let Some(batch) = self.depart(other(self.tag()), &[]).await? {
            self.arrive(&sent(batch)).await?;
            was_moving = true;
        }
        Ok(was_moving)
    }

    /// Moves the messages that belong elsewhere, but for those that are leased or due soon. Returns
    /// how many there were of both.
    async fn move_messages(&mut self, state: &SourceState) -> Result<u64, Error> {
        let partition = Arc::clone(self.from.partition());
        let batch = self.job.pace.batch();
        let mut groups: BTreeMap<Tag, Vec<Vec<u8>>> = BTreeMap::new();
        let (mut walk, mut strays, mut kept) = (Walk::of(4 * batch), 0, 0);
        loop {
            let (key, began) = (partition.keys().messages(), Instant::now());
            let step = partition.control();
            let names = step.next_names(key, state.value_bytes, &mut walk);
            let names = names.await?;
            self.worked = Instant::now();
            self.job.pace.pause(began.elapsed()).await;
            for name in names {
                let is_message = name.first().is_some_and(|byte| *byte >= 32);
                let place = self.job.place_of_stray(&name, self.tag());
                let Some(tag) = place.filter(|_| is_message) else {
                    continue;
                };
                strays += 1;
                let group = groups.entry(tag).or_default();
                group.push(name);
                if group.len() == batch {
                    kept += self.send(tag, std::mem::take(group)).await?;
                }
            }
            if walk.cursor == 0 {
                break;
            }
        }
        for (tag, group) in groups {
            kept += self.send(tag, group).await?;
        }
        self.job.progress.set_left(self.tag(), kept);
        self.only_kept = match kept {
            0 => None,
            kept if kept < strays => None,
            _ => self.only_kept.or_else(|| Some(Instant::now())),
        };
        let is_over = |since: Instant| since.elapsed() > STAY_LIMIT;
        if self.only_kept.is_some_and(is_over) {
            self.stay = Duration::ZERO;
        }
        Ok(strays)
    }

    /// Moves what the partition remembers of ids that belong elsewhere. Returns how many names there
    /// were, with those that are forgotten soon.
    async fn move_memory(&mut self, now_ms: u64) -> Result<u64, Error> {
        let partition = Arc::clone(self.from.partition());
        let batch = self.job.pace.batch();
        let mut groups: BTreeMap<Tag, Vec<Vec<u8>>> = BTreeMap::new();
        let (mut walk, mut found) = (Walk::of(4 * batch), 0);
        loop {
            let (key, began) = (partition.keys().recent(), Instant::now());
            let members = partition.control().next_members(key, &mut walk).await?;
            self.job.pace.pause(began.elapsed()).await;
            for (name, until_ms) in members {
                if until_ms <= now_ms as f64 {
                    continue;
                }
                // See the block recent_marks of the scripts. Lives of ended messages (7) stay, and are
                // forgotten here: nothing depends on them.
                let (id, moves) = match name.first() {
                    None | Some(0 | 3 | 7) => continue,
                    Some(4) => (&name[1..], false),
                    Some(5) => (&name[1..], true),
                    Some(6) => (name.get(2..).unwrap_or_default(), true),
                    Some(_) => (&name[..], false),
                };
                let Some(tag) = self.job.place_of_stray(id, self.tag()) else {
                    continue;
                };
                found += 1;
                let group = groups.entry(tag).or_default();
                if moves {
                    group.push(name);
                }
                if group.len() == batch {
                    self.send(tag, std::mem::take(group)).await?;
                }
            }
            if walk.cursor == 0 {
                break;
            }
        }
        for (tag, group) in groups.into_iter().filter(|(_, group)| !group.is_empty()) {
            self.send(tag, group).await?;
        }
        Ok(found)
    }

    /// Sends what these names have to the partition with this tag. Returns how many messages stay.
    async fn send(&mut self, tag: Tag, names: Vec<Vec<u8>>) -> Result<u64, Error> {
        let mut left = names.len() as u64;
        loop {
            let began = Instant::now();
            let Some(batch) = self.depart(tag, &names).await? else {
                return Ok(left);
            };
            self.arrive(&batch).await?;
            left = left.saturating_sub(batch.messages);
            self.job.pace.pause(began.elapsed()).await;
            if left == 0 || batch.bytes.len() < CUT_BYTES {
                return Ok(left);
            }
        }
    }

    async fn depart(&mut self, tag: Tag, names: &[Vec<u8>]) -> Result<Option<Departed>, Error> {
        let (fate, after) = (self.fate, self.after);
        let departed = self.from.depart(fate, after, tag, self.stay, names).await;
        if departed.is_ok() {
            self.fate = Fate::None;
            self.worked = Instant::now();
        }
        departed
    }

    async fn arrive(&mut self, batch: &Departed) -> Result<(), Error> {
        let own = self.tag();
        if !self.to.contains_key(&batch.tag) {
            let target = self.job.all.of_tag(batch.tag);
            let target = target.ok_or_else(|| no_target(self.from.partition(), batch))?;
            self.to.insert(batch.tag, Carrier::new(target)?);
        }
        let Some(target) = self.to.get_mut(&batch.tag) else {
            return Ok(());
        };
        let arrived = target.arrive(own, batch.number, &batch.bytes).await?;
        self.worked = Instant::now();
        self.fate = match arrived {
            Arrived::Applied(messages) => {
                self.job.progress.moved(own, messages);
                Fate::Done(batch.number)
            }
            Arrived::Void(last) => {
                self.after = last;
                Fate::Back(batch.number)
            }
        };
        Ok(())
    }

    async fn state(&self) -> Result<SourceState, Error> {
        let partition = self.from.partition();
        let names = ["departed", "mapped_ms", "largest_payload_bytes"];
        let fields = partition.control().fields(partition.keys().meta(), names);
        let [departed, mapped_ms, value_bytes] = fields.await?;
        let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
        Ok(SourceState {
            departed,
            mapped_ms: number(mapped_ms).unwrap_or(0),
            value_bytes: number(value_bytes).unwrap_or(4_096),
        })
    }

    /// The clock of the partition's server, in Unix milliseconds.
    async fn now_ms(&self) -> Result<u64, Error> {
        let lane = self.from.partition().control().lane().await?;
        let (now_us, ..) = lane.time().await?;
        Ok(u64::try_from(now_us / 1_000).unwrap_or(0))
    }
}

/// Another tag than this one, for a call that sends nothing.
pub(super) fn other(tag: Tag) -> Tag {
    match tag {
        Tag::Home => Tag::Numbered(0),
        Tag::Numbered(_) => Tag::Home,
        Tag::FarHome => Tag::FarNumbered(0),
        Tag::FarNumbered(_) => Tag::FarHome,
    }
}

/// The error of a batch to a partition that the map lacks.
pub(super) fn no_target(from: &Partition, batch: &Departed) -> Error {
    let (queue, own, to) = (from.queue_name(), from.tag(), batch.tag);
    let message = format!(
        "partition {own} of queue {queue} has messages on their way to partition {to}, which the map does not have: \
         run `dueq doctor {queue}`"
    );
    Error::new(ErrorKind::Server, Applied::No, message)
}
