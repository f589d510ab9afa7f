//! Single rules of the scripts: each test sets up a state, calls a verb and compares the state
//! after the call.

/// What a claim grants, and its leases.
mod claims {
    pub(crate) mod burials;
    pub(crate) mod crashes;
    pub(crate) mod due;
    pub(crate) mod grants;
    pub(crate) mod held;
    pub(crate) mod leases;
    pub(crate) mod shares;
    pub(crate) mod values;
}

/// What a call costs at most.
mod cost {
    pub(crate) mod bounds;
    pub(crate) mod calls;
    pub(crate) mod limits;
    pub(crate) mod table;
}

/// Rates, expiries and other limits on starts.
mod limits {
    pub(crate) mod closed;
    pub(crate) mod leased;
    pub(crate) mod rates;
}

/// The lives of messages.
mod lives {
    pub(crate) mod ends;
    pub(crate) mod events;
}

/// Nodes and notices.
mod nodes {
    pub(crate) mod drains;
    pub(crate) mod hints;
    pub(crate) mod lists;
    pub(crate) mod parked_notices;
    pub(crate) mod parking;
    pub(crate) mod processes;
    pub(crate) mod rosters;
}

/// Queues with a map of partitions.
mod partitions {
    pub(crate) mod calls;
    pub(crate) mod layout3;
    pub(crate) mod moves;
    pub(crate) mod moves_by_callers;
    pub(crate) mod remaps;
    pub(crate) mod verbs_of_moves;
}

/// Pushes, and what later happens to their messages.
mod pushes {
    pub(crate) mod debounce;
    pub(crate) mod expiry;
    pub(crate) mod follow_ups;
    pub(crate) mod next;
    pub(crate) mod next_repeats;
    pub(crate) mod options;
    pub(crate) mod outcomes;
    pub(crate) mod repeated_cancels;
    pub(crate) mod repeats;
    pub(crate) mod shared;
    pub(crate) mod windows;
}

/// Reads, repairs and the history.
mod reads {
    pub(crate) mod history;
    pub(crate) mod pages;
    pub(crate) mod repairs;
    pub(crate) mod repairs_of_fields;
    pub(crate) mod selections;
}

/// Refused calls, and unusual values.
mod refused {
    pub(crate) mod bad_moves;
    pub(crate) mod bytes;
    pub(crate) mod nonsense;
    pub(crate) mod odd_input;
    pub(crate) mod older_roles;
    pub(crate) mod refusals;
    pub(crate) mod roles;
}

/// Schedules and their ticks.
mod schedules {
    pub(crate) mod bounds;
    pub(crate) mod declared;
    pub(crate) mod input;
    pub(crate) mod overlap;
    pub(crate) mod ticks;
    pub(crate) mod verbs;
}

use anyhow::{Result, ensure};
pub(crate) use refused::older_roles::user_of_0_1;

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::scripts::verb;
use crate::state::{Scores, State, in_order};

/// A queue with a message in every state: `s` scheduled in an hour, `r` ready, `l` leased (token
/// `l`), `d` dead.
fn with_every_state() -> Result<Queue> {
    let mut queue = Queue::start()?;
    seed(&mut queue)?;
    Ok(queue)
}

fn seed(queue: &mut Queue) -> Result<()> {
    queue.push(T0, "d", T0, "dead")?;
    ensure!(queue.take(T0, 1, &token('d'))? == ["d"]);
    queue.ok("bury", T0, words!["d", token('d'), "why"])?;
    queue.push(T0, "l", T0, "leased")?;
    ensure!(queue.take(T0, 1, &token('l'))? == ["l"]);
    queue.push(T0, "r", T0, "ready")?;
    queue.ok("promote", T0, words![1])?;
    queue.push(T0, "s", T0 + 3_600 * SECOND, "scheduled")?;
    Ok(())
}

/// Declares the schedules `hourly` and the cron `nightly`, whose list has one fire.
fn declare(queue: &mut Queue) -> Result<()> {
    let fires = format!("2026a 0\n{}", T0 + HOUR);
    let every = words!["hourly", "every=3600000", "", "", "", "payload"];
    let cron = words!["nightly", "zone=UTC", "0 2 * * *", "", fires, "payload"];
    let words = [words!["some", "", ""], every, cron].concat();
    let replies = queue.ok("schedule", T0, words)?;
    ensure!(replies.part(1)?.text()? == "OK", "{replies:?}");
    Ok(())
}

/// Arguments with which each verb does something to the queue of `with_every_state`.
fn plausible(name: &str) -> Vec<Text> {
    (verb(name).plausible)()
}

/// Fails unless the state of the queue is `before` with these changes.
fn expect(queue: &mut Queue, mut before: State, change: impl FnOnce(&mut State)) -> Result<()> {
    change(&mut before);
    let difference = queue.state()?.difference(&before);
    ensure!(difference.is_none(), "{}", difference.unwrap_or_default());
    Ok(())
}

fn add(scores: &mut Scores, id: &str, score: u64) {
    scores.push((id.into(), score as f64));
    *scores = in_order(std::mem::take(scores));
}

fn remove(scores: &mut Scores, id: &str) {
    scores.retain(|(member, _)| *member != Text::from(id));
}

/// Adds to a number in meta.
fn count(state: &mut State, field: &str, more: u64) {
    let number = state.meta.entry(field.into()).or_default();
    *number = (number.text().parse::<u64>().unwrap_or(0) + more).into();
}

/// The ids of a sorted set without the placeholder, in order.
fn ids(scores: &Scores) -> Vec<String> {
    scores
        .iter()
        .filter(|(_, score)| score.is_finite())
        .map(|(id, _)| id.text())
        .collect()
}

/// Claims up to `count` messages for a second, with a new token.
fn claimed(queue: &mut Queue, now: u64, count: u64) -> Result<Vec<String>> {
    let token = queue.new_token();
    let reply = queue.ok("claim", now, words![count, token, SECOND])?;
    reply.granted()
}

/// Whether `verify` has no findings.
fn verified(queue: &mut Queue) -> Result<bool> {
    let findings = queue.ok("verify", T0, words![""])?;
    Ok(findings.part(1)?.list()?.is_empty())
}

/// Promotes, claims and acks until no message is due. Returns the ids in the order of their claims.
fn drain(queue: &mut Queue, now: u64) -> Result<Vec<String>> {
    let mut all = Vec::new();
    loop {
        let taken = queue.take(now, 1_000, &token('z'))?;
        if taken.is_empty() {
            return Ok(all);
        }
        let acks = words![token('z'), taken.len() as u64]
            .into_iter()
            .chain(taken.iter().map(Text::from))
            .collect();
        ensure!(
            queue
                .items("ack", now, acks)?
                .iter()
                .all(|reply| reply == "OK")
        );
        all.extend(taken);
    }
}
