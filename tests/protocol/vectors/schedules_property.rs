//! Random applies, claims, pauses and jumps of the clock, against the model of one schedule that lists
//! its fires one by one.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::schedules::{apply, check, claim, show, tick};
use crate::model::schedule::{Schedule, listed, more};
use crate::queue::{Queue, T0};
use crate::reply::{Text, words};

fn state_of(queue: &mut Queue, id: &str) -> Result<String> {
    let reply = queue.ok("get", T0, words![id])?;
    let pairs = reply.part(1)?.list()?;
    pairs.get(1).map_or(Ok(String::new()), |state| state.text())
}

/// A tick by hand: of now, or of some fires that are past or due.
fn trigger(queue: &mut Queue, random: &mut Rng, model: &mut Schedule, now: u64) -> Result<()> {
    let (live, waiting) = live_ticks(queue, model)?;
    let messages = queue.state()?.messages;
    let exists = |at: u64| messages.contains_key(&tick(at).into());
    let triggered = show(queue, "s")?.triggered;
    let is_now = random.bool();
    let (times, mut words) = if is_now {
        (vec![now], words!["s", "now"])
    } else {
        let mut times = BTreeSet::from([now - random.u64(0..9_000), model.last]);
        times.extend([model.next].into_iter().filter(|next| *next > 0));
        times.retain(|time| *time <= now);
        (times.into_iter().collect(), words!["s"])
    };
    if !is_now {
        words.extend(times.iter().copied().map(Text::from));
    }
    let replies = queue.items("trigger", now, words)?;
    let mut made = 0;
    for (at, reply) in times.into_iter().zip(&replies) {
        let expected = if exists(at) {
            format!("EXISTS {}", tick(at))
        } else if is_now && !live.is_empty() && model.overlap == "skip" {
            "OVERLAPS".to_owned()
        } else {
            made += 1;
            if model.obeys_overlap() {
                model.live.push(at);
            }
            format!("CREATED {}", tick(at))
        };
        ensure!(*reply == expected, "{at}: {reply}, and not {expected}");
    }
    ensure!(show(queue, "s")?.triggered == triggered + made);
    let replaces = is_now && made > 0 && model.overlap == "replace";
    for id in waiting {
        ensure!(state_of(queue, &id)?.is_empty() == replaces, "{id}");
    }
    check(queue)
}

/// The nominal times of the ticks that wait or are leased, and the ids of those that wait.
fn live_ticks(queue: &mut Queue, model: &Schedule) -> Result<(Vec<u64>, Vec<String>)> {
    let (mut live, mut waiting) = (Vec::new(), Vec::new());
    for nominal in model.live.clone() {
        let state = state_of(queue, &tick(nominal))?;
        if ["", "dead"].contains(&&*state) {
            continue;
        }
        live.push(nominal);
        if state != "leased" {
            waiting.push(tick(nominal));
        }
    }
    Ok((live, waiting))
}

/// A refill by the rules of the list, or by newer ones.
fn refill(queue: &mut Queue, random: &mut Rng, model: &mut Schedule, now: u64) -> Result<()> {
    let shown = show(queue, "s")?;
    let is_newer = random.bool();
    let (mut version, mut after) = (shown.zone_version, shown.last_listed);
    if is_newer {
        version = version.replace("2026a", "2026b") + "b";
        after = shown.last;
        model.is_final = random.u8(0..4) == 0;
    }
    let mut fires = more(random, after.max(now.saturating_sub(9_000)), 20);
    if random.u8(0..8) == 0 {
        fires.clear();
    }
    let text = listed(&version, model.is_final, &fires);
    let words = words!["s", shown.version, shown.last_listed, text];
    let replies = queue.items("refill", now, words)?;
    model.refill(&version, model.is_final, &fires);
    let shown = show(queue, "s")?;
    let expected = format!("OK {}", shown.listed);
    ensure!(replies == [expected], "{replies:?}: {shown:?}");
    let (listed, last) = (model.list.len() as u64, model.last_listed);
    ensure!(
        (shown.listed, shown.last_listed) == (listed, last),
        "{shown:?}"
    );
    check(queue)
}

