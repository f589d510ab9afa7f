//! The part of the model for reads, and the dispatch of each operation.

use anyhow::Result;

use crate::model::client::operation::Operation;
use crate::model::message::{Message, Place};
use crate::model::schedules::fields::counted;
use crate::model::schedules::schedule::NEVER_MS;
use crate::model::schedules::schedule::is_timer;
use crate::model::world::{Now, World};
use crate::reply::{Reply, Text};
use crate::state::{State, lease_of};

pub(crate) const COUNTERS: [&str; 15] = [
    "pushed",
    "claimed",
    "acked",
    "repeated",
    "retried",
    "released",
    "crashed",
    "died",
    "cancelled",
    "requeued",
    "purged",
    "trimmed",
    "expired",
    "throttled",
    "snoozed",
];
/// Release 0.1 has the first twelve of these counters and limits.
const COUNTERS_BEFORE: usize = 12;
const LIMITS_BEFORE: usize = 6;
const LIMITS: [(&str, u64); 9] = [
    ("max_attempts", 20),
    ("max_crashes", 5),
    ("max_messages", 0),
    ("max_payload_bytes", 1_048_576),
    ("dead_keep_ms", 2_592_000_000),
    ("dead_keep", 100_000),
    ("max_leased", 0),
    ("max_throttle_ms", 900_000),
    ("max_remembered", 1_000_000),
];

impl World {
    /// Applies the operation to the model and returns the expected reply. `after` is the state in
    /// Redis after the call, because scripts choose some values.
    pub(crate) fn apply(
        &mut self,
        now: Now,
        operation: &Operation,
        after: &State,
    ) -> Result<Reply> {
        self.was_full = self.is_full && self.is_at_max_leased();
        self.were_extended = self.extended();
        Ok(match operation {
            Operation::Push {
                upsert,
                attempt,
                items,
            } => self.push(now, *upsert, attempt.as_ref(), items, after)?,
            Operation::Promote(limit) => self.promote(now, *limit),
            Operation::Claim {
                count,
                token,
                lease,
            } => self.claim(now, *count, token, *lease),
            Operation::Ack(holds) => self.ack(now, holds),
            Operation::AckPush { hold, items } => self.ack_push(now, hold, items),
            Operation::Again(items) => self.again(now, items),
            Operation::Retry(items) => self.retry(now, items),
            Operation::Release(holds) => self.release(now, holds),
            Operation::Bury(items) => self.bury(now, items),
            Operation::Snooze(items) => self.snooze(now, items),
            Operation::Throttle(items) => self.throttle(now, items),
            Operation::Close(wait_ms) => self.close(now, *wait_ms),
            Operation::Extend(items) => self.extend(now, items),
            Operation::Reap(limit) => self.reap(now, *limit, after)?,
            Operation::EndLeases(holds) => self.end_leases(now, holds, after)?,
            Operation::Cancel { dead, since, ids } => self.cancel(now, *dead, *since, ids),
            Operation::Reschedule(items) => self.reschedule(now, items),
            Operation::RunNow(ids) => self.run_now(now, ids),
            Operation::RequeueIds(ids) => self.requeue_ids(now, ids),
            Operation::RequeueOldest { limit, before } => self.requeue_oldest(now, *limit, *before),
            Operation::Purge { state, limit } => self.purge(now, state, *limit),
            Operation::Pause(period_ms) => self.pause(now, *period_ms, after)?,
            Operation::Resume => self.resume(now),
            Operation::Beat { node, presence } => self.beat(now, node, *presence),
            Operation::Configure(pairs) => self.configure(now, pairs, after)?,
            Operation::Peek {
                state,
                cursor,
                limit,
            } => self.peek(now, state, cursor, *limit),
            Operation::Get(id) => self.get(now, id),
            Operation::Stats => self.stats(now),
            Operation::Schedule(call) => self.declare(now, call, after)?,
            Operation::Amend { change, names } => self.amend(now, change, names),
            Operation::Trigger { name, times } => self.trigger(now, name, times.as_deref()),
            Operation::Refill(items) => self.refill(now, items),
            Operation::Schedules(page) => self.show_schedules(now, page),
            Operation::Dues(times) => self.dues(now, times),
            Operation::Held(token) => self.grant_of(now, token),
            Operation::Verify { repairs } => self.verify(now, *repairs),
            Operation::Audit { part, repairs } => self.audit(now, part, *repairs),
            Operation::Remap {
                form,
                expected,
                epoch,
                tags,
            } => self.remap(now, (form, *expected), (*epoch, tags), after)?,
        })
    }

