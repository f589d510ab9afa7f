//! The workloads of the wheel.

use std::hint::black_box;
use std::time::Duration;

use dueq::wheel::{Key, Wheel};
use fastrand::Rng;
use rustix::time::{ClockId, clock_gettime};

/// The time at which all workloads begin. It is odd, so that no aligned start makes them faster.
const START: u64 = 1_234_567;
/// The longest delay of a timer, in milliseconds.
const HORIZON: u64 = 30_000;
/// The interval at which a connection receives a packet.
const PACKETS_EVERY: u64 = 20_000;
/// The step by which the clock advances while timers are reset.
const RESET_STEP: u64 = 100;
const LOOKS: usize = 1_000_000;
const SPARSE: usize = 10;
const MONTH: u64 = 30 * 86_400_000;
/// The most entries that one bounded call may touch.
const WORK: usize = 1_000;

/// How much work a workload does.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) timers: usize,
    pub(super) resets: usize,
}

/// The figures of one round.
pub(super) struct Sample {
    pub(super) insert_ns: f64,
    pub(super) cancel_ns: f64,
    pub(super) reset_ns: f64,
    pub(super) drain_jump_ns: f64,
    pub(super) drain_steps_ns: f64,
    pub(super) next_ns: f64,
    pub(super) sparse_us: f64,
    pub(super) worst_call_ms: f64,
    pub(super) worst_bounded_call_ms: f64,
}

/// A value that a timer carries.
pub(super) trait Payload {
    fn of(number: u64) -> Self;
}

impl Payload for u64 {
    fn of(number: u64) -> Self {
        number
    }
}

impl Payload for Box<u64> {
    fn of(number: u64) -> Self {
        Box::new(number)
    }
}

/// The CPU time of this thread since a start: other work on the machine does not count.
#[derive(Clone, Copy)]
struct Stopwatch(Duration);

impl Stopwatch {
    fn start() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Self(Duration::new(
            time.tv_sec.unsigned_abs(),
            time.tv_nsec as u32,
        ))
    }

    fn elapsed_s(self) -> f64 {
        Self::start().0.saturating_sub(self.0).as_secs_f64()
    }

    /// The time divided by `count`, in nanoseconds.
    fn each_ns(self, count: usize) -> f64 {
        self.elapsed_s() * 1e9 / count as f64
    }
}

/// Runs all workloads once.
pub(super) fn measure<T: Payload>(size: Size, round: u64) -> Sample {
    let (drain_jump_ns, next_ns) = jump::<T>(size, round);
    let (drain_steps_ns, insert_ns) = steps::<T>(size, round);
    Sample {
        insert_ns,
        cancel_ns: cancel_half::<T>(size, round),
        reset_ns: reset::<T>(size, round),
        drain_jump_ns,
        drain_steps_ns,
        next_ns,
        sparse_us: sparse::<T>(round),
        worst_call_ms: worst_call::<T>(size, round, false),
        worst_bounded_call_ms: worst_call::<T>(size, round, true),
    }
}

fn insert<T>(wheel: &mut Wheel<T>, when: u64, value: T) -> Key {
    match wheel.insert(when, value) {
        Ok(key) => key,
        Err(full) => panic!("{full}"),
    }
}

/// Fires due timers into a buffer that is dropped outside of the measured time.
fn advance<T>(wheel: &mut Wheel<T>, now: u64, fired: &mut Vec<T>) {
    fired.extend(wheel.advance(now).map(|expired| expired.value));
}

/// An empty wheel whose time has advanced to `START`, by firing a first timer.
fn started<T: Payload>() -> Wheel<T> {
    let mut wheel = Wheel::new();
    insert(&mut wheel, START, T::of(0));
    assert_eq!(wheel.advance(START).count(), 1, "the first timer");
    wheel
}

fn deadlines(count: usize, seed: u64) -> Vec<u64> {
    let mut random = Rng::with_seed(seed);
    (0..count)
        .map(|_| START + random.u64(1..=HORIZON))
        .collect()
}

/// A wheel with timers at random times. Also returns the mean time of an insertion.
fn filled<T: Payload>(size: Size, seed: u64) -> (Wheel<T>, Vec<Key>, f64) {
    let mut wheel = started();
    // Make values before the measured part and drop them after it, so that it excludes the
    // allocator.
    let values: Vec<(u64, T)> = deadlines(size.timers, seed)
        .into_iter()
        .map(|when| (when, T::of(when)))
        .collect();
    let mut keys = Vec::with_capacity(size.timers);
    let began = Stopwatch::start();
    for (when, value) in values {
        keys.push(insert(&mut wheel, when, value));
    }
    (wheel, keys, began.each_ns(size.timers))
}

/// The time of draining the wheel in one call, and of asking for the next expiration.
fn jump<T: Payload>(size: Size, seed: u64) -> (f64, f64) {
    let (mut wheel, _, _) = filled::<T>(size, seed);
    let began = Stopwatch::start();
    for _ in 0..LOOKS {
        black_box(black_box(&mut wheel).next_expiration());
    }
    let next_ns = began.each_ns(LOOKS);
    let mut fired = Vec::with_capacity(size.timers);
    let began = Stopwatch::start();
    advance(&mut wheel, START + HORIZON, &mut fired);
    let drain_ns = began.each_ns(size.timers);
    assert_eq!(fired.len(), size.timers, "fired in a jump");
    (drain_ns, next_ns)
}

