//! The results that the random runs must meet.

use anyhow::Result;

use crate::model::Run;
use crate::model::client::operation::{Operation, Presence};
use crate::reply::Reply;

/// The results that the runs must meet together: all that the model can produce.
pub(crate) const REQUIRED: &[&str] = &[
    "push CREATED",
    "push EXISTS scheduled",
    "push EXISTS leased",
    "push EXISTS dead",
    "push EXISTS ready",
    "upsert CREATED",
    "upsert EXISTS leased",
    "upsert EXISTS dead",
    "upsert MOVED",
    "upsert FINISHED",
    "upsert FULL",
    "upsert EXPIRED",
    "upsert INVALID",
    "push FINISHED",
    "push EXPIRED",
    "push FULL",
    "push INVALID",
    "promote some",
    "promote none",
    "claim some",
    "claim none",
    "claim after-crash-2",
    "ack OK",
    "ack GONE",
    "ack LOST",
    "again OK",
    "again GONE",
    "again LOST",
    "again INVALID",
    "retry SCHEDULED",
    "retry DEAD",
    "retry GONE",
    "retry LOST",
    "release OK",
    "release GONE",
    "release LOST",
    "retry DROPPED",
    "snooze SCHEDULED",
    "snooze DEAD",
    "snooze DROPPED",
    "snooze GONE",
    "snooze LOST",
    "snooze INVALID",
    "throttle OK",
    "throttle GONE",
    "throttle LOST",
    "throttle INVALID",
    "expired",
    "throttled",
    "snoozed",
    "claim closes",
    "claim fills",
    "bury OK",
    "bury GONE",
    "bury LOST",
    "extend OK",
    "extend GONE",
    "extend LOST",
    "extend INVALID",
    "reap some",
    "reap none",
    "reap died",
    "reap SCHEDULED",
    "reap DEAD",
    "reap GONE",
    "reap LOST",
    "cancel CANCELLED",
    "cancel CANCELLED earlier",
    "cancel LEASED",
    "cancel DEAD",
    "cancel ABSENT",
    "reschedule MOVED",
    "reschedule CONFLICT",
    "reschedule LEASED",
    "reschedule DEAD",
    "reschedule ABSENT",
    "reschedule INVALID",
    "run_now MOVED",
    "run_now ALREADY",
    "run_now LEASED",
    "run_now DEAD",
    "run_now ABSENT",
    "requeue REQUEUED",
    "requeue NOT_DEAD",
    "requeue ABSENT",
    "requeue some",
    "requeue none",
    "purge some",
    "purge none",
    "pause OK",
    "pause closes",
    "resume OK",
    "beat leads",
    "beat follows",
    "beat parks",
    "trimmed",
    "configure OK",
    "peek some",
    "peek none",
    "get some",
    "get none",
    "stats some",
    "dues some",
    "held some",
    "held none",
    "verify none",
    "audit none",
    "audit some",
    "push REMEMBERED",
    "push USED",
    "upsert NEXT",
    "upsert REMEMBERED",
    "ack_push OK",
    "ack_push GONE",
    "ack_push LOST",
    "ack_push REFUSED",
    "ack_push with CREATED",
    "ack_push with EXISTS scheduled",
    "ack_push with EXISTS leased",
    "ack_push with REMEMBERED",
    "ack_push with FULL",
    "ack_push with INVALID",
    "cancel CANCELLED next",
    "get finished",
    "get expired",
    "get cancelled",
    // Replies do not show these events, so the model counts them.
    "window ended early",
    "window reused",
    "undone",
    "full of names",
    "debounced",
    "revived",
    "repeated revive",
    "repeated next, scheduled",
    "repeated next, leased",
    "repeated next, dead",
    "next message replaced",
    "next message debounced",
    "next message started by ack",
    "next message started by ack_push",
    "next message started by again",
    "next message started by bury",
    "next message started by reap",
    "next message started by release",
    "next message started by retry",
    "next message started by snooze",
    "next message started by throttle",
];

/// Results that the runs about schedules must meet together.
pub(crate) const REQUIRED_OF_SCHEDULES: &[&str] = &[
    "schedule OK",
    "schedule STALE",
    "schedule INVALID",
    "schedule prunes",
    "schedule with CREATED",
    "schedule with CHANGED",
    "schedule with KEPT",
    "schedule with dry_run",
    "amend OK",
    "amend GONE",
    "trigger CREATED",
    "trigger EXISTS",
    "trigger OVERLAPS",
    "trigger INVALID",
    "trigger GONE",
    "refill OK",
    "refill KEPT",
    "refill CHANGED",
    "refill INVALID",
    "refill GONE",
    "schedules some",
    "schedules none",
    "schedule makes a tick at once",
    "a paused schedule is changed",
    "a change before the last fire",
    "every with missed=one makes a tick",
    "every with missed=skip makes a tick",
    "every with missed=all makes a tick",
    "a cron with missed=one makes a tick",
    "a cron with missed=skip makes a tick",
    "a cron with missed=all makes a tick",
    "missed=one misses fires",
    "missed=skip misses fires",
    "missed=all misses fires",
    "all: missed, beyond max",
    "all: missed, too late",
    "overlapped: a tick lives",
    "overlapped: its id is in use",
    "a scheduled tick is replaced",
    "a ready tick is replaced",
    "a leased tick is not replaced",
    "a timer was early",
    "a purge leaves a timer",
    "a fire ends in dry",
    "a fire ends in ended",
    "pause of active gives paused",
    "pause of dry gives paused",
    "resume of paused gives active",
    "resume of paused gives dry",
    "resume of paused gives ended",
    "resumed before the first fire",
    "fires count as paused",
    "refill of active gives active",
    "refill of paused gives paused",
    "refill of dry gives active",
    "refill of ended gives active",
    "refill of ended gives ended",
    "newer rules replace a list",
];

