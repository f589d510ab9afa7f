//! What happens to the nodes of the simulation, and who attends meanwhile.

use super::node::Node;
use super::server::{NodeId, Us};
use super::world::{Event, POP, Process, SECOND, SETTLED, World, name};

/// How long a paused node does nothing.
const PAUSE: Us = 3 * SECOND;
/// One pause in this time.
pub(super) const PAUSES: Us = 2 * SECOND;

impl World {
    pub(super) fn join(&mut self, node: NodeId, at: Us) {
        let seed = self.rng.u64(..);
        self.processes.push(Process {
            node: Node::new(&name(node), self.settings.partitions, seed),
            is_alive: true,
            paused: None,
            pops_until: 0,
            timer_at: Us::MAX,
        });
        self.plan(at, Event::Start(node));
    }

    /// A node joins, and one dies without a leave.
    pub(super) fn churn(&mut self) {
        self.join(self.processes.len(), self.now);
        if let Some(node) = self.some_node() {
            self.set_attending(node, false);
            let process = &mut self.processes[node];
            process.is_alive = false;
            for partition in process.node.slots.keys() {
                self.partitions[*partition as usize].forget_connections(node);
            }
        }
        self.plan(self.now + SECOND, Event::Churn);
    }

    pub(super) fn pause(&mut self) {
        if let Some(node) = self.some_node() {
            self.set_attending(node, false);
            let pops_until = self.now + self.rng.u64(..POP);
            let process = &mut self.processes[node];
            process.paused = Some(Vec::new());
            process.pops_until = pops_until;
            self.plan(self.now + PAUSE, Event::Resume(node));
        }
        self.plan(self.now + PAUSES, Event::Pause);
    }

    pub(super) fn resume(&mut self, node: NodeId) {
        let waiting = self.processes[node].paused.take();
        if !self.processes[node].is_alive {
            return;
        }
        self.set_attending(node, true);
        for event in waiting.into_iter().flatten() {
            self.plan(self.now, event);
        }
        let partitions: Vec<_> = self.processes[node].node.slots.keys().copied().collect();
        for partition in partitions {
            self.plan(self.now, Event::Wait(node, partition));
        }
    }

    /// Some node that is alive and not paused.
    fn some_node(&mut self) -> Option<NodeId> {
        let is_up = |process: &Process| process.is_alive && process.paused.is_none();
        let up = (0..self.processes.len()).filter(|node| is_up(&self.processes[*node]));
        let up: Vec<_> = up.collect();
        (!up.is_empty()).then(|| up[self.rng.usize(..up.len())])
    }

    /// A node beats in a partition, or leaves it.
    pub(super) fn count_attendant(&mut self, node: NodeId, partition: u32, attends: bool) {
        let process = &mut self.processes[node];
        let is_up = process.is_alive && process.paused.is_none();
        if attends {
            let Some(slot) = process.node.slots.get_mut(&partition) else {
                return;
            };
            if std::mem::replace(&mut slot.is_live, true) {
                return;
            }
        }
        if is_up {
            self.attended(partition as usize, if attends { 1 } else { -1 });
        }
    }

    /// All partitions of a node that dies, pauses or goes on.
    fn set_attending(&mut self, node: NodeId, attends: bool) {
        let slots = self.processes[node].node.slots.iter();
        let live = slots.filter(|(_, slot)| slot.is_live);
        let partitions: Vec<_> = live.map(|(partition, _)| *partition).collect();
        for partition in partitions {
            self.attended(partition as usize, if attends { 1 } else { -1 });
        }
    }

    /// The number of live attendants changes; a change of 0 ends the measurement.
    pub(super) fn attended(&mut self, partition: usize, change: isize) {
        let (count, since) = &mut self.attendants[partition];
        *count = count.saturating_add_signed(change);
        let start = SETTLED;
        if let Some(from) = since.take_if(|_| *count > 0 || change == 0) {
            let gap = self.now.saturating_sub(from.max(start));
            self.figures.unattended(gap);
        }
        if *count == 0 && since.is_none() && change < 0 {
            *since = Some(self.now);
        }
    }
}
