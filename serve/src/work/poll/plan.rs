//! Decides which call the poller makes next, and when: without I/O and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::work::poll::pace::{
    ASK_PAUSE, ASLEEP_ASK_PAUSE, ASLEEP_PASS_PAUSE, ASLEEP_PERIOD, AWAKE, AWAY_FAILURES,
    LOOK_LASTS, MAX_ASKED, MAX_BACKOFF, MAX_QUEUES, MIN_BACKOFF, PASS_PAUSE, PERIOD, SCAN_PAUSE,
    WATCHED_IN_A_ROW, WATCHED_PERIOD,
};
use crate::work::poll::parts::{Part, Parts};

/// The next step of the poller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Ask this queue for its counts.
    Ask(Arc<str>),
    /// Read this part of this queue.
    Read(Arc<str>, Part),
    /// Make the next step of the scan.
    Scan,
    /// Do nothing until this instant.
    Wait(Instant),
    /// Do nothing until a viewer looks for the first time.
    Idle,
}

/// The result of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The queue has counts, or an error of its own.
    Known,
    /// The queue does not exist.
    Absent,
    /// Redis could not be reached or did not answer.
    Failed,
}

/// The state of one queue in the plan.
#[derive(Debug, Default)]
struct Turn {
    /// When the queue is asked next; `None` while a question to it is in flight.
    due: Option<Instant>,
    asked: Option<Instant>,
    looked: Option<Instant>,
    /// Whether the queue is in the set of watched queues.
    is_watched: bool,
}

/// The plan of the poller.
pub(super) struct Plan {
    /// Whether scans find the queues. If not, their names were given.
    scans: bool,
    turns: BTreeMap<Arc<str>, Turn>,
    watched: BTreeSet<(Instant, Arc<str>)>,
    others: BTreeSet<(Instant, Arc<str>)>,
    watched_in_a_row: u32,
    asked: usize,
    next_ask: Instant,
    next_scan: Instant,
    is_scanning: bool,
    /// Whether a scan is in progress.
    is_in_scan: bool,
    /// Whether the scan makes no pauses: a viewer waits for it, or notices of new queues may have
    /// been missed.
    is_quick: bool,
    /// Whether notices of new queues may have been missed since this scan began.
    has_missed: bool,
    /// An instant before all due times of queues.
    begun: Instant,
    /// Whether queues are asked before the first look.
    watches: bool,
    /// The last look of any viewer.
    looked: Option<Instant>,
    /// The instant at which the poller last woke from a pause.
    awake_since: Option<Instant>,
    /// The queues that were not asked since `awake_since`; `None` until all names are known.
    unasked: Option<BTreeSet<Arc<str>>>,
    /// The number of failures since the last answer.
    failures: u32,
    resume: Instant,
    is_cut: bool,
    /// The plan of the details that are read in addition to the counts.
    pub(super) parts: Parts,
}

impl Plan {
    /// A plan for the queues with these names; with `None` for those that scans find.
    pub(super) fn new(names: Option<Vec<String>>, now: Instant) -> Self {
        let mut plan = Self {
            scans: names.is_none(),
            turns: BTreeMap::new(),
            watched: BTreeSet::new(),
            others: BTreeSet::new(),
            watched_in_a_row: 0,
            asked: 0,
            next_ask: now,
            next_scan: now,
            is_scanning: false,
            is_in_scan: false,
            is_quick: false,
            has_missed: false,
            begun: now,
            watches: false,
            looked: None,
            awake_since: None,
            unasked: None,
            failures: 0,
            resume: now,
            is_cut: false,
            parts: Parts::default(),
        };
        plan.add(names.unwrap_or_default(), now, now);
        plan
    }