impl Run {
    pub(crate) fn cover(&mut self, operation: &Operation, reply: &Reply) -> Result<()> {
        let some = |count: i64| if count > 0 { "some" } else { "none" }.to_owned();
        let mut met = match operation {
            Operation::Promote(_)
            | Operation::RequeueOldest { .. }
            | Operation::Purge { .. }
            | Operation::Reap(_) => vec![some(reply.part(1)?.int()?)],
            Operation::Claim { .. } => vec![some(reply.deliveries()?.len() as i64)],
            Operation::Peek { .. } => vec![some(reply.part(2)?.list()?.len() as i64)],
            Operation::AckPush { .. } => {
                let texts = reply.part(2)?.list()?.iter().map(Reply::text);
                let texts = texts.map(|text| Ok(format!("with {}", text?)));
                let all: Vec<String> = texts.collect::<Result<_>>()?;
                [vec![reply.part(1)?.text()?], all].concat()
            }
            Operation::Get(_) if reply.list()?.len() > 2 => vec![reply.part(2)?.text()?],
            Operation::Get(_) | Operation::Stats | Operation::Dues(_) => {
                vec![some(reply.part(1)?.list()?.len() as i64)]
            }
            Operation::Held(_) | Operation::Audit { .. } => {
                vec![some(reply.part(3)?.list()?.len() as i64)]
            }
            Operation::Verify { .. } => vec![some(reply.part(1)?.list()?.len() as i64)],
            Operation::Beat { presence, .. } => {
                let parks = matches!(presence, Presence::Park(_)).then(|| "parks".to_owned());
                let leads = reply.part(1)?.int()? == 1;
                let leads = if leads { "leads" } else { "follows" }.to_owned();
                [leads].into_iter().chain(parks).collect()
            }
            Operation::Pause(_)
            | Operation::Resume
            | Operation::Close(_)
            | Operation::Configure(_)
            | Operation::Remap { .. } => vec![reply.part(1)?.text()?],
            Operation::Schedules(_) => vec![some(reply.part(2)?.list()?.len() as i64)],
            Operation::Schedule(call) => {
                let replies = reply.part(2)?.list()?.iter().map(Reply::text);
                let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
                let mut met = vec![first(&reply.part(1)?.text()?)];
                for text in replies
                    .filter(|_| met[0] == "OK")
                    .collect::<Result<Vec<_>>>()?
                {
                    met.push(format!("with {}", first(&text)));
                }
                let removed = !reply.part(3)?.list()?.is_empty();
                met.extend(removed.then(|| "prunes".to_owned()));
                met.extend(call.dry_run.then(|| "with dry_run".to_owned()));
                met
            }
            Operation::Trigger { .. } if reply.part(1)?.text().is_ok() => {
                vec![reply.part(1)?.text()?]
            }
            Operation::Trigger { .. } | Operation::Refill(_) | Operation::Amend { .. } => {
                let first = |text: &String| text.split(' ').next().unwrap_or_default().to_owned();
                reply.items()?.iter().map(first).collect()
            }
            _ => reply.items()?,
        };
        match operation {
            Operation::Pause(Some(_)) => met.push("closes".to_owned()),
            Operation::Reap(_) if reply.part(2)?.int()? > 0 => met.push("died".to_owned()),
            Operation::Claim { .. } => {
                let originals = self
                    .world
                    .messages
                    .values()
                    .any(|message| message.original.is_some());
                met.extend(
                    (originals && self.world.has_work(self.driver.now))
                        .then(|| "after-crash-2".to_owned()),
                );
            }
            _ => {}
        }
        for answer in met {
            // An ack_push answers "with EXISTS scheduled" for a message.
            let result = answer.trim_start_matches("with ");
            let has_state = ["EXISTS", "CANCELLED"].map(|word| result.starts_with(word));
            let before = usize::from(result != answer);
            let words = before + 1 + usize::from(has_state.contains(&true));
            let kind: Vec<&str> = answer.split(' ').take(words).collect();
            *self
                .coverage
                .entry(format!("{} {}", operation.verb(), kind.join(" ")))
                .or_default() += 1;
        }
        Ok(())
    }
}
