//! Reads the history of one process.

mod answers;
mod effects;

use std::collections::HashMap;

use anyhow::{Context as _, Result};

use crate::check::calls::{changes, what_of};
use crate::check::collect::Collection;
use crate::check::context::Replaced;
use crate::check::queue::order::{Change, Reply};
use crate::check::ticks::Stored;
use crate::check::verdict::Kind;
use crate::check::workers::callers::Asking;
use crate::check::workers::handlers::{Granted, Silences};
use crate::check::workers::running::Running;
use crate::check::workers::unseen::Unseen;
use crate::history::{Answer, BY_HAND, Call, Event, Role};
use crate::queues::{TICKS, is_limited};

struct Open {
    number: u64,
    asked_us: u64,
    queue: u16,
    master: u16,
    epoch: u64,
    probes: bool,
    call: Call,
}

/// The state while a history is read.
struct Process<'a> {
    all: &'a mut Collection,
    number: u16,
    role: Role,
    open: HashMap<u64, Open>,
    /// The operations without an outcome, for each queue.
    asking: Vec<Asking>,
    granted: Vec<Granted>,
    silences: Silences,
    /// The queue of each operation that has no outcome yet.
    asked_of: HashMap<u64, u16>,
    running: Running,
    unseen: Unseen,
    /// For each queue and id whose push waits for replicas: the calls that pushed it, and the
    /// indices of their records.
    waiting: HashMap<(u16, String), Vec<(u64, usize)>>,
    /// For each queue and id whose push got `FINISHED` and whose caller has no outcome yet: its
    /// calls, as above.
    finished: HashMap<(u16, String), Vec<(u64, usize)>>,
}

/// Reads a history. `name` is used if the history does not name its process.
pub(in crate::check) fn read(
    all: &mut Collection,
    name: &str,
    lines: impl Iterator<Item = Result<(u64, Event)>>,
) -> Result<()> {
    let number = u16::try_from(all.processes.len()).context("too many histories")?;
    all.processes.push(name.to_owned());
    let (open, granted, asking) = (HashMap::new(), Vec::new(), Vec::new());
    let (waiting, finished) = (HashMap::new(), HashMap::new());
    let mut process = Process {
        all,
        number,
        role: Role::Harness,
        open,
        asking,
        granted,
        silences: Silences::default(),
        asked_of: HashMap::new(),
        running: Running::default(),
        unseen: Unseen::default(),
        waiting,
        finished,
    };
    let (mut ended, mut last_us) = (false, 0);
    for line in lines {
        let (t_us, event) = line?;
        match &event {
            Event::Begin { role, .. } => process.role = *role,
            Event::End => ended = true,
            _ => {}
        }
        last_us = t_us;
        process
            .take(t_us, event)
            .with_context(|| format!("{name} at {t_us} us"))?;
    }
    process.end(ended, last_us);
    // The outcome of a call without an end is unknown.
    let open: Vec<_> = process.open.drain().collect();
    open.into_iter()
        .for_each(|(_, open)| process.unknown(&open));
    Ok(())
}

