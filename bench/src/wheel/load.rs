//! The workloads, each the same for every structure.

use std::hint::black_box;
use std::time::Duration;

use fastrand::Rng;

use super::stopwatch::Stopwatch;
use super::timers::{Payload, Timers};

/// All begin at an odd moment, so that no structure profits from an aligned start.
const START: u64 = 1_234_567;
/// Timers are due up to so many milliseconds later.
const HORIZON: u64 = 30_000;
/// A connection receives a packet this often.
const PACKETS_EVERY: u64 = 20_000;
/// The clock advances in steps while timers are reset.
const RESET_STEP: u64 = 100;
const LOOKS: usize = 1_000_000;
const SPARSE: usize = 10;
const MONTH: u64 = 30 * 86_400_000;
/// Resets, and the search for the longest call, stop here: some structures walk all their timers at each step of the clock.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How much of it.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) timers: usize,
    pub(super) resets: usize,
}

/// The figures of one round of one structure; `None` where it lacks the operation.
#[derive(Clone, Copy, Default)]
pub(super) struct Sample {
    pub(super) insert_ns: Option<f64>,
    pub(super) cancel_ns: Option<f64>,
    pub(super) reset_ns: Option<f64>,
    pub(super) drain_jump_ns: Option<f64>,
    pub(super) drain_steps_ns: Option<f64>,
    pub(super) next_ns: Option<f64>,
    pub(super) sparse_us: Option<f64>,
    pub(super) worst_call_ms: Option<f64>,
    pub(super) worst_bounded_call_ms: Option<f64>,
}

/// Runs all workloads once.
pub(super) fn measure<S: Timers<T>, T: Payload>(size: Size, round: u64) -> Sample {
    let mut sample = Sample::default();
    let mut inserts = Vec::new();
    jump::<S, T>(size, round, &mut inserts, &mut sample);
    sample.drain_steps_ns = Some(steps::<S, T>(size, round, &mut inserts));
    if S::CANCELS {
        sample.cancel_ns = Some(cancel_half::<S, T>(size, round, &mut inserts));
    }
    if S::RESETS {
        sample.reset_ns = Some(reset::<S, T>(size, round));
    }
    sample.sparse_us = sparse::<S, T>(round);
    sample.worst_call_ms = Some(worst_call::<S, T>(size, round, false));
    if S::IS_BOUNDED {
        sample.worst_bounded_call_ms = Some(worst_call::<S, T>(size, round, true));
    }
    inserts.sort_by(f64::total_cmp);
    sample.insert_ns = inserts.get(inserts.len() / 2).copied();
    sample
}

/// An empty structure whose time has come to `START`, by way of a first timer.
fn started<S: Timers<T>, T: Payload>() -> S {
    let mut timers = S::new();
    let key = timers.insert(START, T::of(0));
    timers.release(key);
    assert_eq!(fire(&mut timers, START), 1, "{}: the first timer", S::NAME);
    timers
}

/// Fires due timers, outside the measurement.
fn fire<S: Timers<T>, T>(timers: &mut S, now: u64) -> usize {
    let mut fired = Vec::new();
    timers.advance(now, &mut fired);
    fired.len()
}

fn deadlines(count: usize, seed: u64) -> Vec<u64> {
    let mut random = Rng::with_seed(seed);
    (0..count)
        .map(|_| START + random.u64(1..=HORIZON))
        .collect()
}

/// Timers at random times. Returns the mean time of an insertion.
fn filled<S: Timers<T>, T: Payload>(
    size: Size,
    seed: u64,
    inserts: &mut Vec<f64>,
) -> (S, Vec<S::Key>) {
    let mut timers: S = started();
    // Values are made before and dropped after the measured part: the allocator is the same for
    // all.
    let values: Vec<(u64, T)> = deadlines(size.timers, seed)
        .into_iter()
        .map(|when| (when, T::of(when)))
        .collect();
    let mut keys = Vec::with_capacity(size.timers);
    let began = Stopwatch::start();
    for (when, value) in values {
        keys.push(timers.insert(when, value));
    }
    inserts.push(each(began, size.timers));
    (timers, keys)
}

/// Nanoseconds for each of so many.
fn each(began: Stopwatch, count: usize) -> f64 {
    began.elapsed().as_secs_f64() * 1e9 / count as f64
}

fn release<S: Timers<T>, T>(timers: &mut S, keys: Vec<S::Key>) {
    keys.into_iter().for_each(|key| timers.release(key));
}

fn jump<S: Timers<T>, T: Payload>(
    size: Size,
    seed: u64,
    inserts: &mut Vec<f64>,
    sample: &mut Sample,
) {
    let (mut timers, keys) = filled::<S, T>(size, seed, inserts);
    release(&mut timers, keys);
    if S::TELLS_NEXT {
        let began = Stopwatch::start();
        for _ in 0..LOOKS {
            black_box(black_box(&mut timers).next());
        }
        sample.next_ns = Some(each(began, LOOKS));
    }
    let mut fired = Vec::with_capacity(size.timers);
    let began = Stopwatch::start();
    timers.advance(START + HORIZON, &mut fired);
    sample.drain_jump_ns = Some(each(began, size.timers));
    assert_eq!(fired.len(), size.timers, "{}: fired in a jump", S::NAME);
}

fn steps<S: Timers<T>, T: Payload>(size: Size, seed: u64, inserts: &mut Vec<f64>) -> f64 {
    let (mut timers, keys) = filled::<S, T>(size, seed, inserts);
    release(&mut timers, keys);
    let mut fired = Vec::with_capacity(size.timers);
    let began = Stopwatch::start();
    for second in 1..=HORIZON / 1_000 {
        timers.advance(START + second * 1_000, &mut fired);
    }
    let took = each(began, size.timers);
    assert_eq!(fired.len(), size.timers, "{}: fired in steps", S::NAME);
    took
}

