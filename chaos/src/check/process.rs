//! Reads the history of one process.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};

use super::calls::{changes, token_of, what_of};
use super::collect::Collection;
use super::context::Lost;
use super::excuses::UNDER_WAY_US;
use super::order::{Change, Reply};
use super::record::{
    Changed, Held, Pushed, Record, Settled, What, changed, number_of, pushed, settled, split,
    whole_ms,
};
use super::seen::Seen;
use super::started::Granted;
use super::told::Asking;
use super::verdict::Kind;
use crate::history::{Answer, Call, ClaimedItem, Event, Role, Verb};

struct Open {
    number: u64,
    asked_us: u64,
    queue: u16,
    call: Call,
}

/// What is to be remembered while a history is read.
struct Process<'a> {
    all: &'a mut Collection,
    number: u16,
    open: HashMap<u64, Open>,
    asking: Asking,
    granted: Granted,
    /// Of each id whose push waits for replicas: the calls that pushed it, and where their records are.
    waiting: HashMap<String, Vec<(u64, usize)>>,
    /// The same of each id whose push was answered `FINISHED` and whose caller was not told yet.
    finished: HashMap<String, Vec<(u64, usize)>>,
}

/// Reads all of it; `name` is for a history that does not say whose it is.
pub(super) fn read(
    all: &mut Collection,
    name: &str,
    lines: impl Iterator<Item = Result<(u64, Event)>>,
) -> Result<()> {
    let number = u16::try_from(all.processes.len()).context("too many histories")?;
    all.processes.push(name.to_owned());
    let (open, granted, asking) = (HashMap::new(), Granted::default(), Asking::default());
    let (waiting, finished) = (HashMap::new(), HashMap::new());
    let mut process = Process {
        all,
        number,
        open,
        asking,
        granted,
        waiting,
        finished,
    };
    let (mut role, mut ended, mut last_us) = (Role::Harness, false, 0);
    for line in lines {
        let (t_us, event) = line?;
        match &event {
            Event::Begin { role: its, .. } => role = *its,
            Event::End => ended = true,
            _ => {}
        }
        last_us = t_us;
        process
            .take(t_us, event)
            .with_context(|| format!("{name} at {t_us} us"))?;
    }
    process.end(role, ended, last_us);
    // Nobody knows about those that have no end.
    let open: Vec<_> = process.open.drain().collect();
    open.into_iter()
        .for_each(|(_, open)| process.unknown(&open));
    Ok(())
}

