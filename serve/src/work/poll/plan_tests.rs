//! Tests the plan with a manual clock, and with a Redis that answers at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::work::poll::pace::MAX_QUEUES;
use crate::work::poll::parts::View;
use crate::work::poll::plan::{Answer, Plan, Step};

/// Carries out a plan.
struct Run {
    plan: Plan,
    now: Instant,
    asked: HashMap<Arc<str>, u32>,
    scans: u32,
    /// The number of parts that were read.
    read: u32,
    /// The names that each step of a scan finds; the scan ends after the last step.
    keys: Vec<Vec<String>>,
    at: usize,
    is_away: bool,
}

impl Run {
    fn new(names: Option<&[&str]>, keys: Vec<Vec<String>>) -> Self {
        let now = Instant::now();
        let names = names.map(|names| names.iter().map(ToString::to_string).collect());
        Self {
            plan: Plan::new(names, now),
            now,
            asked: HashMap::new(),
            scans: 0,
            read: 0,
            keys,
            at: 0,
            is_away: false,
        }
    }

    fn look(&mut self, names: &[&str]) {
        self.plan.look(names.iter().copied(), self.now);
    }

    /// Lets this time pass, and counts only the events within it.
    fn pass(&mut self, time: Duration) {
        (self.asked, self.scans, self.read) = (HashMap::new(), 0, 0);
        let end = self.now + time;
        loop {
            match self.plan.next(self.now) {
                Step::Ask(name) => {
                    *self.asked.entry(Arc::clone(&name)).or_default() += 1;
                    let answer = match self.is_away {
                        true => Answer::Failed,
                        false if name.starts_with("absent") => Answer::Absent,
                        false => Answer::Known,
                    };
                    self.plan.asked(&name, answer, self.now);
                }
                Step::Read(name, part) => {
                    self.read += 1;
                    self.plan.parts.ended(&name, part);
                }
                Step::Scan if self.is_away => {
                    self.scans += 1;
                    self.plan.scan_failed(self.now);
                }
                Step::Scan => {
                    self.scans += 1;
                    let found = self.keys.get(self.at).cloned();
                    let is_last = found.is_none();
                    self.at = if is_last { 0 } else { self.at + 1 };
                    self.plan
                        .scanned(found.unwrap_or_default(), is_last, self.now);
                }
                Step::Wait(until) if until < end => {
                    assert!(until > self.now, "the plan spins");
                    self.now = until;
                }
                Step::Wait(_) | Step::Idle => break,
            }
        }
        self.now = end;
    }

    fn all(&self) -> u32 {
        self.asked.values().sum()
    }

    fn of(&self, name: &str) -> u32 {
        self.asked.get(name).copied().unwrap_or(0)
    }
}

const SECOND: Duration = Duration::from_secs(1);

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("queue-{n:05}")).collect()
}

#[test]
fn no_queue_is_asked_until_a_viewer_looks() {
    let mut run = Run::new(Some(&["a", "b"]), Vec::new());
    run.pass(100 * SECOND);
    assert_eq!(run.all(), 0);
    run.look(&[]);
    run.pass(SECOND);
    assert_eq!((run.of("a"), run.of("b")), (1, 1));
    assert!(!run.plan.is_catching_up());
}

#[test]
fn queues_are_asked_seldom_a_minute_after_the_last_look() {
    let mut run = Run::new(None, vec![names(3)]);
    run.look(&[]);
    run.pass(59 * SECOND);
    assert!(run.all() > 60, "{}", run.all());
    run.pass(2 * SECOND);
    run.pass(60 * SECOND);
    assert!((11..=13).contains(&run.all()), "{:?}", run.asked);
    assert!(run.scans <= 2, "{}", run.scans);
    run.look(&[]);
    assert!(run.plan.is_catching_up());
    run.pass(SECOND);
    assert!(run.all() >= 3 && run.scans > 0);
    assert!(!run.plan.is_catching_up());
}

