//! The world of the simulation: virtual time, the network, and what happens to nodes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;

use super::churn::PAUSES;
use super::node::{Call, Node, Reply, Wish};
use super::report::Figures;
use super::server::{Hints, Home, MS, NodeId, Partition, Us};

pub(super) const SECOND: Us = 1_000 * MS;
/// The nodes start within this time and settle in.
pub(super) const SETTLED: Us = 10 * SECOND;
/// Then nothing happens for this long, to count the commands of idle nodes.
const IDLE: Us = 10 * SECOND;
/// Messages are pushed so long before they are due.
const AHEAD: Us = 500 * MS;
/// A blocked pop ends after this time.
pub(super) const POP: Us = 2 * SECOND;
/// Redis's time for one small script call, from docs/performance.
const SERVICE: Us = 35;
/// Redis's time for each name of a roster that it sends.
const SERVICE_OF_NAMES: f64 = 0.05;
/// The shortest way between a node and Redis, and the mean of what comes to it.
const WAY: (Us, f64) = (40, 60.0);
/// One way in this many is delayed further, and the mean of this delay.
const SLOW_WAY: (u32, f64) = (1_000, 3_000.0);
/// How much later than asked a timer wakes its node, at most.
const WAKE: Us = 100;
/// One notice in this many is lost.
const LOST_NOTICE: u32 = 100;

#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) nodes: usize,
    pub(super) partitions: u32,
    pub(super) masters: usize,
    pub(super) length: Us,
    /// The mean time between two due instants of a partition.
    pub(super) every: Us,
    /// Whether nodes join, die and pause, and notices are lost.
    pub(super) is_churning: bool,
    pub(super) seed: u64,
}

pub(super) enum Event {
    Start(NodeId),
    Timer(NodeId),
    Watch(NodeId),
    Arrive(NodeId, u32, Call, Us),
    Answer(NodeId, u32, Reply, Us),
    Wait(NodeId, u32),
    Listen(NodeId, u32),
    Token(NodeId, u32),
    Notice(NodeId, u32, Option<Us>),
    Push(u32),
    Churn,
    Pause,
    Resume(NodeId),
}

/// Events of one time happen in the order in which they were planned.
struct Planned(Us, u64, Event);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A node's process.
pub(super) struct Process {
    pub(super) node: Node,
    pub(super) is_alive: bool,
    /// While the process is paused: the events that it gets when the pause ends.
    pub(super) paused: Option<Vec<Event>>,
    /// Until when the pops of a paused node take tokens.
    pub(super) pops_until: Us,
    /// The earliest planned timer.
    pub(super) timer_at: Us,
}

pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) rng: Rng,
    pub(super) now: Us,
    planned: BinaryHeap<Reverse<Planned>>,
    plans: u64,
    pub(super) processes: Vec<Process>,
    pub(super) partitions: Vec<Partition>,
    home: Home,
    /// Until when each master is busy.
    busy_until: Vec<Us>,
    /// The live attendants of each partition, and since when it has none.
    pub(super) attendants: Vec<(usize, Option<Us>)>,
    pub(super) figures: Figures,
}

/// Runs a simulation.
pub(super) fn run(settings: Settings) -> Figures {
    let partitions = settings.partitions as usize;
    let mut world = World {
        settings,
        rng: Rng::with_seed(settings.seed),
        now: 0,
        planned: BinaryHeap::new(),
        plans: 0,
        processes: Vec::new(),
        partitions: (0..partitions).map(|_| Partition::default()).collect(),
        home: Home::default(),
        busy_until: vec![0; settings.masters],
        attendants: vec![(0, Some(0)); partitions],
        figures: Figures::default(),
    };
    world.run();
    world.figures
}

pub(super) fn name(node: NodeId) -> String {
    format!("{node:032x}")
}

