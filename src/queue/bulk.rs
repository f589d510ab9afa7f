//! Collects the messages of a bulk push in groups by partition, and sends a group when it fills a
//! call.

use std::sync::Arc;

use crate::batch::{Answer, Answered, Group, Item};
use crate::error::Error;
use crate::model::due::Due;
use crate::model::durability::Durability;
use crate::model::message::new_id;
use crate::model::push_rules::OnConflict;
use crate::model::receipt::Receipt;
use crate::partition::Partition;
use crate::partition::producers::receipt;
use crate::partition::verbs::push_count;
use crate::protocol::counts::items_of;
use crate::protocol::partition_map::steer;
use crate::protocol::results::produce::PushResult;
use crate::router::{Partitions, Step};

/// What a bulk push keeps of a message besides its item.
pub(super) struct Slot {
    /// The index of the message, and of its result.
    pub(super) index: usize,
    pub(super) due: Due,
    pub(super) durability: Durability,
    pub(super) on_conflict: OnConflict,
    pub(super) step: Step<PushResult>,
}

impl Slot {
    /// The kind of the message: messages of one kind may share a call.
    fn kind(&self) -> (Durability, OnConflict) {
        (self.durability, self.on_conflict)
    }
}

/// A message that has no result after a round.
pub(super) struct Left {
    pub(super) item: Item,
    pub(super) slot: Slot,
    /// The partition that refused it because of the map's epoch, and its error.
    pub(super) refusal: Option<(Arc<Partition>, Error)>,
}

impl Left {
    /// Whether the message is on its way to another partition, or may be.
    pub(super) fn is_moving(&self) -> bool {
        self.refusal.is_none() && matches!(self.slot.step, Step::Old)
    }
}

/// The messages of a bulk push that have no result yet.
pub(super) struct Bulk {
    partitions: Arc<Partitions>,
    /// By the place of their partition.
    waiting: Vec<Waiting>,
    sent: Vec<Sent>,
    /// The index of the open partition, to which ids of the library's own go.
    open: usize,
}

/// The messages that wait to fill a call of their partition.
struct Waiting {
    partition: Arc<Partition>,
    kind: (Durability, OnConflict),
    group: Group<PushResult>,
}

struct Sent {
    slot: Slot,
    id: Vec<u8>,
    partition: Arc<Partition>,
    answer: Answer<PushResult>,
}

impl Bulk {
    pub(super) fn new(partitions: Arc<Partitions>, open: usize) -> Self {
        let waiting = |partition| Waiting {
            partition: Arc::clone(partition),
            kind: (Durability::Memory, OnConflict::Keep),
            group: Group::default(),
        };
        Self {
            waiting: partitions.places().iter().map(waiting).collect(),
            sent: Vec::new(),
            open,
            partitions,
        }
    }

    /// Makes an id that belongs to the open partition.
    pub(super) fn new_id(&self) -> Vec<u8> {
        new_id_in(self.open, self.partitions.takers())
    }

    /// Adds a message. If it does not fit the present call of its partition, sends that call first.
    pub(super) async fn add(&mut self, item: Item, slot: Slot) {
        let place = self.partitions.place(item.id(), &slot.step);
        let waiting = &mut self.waiting[place];
        let most = match slot.on_conflict {
            OnConflict::Keep => items_of("push"),
            _ => items_of("upsert"),
        };
        if waiting.kind != slot.kind() || !waiting.group.has_room_for(&item, most) {
            waiting.send().await;
            if place == self.partitions.taker(self.open) {
                self.open = (self.open + 1) % self.partitions.takers();
            }
        }
        waiting.kind = slot.kind();
        self.sent.push(Sent {
            slot,
            id: item.id().to_vec(),
            partition: Arc::clone(&waiting.partition),
            answer: waiting.group.add(item),
        });
    }

    /// Sends the remaining messages, and waits for all replies. Returns the messages that have no
    /// result: they were refused because of the map's epoch, or go to another partition.
    pub(super) async fn send(
        mut self,
        results: &mut [Option<Result<Receipt, Error>>],
    ) -> Vec<Left> {
        for waiting in &mut self.waiting {
            waiting.send().await;
        }
        let mut left = Vec::new();
        for sent in self.sent {
            let Sent {
                mut slot,
                id,
                partition: by,
                answer,
            } = sent;
            let (item, step, refusal) = match answer.answered().await {
                Answered::Result(result) => {
                    results[slot.index] = Some(receipt(result, id, slot.due));
                    continue;
                }
                Answered::Remapped(item, refusal) => (item, Step::Old, Some((by, refusal))),
                Answered::Moving(item) => (item, Step::Old, None),
                Answered::Away(item, remembered) => match (slot.step, remembered) {
                    (Step::Ask(result), _) => {
                        if let Some(count) = push_count(&result) {
                            by.meters().add(count);
                        }
                        results[slot.index] = Some(receipt(result, id, slot.due));
                        continue;
                    }
                    (_, Some(result)) => (item, Step::Ask(result), None),
                    (_, None) => (item, Step::New, None),
                },
            };
            slot.step = step;
            left.push(Left {
                item,
                slot,
                refusal,
            });
        }
        left
    }
}

impl Waiting {
    async fn send(&mut self) {
        let group = std::mem::take(&mut self.group);
        if group.is_empty() {
            return;
        }
        let (durability, on_conflict) = self.kind;
        // The producers are released after this call, so that unused ones make room for others.
        match self.partition.producers(durability).await {
            Ok(producers) => match on_conflict {
                OnConflict::Keep => producers.push.enqueue(group).await,
                _ => producers.upsert.enqueue(group).await,
            },
            Err(error) => group.fail(&error),
        }
    }
}

/// Makes an id that belongs to the partition with this index.
pub(super) fn new_id_in(index: usize, partitions: usize) -> Vec<u8> {
    loop {
        let mut id = new_id();
        if partitions == 1 || steer(&mut id, index, partitions) {
            return id;
        }
    }
}
