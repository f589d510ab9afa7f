//! Plans which details of which queue are read next, and when.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most calls that begin within a second.
pub(super) const MAX_RATE: usize = 50;
const SECOND: Duration = Duration::from_secs(1);
/// The most calls that run at once.
const MAX_RUNNING: usize = 8;
/// The most queues whose details are kept.
const MAX_QUEUES: usize = 1_000;
/// How long a look has an effect: until then the details are read again and again.
const LOOK: Duration = Duration::from_secs(60);

/// A page that lists queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// The rows of the list of queues.
    Queues,
    Workers,
    /// The order of the list of queues.
    Trouble,
    /// All queues together.
    Traffic,
    /// The schedules of all queues.
    Schedules,
}

const VIEWS: [View; 5] = [
    View::Queues,
    View::Workers,
    View::Trouble,
    View::Traffic,
    View::Schedules,
];

/// The details that one call reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// What falls due in the next week, and the schedules.
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
            Self::Trouble => &[Part::Lately],
            Self::Traffic => &[Part::Lately, Part::Due],
            Self::Schedules => &[Part::Due],
        }
    }

    /// The time between two reads of a part of this view.
    fn period(self, part: Part) -> Duration {
        match (self, part) {
            (Self::Trouble | Self::Traffic, _) | (_, Part::Day) => Duration::from_secs(60),
            _ => Duration::from_secs(15),
        }
    }
}

impl Part {
    /// The order in which new parts are read.
    fn rank(self) -> u8 {
        match self {
            Self::Lately | Self::Nodes => 0,
            Self::Due => 1,
            Self::Day => 2,
        }
    }
}

/// The parts of all queues that viewers look at.
#[derive(Default)]
pub(super) struct Parts {
    queues: HashMap<Arc<str>, Queue>,
    /// The begin of each call within the last second.
    began: VecDeque<Instant>,
    running: usize,
    /// The number of looks so far: parts that were never read are read in the order of the looks.
    looks: u64,
}

#[derive(Default)]
struct Queue {
    looked: [Option<Instant>; VIEWS.len()],
    /// The number of the first look at this queue.
    number: u64,
    asked: [Asked; 4],
}

#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    began: Option<Instant>,
    is_running: bool,
    is_answered: bool,
}

/// A part of a queue: the instant at which it is due, and the number of the queue's first look.
type Most<'a> = (Option<Instant>, u8, u64, &'a Arc<str>, Part);

impl Queue {
    fn last_look(&self) -> Option<Instant> {
        self.looked.iter().copied().flatten().max()
    }
}

impl Parts {
    /// A viewer looks at this queue. Returns the queue that was dropped to make room, if one was.
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

    /// The number of parts of this queue that were never read.
    pub(super) fn unanswered(&self, view: View, name: &str) -> usize {
        let queue = self.queues.get(name);
        queue.map_or(0, |queue| {
            let parts = view.parts().iter();
            let is_answered = |part: &&Part| queue.asked[**part as usize].is_answered;
            parts.filter(|part| !is_answered(part)).count()
        })
    }

    /// The part to read now; it then counts as begun. Otherwise the instant to ask again, or `None`
    /// if a call must end first.
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
        let Some((due, _, _, name, part)) = self.most_due(now) else {
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

    /// The part that has waited longest: first new parts, the most telling ones of all queues before
    /// others, in the order of the looks; then the parts that were read.
    fn most_due(&self, now: Instant) -> Option<Most<'_>> {
        let mut found: Option<Most<'_>> = None;
        for (name, queue) in &self.queues {
            for view in VIEWS {
                let looked = queue.looked[view as usize];
                if looked.is_none_or(|looked| looked + LOOK <= now) {
                    continue;
                }
                for part in view.parts() {
                    let asked = queue.asked[*part as usize];
                    let due = asked.began.map(|began| began + view.period(*part));
                    let is_sooner = found.as_ref().is_none_or(|(first, rank, number, ..)| {
                        (due, part.rank(), queue.number) < (*first, *rank, *number)
                    });
                    if !asked.is_running && is_sooner {
                        found = Some((due, part.rank(), queue.number, name, *part));
                    }
                }
            }
        }
        found
    }

    /// The call has ended. Returns whether the queue is still kept.
    pub(super) fn ended(&mut self, name: &str, part: Part) -> bool {
        self.running = self.running.saturating_sub(1);
        let Some(queue) = self.queues.get_mut(name) else {
            return false;
        };
        let asked = &mut queue.asked[part as usize];
        (asked.is_running, asked.is_answered) = (false, true);
        true
    }

    /// Forgets all running calls: their task has ended.
    pub(super) fn restart(&mut self) {
        self.running = 0;
        for queue in self.queues.values_mut() {
            for asked in &mut queue.asked {
                asked.is_running = false;
            }
        }
    }

    /// Makes this part due at once.
    pub(super) fn again(&mut self, name: &str, part: Part) {
        if let Some(queue) = self.queues.get_mut(name) {
            queue.asked[part as usize].began = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the plan for some time; each call ends at once. Returns when each call began, its queue
    /// and its part.
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
    fn number_of_calls_per_second_is_bounded() {
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
    fn viewed_parts_are_read_once_a_period_until_the_look_ends() {
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
    fn number_of_running_calls_is_bounded() {
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
    fn queue_with_the_oldest_look_makes_room() {
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