impl World {
    fn run(&mut self) {
        for node in 0..self.settings.nodes {
            let at = self.rng.u64(..SECOND);
            self.join(node, at);
        }
        self.until(SETTLED);
        self.figures.start_idle(self.now);
        self.until(SETTLED + IDLE);
        let pops = self.pops() * IDLE as f64 / POP as f64;
        let pings = (self.settings.nodes * self.settings.masters) as f64 * IDLE as f64
            / (3 * SECOND) as f64;
        self.figures.start_busy(self.now, pops + pings);
        for partition in 0..self.settings.partitions {
            let at = self.now + self.rng.u64(..self.settings.every);
            self.plan(at, Event::Push(partition));
        }
        if self.settings.is_churning {
            self.plan(self.now + SECOND, Event::Churn);
            self.plan(self.now + PAUSES, Event::Pause);
        }
        let end = self.now + self.settings.length;
        self.until(end);
        for partition in 0..self.attendants.len() {
            self.attended(partition, 0);
        }
        let pops = self.pops() * self.settings.length as f64 / POP as f64;
        self.figures.end(self.now, pops);
    }

    /// The blocked pops: one for each node on a single server, else one for each partition.
    fn pops(&self) -> f64 {
        let live = self.processes.iter().filter(|process| process.is_alive);
        let pops = live.map(|process| match self.settings.masters {
            1 => 1,
            _ => process.node.slots.len(),
        });
        pops.sum::<usize>() as f64
    }

    fn until(&mut self, end: Us) {
        while let Some(Reverse(next)) = self.planned.peek()
            && next.0 < end
        {
            if let Some(Reverse(Planned(at, _, event))) = self.planned.pop() {
                self.now = at;
                self.happen(event);
            }
        }
        self.now = end;
    }

    pub(super) fn plan(&mut self, at: Us, event: Event) {
        self.plans += 1;
        self.planned
            .push(Reverse(Planned(at.max(self.now), self.plans, event)));
    }

    fn exponential(&mut self, mean: f64) -> Us {
        (-mean * (1.0 - self.rng.f64()).ln()) as Us
    }

    /// The time that one way takes.
    fn way(&mut self) -> Us {
        let mut way = WAY.0 + self.exponential(WAY.1);
        if self.rng.u32(..SLOW_WAY.0) == 0 {
            way += self.exponential(SLOW_WAY.1);
        }
        way
    }

    fn happen(&mut self, event: Event) {
        let node = match &event {
            Event::Start(node)
            | Event::Timer(node)
            | Event::Watch(node)
            | Event::Answer(node, ..)
            | Event::Token(node, _)
            | Event::Notice(node, ..) => Some(*node),
            _ => None,
        };
        if let Some(process) = node.and_then(|node| self.processes.get_mut(node)) {
            if !process.is_alive {
                return;
            }
            if let Some(waiting) = &mut process.paused {
                waiting.push(event);
                return;
            }
        }
        match event {
            Event::Arrive(node, partition, call, sent) => self.arrive(node, partition, call, sent),
            Event::Wait(node, partition) => {
                let may_wait = may_wait(&self.processes, self.now);
                let target = &mut self.partitions[partition as usize];
                if may_wait(node) {
                    let hints = target.wait(node, may_wait);
                    self.hint(partition, hints);
                }
            }
            Event::Listen(node, partition) => {
                let process = &self.processes[node];
                if process.is_alive && process.node.slots.contains_key(&partition) {
                    self.partitions[partition as usize].subscribers.push(node);
                    self.plan(self.now, Event::Wait(node, partition));
                }
            }
            Event::Push(partition) => self.push(partition),
            Event::Churn => self.churn(),
            Event::Pause => self.pause(),
            Event::Resume(node) => self.resume(node),
            event => self.at_node(event),
        }
    }

