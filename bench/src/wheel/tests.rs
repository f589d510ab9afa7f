//! Every structure does what the measurement assumes: each timer fires once, on its tick, unless it
//! was cancelled.

use fastrand::Rng;

use super::structures::{
    Dueq, HashWheel, Kafka, LazyHeap, Netty, Nexus, Skynet, SlabWheel, SortedMap, TokioUtil,
    enter_runtime,
};
use super::timers::Timers;

const START: u64 = 123_457;

fn fire<S: Timers<u64>>(timers: &mut S, now: u64) -> usize {
    let mut fired = Vec::new();
    timers.advance(now, &mut fired);
    fired.len()
}

/// Random timers, some cancelled and some reset, against a plain list of deadlines.
fn fires_on_time<S: Timers<u64>>() {
    let _inside = enter_runtime();
    let mut random = Rng::with_seed(1);
    let mut timers = S::new();
    let first = timers.insert(START, 0);
    assert_eq!(fire(&mut timers, START - 1), 0, "{}: early", S::NAME);
    assert_eq!(fire(&mut timers, START), 1, "{}: on time", S::NAME);
    timers.release(first);
    let mut live: Vec<(u64, S::Key)> = Vec::new();
    for now in START.. {
        assert!(now < START + 300_000, "{}: never empty", S::NAME);
        if now < START + 20_000 && random.u8(..) < 30 {
            let when = now + (1 << random.u64(..16)) + random.u64(..70);
            live.push((when, timers.insert(when, when)));
        }
        if S::CANCELS && !live.is_empty() && random.u8(..) < 5 {
            let (_, key) = live.swap_remove(random.usize(..live.len()));
            assert!(
                timers.remove(key, &mut Vec::new()),
                "{}: cancelled",
                S::NAME
            );
        }
        if S::RESETS && !live.is_empty() && random.u8(..) < 15 {
            let at = random.usize(..live.len());
            live[at].0 = now + random.u64(1..40_000);
            let when = live[at].0;
            assert!(timers.reset(&mut live[at].1, when), "{}: reset", S::NAME);
        }
        let due: Vec<usize> = (0..live.len())
            .rev()
            .filter(|&at| live[at].0 <= now + 1)
            .collect();
        assert_eq!(
            fire(&mut timers, now + 1),
            due.len(),
            "{} at {now}",
            S::NAME
        );
        for at in due {
            let (_, key) = live.swap_remove(at);
            timers.release(key);
        }
        let earliest = live.iter().map(|&(when, _)| when).min();
        if S::TELLS_NEXT
            && let Some(earliest) = earliest
        {
            assert!(
                timers.next().is_some_and(|next| next <= earliest),
                "{}: a bound",
                S::NAME
            );
        }
        if now >= START + 20_000 && live.is_empty() {
            return;
        }
    }
}

#[test]
fn structures_fire_on_time() {
    fires_on_time::<Dueq<u64>>();
    fires_on_time::<TokioUtil<u64>>();
    fires_on_time::<HashWheel<u64>>();
    fires_on_time::<SlabWheel<u64>>();
    fires_on_time::<Nexus<u64>>();
    fires_on_time::<LazyHeap<u64>>();
    fires_on_time::<SortedMap<u64>>();
    fires_on_time::<Netty<u64>>();
    fires_on_time::<Skynet<u64>>();
    fires_on_time::<Kafka<u64>>();
}

#[test]
fn bounded_calls_fire_the_same() {
    fn bounded<S: Timers<u64>>() {
        let mut timers = S::new();
        for when in 0..5_000 {
            let key = timers.insert(1 + when % 100, when);
            timers.release(key);
        }
        let mut fired = Vec::new();
        while timers.advance_bounded(100, &mut fired) {}
        assert_eq!(fired.len(), 5_000, "{}", S::NAME);
    }
    bounded::<Dueq<u64>>();
    bounded::<Nexus<u64>>();
}