impl Process<'_> {
    fn take(&mut self, t_us: u64, event: Event) -> Result<()> {
        match event {
            Event::Begin { process, role, .. } => {
                if role == Role::Worker {
                    self.all.faults.worker(&process);
                }
                self.all.moves.has_movers |= role == Role::Mover;
                if let Some(name) = self.all.processes.last_mut() {
                    *name = process;
                }
            }
            Event::Invoke {
                call,
                queue,
                master,
                epoch,
                probes,
                what,
            } => {
                let (queue, master) = (self.queue(&queue), self.all.master(&master));
                self.invoked(t_us, queue, &what);
                if self.is_ticks(queue) {
                    self.all.ticks.invoked(&what);
                }
                let whole = self.whole(queue);
                match (self.role, u16::try_from(whole)) {
                    (Role::Serve, Ok(of)) => {
                        self.all
                            .served
                            .invoked(self.number, of, t_us, (call, &what))
                    }
                    _ => self.granted[whole].invoked(&what),
                }
                self.asking[whole].invoked(call, &what, probes);
                self.unseen.invoked(self.whole_number(queue), t_us, &what);
                self.open.insert(
                    call,
                    Open {
                        number: call,
                        asked_us: t_us,
                        queue,
                        master,
                        epoch,
                        probes,
                        call: what,
                    },
                );
            }
            Event::Ok {
                call,
                seq,
                now_us,
                incarnation,
                epoch,
                answer,
            } => {
                let open = self.open.remove(&call).context("an answer to no call")?;
                let lease_us = 1_000 * self.unseen.lease_ms;
                self.silences.answered(open.master, lease_us, t_us);
                let answer = answer.of_items(what_of(&open.call).len());
                if let Answer::Items(verdicts) = &answer {
                    let whole = self.whole(open.queue);
                    self.asking[whole].answered(call, &open.call, verdicts);
                    self.all.served.answered((self.number, call), verdicts);
                    self.named(&open, epoch, verdicts);
                }
                self.all.partitions.attended(open.queue, &open.call, t_us);
                let times = (open.asked_us, t_us);
                let queues = (open.queue, self.whole_number(open.queue));
                let given_up = self.unseen.answered(queues, times, &open.call);
                let given_up = given_up.into_iter().map(|token| (open.queue, token));
                self.all.given_up.extend(given_up);
                self.granted_in(&open, epoch, &answer);
                self.mapped(&open, &answer, now_us, &incarnation);
                let reply = Reply {
                    asked_us: open.asked_us,
                    answered_us: t_us,
                    now_us: u64::try_from(now_us).unwrap_or(0),
                    seq,
                    changed: self.changes(&open, &answer),
                    master: open.master,
                };
                self.answered(&open, &incarnation, reply, answer)?;
            }
            Event::Refused { call, .. } => {
                let open = self.open.remove(&call).context("a refusal of no call")?;
                let whole = self.whole(open.queue);
                self.asking[whole].refused(call, &open.call);
                self.all.served.refused((self.number, call));
                let whole = self.whole_number(open.queue);
                self.unseen.refused(whole, t_us, &open.call);
                self.refused(&open);
            }
            Event::Unknown { call, .. } => {
                let open = self.open.remove(&call).context("the end of no call")?;
                self.unseen
                    .unknown(open.queue, open.asked_us, t_us, &open.call);
                self.unknown(&open);
            }
            Event::Asked {
                op,
                queue,
                verb,
                ids,
                replicas,
            } => {
                let queue = self.queue(&queue);
                self.asked_of.insert(op, queue);
                self.unseen.asked(queue, &ids);
                self.asking[usize::from(queue)].asked(op, verb, ids, replicas);
            }
            Event::Told { op, outcomes } => {
                // If no queue knows the operation, its outcome counts as a lie.
                let queue = self.asked_of.remove(&op).unwrap_or_else(|| self.queue(""));
                self.confirmed(queue, op, &outcomes);
                self.believed(queue, op, &outcomes);
                let number = self.number;
                for lie in self.asking[usize::from(queue)].told(op, &outcomes) {
                    self.all.verdict.found(Kind::ApiLies, || {
                        format!("process {number} at {t_us} us: {lie}")
                    });
                }
            }
            Event::Started {
                queue,
                id,
                version,
                attempt,
                due_ms,
                by_hand,
                ..
            } => {
                let (number, place) = (self.number, self.queue(&queue));
                let granted = &mut self.granted[usize::from(place)];
                if let Err((kind, words)) = granted.started(&id, (version, due_ms, attempt)) {
                    self.all.verdict.found(kind, || {
                        format!("process {number} at {t_us} us, queue {queue}: {words}")
                    });
                }
                if !by_hand {
                    self.handler_started(t_us, &queue);
                }
            }
            Event::Http(event) => self.consumed(t_us, event),
            Event::Stalled { ms } => self
                .all
                .faults
                .stalls
                .push((t_us.saturating_sub(ms * 1_000), t_us)),
            Event::Fault {
                fault,
                number,
                phase,
                detail,
            } => {
                let (faults, verdict) = (&mut self.all.faults, &mut self.all.verdict);
                faults.take(t_us, (fault, number), phase, detail, verdict);
            }
            Event::Undone {
                queue,
                incarnation,
                survived,
                next,
            } => {
                let epoch = self.epoch(&queue, &incarnation);
                self.all.epochs[epoch].undone.push((survived, next));
            }
            Event::Replaced {
                queue,
                incarnation,
                survived,
                master,
            } => {
                let (epoch, master) = (self.epoch(&queue, &incarnation), self.all.master(&master));
                self.all.epochs[epoch].replaced.push(Replaced {
                    at_us: t_us,
                    survived,
                    master,
                });
            }
            Event::Map { queue, map } => {
                let number = self.queue(&queue);
                self.all.partitions.map((number, &queue), &map, t_us);
            }
            Event::Touched { queues, since_us } => {
                for queue in queues {
                    let queue = self.queue(&queue);
                    self.all.partitions.touched(queue, since_us, t_us);
                }
            }
            Event::Calm => self.all.partitions.calm_us = Some(t_us),
            Event::Vanished { queue, master } => {
                let (queue, master) = (self.queue(&queue), self.all.master(&master));
                self.all.vanished.push((queue, master, t_us));
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
            Event::Schedule {
                name,
                state,
                numbers,
                spec,
                pattern,
                ..
            } => self.all.ticks.stored.push(Stored {
                name,
                state,
                numbers: *numbers,
                spec,
                pattern,
            }),
            Event::Broken { queue, what } => {
                self.all
                    .verdict
                    .found(Kind::TwoStates, || format!("queue {queue}: {what}"));
            }
            Event::OlderScripts => drop(self.all.older.insert(self.number)),
            Event::Serves {
                concurrency,
                lease_ms,
                queues,
            } => {
                self.unseen.lease_ms = lease_ms;
                self.running.serves(concurrency, queues);
            }
            Event::Ended { queue, wants, .. } if wants != BY_HAND => self.running.ended(&queue),
            Event::Ended { .. } | Event::LostLease { .. } | Event::NoticedEmpty | Event::End => {}
        }
        Ok(())
    }

    /// Judges the start of a handler: whether the worker may run it beside the handlers that run.
    fn handler_started(&mut self, t_us: u64, queue: &str) {
        if self.running.is_known() {
            self.all.verdict.shares_judged += 1;
        } else {
            self.all.has_starts_without_shares = true;
        }
        if let Some(words) = self.running.started(queue) {
            let number = self.number;
            self.all.verdict.found(Kind::SharesBroken, || {
                format!("process {number} at {t_us} us: {words}")
            });
        }
    }

    /// The number of a queue, and room for its callers and grants.
    fn queue(&mut self, name: &str) -> u16 {
        let queue = self.all.queue(name);
        let room = usize::from(queue) + 1;
        if self.granted.len() < room {
            self.granted.resize_with(room, Granted::default);
            self.asking.resize_with(room, Asking::default);
        }
        queue
    }

    /// In a queue with a limit, a claim that grants nothing may have closed the queue, which is a
    /// change.
    fn changes(&self, open: &Open, answer: &Answer) -> Change {
        let is_limited = || is_limited(&self.all.queues[usize::from(open.queue)].name);
        match (changes(&open.call, answer), &open.call) {
            (Change::No, Call::Claim { .. }) if is_limited() => Change::Perhaps,
            (change, _) => change,
        }
    }

    /// Whether it is the queue of the schedules.
    fn is_ticks(&self, queue: u16) -> bool {
        self.all.queues[usize::from(queue)].name == TICKS
    }

    fn epoch(&mut self, queue: &str, incarnation: &str) -> usize {
        let queue = self.all.queue(queue);
        usize::from(self.all.epoch(queue, incarnation))
    }
}
