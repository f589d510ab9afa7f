//! Random pulls of a queue of several partitions. The model answers their claims in any order, with
//! messages or errors; callers drop pulls; the node leaves partitions and attends them again. It
//! checks that no pull is answered too early and that every pull is answered in the end.

use std::time::Duration;

use fastrand::Rng;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use crate::delivery::Delivery;
use crate::error::{Applied, ErrorKind};
use crate::model::lease_token::LeaseToken;
use crate::node::QueueId;
use crate::node::consumers::pulls::{Grant, Ticket};
use crate::node::coordinator::event::Claimed;
use crate::node::coordinator::recovered::LostGrant;
use crate::node::state::shares::{Order, ShareSettings, Shares};
use crate::node::state::timers::{Action, Due};
use crate::protocol::partition_map::{PartitionMap, Tag};
use crate::protocol::results::administer::Watched;
use crate::protocol::results::claim::Claim;

const HANDLERS: usize = 1 << 20;

struct Model {
    rng: Rng,
    node: Coordinator,
    pulls: Arc<Pulls>,
    queue: QueueId,
    events: UnboundedReceiver<Event>,
    /// Claims and look-ups that the model has not answered, each with the step in which it was
    /// sent.
    in_flight: Vec<(PartitionId, Sent, u64)>,
    waiting: Vec<Waiting>,
    step: u64,
    last_roster: u64,
    now: Instant,
}

enum Sent {
    Claim(Claimed),
    /// A look-up of a claim whose token was held.
    LookUp(LostGrant),
}