fn run(queue: &mut Queue, seed: u64) -> Result<u64> {
    let mut random = Rng::with_seed(seed);
    queue.empty()?;
    let (mut now, mut all) = (T0, BTreeSet::new());
    let limit = [words!["max_leased", 2], words!["rate", "3/4000/2"]];
    let is_limited = random.u8(0..3) == 0;
    if is_limited {
        queue.ok("configure", now, limit[random.usize(0..2)].clone())?;
    }
    let mut model = Schedule::random(&mut random, now);
    let (word, _, _) = apply(queue, now, ["some", "", ""], &[model.words()])?;
    ensure!(word == "OK");
    model.begin(now);
    let mut held: Vec<(String, Text)> = Vec::new();
    for step in 0..40 {
        now = match random.u8(0..20) {
            0 => now.saturating_sub(random.u64(1..5_000)).max(T0 - 20_000),
            1..4 => now + random.u64(0..40_000),
            _ => now + random.u64(0..2_500),
        };
        let action = random.u8(0..22);
        let what = format!("seed {seed}, step {step}, action {action}, {now}");
        match action {
            0..9 => {
                let (live, waiting) = live_ticks(queue, &model)?;
                let messages = queue.state()?.messages;
                let count = if random.u8(0..3) == 0 {
                    random.u64(1..4)
                } else {
                    1_000
                };
                let before = show(queue, "s")?;
                let (ids, token) = claim(queue, now, count)?;
                ensure!(ids.len() as u64 <= count, "{what}: {ids:?}");
                // A claim of few messages may not reach the timer.
                let may_miss = count < 1_000 || is_limited;
                let made = if may_miss && show(queue, "s")? == before {
                    None
                } else {
                    let exists = |at| messages.contains_key(&tick(at).into());
                    model.fire(now, |at| live.contains(&at), exists).tick
                };
                if let Some(nominal) = made {
                    ensure!(
                        ids.contains(&tick(nominal)),
                        "{what}: {nominal} not in {ids:?}"
                    );
                    ensure!(all.insert(nominal), "{what}: {nominal} again");
                    ensure!(now >= model.due(nominal), "{what}: {nominal} is early");
                    if model.overlap == "replace" {
                        for id in waiting.iter().filter(|id| !ids.contains(id)) {
                            let state = state_of(queue, id)?;
                            ensure!(
                                state.is_empty() || state == "dead",
                                "{what}: {id} is {state}"
                            );
                        }
                    }
                } else {
                    for id in &waiting {
                        let is_gone = state_of(queue, id)?.is_empty();
                        ensure!(!is_gone, "{what}: {id} is gone without a newer tick");
                    }
                }
                for id in &ids {
                    let is_known = messages.contains_key(&id.into());
                    ensure!(
                        is_known || made.is_some_and(|at| tick(at) == *id),
                        "{what}: {id} is not {made:?} of {model:?}"
                    );
                }
                held.extend(ids.into_iter().map(|id| (id, token.clone())));
            }
            9..13 if !held.is_empty() => {
                let (id, token) = held.swap_remove(random.usize(0..held.len()));
                match random.u8(0..4) {
                    0 => queue.ok("retry", now, words![id, token, 1_000, "why"])?,
                    1 => queue.ok("bury", now, words![id, token, "why"])?,
                    _ => queue.ok("ack", now, words![token, 1, id])?,
                };
            }
            13 => drop(queue.ok("promote", now, words![1_000])?),
            14 => {
                queue.ok("amend", now, words!["pause", "s"])?;
                model.pause();
            }
            15 => {
                queue.ok("amend", now, words!["resume", "s"])?;
                model.resume(now);
            }
            16 => {
                let old = model.clone();
                let mut new = Schedule::random(&mut random, now.max(old.last));
                if old.state != "ended" {
                    new.every = new
                        .every
                        .map(|(every, _)| (every, 3_000 + u64::from(action)));
                }
                let (word, replies, _) = apply(queue, now, ["some", "", ""], &[new.words()])?;
                ensure!(word == "OK", "{what}: {replies:?}");
                if replies[0].starts_with("CHANGED") {
                    new.begin(now.max(old.last));
                    if old.state == "paused" && new.state != "ended" {
                        new.state = "paused";
                    }
                    new.live = old.live;
                    model = new;
                } else {
                    // By chance the same words; another list of a cron is no change.
                    ensure!(new.every.is_none(), "{what}: {replies:?}");
                }
            }
            17 => {
                let before = show(queue, "s")?;
                apply(queue, now, ["some", "", ""], &[model.words()])?;
                if model.every.is_some() {
                    ensure!(show(queue, "s")? == before, "{what}: not kept");
                }
            }
            18 => {
                let state = ["ready", "scheduled", "dead"][random.usize(0..3)];
                queue.ok("purge", now, words![state, 1_000])?;
            }
            19 => trigger(queue, &mut random, &mut model, now).context(what.clone())?,
            _ if model.every.is_none() => {
                refill(queue, &mut random, &mut model, now).context(what.clone())?;
            }
            _ => {}
        }
        let shown = show(queue, "s")?;
        let found = (&*shown.state, shown.counts, shown.since);
        ensure!(
            found == (model.state, model.counts, model.since),
            "{what}: {shown:?} is not {model:?}"
        );
        ensure!(
            (shown.next, shown.last) == (model.next, model.last),
            "{what}: {shown:?}, {model:?}"
        );
        ensure!(model.is_conserved(), "{what}: {model:?}");
    }
    Ok(all.len() as u64)
}

#[test]
fn schedules_match_a_model_that_lists_each_fire() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut made = 0;
    for seed in 0..250 {
        made += run(&mut queue, seed).with_context(|| format!("seed {seed}"))?;
    }
    ensure!(made > 1_000, "only {made} ticks were made");
    Ok(())
}
