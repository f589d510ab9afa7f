//! Which queue is asked for what, and when: no clock, no calls.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// At most so many calls begin within a second.
pub(super) const MAX_RATE: usize = 50;
const SECOND: Duration = Duration::from_secs(1);
/// At most so many calls run at once.
const MAX_RUNNING: usize = 8;
/// How many queues are kept at most.
const MAX_QUEUES: usize = 1_000;
/// For how long a look counts.
const LOOK: Duration = Duration::from_secs(60);

/// A page with a list of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    Queues,
    Workers,
}

/// What one call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// How many messages fall due in the next hour.
    Due,
    /// The minutes of the last hour.
    Lately,
    /// The hours of the last day.
    Day,
    /// The workers.
    Nodes,
}

impl View {
    fn parts(self) -> &'static [Part] {
        match self {
            Self::Queues => &[Part::Lately, Part::Due, Part::Day],
            Self::Workers => &[Part::Nodes],
        }
    }
}

impl Part {
    /// The time between two calls.
    fn period(self) -> Duration {
        match self {
            Self::Day => Duration::from_secs(60),
            _ => Duration::from_secs(15),
        }
    }
}

/// What is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Ask(Arc<str>, Part),
    Wait(Instant),
    /// Until somebody looks, or a call ends.
    Idle,
}

#[derive(Default)]
pub(super) struct Plan {
    queues: HashMap<Arc<str>, Queue>,
    /// When the last calls began.
    began: VecDeque<Instant>,
    running: usize,
    /// Looks so far: what is new is asked for in their order.
    looks: u64,
}

#[derive(Default)]
struct Queue {
    looked: [Option<Instant>; 2],
    /// The number of the first look.
    number: u64,
    asked: [Asked; 4],
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    began: Option<Instant>,
    is_running: bool,
    is_answered: bool,
}

/// A part of a queue: when it is due, by number of the queue.
type Most<'a> = (Option<Instant>, u64, &'a Arc<str>, Part);

impl Queue {
    fn last_look(&self) -> Option<Instant> {
        self.looked.iter().copied().flatten().max()
    }
}

