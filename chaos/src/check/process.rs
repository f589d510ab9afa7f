//! Reads the history of one process.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail};

use super::calls::{changes, token_of, what_of};
use super::collect::Collection;
use super::context::Hidden;
use super::order::{Change, Reply};
use super::record::{Held, Pushed, Record, Settled, What, changed, pushed, settled};
use super::seen::Seen;
use super::told::Asking;
use super::verdict::Kind;
use crate::history::{Answer, Call, ClaimedItem, Event, Verb};

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
    /// Of each id, what was claimed and has not been started: version, due, attempt.
    claimed: HashMap<String, Vec<(u32, u64, u32)>>,
    /// Of each id whose push waits for replicas: the calls that pushed it, and where their records are.
    waiting: HashMap<String, Vec<(u64, usize)>>,
}

/// Reads all of it; `name` is for a history that does not say whose it is.
pub(super) fn read(all: &mut Collection, name: &str, lines: impl Iterator<Item = Result<(u64, Event)>>) -> Result<()> {
    let number = u16::try_from(all.processes.len()).context("too many histories")?;
    all.processes.push(name.to_owned());
    let (open, claimed, waiting) = (HashMap::new(), HashMap::new(), HashMap::new());
    let mut process = Process { all, number, open, asking: Asking::default(), claimed, waiting };
    for line in lines {
        let (t_us, event) = line?;
        process.take(t_us, event).with_context(|| format!("{name} at {t_us} us"))?;
    }
    // Nobody knows about those that have no end.
    let open: Vec<_> = process.open.drain().collect();
    open.into_iter().for_each(|(_, open)| process.unknown(&open));
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
                self.asking.invoked(call, &what);
                self.open.insert(call, Open { number: call, asked_us: t_us, queue, call: what });
            }
            Event::Ok { call, seq, now_us, born, answer } => {
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
                self.answered(&open, &born, reply, answer)?;
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
            Event::Asked { op, verb, ids, replicas } => self.asking.asked(op, verb, ids, replicas),
            Event::Told { op, outcomes } => {
                self.confirmed(op, &outcomes);
                let number = self.number;
                for lie in self.asking.told(op, &outcomes) {
                    self.all.verdict.found(Kind::ApiLies, || format!("process {number} at {t_us} us: {lie}"));
                }
            }
            Event::Started { id, version, attempt, due_ms, .. } => self.started(t_us, &id, (version, due_ms, attempt)),
            Event::Fault { fault, number, phase, .. } => self.all.fault(t_us, fault, number, phase),
            Event::Undone { queue, born, survived, next } => {
                let epoch = self.epoch(&queue, &born);
                self.all.epochs[epoch].undone.push((survived, next));
            }
            Event::Emptied { queue, born } => {
                let epoch = self.epoch(&queue, &born);
                self.all.epochs[epoch].emptied = true;
            }
            Event::Left { queue, state, items } => {
                let queue = self.all.queue(&queue);
                self.all.queues[usize::from(queue)].scanned = true;
                for item in items {
                    let id = self.all.id(queue, &item.0);
                    self.all.left.push((id, state, item));
                }
            }
            Event::Broken { queue, what } => {
                self.all.verdict.found(Kind::TwoStates, || format!("queue {queue}: {what}"));
            }
            Event::LostLease { .. } | Event::Ended { .. } | Event::NoticedEmpty => {}
        }
        Ok(())
    }

    fn epoch(&mut self, queue: &str, born: &str) -> usize {
        let queue = self.all.queue(queue);
        usize::from(self.all.epoch(queue, born))
    }

    /// What a caller who waited for replicas was told was pushed has to be there whatever becomes of the master.
    fn confirmed(&mut self, op: u64, outcomes: &[String]) {
        for (id, call) in self.asking.confirmed(op, outcomes) {
            let calls = self.waiting.remove(&id).unwrap_or_default();
            let Some((_, place)) = calls.iter().find(|(number, _)| Some(*number) == call) else { continue };
            if let Some(Record { what: What::Push { push, .. }, .. }) = self.all.records.get_mut(*place) {
                push.held = Held::Replicas;
                self.all.verdict.replicated += 1;
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

    fn started(&mut self, t_us: u64, id: &str, told: (u32, u64, u32)) {
        let number = self.number;
        let claims = self.claimed.get_mut(id);
        let matching = claims.as_deref().and_then(|claims| claims.iter().position(|claim| *claim == told));
        match (claims, matching) {
            (Some(claims), Some(place)) => {
                claims.remove(place);
                if claims.is_empty() {
                    self.claimed.remove(id);
                }
            }
            (Some(claims), None) => {
                let claims = claims.clone();
                self.all.verdict.found(Kind::ApiLies, || {
                    format!("process {number} at {t_us} us: a handler of {id} saw version, due, attempt {told:?}, claimed were {claims:?}")
                });
            }
            (None, _) => self.all.verdict.found(Kind::Unexpected, || {
                format!("process {number} at {t_us} us: a handler of {id} started without a claim")
            }),
        }
    }

    fn answered(&mut self, open: &Open, born: &str, reply: Reply, answer: Answer) -> Result<()> {
        // Where there is no queue nothing is said about any message.
        if born.is_empty() {
            return Ok(());
        }
        *self.all.verdict.verbs.entry(open.call.verb().to_owned()).or_default() += 1;
        let epoch = self.all.epoch(open.queue, born);
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
            what: What::Left { state: crate::history::State::Dead, failures: 0, crashes: 0 },
        };
        self.all.queues[usize::from(open.queue)].operators.answered(&open.call, &answer, &record);
        match (&open.call, answer) {
            (Call::Claim { token, lease_ms, .. }, Answer::Claimed { items, .. }) => {
                let token = token_of(token);
                let lease_ms = u32::try_from(*lease_ms).unwrap_or(u32::MAX);
                for ClaimedItem(id, version, due_ms, attempt) in items {
                    self.add(&id, open.queue, record, What::Claim { token, due_ms, lease_ms, version, attempt });
                    self.claimed.entry(id).or_default().push((version, due_ms, attempt));
                }
            }
            (Call::Other { verb, .. }, Answer::Other(words)) if verb == "reap" => {
                let died: u64 = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
                self.all.queues[usize::from(open.queue)].died += died;
            }
            (call @ (Call::Push { .. } | Call::Settle { .. } | Call::Change { .. }), Answer::Items(verdicts)) => {
                self.judged(call, open, record, &verdicts)?;
            }
            (Call::Other { .. }, _) => {}
            (call, answer) => bail!("this is no answer to {call:?}: {answer:?}"),
        }
        Ok(())
    }

    fn judged(&mut self, call: &Call, open: &Open, record: Record, verdicts: &[String]) -> Result<()> {
        let (items, queue) = (what_of(call), open.queue);
        if items.len() != verdicts.len() {
            bail!("{} verdicts on {} items", verdicts.len(), items.len());
        }
        for ((id, mut what), word) in items.into_iter().zip(verdicts) {
            if word.starts_with("FULL") {
                self.all.queues[usize::from(queue)].operators.full(record.told_us);
            }
            let unread = || format!("this is no verdict: {word:?}");
            match &mut what {
                What::Push { verdict, push } => {
                    *verdict = pushed(word).with_context(unread)?;
                    if self.asking.waits_for_replicas(id) {
                        push.held = Held::Perhaps;
                        self.waiting.entry(id.to_owned()).or_default().push((open.number, self.all.records.len()));
                    }
                }
                What::Settle { verdict, told_ms, .. } => (*verdict, *told_ms) = settled(word).with_context(unread)?,
                What::Seen(seen) => *seen = Seen::parse(word).with_context(unread)?,
                What::Change { verdict, told_ms, .. } => (*verdict, *told_ms) = changed(word).with_context(unread)?,
                _ => {}
            }
            match what {
                What::Push { verdict: Pushed::Refused, .. } => {
                    let id = self.all.id(queue, id);
                    self.all.refused.insert(id);
                    continue;
                }
                What::Settle { verdict: Settled::Dead, .. } => self.all.queues[usize::from(queue)].died += 1,
                What::Settle { verb: Verb::Bury, .. } => self.all.queues[usize::from(queue)].died += 1,
                _ => {}
            }
            self.add(id, queue, record, what);
        }
        Ok(())
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
            Call::Change { verb: Verb::Get, .. } => return,
            Call::Claim { n, lease_ms, .. } if *n > 0 => {
                queue.hidden.push(Hidden { asked_us: open.asked_us, lease_ms: *lease_ms });
                queue.hidden_room += u64::from(*n);
            }
            _ => {}
        }
        queue.operators.unknown(open.asked_us, &open.call);
        queue.unknown_calls += 1;
        for (id, what) in what_of(&open.call) {
            let id = self.all.id(open.queue, id);
            self.all.unknown.push(Record {
                id,
                epoch: u16::MAX,
                process: self.number,
                order: 0,
                now_us: 0,
                asked_us: open.asked_us,
                told_us: u64::MAX,
                what,
            });
        }
    }
}