/// The time of draining the wheel in steps of 1 s, and of an insertion.
fn steps<T: Payload>(size: Size, seed: u64) -> (f64, f64) {
    let (mut wheel, _, insert_ns) = filled::<T>(size, seed);
    let mut fired = Vec::with_capacity(size.timers);
    let began = Stopwatch::start();
    for second in 1..=HORIZON / 1_000 {
        advance(&mut wheel, START + second * 1_000, &mut fired);
    }
    let drain_ns = began.each_ns(size.timers);
    assert_eq!(fired.len(), size.timers, "fired in steps");
    (drain_ns, insert_ns)
}

/// Cancels half of the timers, in random order.
fn cancel_half<T: Payload>(size: Size, seed: u64) -> f64 {
    let (mut wheel, mut keys, _) = filled::<T>(size, seed);
    Rng::with_seed(seed).shuffle(&mut keys);
    let half = keys.split_off(size.timers / 2);
    let (count, mut values) = (half.len(), Vec::with_capacity(half.len()));
    let began = Stopwatch::start();
    for key in half {
        values.extend(wheel.remove(key));
    }
    let took = began.each_ns(count);
    assert_eq!(values.len(), count, "cancelled");
    assert_eq!(
        wheel.advance(START + HORIZON).count(),
        size.timers / 2,
        "fired of the rest"
    );
    took
}

/// Resets timers as connections do: each receives a packet every 20 s, in random order, and closes
/// 30 s after its last packet. The clock advances meanwhile, so that the cost of moving reset
/// timers later is included.
fn reset<T: Payload>(size: Size, seed: u64) -> f64 {
    let mut wheel = started();
    let mut keys: Vec<Key> = (0..size.timers)
        .map(|number| insert(&mut wheel, START + HORIZON, T::of(number as u64)))
        .collect();
    Rng::with_seed(seed).shuffle(&mut keys);
    let (mut now, mut fired) = (START, Vec::new());
    let began = Stopwatch::start();
    for (done, key) in keys.iter().cycle().take(size.resets).enumerate() {
        let time = START + (done as u64 * PACKETS_EVERY) / size.timers as u64;
        if time >= now + RESET_STEP {
            now = time;
            advance(&mut wheel, now, &mut fired);
        }
        assert!(wheel.reset(*key, time + HORIZON), "a timer is lost");
    }
    let took = began.each_ns(size.resets);
    assert!(fired.is_empty(), "fired though each was reset in time");
    assert_eq!(
        wheel.advance(now + RESET_STEP + HORIZON).count(),
        size.timers,
        "fired at last"
    );
    took
}

/// Ten timers within 30 days: sleeps until each.
fn sparse<T: Payload>(seed: u64) -> f64 {
    let mut wheel = started();
    let mut random = Rng::with_seed(seed);
    for number in 0..SPARSE {
        let when = START + random.u64(1..=MONTH);
        insert(&mut wheel, when, T::of(number as u64));
    }
    let (mut now, mut fired) = (START, Vec::new());
    let began = Stopwatch::start();
    while let Some(next) = wheel.next_expiration() {
        now = next.max(now + 1);
        advance(&mut wheel, now, &mut fired);
    }
    let took = began.elapsed_s() * 1e6;
    assert_eq!(fired.len(), SPARSE, "fired of the sparse");
    took
}

/// The longest single call among these: each insertion, cancelling a tenth of the timers, and
/// firing the rest millisecond by millisecond.
fn worst_call<T: Payload>(size: Size, seed: u64, is_bounded: bool) -> f64 {
    let mut wheel = started();
    let mut worst = 0.0_f64;
    let mut note = |began: Stopwatch| worst = worst.max(began.elapsed_s() * 1e3);
    let mut keys = Vec::with_capacity(size.timers);
    let mut values = Vec::with_capacity(size.timers);
    for when in deadlines(size.timers, seed) {
        let value = T::of(when);
        let began = Stopwatch::start();
        let key = insert(&mut wheel, when, value);
        note(began);
        keys.push(key);
    }
    Rng::with_seed(seed).shuffle(&mut keys);
    for key in keys.split_off(size.timers - size.timers / 10) {
        let began = Stopwatch::start();
        values.extend(wheel.remove(key));
        note(began);
    }
    for now in START + 1..=START + HORIZON {
        let mut again = true;
        while again {
            let began = Stopwatch::start();
            again = is_bounded && {
                let mut due = wheel.advance_limited(now, WORK);
                values.extend(due.by_ref().map(|expired| expired.value));
                due.work_left() == 0
            };
            if !is_bounded {
                advance(&mut wheel, now, &mut values);
            }
            note(began);
        }
    }
    assert_eq!(values.len(), size.timers, "cancelled or fired");
    worst
}

/// Fills a new wheel without keeping keys. Calls `ready` when everything else is in memory, and
/// `filled` when the timers are, too.
pub(super) fn fill_without_keys<T: Payload>(
    count: usize,
    ready: impl FnOnce(),
    filled: impl FnOnce(),
) {
    let mut wheel = started();
    let deadlines = deadlines(count, 1);
    ready();
    for &when in &deadlines {
        insert(&mut wheel, when, T::of(when));
    }
    filled();
    drop((wheel, deadlines));
}