    fn get(&self, now: Now, id: &Text) -> Reply {
        let message = self.messages.get(id).filter(|_| !is_timer(id));
        let Some(message) = message else {
            let known = self.outcome(now, id);
            return Reply::List([vec![self.header(now), Reply::List(Vec::new())], known].concat());
        };
        let pairs: [(&str, Reply); 7] = [
            ("state", message.place.name().into()),
            ("time_ms", message.place.time().into()),
            ("failures", message.failures.into()),
            ("crashes", message.crashes.into()),
            ("options", message.options().into()),
            ("error", (&message.error).into()),
            ("payload", (&message.payload).into()),
        ];
        let next = message.next.as_ref().map(|next| next.place.time());
        let next = next.map(|due| ("next_due", due.into()));
        let lease = self.lease_of(id, message).into_iter().flatten();
        let lease = ["lease", "since", "to_bury"].into_iter().zip(lease);
        let flat = pairs
            .into_iter()
            .chain(next)
            .chain(lease)
            .flat_map(|(name, value)| [name.into(), value])
            .collect();
        Reply::List(vec![self.header(now), Reply::List(flat)])
    }

    /// A page continues after the last shown message, or at its time if that message has moved. A
    /// page of the ready list continues at a position.
    fn peek(&self, now: Now, state: &str, cursor: &Text, limit: usize) -> Reply {
        let listed = self.listed(state);
        let cut = cursor.0.iter().position(|byte| *byte == b':');
        let last = cut.map(|colon| {
            let time: u64 = String::from_utf8_lossy(&cursor.0[..colon])
                .parse()
                .unwrap_or(0);
            (time, Text(cursor.0[colon + 1..].to_vec()))
        });
        let start = match last {
            None => 0,
            Some((position, _)) if state == "ready" => (position as usize - 1).min(listed.len()),
            Some(last) => match listed.iter().position(|item| *item == last) {
                Some(position) => position + 1,
                None => listed.iter().filter(|(time, _)| *time < last.0).count(),
            },
        };
        let page: Vec<_> = listed[start..].iter().take(limit).collect();
        let next = match page.last() {
            Some(_) if page.len() < limit => Text::default(),
            Some(_) if state == "ready" => format!("{}:", start + limit + 1).into(),
            Some((time, id)) => Text([format!("{time}:").as_bytes(), &id.0].concat()),
            None => Text::default(),
        };
        let item = |(time, id): &&(u64, Text)| {
            let message = self.messages.get(id);
            let (failures, crashes) =
                message.map_or((0, 0), |message| (message.failures, message.crashes));
            let error = message
                .map(|message| message.error.clone())
                .unwrap_or_default();
            let lease = message.and_then(|message| self.lease_of(id, message));
            let mut item = vec![
                id.into(),
                (*time).into(),
                failures.into(),
                crashes.into(),
                error.into(),
            ];
            item.extend(lease.into_iter().flatten());
            Reply::List(item)
        };
        let shown = page.iter().filter(|(_, id)| !is_timer(id));
        Reply::List(vec![
            self.header(now),
            next.into(),
            Reply::List(shown.map(item).collect()),
        ])
    }

    /// The name of a leased message's lease, when the delivery began, and whether it is to be buried.
    /// Release 0.1 does not return them.
    fn lease_of(&self, id: &Text, message: &Message) -> Option<[Reply; 3]> {
        match &message.place {
            Place::Leased {
                token, own, since, ..
            } if !self.is_frozen => {
                let noted = self.starts.get(id).copied().unwrap_or(0);
                let since = if *own { noted } else { *since };
                Some([lease_of(token).into(), since.into(), 0u64.into()])
            }
            _ => None,
        }
    }

    fn dues(&self, now: Now, times: &[u64]) -> Reply {
        let mut listed = self.listed("scheduled");
        // A timer without a next fire has the due time 2200-01-01 and does not count.
        listed.retain(|(due, _)| *due < NEVER_MS);
        let mut counts = vec![0u64; times.len() + 1];
        for (due, _) in &listed {
            counts[times.iter().filter(|time| *time <= due).count()] += 1;
        }
        let last = listed.last().map(|(due, _)| (*due).into());
        Reply::List(vec![
            self.header(now),
            Reply::List(counts.into_iter().map(Reply::from).collect()),
            last.unwrap_or((-1i64).into()),
        ])
    }

