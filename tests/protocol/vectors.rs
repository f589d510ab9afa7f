//! Each test covers one risk: it seeds a state, calls a verb and compares the state after the call.

mod audit_cost;
mod bounds;
mod bytes;
mod claim_values;
mod claims;
mod clock;
mod closed;
mod cost;
mod cost_calls;
mod cost_table;
mod crashes;
mod creations;
mod debounce;
mod due;
mod dues;
mod ended_leases;
mod expiry;
mod follow_ups;
mod held;
mod hints;
mod history;
mod layout3;
mod leased_limit;
mod leases;
mod lends;
mod memory;
mod next;
mod next_repeats;
mod node_lists;
mod nonsense;
mod odd_input;
mod older_roles;
mod outcomes;
mod pages;
mod parked_notices;
mod parking;
mod partitions;
mod pushes;
mod rates;
mod refusals;
mod remaps;
mod repairs;
mod repeated_cancels;
mod repeats;
mod roles;
mod rosters;
mod schedules;
mod schedules_bounds;
mod schedules_counts;
mod schedules_crons;
mod schedules_input;
mod schedules_overlap;
mod schedules_ticks;
mod schedules_verbs;
mod selections;
mod shares;
mod throttles;
mod timers;
mod tokens;
mod trims;
mod types;
mod upserts;
mod windows;

use anyhow::{Result, ensure};
pub(crate) use older_roles::user_of_0_1;

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

/// The ids without the placeholder, in order.
fn ids(scores: &Scores) -> Vec<String> {
    scores
        .iter()
        .filter(|(_, score)| score.is_finite())
        .map(|(id, _)| id.text())
        .collect()
}

/// Promotes, claims and acks until no due message remains. Returns the ids in their order.
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