struct Waiting {
    ticket: Ticket,
    /// The step in which the pull arrived.
    joined: u64,
    /// The partitions that must still be asked for the pull; `None` until the coordinator has seen
    /// it.
    owed: Option<BTreeSet<PartitionId>>,
    is_over: bool,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Makes the node's random pauses depend on the seed.
        fastrand::seed(seed);
        let mut node = coordinator();
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        node.sender = sender;
        node.concurrency = HANDLERS;
        node.shares = Shares::new(HANDLERS, Order::Weighted);
        // The node's other queue is taken out of the test.
        node.competing.clear();
        let pulls = Arc::<Pulls>::default();
        let share = ShareSettings {
            weight: 1,
            reserve: 0,
            max: usize::MAX,
        };
        let entry = QueueEntry {
            consumer: Consumer::Pulls(Arc::clone(&pulls)),
            share,
            ..entry_of("pulled", &node.membership.servers)
        };
        let now = Instant::now();
        node.attend_for_pulls(entry, now).expect("a new queue");
        let queue = node.membership.by_name["pulled"];
        let mut model = Self {
            node,
            pulls,
            queue,
            events,
            in_flight: Vec::new(),
            waiting: Vec::new(),
            step: 0,
            last_roster: 0,
            now,
            rng: Rng::new(),
        };
        let tags = (1..rng.u32(1..=4)).map(Tag::Numbered);
        let map = PartitionMap::settled(7, std::iter::once(Tag::Home).chain(tags).collect());
        let router = Arc::clone(&model.node.membership.queues[&queue].entry.router);
        let partitions = router.take_settled(Some(map));
        model.node.mapped(queue, Ok(partitions), now);
        model.rng = rng;
        model.roster(0);
        model
    }

    /// Answers a watch of the home with a roster of `others` other nodes.
    fn roster(&mut self, others: usize) {
        self.last_roster += 1;
        let watched = Watched {
            header: Header {
                epoch: Some(7),
                ..header(false)
            },
            roster: self.last_roster,
            nodes: (0..others).map(|node| format!("other{node}")).collect(),
            help: Vec::new(),
            drained: false,
        };
        self.node
            .watched(self.queue, self.now, (Tag::Home, Ok(watched)), self.now);
        let members = self.members();
        for owed in self.waiting.iter_mut().filter_map(|one| one.owed.as_mut()) {
            owed.retain(|id| members.contains(id));
        }
    }

    fn members(&self) -> BTreeSet<PartitionId> {
        let queue = &self.node.membership.queues[&self.queue];
        let attended = self.node.attended(queue);
        attended.map(|partition| partition.id).collect()
    }

    /// Does one random event.
    fn step(&mut self) {
        self.now += Duration::from_micros(self.rng.u64(..1_000));
        match self.rng.u8(..20) {
            0..6 => self.join(),
            6..8 => self.see(),
            kind @ 8..10 if !self.waiting.is_empty() => {
                let index = self.rng.usize(..self.waiting.len());
                match kind {
                    8 => self.waiting[index].end(),
                    _ => drop(self.waiting.swap_remove(index)),
                }
            }
            10 => {
                let others = self.rng.usize(..4);
                self.roster(others);
            }
            _ => self.answer(20),
        }
        self.timers();
    }

    fn join(&mut self) {
        let request = PullRequest {
            max: self.rng.usize(1..=5),
            lease_ms: self.rng.u64(1..=3),
            token: self.rng.bool().then(LeaseToken::random),
        };
        let mut one = Waiting {
            ticket: self.pulls.join(request).expect("room"),
            joined: self.step,
            owed: None,
            is_over: false,
        };
        if self.rng.bool() {
            one.end();
        }
        self.waiting.push(one);
        if self.rng.bool() {
            self.see();
        }
    }

    /// Lets the coordinator see the pulls that came.
    fn see(&mut self) {
        if self.waiting.iter().all(|one| one.owed.is_some()) {
            return;
        }
        self.node.pulled("pulled", self.now);
        let members = self.members();
        for one in &mut self.waiting {
            one.owed.get_or_insert_with(|| members.clone());
        }
    }

    /// Answers a random claim in flight. `kinds` of 20 answers are errors or grants; the others are
    /// empty replies.
    fn answer(&mut self, kinds: u8) {
        if self.in_flight.is_empty() {
            return;
        }
        let index = self.rng.usize(..self.in_flight.len());
        let (id, call, sent) = self.in_flight.swap_remove(index);
        let mut claimed = match call {
            Sent::Claim(claimed) => claimed,
            Sent::LookUp(grant) => return self.looked_up(id, grant, sent),
        };
        let (left, granted) = match self.rng.u8(..20) {
            kind if kind < 20 - kinds => (0, 0),
            0..8 => (0, 0),
            8..11 => (0, self.rng.usize(1..=claimed.asked)),
            11 => (7, self.rng.usize(1..=claimed.asked)),
            12..14 => (7, claimed.asked),
            14 => (7, 0),
            kind => {
                claimed.result = Err(match kind {
                    15 => Error::invalid("HELD").with_code("HELD"),
                    16 => Error::new(ErrorKind::Denied, Applied::No, "no right"),
                    _ => Error::new(ErrorKind::Unavailable, Applied::No, "away"),
                });
                if kind > 16 {
                    self.asked(id, sent);
                }
                return self.node.claimed(id, claimed, self.now);
            }
        };
        if left == 0 {
            self.asked(id, sent);
        }
        let granted = (0..granted).map(|_| granted_message()).collect();
        claimed.result = Ok(Claim {
            header: header(false),
            left,
            granted,
        });
        self.node.claimed(id, claimed, self.now);
    }

    /// Answers a look-up: with an error, with some messages, or with none.
    fn looked_up(&mut self, id: PartitionId, grant: LostGrant, sent: u64) {
        let found = match self.rng.usize(0..4) {
            0 => {
                self.asked(id, sent);
                Err(Error::new(ErrorKind::Unavailable, Applied::No, "away"))
            }
            1 => Ok(Vec::new()),
            _ => Ok((0..self.rng.u8(1..=5)).map(Delivery::unconnected).collect()),
        };
        let grant = grant.with(found.map(|leased| (header(false), leased)));
        self.node.looked_up(id, grant, self.now);
    }

    /// Records that a claim of this partition, sent in this step, left no message or failed.
    fn asked(&mut self, id: PartitionId, sent: u64) {
        for one in self.waiting.iter_mut().filter(|one| one.joined <= sent) {
            if let Some(owed) = &mut one.owed {
                owed.remove(&id);
            }
        }
    }

    /// Checks every answer that has come.
    fn check(&mut self) {
        self.waiting.retain_mut(|one| {
            let Some(answer) = one.ticket.try_answer() else {
                return true;
            };
            match answer.map(Grant::take) {
                Ok(none) if none.is_empty() => {
                    assert!(one.is_over, "no message, before the end of the wait");
                    assert_eq!(one.owed, Some(BTreeSet::new()), "a partition was not asked");
                }
                Err(error) if error.is_retryable() => assert!(one.is_over, "{error}"),
                _ => {}
            }
            false
        });
    }

    /// Lets due timers of claims fire. Timers of beats do not, because pulls must not need a beat.
    fn timers(&mut self) {
        while let Some(due) = self.node.pop_due(self.now) {
            if let Due::Act(id, Action::Claim) = due {
                self.node.perform(id, Action::Claim, self.now);
            }
        }
    }

    /// Does what the coordinator does after each event.
    async fn dispatch(&mut self) {
        self.node.dispatch(self.now);
        let partitions = self.node.partitions.values();
        let claims = partitions
            .filter(|partition| partition.claim.is_in_flight())
            .count();
        while self.in_flight.len() < claims {
            match self.events.recv().await {
                Some(Event::Reply(id, Reply::Claimed(claimed))) => {
                    self.in_flight.push((id, Sent::Claim(*claimed), self.step));
                }
                Some(Event::Reply(id, Reply::LookedUp(grant))) => {
                    self.in_flight.push((id, Sent::LookUp(*grant), self.step));
                }
                // An event of another kind, such as of a partition that the node has left.
                Some(event) => self.node.handle(event),
                None => panic!("the model keeps a sender"),
            }
        }
        // Calls arrive in any order, so they are sorted: only the seed decides which is answered
        // first.
        self.in_flight.sort_by_key(|(id, ..)| *id);
        self.check();
        self.step += 1;
    }

    /// Ends the run: no more pulls come, and the time of each is over.
    async fn rest(&mut self) {
        self.see();
        self.waiting.iter_mut().for_each(Waiting::end);
        self.dispatch().await;
        loop {
            let ends = Arc::clone(&self.node.ends);
            let is_freed = tokio::select! {
                biased;
                () = ends.freed() => true,
                () = std::future::ready(()) => false,
            };
            if !is_freed && !self.in_flight.is_empty() {
                self.answer(6);
            } else if !is_freed {
                let Some(next) = self.node.timers.next() else {
                    break;
                };
                self.now = self.now.max(next) + Duration::from_micros(1);
                self.timers();
            }
            self.dispatch().await;
        }
    }
}

impl Waiting {
    fn end(&mut self) {
        self.is_over = true;
        self.ticket.expire();
    }
}

fn granted_message() -> Granted {
    Granted {
        id: b"a".to_vec(),
        payload: Vec::new(),
        due_ms: 1,
        attempt: 1,
        crashes: 0,
        is_last_attempt: false,
        token: [7; 16],
        deadline_ms: 2,
        claimed_us: 1,
        trace_parent: None,
        expires_at_ms: None,
        cost: 1,
        snoozes: 0,
        is_tick: false,
    }
}

#[tokio::test]
async fn each_pull_is_answered_and_every_permit_returns() {
    for seed in 0..150 {
        let mut model = Model::new(seed);
        for _ in 0..model.rng.usize(1..80) {
            model.step();
            model.dispatch().await;
        }
        model.rest().await;
        assert_eq!(
            model.waiting.len(),
            0,
            "seed {seed}: pulls without an answer"
        );
        assert!(!model.pulls.is_needed(), "seed {seed}: no pull is left");
        assert_eq!(model.node.shares.free(), HANDLERS, "seed {seed}");
        model.node.membership.context.stop.cancel();
    }
}