    /// An event that a live node handles.
    fn at_node(&mut self, event: Event) {
        let (now, part) = (self.now, self.rng.f64());
        let node = match event {
            Event::Start(node) => {
                self.processes[node].node.start(now);
                node
            }
            Event::Timer(node) => {
                self.processes[node].timer_at = Us::MAX;
                node
            }
            Event::Watch(node) => {
                self.processes[node].node.watch();
                node
            }
            Event::Answer(node, partition, reply, sent) => {
                let process = &mut self.processes[node];
                process.node.answered(partition, reply, sent, now, part);
                node
            }
            Event::Token(node, partition) => {
                self.processes[node].node.want(partition);
                self.figures.pop();
                let way = self.way();
                self.plan(now + way, Event::Wait(node, partition));
                node
            }
            Event::Notice(node, partition, head) => {
                self.processes[node].node.noticed(partition, head, now);
                node
            }
            _ => return,
        };
        self.processes[node].node.act(now);
        for wish in std::mem::take(&mut self.processes[node].node.wishes) {
            match wish {
                Wish::Call(partition, call) => {
                    if call == Call::Leave {
                        self.count_attendant(node, partition, false);
                    }
                    let way = self.way();
                    self.plan(now + way, Event::Arrive(node, partition, call, now));
                }
                Wish::Listen(partition) => {
                    let way = self.way();
                    self.plan(now + way, Event::Listen(node, partition));
                }
                Wish::WatchAt(at) => self.plan(at, Event::Watch(node)),
                Wish::Handled(due) => self.figures.handled(now.saturating_sub(due)),
            }
        }
        let next = self.processes[node].node.timers.next();
        if let Some(at) = next.map(|at| at.as_micros() as Us) {
            let process = &mut self.processes[node];
            if at < process.timer_at {
                process.timer_at = at;
                let wake = self.rng.u64(20..WAKE);
                self.plan(at + wake, Event::Timer(node));
            }
        }
    }

    /// A call reaches its master.
    fn arrive(&mut self, node: NodeId, partition: u32, call: Call, sent: Us) {
        let may_wait = may_wait(&self.processes, self.now);
        let master = partition as usize % self.settings.masters;
        let start = self.busy_until[master].max(self.now);
        let mut end = start + SERVICE;
        self.figures.called(call);
        let target = &mut self.partitions[partition as usize];
        let (reply, hints) = match call {
            Call::Beat(word) => {
                let (beat, hints) = target.beat(start, node, word, may_wait);
                self.count_attendant(node, partition, true);
                (Reply::Beat(beat), hints)
            }
            Call::Leave => {
                target.leave(start, node);
                return;
            }
            Call::Promote => {
                let (header, moved, hints) = target.promote(start, may_wait);
                (Reply::Promoted(header, moved), hints)
            }
            Call::Claim { count, for_promote } => {
                let (claim, hints) = target.claim(start, count, may_wait);
                if !claim.granted.is_empty() {
                    self.figures.acked();
                }
                (Reply::Claimed { claim, for_promote }, hints)
            }
            Call::Watch { known } => {
                let (number, roster) = self.home.watch(start, node, known, name);
                if let Some(roster) = &roster {
                    end += (roster.nodes() as f64 * SERVICE_OF_NAMES) as Us;
                }
                (Reply::Watched(number, roster), Hints::default())
            }
        };
        self.busy_until[master] = end;
        let way = self.way();
        self.plan(end + way, Event::Answer(node, partition, reply, sent));
        self.hint(partition, hints);
    }

    fn hint(&mut self, partition: u32, hints: Hints) {
        for node in hints.woken {
            let way = self.way();
            self.plan(self.now + way, Event::Token(node, partition));
        }
        if let Some(head) = hints.notice {
            for index in 0..self.partitions[partition as usize].subscribers.len() {
                let node = self.partitions[partition as usize].subscribers[index];
                let way = self.way();
                let is_lost = self.settings.is_churning && self.rng.u32(..LOST_NOTICE) == 0;
                if !is_lost {
                    self.plan(self.now + way, Event::Notice(node, partition, head));
                }
            }
        }
    }

    fn push(&mut self, partition: u32) {
        let may_wait = may_wait(&self.processes, self.now);
        let due = self.now + AHEAD;
        let target = &mut self.partitions[partition as usize];
        let hints = target.push(self.now, due, may_wait);
        self.figures.pushed();
        self.hint(partition, hints);
        let every = self.settings.every;
        let pause = every / 2 + self.rng.u64(..every);
        self.plan(self.now + pause, Event::Push(partition));
    }
}

/// Whether a pop of this node takes tokens.
fn may_wait(processes: &[Process], now: Us) -> impl Fn(NodeId) -> bool + Copy {
    move |node| {
        let process = &processes[node];
        process.is_alive && (process.paused.is_none() || now < process.pops_until)
    }
}
