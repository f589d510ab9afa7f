//! Turns calls and their answers into records.

use anyhow::{Context as _, Result, bail};

use super::{Open, Process};
use crate::check::calls::{token_of, what_of};
use crate::check::message::options::Options;
use crate::check::message::reads::ReadState;
use crate::check::queue::order::{Change, Reply};
use crate::check::queue::partitions::{By, ids_of};
use crate::check::queue::windows::{Windowed, window_of};
use crate::check::record::{
    Changed, Held, Pushed, Record, Settled, What, changed, pushed, settled, split, whole_ms,
};
use crate::check::served::{Delivery, Grant};
use crate::check::verdict::Kind;
use crate::history::{Answer, Call, ClaimedItem, Role, Verb};
use crate::queues::{is_limited, partition_name};

impl Process<'_> {
    /// The index of the whole queue to which a partition belongs: callers and handlers do not know
    /// partitions.
    pub(super) fn whole(&self, queue: u16) -> usize {
        usize::from(self.whole_number(queue))
    }

    pub(super) fn whole_number(&self, queue: u16) -> u16 {
        self.all.queues[usize::from(queue)].whole
    }

    /// The number of the partition with this tag of the same queue.
    pub(super) fn sibling(&mut self, queue: u16, tag: &str) -> u16 {
        let whole = self.all.queues[self.whole(queue)].name.clone();
        self.all.queue(&partition_name(&whole, tag))
    }

    /// A claimed message must belong to the partition that granted it.
    pub(super) fn granted_in(&mut self, open: &Open, epoch: u64, answer: &Answer) {
        if let Answer::Claimed { items, .. } = answer {
            let ids: Vec<_> = items.iter().map(|item| (&*item.0, true)).collect();
            let whole = self.whole_number(open.queue);
            let by = (By::Claim, epoch, epoch);
            self.all.named((whole, open.queue), by, &ids);
        }
    }

    pub(super) fn mapped(&mut self, open: &Open, answer: &Answer, now_us: i64, incarnation: &str) {
        let whole = self.whole(open.queue);
        let (number, name) = (
            u16::try_from(whole).unwrap_or(u16::MAX),
            self.all.queues[whole].name.clone(),
        );
        let now_us = u64::try_from(now_us).unwrap_or(0);
        let at_us = (open.asked_us, now_us);
        let partitions = &mut self.all.partitions;
        let partition = (open.queue, incarnation);
        partitions.answered((number, &name), partition, &open.call, answer, at_us);
    }

    /// Notes that an answered call with ids came to this partition.
    pub(super) fn named(&mut self, open: &Open, epoch: u64, verdicts: &[String]) {
        let Some(ids) = ids_of(&open.call) else {
            return;
        };
        let (is_push, whole) = (
            matches!(open.call, Call::Push { .. }),
            self.whole(open.queue),
        );
        let made = |word: &String| is_push && word == "CREATED";
        let ids: Vec<_> = ids.into_iter().zip(verdicts.iter().map(made)).collect();
        let queues = (u16::try_from(whole).unwrap_or(u16::MAX), open.queue);
        let by = if open.probes { By::Probe } else { By::Call };
        self.all.named(queues, (by, open.epoch, epoch), &ids);
    }

    pub(super) fn answered(
        &mut self,
        open: &Open,
        incarnation: &str,
        reply: Reply,
        answer: Answer,
    ) -> Result<()> {
        // If the queue does not exist, the answer says nothing about any message.
        if incarnation.is_empty() {
            return Ok(());
        }
        *self
            .all
            .verdict
            .verbs
            .entry(open.call.verb().to_owned())
            .or_default() += 1;
        let epoch = self.all.epoch(open.queue, incarnation);
        let known = &mut self.all.epochs[usize::from(epoch)];
        known.first_us = known.first_us.min(reply.answered_us);
        known.last_us = known.last_us.max(reply.answered_us);
        known.asked_us = known.asked_us.max(reply.asked_us);
        self.all.replies[usize::from(epoch)].push(reply);
        let record = Record {
            id: 0,
            epoch,
            process: self.number,
            order: reply.seq * 2 + u64::from(reply.changed != Change::Yes),
            now_us: reply.now_us,
            asked_us: open.asked_us,
            answered_us: reply.answered_us,
            what: What::Left {
                state: crate::history::State::Dead,
                failures: 0,
                crashes: 0,
                time_ms: 0,
            },
        };
        self.all.queues[usize::from(open.queue)]
            .operators
            .answered(&open.call, &answer, &record);
        if self.is_ticks(open.queue) {
            let place = (epoch, reply.seq);
            let at = (reply.now_us / 1_000, reply.answered_us);
            let ticks = &mut self.all.ticks;
            ticks.answered(&open.call, &answer, place, at);
        }
        match (&open.call, answer) {
            (
                Call::Claim {
                    n,
                    token,
                    lease_ms,
                    due,
                },
                Answer::Claimed {
                    items,
                    deadline_ms,
                    paused,
                },
            ) => {
                // The claim may have found only timers that made no tick.
                let is_ticks = self.is_ticks(open.queue);
                let queue = &mut self.all.queues[usize::from(open.queue)];
                let proves = *due && *n > 0 && !paused && !is_limited(&queue.name) && !is_ticks;
                if items.is_empty() && proves {
                    let pauses = &mut queue.operators.pauses;
                    pauses.found_empty(&record, deadline_ms > 0);
                }
                if !items.is_empty() && deadline_ms != record.now_up() + lease_ms {
                    let (number, wanted_ms) = (self.number, record.now_up() + lease_ms);
                    self.all.verdict.found(Kind::WrongTimes, || {
                        format!(
                            "process {number} at {} us: a claim's deadline is {deadline_ms}, not {wanted_ms}",
                            reply.answered_us
                        )
                    });
                }
                let whole = self.whole_number(open.queue);
                if self.role == Role::Serve {
                    let grant = Grant::new((self.number, whole), token, *lease_ms, &record, &items);
                    self.all.served.granted(grant);
                } else {
                    let lease_us = 1_000 * lease_ms;
                    let claim = (open.master, open.queue);
                    // A claim by hand has another lease.
                    let is_lost = *lease_ms == self.unseen.lease_ms
                        && self.silences.used_up(claim, lease_us, open.asked_us);
                    let granted = &mut self.granted[usize::from(whole)];
                    granted.claimed(token, reply.answered_us, &items, is_lost);
                    let leased_us = open.asked_us + lease_us;
                    let ids = items.iter().map(|item| &*item.0);
                    self.unseen.granted(whole, token, leased_us, ids);
                }
                let (token, lease_ms) = (
                    token_of(token),
                    u32::try_from(*lease_ms).unwrap_or(u32::MAX),
                );
                for ClaimedItem(id, version, due_ms, attempt, bytes, options) in items {
                    let options = Options::read(&options);
                    let what = What::Claim {
                        token,
                        due_ms,
                        lease_ms,
                        version,
                        attempt,
                        bytes,
                        options: options.number,
                        expiry: options.expiry,
                        cost: options.cost,
                    };
                    self.add(&id, open.queue, record, what);
                }
            }
            (
                Call::Other { verb, args },
                Answer::Claimed {
                    items, deadline_ms, ..
                },
            ) if verb == "held" => {
                let token = args.first().map(String::as_str).unwrap_or_default();
                let whole = self.whole_number(open.queue);
                if self.role == Role::Worker {
                    let granted = &mut self.granted[usize::from(whole)];
                    granted.held(token, reply.answered_us, &items);
                }
                for ClaimedItem(id, version, due_ms, attempt, bytes, _) in items {
                    let content = (version, due_ms, attempt);
                    self.all
                        .served
                        .held(Delivery::new(whole, &id, token, content));
                    let what = What::Held {
                        token: token_of(token),
                        due_ms,
                        deadline_ms,
                        version,
                        attempt,
                        bytes,
                    };
                    self.add(&id, open.queue, record, what);
                }
            }
            (Call::Depart { fate, .. }, answer @ Answer::Departed { .. }) => {
                self.all.moves.departed(open.queue, fate, answer, record);
            }
            (call @ Call::Arrive { from, .. }, Answer::Other(words)) => {
                let from = self.sibling(open.queue, from);
                let said = words.first().map_or("", String::as_str);
                self.all.moves.arrived(open.queue, from, call, said, record);
            }
            (Call::Other { verb, .. }, Answer::Other(words)) if verb == "reap" => {
                let died: u64 = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
                self.all.queues[usize::from(open.queue)].died += died;
            }
            (
                call @ (Call::Push { .. }
                | Call::Settle { .. }
                | Call::Follow { .. }
                | Call::Change { .. }),
                Answer::Items(verdicts),
            ) => {
                if let Call::Settle {
                    verb: Verb::Extend,
                    items,
                } = call
                {
                    let whole = self.whole_number(open.queue);
                    self.granted[usize::from(whole)].extended(items, &verdicts);
                }
                self.judged(call, open, record, &verdicts)?;
                if matches!(
                    call,
                    Call::Change {
                        verb: Verb::Cancel,
                        ..
                    }
                ) {
                    self.cancelled(call, open.queue, epoch, &verdicts);
                }
            }
            (Call::Other { .. }, _) => {}
            (call, answer) => bail!("this is no answer to {call:?}: {answer:?}"),
        }
        Ok(())
    }

    fn judged(
        &mut self,
        call: &Call,
        open: &Open,
        record: Record,
        verdicts: &[String],
    ) -> Result<()> {
        let (items, queue, whole) = (what_of(call), open.queue, self.whole(open.queue));
        let of_whole = self.whole_number(queue);
        if items.len() != verdicts.len() {
            bail!("{} verdicts on {} items", verdicts.len(), items.len());
        }
        // If the ack has another result, none of its messages is stored.
        let follows = matches!(call, Call::Follow { .. });
        let stores_none = follows && verdicts.first().is_none_or(|word| word != "OK");
        for ((id, mut what), word) in items.into_iter().zip(verdicts) {
            if stores_none && matches!(what, What::Push { .. }) {
                let id = self.all.id(queue, id);
                self.all.refused_children.insert(id);
                continue;
            }
            // Either all of the messages are stored, or none.
            if follows && matches!(split(word).0, "INVALID" | "FULL") {
                self.all.verdict.found(Kind::ChildOfRefusedAck, || {
                    format!("{id} was refused, and the ack of {call:?} was not: {word}")
                });
            }
            // Whatever the call wanted: the message is not there, and the call did nothing.
            if word == "MOVING" || split(word).0 == "AWAY" {
                self.add(id, queue, record, What::ReadState(ReadState::default()));
                continue;
            }
            if word.starts_with("REMEMBERED ") {
                self.all.verdict.windows.remembered += 1;
                continue;
            }
            self.all.verdict.follow_ups += u64::from(follows && word == "CREATED");
            if word.starts_with("FULL") {
                self.all.queues[usize::from(queue)]
                    .operators
                    .full(record.answered_us);
            }
            let unread = || format!("this is no verdict: {word:?}");
            match &mut what {
                What::Push { verdict, push } => {
                    *verdict = pushed(word).with_context(unread)?;
                    if *verdict == Pushed::Finished {
                        push.ended_ms = whole_ms(split(word).1);
                        self.finished
                            .entry((of_whole, id.to_owned()))
                            .or_default()
                            .push((open.number, self.all.records.len()));
                    }
                    if self.asking[whole].waits_for_replicas(id) {
                        push.held = Held::Unconfirmed;
                        self.waiting
                            .entry((of_whole, id.to_owned()))
                            .or_default()
                            .push((open.number, self.all.records.len()));
                    }
                }
                What::Settle {
                    verdict,
                    answered_ms,
                    ..
                } => (*verdict, *answered_ms) = settled(word).with_context(unread)?,
                What::ReadState(seen) => *seen = ReadState::parse(word).with_context(unread)?,
                What::Change {
                    verdict,
                    answered_ms,
                    ..
                } => (*verdict, *answered_ms) = changed(word).with_context(unread)?,
                _ => {}
            }
            if let (Some(window_ms), "CREATED") = (window_of(call, id), word.as_str()) {
                let id = self.all.id(queue, id);
                self.all.windowed.push(Windowed {
                    id,
                    epoch: record.epoch,
                    seq: record.seq(),
                    now_ms: record.now(),
                    until_ms: record.now_up() + window_ms,
                });
            }
            match what {
                What::Push {
                    verdict: Pushed::Refused,
                    ..
                } => {
                    let id = self.all.id(queue, id);
                    self.all.refused.insert(id);
                    continue;
                }
                What::Settle {
                    verdict: Settled::Dead,
                    ..
                } => self.all.queues[usize::from(queue)].died += 1,
                What::Settle {
                    verb: Verb::Bury, ..
                } => self.all.queues[usize::from(queue)].died += 1,
                _ => {}
            }
            self.add(id, queue, record, what);
        }
        Ok(())
    }

    /// Notes the ids that the call cancelled, or that were cancelled before.
    fn cancelled(&mut self, call: &Call, queue: u16, epoch: u16, verdicts: &[String]) {
        let done = what_of(call)
            .into_iter()
            .zip(verdicts)
            .filter(|(_, word)| changed(word).is_some_and(|of| of.0 == Changed::Done));
        let ids: Vec<_> = done.map(|((id, _), _)| self.all.id(queue, id)).collect();
        for id in &ids {
            *self.all.cancels.entry(*id).or_default() += 1;
        }
        let place = self.all.replies[usize::from(epoch)].len() - 1;
        self.all.cancelled.push((epoch, place, ids));
    }

    fn add(&mut self, id: &str, queue: u16, record: Record, what: What) {
        let id = self.all.id(queue, id);
        self.all.records.push(Record { id, what, ..record });
    }
}