    /// The messages under the lease of this claim's token, in the order of the grant.
    fn grant_of(&self, now: Now, token: &Text) -> Reply {
        let (mut ids, mut payloads, mut details) = (Vec::new(), Vec::new(), Vec::new());
        let mut until: Reply = (-1i64).into();
        for id in self.grants.get(token).into_iter().flatten() {
            let Some(message) = self.messages.get(id) else {
                continue;
            };
            let Place::Leased {
                token: current,
                due,
                deadline,
                own: false,
                ..
            } = &message.place
            else {
                continue;
            };
            if current != token {
                continue;
            }
            let crashes = match message.crashes {
                0 => String::new(),
                crashes => format!("crashes={crashes}"),
            };
            let options = [message.options(), crashes];
            let options = options.iter().filter(|words| !words.is_empty());
            let options: Vec<&str> = options.map(String::as_str).collect();
            let attempt = message.failures + message.crashes + 1;
            until = (*deadline).into();
            ids.push(id.into());
            payloads.push((&message.payload).into());
            details.push(format!("{due} {attempt} {}", options.join(" ")).into());
        }
        let is_closed = self.closed(now).is_some();
        Reply::List(vec![
            self.header(now),
            if is_closed { 0 } else { self.ready.len() }.into(),
            until,
            Reply::List(ids),
            Reply::List(payloads),
            Reply::List(details),
            self.limit("max_attempts").unwrap_or(20).into(),
            0u64.into(),
        ])
    }

    fn stats(&self, now: Now) -> Reply {
        if self.incarnation.is_none() {
            return Reply::List(vec![self.header(now), Reply::List(Vec::new())]);
        }
        let clock = now.floor();
        let scheduled = self.listed("scheduled");
        let due = scheduled.iter().filter(|(due, _)| *due <= clock).count();
        let ready_due = self
            .ready
            .first()
            .and_then(|id| self.place(id))
            .map(Place::time);
        let oldest = scheduled
            .first()
            .map(|(due, _)| *due)
            .into_iter()
            .chain(ready_due)
            .min();
        let live = self
            .nodes
            .values()
            .filter(|seen| **seen + 3_000 >= clock)
            .count();
        let mut pairs: Vec<(&str, Reply)> = vec![
            ("scheduled", scheduled.len().into()),
            ("due", due.into()),
            ("ready", self.ready.len().into()),
            ("leased", self.listed("leased").len().into()),
            ("dead", self.listed("dead").len().into()),
            ("recent", self.recent.len().into()),
            (
                "nodes",
                if self.is_home && self.map.is_some() {
                    0
                } else {
                    live
                }
                .into(),
            ),
            (
                "overdue_ms",
                oldest
                    .map_or(0, |oldest| clock.saturating_sub(oldest))
                    .into(),
            ),
        ];
        let (counters, limits) = match self.is_frozen {
            true => (COUNTERS_BEFORE, LIMITS_BEFORE),
            false => (COUNTERS.len(), LIMITS.len()),
        };
        let count = |name: &&'static str| self.counters.get(name).copied().unwrap_or(0);
        pairs.extend(
            COUNTERS[..counters]
                .iter()
                .map(|name| (*name, count(name).into())),
        );
        let limit = |(name, default): &(&'static str, u64)| {
            (*name, self.limit(name).unwrap_or(*default).into())
        };
        pairs.extend(LIMITS[..limits].iter().map(limit));
        let (leader, leader_until, _, reap_after) = self.beats.clone().unwrap_or_default();
        pairs.extend([
            ("leader_until", leader_until.into()),
            ("reap_after", reap_after.into()),
            ("leader", leader.into()),
        ]);
        let drained = ("drained", 0_u64.into()); // drains are outside of the model
        let parked = ("parked_until", self.parked_until.unwrap_or(0).into());
        let closed = ("closed_until", self.opens(now).unwrap_or(0).into());
        let full = ("full", usize::from(self.was_full).into());
        let rate = self.limits.get("rate").cloned().unwrap_or_default();
        let rate = ("rate", rate.into());
        pairs.extend(
            (!self.is_frozen)
                .then_some([drained, parked, closed, full, rate])
                .into_iter()
                .flatten(),
        );
        let counted = self.has_layout_4.then(|| counted(&self.schedules));
        pairs.extend(
            counted
                .into_iter()
                .flatten()
                .map(|(name, count)| (name, count.into())),
        );
        pairs.extend(self.map.is_some().then(|| ("moving", 0u64.into())));
        let flat = pairs
            .into_iter()
            .flat_map(|(name, value)| [name.into(), value])
            .collect();
        Reply::List(vec![self.header(now), Reply::List(flat)])
    }
}