#[test]
fn thousand_queues_without_viewers_are_asked_once_a_minute() {
    let mut run = Run::new(None, vec![names(1_000)]);
    run.look(&[]);
    run.pass(120 * SECOND);
    run.pass(60 * SECOND);
    assert!((1_190..=1_200).contains(&run.all()), "{}", run.all());
    assert!(run.asked.values().all(|times| *times <= 2));
    assert_eq!(run.asked.len(), 1_000);
    run.look(&[]);
    run.pass(11 * SECOND);
    assert!(!run.plan.is_catching_up());
}

#[test]
fn first_look_after_a_silent_watch_catches_up() {
    let mut run = Run::new(None, vec![names(3), names(3)]);
    run.plan.watch(run.now);
    run.pass(14 * SECOND);
    assert_eq!((run.all(), run.scans), (0, 0));
    run.pass(60 * SECOND);
    assert!((9..=15).contains(&run.all()), "{:?}", run.asked);
    run.look(&[]);
    assert!(run.plan.is_catching_up());
    run.pass(SECOND);
    assert!(run.all() >= 3 && run.scans >= 3, "{}", run.scans);
    assert!(!run.plan.is_catching_up());
}

#[test]
fn poller_asks_at_most_100_questions_a_second() {
    let mut run = Run::new(None, vec![names(1_000)]);
    run.look(&[]);
    run.pass(20 * SECOND);
    run.look(&[]);
    run.pass(20 * SECOND);
    assert!((1_900..=2_001).contains(&run.all()), "{}", run.all());
    let (least, most) = (run.asked.values().min(), run.asked.values().max());
    assert!(
        run.asked.len() == 1_000 && least >= Some(&1) && most <= Some(&3),
        "{least:?} {most:?}"
    );
}

#[test]
fn watched_queue_is_asked_each_second() {
    let mut run = Run::new(None, vec![names(1_000)]);
    run.look(&[]);
    run.pass(20 * SECOND);
    let (mut watched, mut other) = (0, 0);
    for _ in 0..20 {
        run.look(&["queue-00007"]);
        run.pass(SECOND);
        watched += run.of("queue-00007");
        other += run.of("queue-00008");
    }
    assert!((18..=21).contains(&watched), "{watched}");
    assert!((1..=3).contains(&other), "{other}");
}

#[test]
fn queue_is_watched_for_ten_seconds_after_a_look() {
    let mut run = Run::new(Some(&["a", "b"]), Vec::new());
    run.look(&["a"]);
    run.pass(10 * SECOND);
    assert!((9..=11).contains(&run.of("a")), "{}", run.of("a"));
    run.pass(10 * SECOND);
    assert!((4..=6).contains(&run.of("a")), "{}", run.of("a"));
}

#[test]
fn unwatched_queues_are_asked_beside_many_watched_ones() {
    let mut run = Run::new(None, vec![names(1_000)]);
    let all = names(500);
    let watched: Vec<_> = all.iter().map(String::as_str).collect();
    run.look(&watched);
    run.pass(5 * SECOND);
    run.look(&watched);
    run.pass(5 * SECOND);
    let others: u32 = names(1_000)[500..].iter().map(|name| run.of(name)).sum();
    assert!((110..=135).contains(&others), "{others} of {}", run.all());
}

#[test]
fn found_queue_is_polled_until_it_is_absent() {
    let mut keys: Vec<_> = (0..100).map(|_| Vec::new()).collect();
    keys[50] = vec!["late".to_owned(), "absent-1".to_owned()];
    let mut run = Run::new(None, keys);
    run.look(&[]);
    run.pass(10 * SECOND);
    assert!((100..=140).contains(&run.scans), "{}", run.scans);
    assert!(run.of("late") > 1 && run.of("absent-1") == 1);
    run.pass(10 * SECOND);
    assert!((20..=41).contains(&run.scans), "{}", run.scans);
}

