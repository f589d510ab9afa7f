//! What lists of queues show beside the counts, of which queue it is read next, and when: a part of the
//! plan.

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

/// The parts of all queues that somebody looks at.
#[derive(Default)]
pub(super) struct Parts {
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

impl Parts {
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

    /// The part to read now, whose call begins by that; or when to ask again, if time alone decides.
    pub(super) fn next(&mut self, now: Instant) -> Result<(Arc<str>, Part), Option<Instant>> {
        while self.began.front().is_some_and(|at| *at + SECOND <= now) {
            self.began.pop_front();
        }
        if self.running >= MAX_RUNNING {
            return Err(None);
        }
        if self.began.len() >= MAX_RATE {
            return Err(self.began.front().map(|first| *first + SECOND));
        }
        let Some((due, _, name, part)) = self.most_due(now) else {
            return Err(None);
        };
        if let Some(due) = due.filter(|due| *due > now) {
            return Err(Some(due));
        }
        let name = Arc::clone(name);
        if let Some(queue) = self.queues.get_mut(&name) {
            let asked = &mut queue.asked[part as usize];
            (asked.began, asked.is_running) = (Some(now), true);
        }
        self.running += 1;
        self.began.push_back(now);
        Ok((name, part))
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

    /// Reads for some time with calls that end at once. When each call began, of what.
    fn run(parts: &mut Parts, from: Instant, time: Duration) -> Vec<(Instant, Arc<str>, Part)> {
        let (mut now, mut calls) = (from, Vec::new());
        loop {
            match parts.next(now) {
                Ok((name, part)) => {
                    parts.ended(&name, part);
                    calls.push((now, name, part));
                }
                Err(Some(until)) if until < from + time => now = until,
                Err(_) => return calls,
            }
            assert!(calls.len() <= 100_000, "the plan does not end");
        }
    }

    #[test]
    fn calls_are_paced_with_many_queues() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        for number in 0..10_000 {
            parts.look(View::Queues, &format!("q{number}"), start);
        }
        assert_eq!(parts.queues.len(), MAX_QUEUES);
        let calls = run(&mut parts, start, Duration::from_secs(60));
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
        let (mut parts, start) = (Parts::default(), Instant::now());
        parts.look(View::Queues, "a", start);
        parts.look(View::Workers, "b", start);
        let calls = run(&mut parts, start, Duration::from_secs(3_600));
        let of = |part| calls.iter().filter(|(.., called)| *called == part).count();
        assert_eq!(
            [Part::Lately, Part::Due, Part::Nodes, Part::Day].map(of),
            [4, 4, 4, 1],
            "a minute's worth"
        );
        let end = start + Duration::from_secs(3_600);
        assert_eq!(parts.next(end), Err(None));
        parts.look(View::Queues, "a", end);
        assert!(parts.next(end).is_ok());
    }

    #[test]
    fn calls_that_do_not_end_are_bounded() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        for number in 0..100 {
            parts.look(View::Workers, &format!("q{number}"), start);
        }
        for _ in 0..MAX_RUNNING {
            assert!(parts.next(start).is_ok());
        }
        assert_eq!(parts.next(start), Err(None));
        assert!(parts.ended("q0", Part::Nodes));
        assert!(parts.next(start).is_ok());
    }

    #[test]
    fn the_queue_that_nobody_looked_at_for_longest_gives_way() {
        let (mut parts, start) = (Parts::default(), Instant::now());
        for number in 0..1_000 {
            let at = start + Duration::from_millis(number);
            parts.look(View::Queues, &format!("q{number}"), at);
        }
        let later = start + SECOND;
        parts.look(View::Queues, "q0", later);
        let dropped = parts.look(View::Queues, "new", later);
        assert_eq!(dropped.as_deref(), Some("q1"));
        assert!(!parts.ended("q1", Part::Due), "its answer is dropped too");
    }
}