impl Plan {
    /// Somebody looks at this queue. The queue that gives way to it, if one does.
    pub(super) fn look(&mut self, view: View, name: &str, now: Instant) -> Option<Arc<str>> {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.looked[view as usize] = Some(now);
            return None;
        }
        let mut dropped = None;
        if self.queues.len() >= MAX_QUEUES {
            let oldest = self
                .queues
                .iter()
                .min_by_key(|(_, queue)| queue.last_look());
            dropped = oldest.map(|(name, _)| Arc::clone(name));
            if let Some(name) = &dropped {
                self.queues.remove(name);
            }
        }
        self.looks += 1;
        let mut queue = Queue {
            number: self.looks,
            ..Queue::default()
        };
        queue.looked[view as usize] = Some(now);
        self.queues.insert(name.into(), queue);
        dropped
    }

    /// How many parts of this queue were never answered.
    pub(super) fn unanswered(&self, view: View, name: &str) -> usize {
        let queue = self.queues.get(name);
        queue.map_or(0, |queue| {
            let parts = view.parts().iter();
            let is_answered = |part: &&Part| queue.asked[**part as usize].is_answered;
            parts.filter(|part| !is_answered(part)).count()
        })
    }

    /// What is to do now. The call that it names has begun.
    pub(super) fn next(&mut self, now: Instant) -> Step {
        while self.began.front().is_some_and(|at| *at + SECOND <= now) {
            self.began.pop_front();
        }
        if self.running >= MAX_RUNNING {
            return Step::Idle;
        }
        let Some((due, _, name, part)) = self.most_due(now) else {
            return Step::Idle;
        };
        if let Some(due) = due.filter(|due| *due > now) {
            return Step::Wait(due);
        }
        if self.began.len() >= MAX_RATE
            && let Some(first) = self.began.front()
        {
            return Step::Wait(*first + SECOND);
        }
        let name = Arc::clone(name);
        if let Some(queue) = self.queues.get_mut(&name) {
            let asked = &mut queue.asked[part as usize];
            (asked.began, asked.is_running) = (Some(now), true);
        }
        self.running += 1;
        self.began.push_back(now);
        Step::Ask(name, part)
    }

    /// The part that waits for the longest time: new ones in the order of the looks, then the others.
    fn most_due(&self, now: Instant) -> Option<Most<'_>> {
        let mut found: Option<Most<'_>> = None;
        for (name, queue) in &self.queues {
            for view in [View::Queues, View::Workers] {
                let looked = queue.looked[view as usize];
                if looked.is_none_or(|looked| looked + LOOK <= now) {
                    continue;
                }
                for part in view.parts() {
                    let asked = queue.asked[*part as usize];
                    let due = asked.began.map(|began| began + part.period());
                    let is_sooner = found
                        .as_ref()
                        .is_none_or(|(first, number, ..)| (due, queue.number) < (*first, *number));
                    if !asked.is_running && is_sooner {
                        found = Some((due, queue.number, name, *part));
                    }
                }
            }
        }
        found
    }

    /// The call has ended. Whether the queue is still kept.
    pub(super) fn ended(&mut self, name: &str, part: Part) -> bool {
        self.running = self.running.saturating_sub(1);
        let Some(queue) = self.queues.get_mut(name) else {
            return false;
        };
        let asked = &mut queue.asked[part as usize];
        (asked.is_running, asked.is_answered) = (false, true);
        true
    }

    /// No call runs any more: their task has ended.
    pub(super) fn restart(&mut self) {
        self.running = 0;
        for queue in self.queues.values_mut() {
            for asked in &mut queue.asked {
                asked.is_running = false;
            }
        }
    }

    /// Asks for this part again at once.
    pub(super) fn again(&mut self, name: &str, part: Part) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.asked[part as usize].began = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the plan for some time with calls that end at once. When each call began, of what.
    fn run(plan: &mut Plan, from: Instant, time: Duration) -> Vec<(Instant, Arc<str>, Part)> {
        let (mut now, mut calls) = (from, Vec::new());
        loop {
            match plan.next(now) {
                Step::Ask(name, part) => {
                    plan.ended(&name, part);
                    calls.push((now, name, part));
                }
                Step::Wait(until) if until < from + time => now = until,
                _ => return calls,
            }
            assert!(calls.len() <= 100_000, "the plan does not end");
        }
    }

    #[test]
    fn calls_are_paced_with_many_queues() {
        let (mut plan, start) = (Plan::default(), Instant::now());
        for number in 0..10_000 {
            plan.look(View::Queues, &format!("q{number}"), start);
        }
        assert_eq!(plan.queues.len(), MAX_QUEUES);
        let calls = run(&mut plan, start, Duration::from_secs(60));
        assert!(calls.len() > 50 * 58, "{}", calls.len());
        for (place, (at, ..)) in calls.iter().enumerate() {
            let within = calls[place..]
                .iter()
                .take_while(|(later, ..)| *later < *at + SECOND);
            assert!(within.count() <= MAX_RATE);
        }
    }

    #[test]
    fn each_part_is_read_once_a_period_and_nothing_after_the_look() {
        let (mut plan, start) = (Plan::default(), Instant::now());
        plan.look(View::Queues, "a", start);
        plan.look(View::Workers, "b", start);
        let calls = run(&mut plan, start, Duration::from_secs(3_600));
        let of = |part| calls.iter().filter(|(.., called)| *called == part).count();
        assert_eq!(
            [Part::Lately, Part::Due, Part::Nodes, Part::Day].map(of),
            [4, 4, 4, 1],
            "a minute's worth"
        );
        let end = start + Duration::from_secs(3_600);
        assert_eq!(plan.next(end), Step::Idle);
        plan.look(View::Queues, "a", end);
        assert!(matches!(plan.next(end), Step::Ask(..)));
    }

    #[test]
    fn calls_that_do_not_end_are_bounded() {
        let (mut plan, start) = (Plan::default(), Instant::now());
        for number in 0..100 {
            plan.look(View::Workers, &format!("q{number}"), start);
        }
        for _ in 0..MAX_RUNNING {
            assert!(matches!(plan.next(start), Step::Ask(..)));
        }
        assert_eq!(plan.next(start), Step::Idle);
        assert!(plan.ended("q0", Part::Nodes));
        assert!(matches!(plan.next(start), Step::Ask(..)));
    }

    #[test]
    fn the_queue_that_nobody_looked_at_for_longest_gives_way() {
        let (mut plan, start) = (Plan::default(), Instant::now());
        for number in 0..1_000 {
            let at = start + Duration::from_millis(number);
            plan.look(View::Queues, &format!("q{number}"), at);
        }
        let later = start + SECOND;
        plan.look(View::Queues, "q0", later);
        let dropped = plan.look(View::Queues, "new", later);
        assert_eq!(dropped.as_deref(), Some("q1"));
        assert!(!plan.ended("q1", Part::Due), "its answer is dropped too");
    }
}