#[test]
fn created_queue_is_asked_before_all_others() {
    let mut run = Run::new(None, vec![names(1_000)]);
    run.look(&[]);
    run.pass(5 * SECOND);
    run.plan.created("new".to_owned(), run.now);
    run.pass(SECOND / 50);
    assert_eq!(run.of("new"), 1);
}

#[test]
fn missed_notices_start_a_whole_scan_without_pauses() {
    let mut run = Run::new(None, (0..100).map(|_| Vec::new()).collect());
    run.look(&[]);
    run.pass(SECOND);
    assert_eq!(run.scans, 101, "the first one");
    run.plan.missed(run.now);
    run.pass(SECOND);
    assert_eq!(run.scans, 101);
    run.pass(10 * SECOND);
    // The notice was missed during a scan: only the rest of that scan can find the queue.
    assert!(run.at > 0 && run.at < 100);
    let rest = 101 - run.at as u32;
    run.plan.missed(run.now);
    run.pass(SECOND);
    assert_eq!(run.scans, rest + 101);
}

#[test]
fn unreachable_redis_is_asked_with_back_off() {
    let mut run = Run::new(None, vec![names(100)]);
    run.is_away = true;
    run.look(&[]);
    run.pass(30 * SECOND);
    let calls = run.all() + run.scans;
    assert!((15..=25).contains(&calls), "{calls}");
    assert!(!run.plan.is_catching_up());
    run.is_away = false;
    run.look(&[]);
    run.pass(5 * SECOND);
    assert_eq!(run.asked.len(), 100);
}

#[test]
fn number_of_polled_queues_is_bounded() {
    let mut run = Run::new(None, vec![names(MAX_QUEUES + 5)]);
    run.look(&[]);
    run.pass(SECOND);
    assert!(run.plan.is_cut());
    run.look(&["one-more"]);
    run.pass(30 * SECOND);
    assert_eq!(run.of("one-more"), 0);
}

#[test]
fn parts_and_counts_are_read_while_redis_answers() {
    let mut run = Run::new(None, vec![names(1_000)]);
    run.look(&[]);
    for name in names(500) {
        run.plan.parts.look(View::Queues, &name, run.now);
    }
    run.pass(10 * SECOND);
    assert!((950..=1_001).contains(&run.all()), "{}", run.all());
    assert!((450..=500).contains(&run.read), "{}", run.read);
    run.is_away = true;
    run.pass(10 * SECOND);
    assert!(run.read <= 50, "until the first failure: {}", run.read);
    run.is_away = false;
    run.pass(10 * SECOND);
    assert!(run.read > 300, "{}", run.read);
    // Without viewers no part is read.
    run.pass(60 * SECOND);
    run.pass(10 * SECOND);
    assert_eq!(run.read, 0);
}

/// If one master of a cluster is away, the details of the other queues are still read.
#[test]
fn parts_are_read_while_some_queues_cannot_be_asked() {
    let mut run = Run::new(Some(&["lost"]), Vec::new());
    run.look(&[]);
    assert!(matches!(run.plan.next(run.now), Step::Ask(_)));
    run.plan.asked(&"lost".into(), Answer::Failed, run.now);
    run.plan.parts.look(View::Workers, "a", run.now);
    assert!(matches!(run.plan.next(run.now), Step::Read(..)));
}

#[test]
fn calls_of_a_dead_task_are_repeated() {
    let mut run = Run::new(Some(&["a"]), Vec::new());
    run.look(&[]);
    run.plan.parts.look(View::Workers, "a", run.now);
    assert!(matches!(run.plan.next(run.now), Step::Read(..)));
    assert!(matches!(run.plan.next(run.now), Step::Ask(_)));
    run.plan.restart(run.now);
    run.pass(20 * SECOND);
    assert!(
        run.of("a") > 5 && run.read > 0,
        "{} {}",
        run.of("a"),
        run.read
    );
}