/// Half of the timers, in random order.
fn cancel_half<S: Timers<T>, T: Payload>(size: Size, seed: u64, inserts: &mut Vec<f64>) -> f64 {
    let (mut timers, mut keys) = filled::<S, T>(size, seed, inserts);
    Rng::with_seed(seed).shuffle(&mut keys);
    let half = keys.split_off(size.timers / 2);
    let expected = half.len();
    let mut values = Vec::with_capacity(expected);
    let began = Stopwatch::start();
    let cancelled: usize = half
        .into_iter()
        .map(|key| usize::from(timers.remove(key, &mut values)))
        .sum();
    let took = each(began, cancelled);
    assert_eq!(cancelled, expected, "{}: cancelled", S::NAME);
    release(&mut timers, keys);
    assert_eq!(
        fire(&mut timers, START + HORIZON),
        size.timers / 2,
        "{}: fired of the rest",
        S::NAME
    );
    took
}

/// Connections that receive a packet every 20 s, in random order, and close 30 s after the last
/// packet. The clock advances meanwhile, so that a structure that files a reset timer later pays
/// for that too.
fn reset<S: Timers<T>, T: Payload>(size: Size, seed: u64) -> f64 {
    let mut timers: S = started();
    let mut keys: Vec<S::Key> = (0..size.timers)
        .map(|n| timers.insert(START + HORIZON, T::of(n as u64)))
        .collect();
    Rng::with_seed(seed).shuffle(&mut keys);
    let (mut now, mut fired, mut resets) = (START, Vec::new(), 0);
    let began = Stopwatch::start();
    for at in (0..size.timers).cycle().take(size.resets) {
        let time = START + (resets as u64 * PACKETS_EVERY) / size.timers as u64;
        if time >= now + RESET_STEP {
            if began.elapsed() > PATIENCE {
                break;
            }
            now = time;
            timers.advance(now, &mut fired);
        }
        assert!(
            timers.reset(&mut keys[at], time + HORIZON),
            "{}: a timer is lost",
            S::NAME
        );
        resets += 1;
    }
    let took = each(began, resets);
    release(&mut timers, keys);
    assert!(
        fired.is_empty(),
        "{}: fired though each was reset in time",
        S::NAME
    );
    assert_eq!(
        fire(&mut timers, now + RESET_STEP + HORIZON),
        size.timers,
        "{}: fired at last",
        S::NAME
    );
    took
}

/// Ten timers within 30 days, with a sleep until each. `None`: it took too long.
fn sparse<S: Timers<T>, T: Payload>(seed: u64) -> Option<f64> {
    let mut timers: S = started();
    let mut random = Rng::with_seed(seed);
    for number in 0..SPARSE {
        let key = timers.insert(START + random.u64(1..=MONTH), T::of(number as u64));
        timers.release(key);
    }
    let began = Stopwatch::start();
    let mut fired = Vec::new();
    if S::TELLS_NEXT {
        let mut now = START;
        while let Some(next) = timers.next() {
            now = next.max(now + 1);
            timers.advance(now, &mut fired);
            if began.elapsed() > PATIENCE {
                return None;
            }
        }
    } else {
        // Each tick costs the same, so one day gives the cost of 30.
        timers.advance(START + MONTH / 30, &mut fired);
        return Some(began.elapsed().as_secs_f64() * 1e6 * 30.0);
    }
    let took = began.elapsed().as_secs_f64() * 1e6;
    assert_eq!(fired.len(), SPARSE, "{}: fired of the sparse", S::NAME);
    Some(took)
}

/// The longest of all calls: each insertion, the cancellation of a tenth, and the rest fired millisecond by millisecond.
fn worst_call<S: Timers<T>, T: Payload>(size: Size, seed: u64, bounded: bool) -> f64 {
    let mut timers: S = started();
    let mut worst = 0.0_f64;
    let mut note = |began: Stopwatch| worst = worst.max(began.elapsed().as_secs_f64() * 1e3);
    let (mut keys, mut values) = (
        Vec::with_capacity(size.timers),
        Vec::with_capacity(size.timers),
    );
    for when in deadlines(size.timers, seed) {
        let value = T::of(when);
        let began = Stopwatch::start();
        let key = timers.insert(when, value);
        note(began);
        keys.push(key);
    }
    if S::CANCELS {
        Rng::with_seed(seed).shuffle(&mut keys);
        for key in keys.split_off(size.timers - size.timers / 10) {
            let began = Stopwatch::start();
            timers.remove(key, &mut values);
            note(began);
        }
    }
    release(&mut timers, keys);
    let searching = Stopwatch::start();
    for now in (START + 1..=START + HORIZON).take_while(|_| searching.elapsed() < PATIENCE) {
        let mut again = true;
        while again {
            let began = Stopwatch::start();
            again = if bounded {
                timers.advance_bounded(now, &mut values)
            } else {
                timers.advance(now, &mut values);
                false
            };
            note(began);
        }
    }
    worst
}

/// Fills a new structure and keeps no keys. `ready` is called when all else is in memory, `filled` when the timers are too.
pub(super) fn fill_without_keys<S: Timers<T>, T: Payload>(
    count: usize,
    ready: impl FnOnce(),
    filled: impl FnOnce(),
) {
    let mut timers: S = started();
    let deadlines = deadlines(count, 1);
    ready();
    for &when in &deadlines {
        let key = timers.insert(when, T::of(when));
        timers.release(key);
    }
    filled();
    drop((timers, deadlines));
}