impl Process<'_> {
    fn take(&mut self, t_us: u64, event: Event) -> Result<()> {
        match event {
            Event::Begin { process, .. } => {
                if let Some(name) = self.all.processes.last_mut() {
                    *name = process;
                }
            }
            Event::Invoke { call, queue, what } => {
                let queue = self.all.queue(&queue);
                self.invoked(t_us, queue, &what);
                self.granted.invoked(&what);
                self.asking.invoked(call, &what);
                self.open.insert(
                    call,
                    Open {
                        number: call,
                        asked_us: t_us,
                        queue,
                        call: what,
                    },
                );
            }
            Event::Ok {
                call,
                seq,
                now_us,
                incarnation,
                answer,
            } => {
                let open = self.open.remove(&call).context("an answer to no call")?;
                let answer = answer.of_items(what_of(&open.call).len());
                if let Answer::Items(verdicts) = &answer {
                    self.asking.answered(call, &open.call, verdicts);
                }
                let reply = Reply {
                    asked_us: open.asked_us,
                    told_us: t_us,
                    now_us: u64::try_from(now_us).unwrap_or(0),
                    seq,
                    changed: changes(&open.call, &answer),
                };
                self.answered(&open, &incarnation, reply, answer)?;
            }
            Event::Refused { call, .. } => {
                let open = self.open.remove(&call).context("a refusal of no call")?;
                self.asking.refused(call, &open.call);
                self.refused(&open);
            }
            Event::Unknown { call, .. } => {
                let open = self.open.remove(&call).context("the end of no call")?;
                self.unknown(&open);
            }
            Event::Asked {
                op,
                verb,
                ids,
                replicas,
            } => self.asking.asked(op, verb, ids, replicas),
            Event::Told { op, outcomes } => {
                self.confirmed(op, &outcomes);
                self.believed(op, &outcomes);
                let number = self.number;
                for lie in self.asking.told(op, &outcomes) {
                    self.all.verdict.found(Kind::ApiLies, || {
                        format!("process {number} at {t_us} us: {lie}")
                    });
                }
            }
            Event::Started {
                id,
                version,
                attempt,
                due_ms,
                ..
            } => {
                let number = self.number;
                if let Err((kind, words)) = self.granted.started(&id, (version, due_ms, attempt)) {
                    self.all
                        .verdict
                        .found(kind, || format!("process {number} at {t_us} us: {words}"));
                }
            }
            Event::Stalled { ms } => self
                .all
                .disturbed
                .push((t_us.saturating_sub(ms * 1_000), t_us)),
            Event::Fault {
                fault,
                number,
                phase,
                ..
            } => self.all.fault(t_us, fault, number, phase),
            Event::Undone {
                queue,
                incarnation,
                survived,
                next,
            } => {
                let epoch = self.epoch(&queue, &incarnation);
                self.all.epochs[epoch].undone.push((survived, next));
            }
            Event::Emptied { queue, incarnation } => {
                let epoch = self.epoch(&queue, &incarnation);
                self.all.epochs[epoch].emptied = true;
            }
            Event::Left {
                queue,
                state,
                items,
            } => {
                let queue = self.all.queue(&queue);
                self.all.queues[usize::from(queue)].scanned = true;
                for item in items {
                    let id = self.all.id(queue, &item.0);
                    self.all.left.push((id, state, item));
                }
            }
            Event::Broken { queue, what } => {
                self.all
                    .verdict
                    .found(Kind::TwoStates, || format!("queue {queue}: {what}"));
            }
            Event::LostLease { .. }
            | Event::Ended { .. }
            | Event::NoticedEmpty
            | Event::Calm
            | Event::End => {}
        }
        Ok(())
    }

    fn epoch(&mut self, queue: &str, incarnation: &str) -> usize {
        let queue = self.all.queue(queue);
        usize::from(self.all.epoch(queue, incarnation))
    }

    /// What a caller who waited for replicas was told was pushed has to be there whatever becomes of the master.
    fn confirmed(&mut self, op: u64, outcomes: &[String]) {
        for (id, call) in self.asking.confirmed(op, outcomes) {
            let calls = self.waiting.remove(&id).unwrap_or_default();
            let Some((_, place)) = calls.iter().find(|(number, _)| Some(*number) == call) else {
                continue;
            };
            if let Some(Record {
                what: What::Push { push, .. },
                ..
            }) = self.all.records.get_mut(*place)
            {
                push.held = Held::Replicas;
                self.all.verdict.replicated += 1;
            }
        }
    }

    /// Who was told that a push is finished will not push it again.
    fn believed(&mut self, op: u64, outcomes: &[String]) {
        for (id, call) in self.asking.finished(op, outcomes) {
            let calls = self.finished.remove(&id).unwrap_or_default();
            let Some((_, place)) = calls.iter().find(|(number, _)| Some(*number) == call) else {
                continue;
            };
            if let Some(Record {
                what: What::Push { push, .. },
                ..
            }) = self.all.records.get_mut(*place)
            {
                push.believed = true;
            }
        }
    }

    /// What counts from when it is sent.
    fn invoked(&mut self, t_us: u64, queue: u16, call: &Call) {
        let queue = &mut self.all.queues[usize::from(queue)];
        queue.operators.asked(t_us, call);
        match call {
            Call::Push { .. } => queue.pushed = true,
            Call::Other { verb, args } if verb == "configure" => {
                for pair in args.chunks_exact(2) {
                    let value = pair[1].parse().unwrap_or(0);
                    match pair[0].as_str() {
                        "max_attempts" => drop(queue.max_attempts.insert(value)),
                        "max_crashes" => drop(queue.max_crashes.insert(value)),
                        "dead_keep" => drop(queue.dead_keep.insert(value)),
                        "dead_keep_ms" => queue.ages = true,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// What this process was granted must have been begun or given back, and its callers told, unless it was killed.
    fn end(&mut self, role: Role, ended: bool, last_us: u64) {
        let (number, all) = (self.number, &mut *self.all);
        for words in self.granted.forgotten(ended, last_us) {
            all.verdict
                .found(Kind::NeverStarted, || format!("process {number}: {words}"));
        }
        // A handler that is dropped at its time limit is told nothing any more.
        if ended && matches!(role, Role::Producer | Role::Canceller) {
            for words in self.asking.never_told() {
                all.verdict
                    .found(Kind::ApiLies, || format!("process {number}: {words}"));
            }
        }
    }

    fn answered(
        &mut self,
        open: &Open,
        incarnation: &str,
        reply: Reply,
        answer: Answer,
    ) -> Result<()> {
        // Where there is no queue nothing is said about any message.
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
        known.first_us = known.first_us.min(reply.told_us);
        known.last_us = known.last_us.max(reply.told_us);
        self.all.replies[usize::from(epoch)].push(reply);
        let record = Record {
            id: 0,
            epoch,
            process: self.number,
            order: reply.seq * 2 + u64::from(reply.changed != Change::Yes),
            now_us: reply.now_us,
            asked_us: open.asked_us,
            told_us: reply.told_us,
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
                if items.is_empty() && *due && *n > 0 && !paused {
                    self.all.epochs[usize::from(epoch)]
                        .empty
                        .push((reply.seq, record.now()));
                }
                if !items.is_empty() && deadline_ms != record.now_up() + lease_ms {
                    let (number, wanted_ms) = (self.number, record.now_up() + lease_ms);
                    self.all.verdict.found(Kind::WrongTimes, || {
                        format!(
                            "process {number} at {} us: a claim's deadline is {deadline_ms}, not {wanted_ms}",
                            reply.told_us
                        )
                    });
                }
                self.granted.claimed(token, reply.told_us, &items);
                let (token, lease_ms) = (
                    token_of(token),
                    u32::try_from(*lease_ms).unwrap_or(u32::MAX),
                );
                for ClaimedItem(id, version, due_ms, attempt, bytes, options) in items {
                    let options = number_of(&options);
                    let what = What::Claim {
                        token,
                        due_ms,
                        lease_ms,
                        version,
                        attempt,
                        bytes,
                        options,
                    };
                    self.add(&id, open.queue, record, what);
                }
            }
            (Call::Other { verb, .. }, Answer::Other(words)) if verb == "reap" => {
                let died: u64 = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
                self.all.queues[usize::from(open.queue)].died += died;
            }
            (
                call @ (Call::Push { .. } | Call::Settle { .. } | Call::Change { .. }),
                Answer::Items(verdicts),
            ) => {
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
        let (items, queue) = (what_of(call), open.queue);
        if items.len() != verdicts.len() {
            bail!("{} verdicts on {} items", verdicts.len(), items.len());
        }
        for ((id, mut what), word) in items.into_iter().zip(verdicts) {
            if word.starts_with("FULL") {
                self.all.queues[usize::from(queue)]
                    .operators
                    .full(record.told_us);
            }
            let unread = || format!("this is no verdict: {word:?}");
            match &mut what {
                What::Push { verdict, push } => {
                    *verdict = pushed(word).with_context(unread)?;
                    if *verdict == Pushed::Finished {
                        push.ended_ms = whole_ms(split(word).1);
                        self.finished
                            .entry(id.to_owned())
                            .or_default()
                            .push((open.number, self.all.records.len()));
                    }
                    if self.asking.waits_for_replicas(id) {
                        push.held = Held::Perhaps;
                        self.waiting
                            .entry(id.to_owned())
                            .or_default()
                            .push((open.number, self.all.records.len()));
                    }
                }
                What::Settle {
                    verdict, told_ms, ..
                } => (*verdict, *told_ms) = settled(word).with_context(unread)?,
                What::Seen(seen) => *seen = Seen::parse(word).with_context(unread)?,
                What::Change {
                    verdict, told_ms, ..
                } => (*verdict, *told_ms) = changed(word).with_context(unread)?,
                _ => {}
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

    /// Which of its ids may have been cancelled, or may have been before.
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

    fn refused(&mut self, open: &Open) {
        if let Call::Push { items, .. } = &open.call {
            for item in items {
                let id = self.all.id(open.queue, &item.0);
                self.all.refused.insert(id);
            }
        }
    }

    fn unknown(&mut self, open: &Open) {
        let queue = &mut self.all.queues[usize::from(open.queue)];
        match &open.call {
            Call::Other { verb, .. } if matches!(verb.as_str(), "peek" | "stats") => return,
            Call::Change {
                verb: Verb::Get, ..
            } => return,
            _ => {}
        }
        queue.operators.unknown(open.asked_us, &open.call);
        let (asked_us, until_us) = (open.asked_us, open.asked_us + UNDER_WAY_US);
        let (most, lease_ms) = match &open.call {
            Call::Claim { n, lease_ms, .. } => (u64::from(*n), *lease_ms),
            _ => (0, 0),
        };
        queue.lost.push(Lost {
            asked_us,
            until_us,
            most,
            lease_ms,
        });
        for (id, what) in what_of(&open.call) {
            let id = self.all.id(open.queue, id);
            if matches!(
                what,
                What::Change {
                    verb: Verb::Cancel,
                    ..
                }
            ) {
                *self.all.cancels.entry(id).or_default() += 1;
            }
            self.all.unknown.push(Record {
                id,
                epoch: u16::MAX,
                process: self.number,
                order: 0,
                now_us: 0,
                asked_us,
                told_us: until_us,
                what,
            });
        }
    }
}