    /// Forgets all running calls: their task has ended.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.asked, self.is_scanning, self.is_in_scan) = (0, false, false);
        let asked = self.turns.iter().filter(|(_, turn)| turn.due.is_none());
        let asked: Vec<_> = asked.map(|(name, _)| Arc::clone(name)).collect();
        for name in asked {
            self.queue(&name, now, now);
        }
        self.parts.restart();
    }

    /// Asks queues although nobody looks, after a first period.
    pub(super) fn watch(&mut self, now: Instant) {
        let first = now + ASLEEP_PERIOD;
        (self.watches, self.next_scan, self.next_ask) = (true, first, first);
    }

    /// Whether there are more queues than are polled.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether a viewer who looks now should wait: Redis answers, but not every queue was asked
    /// since the last pause.
    pub(super) fn is_catching_up(&self) -> bool {
        self.failures == 0 && self.unasked.as_ref().is_none_or(|names| !names.is_empty())
    }

    /// A viewer looks at these queues; without names, at all queues.
    pub(super) fn look<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, now: Instant) {
        if self.is_asleep(now) {
            self.awake_since = Some(now);
            (self.next_scan, self.is_quick, self.unasked) = (now, true, None);
            self.next_ask = self.next_ask.min(now);
            // A scan that began before may have missed a queue.
            self.has_missed = self.is_in_scan;
            let all: Vec<_> = self.others.iter().map(|(_, name)| name.clone()).collect();
            for name in all {
                self.unqueue(&name);
                self.queue(&name, now, now);
            }
            if !self.scans {
                self.unasked = Some(self.turns.keys().cloned().collect());
            }
        }
        self.looked = Some(now);
        for name in names {
            self.add([name], now, now);
            let Some((name, turn)) = self.turns.get_key_value(name) else {
                continue; // there are too many queues
            };
            let (name, due, asked) = (Arc::clone(name), turn.due, turn.asked);
            self.unqueue(&name);
            let turn = self.turns.entry(Arc::clone(&name)).or_default();
            turn.looked = Some(now);
            if let Some(due) = due {
                let sooner = asked.map_or(now, |asked| asked + WATCHED_PERIOD);
                self.queue(&name, due.min(sooner), now);
            }
        }
    }

    /// The step to do now.
    pub(super) fn next(&mut self, now: Instant) -> Step {
        let is_asleep = self.is_asleep(now);
        let mut wake = match self.looked {
            None if !self.watches => return Step::Idle,
            Some(looked) if !is_asleep => looked + AWAKE,
            _ => now + ASLEEP_PERIOD,
        };
        // One master of a cluster may be unreachable: parts on the other masters are still read.
        if self.failures < AWAY_FAILURES && !is_asleep {
            match self.parts.next(now) {
                Ok((name, part)) => return Step::Read(name, part),
                Err(until) => wake = until.map_or(wake, |until| wake.min(until)),
            }
        }
        if now < self.resume {
            return Step::Wait(self.resume.min(wake));
        }
        if self.scans && !self.is_scanning && self.next_scan <= now {
            (self.is_scanning, self.is_in_scan) = (true, true);
            return Step::Scan;
        }
        if self.scans && !self.is_scanning {
            wake = wake.min(self.next_scan);
        }
        // While Redis is unreachable, only one question at a time tests whether it is back.
        let most = if self.failures > 0 { 1 } else { MAX_ASKED };
        if self.asked < most {
            if self.next_ask <= now
                && let Some(name) = self.most_due(now)
            {
                self.begin(&name, now);
                return Step::Ask(name);
            }
            let first = [self.watched.first(), self.others.first()];
            let due = first.into_iter().flatten().map(|(due, _)| *due).min();
            if let Some(due) = due {
                wake = wake.min(due.max(self.next_ask));
            }
        }
        Step::Wait(wake)
    }

    /// A step of the scan has found these names. `is_last`: the scan has ended.
    pub(super) fn scanned(&mut self, names: Vec<String>, is_last: bool, now: Instant) {
        self.answered();
        (self.is_scanning, self.is_in_scan) = (false, !is_last);
        self.add(names, now, now);
        let has_missed = is_last && std::mem::take(&mut self.has_missed);
        if is_last {
            self.is_quick = has_missed;
        }
        self.next_scan = now
            + match (self.is_quick, is_last) {
                (true, _) => Duration::ZERO,
                (false, true) if self.is_asleep(now) => ASLEEP_PASS_PAUSE,
                (false, true) => PASS_PAUSE,
                (false, false) => SCAN_PAUSE,
            };
        if is_last && !has_missed && self.unasked.is_none() {
            let since = self.awake_since.unwrap_or(now);
            let is_old = |turn: &Turn| turn.due.is_none() || turn.asked < Some(since);
            let old = self.turns.iter().filter(|(_, turn)| is_old(turn));
            self.unasked = Some(old.map(|(name, _)| Arc::clone(name)).collect());
        }
    }

    /// A queue was created: it is asked before all others.
    pub(super) fn created(&mut self, name: String, now: Instant) {
        self.add([name], self.begun, now);
    }

    /// Notices of new queues may have been missed.
    pub(super) fn missed(&mut self, now: Instant) {
        (self.is_quick, self.has_missed, self.next_scan) = (true, self.is_in_scan, now);
    }

    /// A step of the scan has failed.
    pub(super) fn scan_failed(&mut self, now: Instant) {
        (self.is_scanning, self.is_in_scan) = (false, false);
        // Later than the next question: other masters of a cluster can still be asked.
        self.next_scan = now + MAX_BACKOFF;
        self.failed(now);
    }

    /// The question to this queue has ended.
    pub(super) fn asked(&mut self, name: &Arc<str>, answer: Answer, now: Instant) {
        self.asked -= 1;
        if answer == Answer::Failed {
            self.failed(now);
        } else {
            self.answered();
            if let Some(unasked) = &mut self.unasked {
                unasked.remove(name);
            }
        }
        let Some(turn) = self.turns.get(name) else {
            return;
        };
        // A queue whose name was given is asked again: it may be created later.
        if answer == Answer::Absent && self.scans {
            self.turns.remove(name);
            self.is_cut = false; // until a scan finds too many queues again
            return;
        }
        let begun = turn.asked.unwrap_or(now);
        let is_watched = turn.looked.is_some_and(|looked| now < looked + LOOK_LASTS);
        let period = match is_watched {
            true => WATCHED_PERIOD,
            false if self.is_asleep(now) => ASLEEP_PERIOD,
            false => PERIOD,
        };
        self.queue(name, begun + period, now);
    }

    /// Whether no viewer has looked for long.
    fn is_asleep(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now >= looked + AWAKE)
    }

    fn answered(&mut self) {
        self.failures = 0;
    }

    fn failed(&mut self, now: Instant) {
        let doubled = MIN_BACKOFF * 2_u32.pow(self.failures.min(10));
        self.failures = self.failures.saturating_add(1);
        self.resume = self.resume.max(now + doubled.min(MAX_BACKOFF));
    }

    /// Adds the new names, to be asked at their due times.
    fn add(
        &mut self,
        names: impl IntoIterator<Item = impl AsRef<str> + Into<Arc<str>>>,
        due: Instant,
        now: Instant,
    ) {
        for name in names {
            if self.turns.contains_key(name.as_ref()) {
                continue;
            }
            if self.turns.len() >= MAX_QUEUES {
                self.is_cut = true;
                return;
            }
            let name: Arc<str> = name.into();
            self.turns.insert(Arc::clone(&name), Turn::default());
            self.queue(&name, due, now);
        }
    }

    /// Sets when a queue is asked next.
    fn queue(&mut self, name: &Arc<str>, due: Instant, now: Instant) {
        let Some(turn) = self.turns.get_mut(name) else {
            return;
        };
        turn.due = Some(due);
        turn.is_watched = turn.looked.is_some_and(|looked| now < looked + LOOK_LASTS);
        let set = if turn.is_watched {
            &mut self.watched
        } else {
            &mut self.others
        };
        set.insert((due, Arc::clone(name)));
    }

    fn unqueue(&mut self, name: &Arc<str>) {
        let Some(turn) = self.turns.get_mut(name) else {
            return;
        };
        if let Some(due) = turn.due.take() {
            let set = if turn.is_watched {
                &mut self.watched
            } else {
                &mut self.others
            };
            set.remove(&(due, Arc::clone(name)));
        }
    }

    /// The queue to ask now, if one is due.
    fn most_due(&self, now: Instant) -> Option<Arc<str>> {
        let due = |set: &BTreeSet<(Instant, Arc<str>)>| {
            let (due, name) = set.first()?;
            (*due <= now).then(|| Arc::clone(name))
        };
        let (watched, other) = (due(&self.watched), due(&self.others));
        if self.watched_in_a_row >= WATCHED_IN_A_ROW {
            other.or(watched)
        } else {
            watched.or(other)
        }
    }

    fn begin(&mut self, name: &Arc<str>, now: Instant) {
        let is_watched = self.turns.get(name).is_some_and(|turn| turn.is_watched);
        self.watched_in_a_row = if is_watched {
            self.watched_in_a_row + 1
        } else {
            0
        };
        self.unqueue(name);
        if let Some(turn) = self.turns.get_mut(name) {
            turn.asked = Some(now);
        }
        self.asked += 1;
        let pause = match self.is_asleep(now) {
            true => ASLEEP_ASK_PAUSE,
            false => ASK_PAUSE,
        };
        self.next_ask = now + pause;
    }
}
