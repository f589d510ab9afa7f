//! Queues with several partitions: a push stores its message in one of them, also if it is repeated
//! because its answer was lost.

use std::collections::HashMap;

use crate::check::collect::Collection;
use crate::check::message::unknown::bit;
use crate::check::record::{Pushed, Record, What};
use crate::check::verdict::{Kind, Verdict};

/// Queue, id, process and the process's call.
type Call<'a> = (u16, &'a str, u16, u32);

/// The calls that stored messages in queues with several partitions.
pub(crate) struct Copies<'a> {
    all: &'a Collection,
    /// The ids in such queues, by their numbers.
    names: HashMap<u32, &'a str>,
    /// For each call: the number that its id has in the partition.
    made: HashMap<Call<'a>, u32>,
}

impl<'a> Copies<'a> {
    pub(crate) fn of(all: &'a Collection) -> Self {
        let has_several = |whole: u16| {
            let mut queues = all.queues.iter().enumerate();
            queues.any(|(number, queue)| queue.whole == whole && number != usize::from(whole))
        };
        let queues = all.ids.iter().zip(&all.queues);
        let several = queues.filter(|(_, queue)| has_several(queue.whole));
        let pairs =
            several.flat_map(|(ids, _)| ids.iter().map(|(name, number)| (*number, &**name)));
        Self {
            all,
            names: pairs.collect(),
            made: HashMap::new(),
        }
    }

    /// Judges one id in one partition, by its answered calls, and by those without an answer that
    /// are needed to explain its records.
    pub(crate) fn judge(
        &mut self,
        records: &[Record],
        unknown: &[Record],
        used: u64,
        verdict: &mut Verdict,
    ) {
        let Some((first, name)) = records
            .first()
            .and_then(|first| Some((first, *self.names.get(&first.id)?)))
        else {
            return;
        };
        // What an emptied store had is pushed once more.
        if self.all.epochs[usize::from(first.epoch)].emptied {
            return;
        }
        let queue = usize::from(self.all.queue_of[first.id as usize]);
        let whole = self.all.queues[queue].whole;
        let created = records.iter().filter_map(|record| match record.what {
            What::Push {
                push,
                verdict: Pushed::Created,
            } => Some((record.process, push.call)),
            _ => None,
        });
        let lost = unknown
            .iter()
            .enumerate()
            .filter_map(|(place, record)| match record.what {
                What::Push { push, .. } => {
                    Some((used & bit(place) != 0, (record.process, push.call)))
                }
                _ => None,
            });
        let lost: Vec<_> = lost.collect();
        // Of several calls it is not certain which one stored the message.
        let is_alone = lost
            .iter()
            .all(|(_, call)| Some(call) == lost.first().map(|of| &of.1));
        let lost = lost.into_iter().filter(|(is_used, _)| *is_used && is_alone);
        for (process, call) in created.chain(lost.map(|(_, call)| call)) {
            let key = (whole, name, process, call);
            let known = *self.made.entry(key).or_insert(first.id);
            if call != 0 && known != first.id {
                verdict.found(Kind::UnexplainedDuplicates, || {
                    let places = [known, first.id].map(|id| self.all.name_of(id));
                    format!("one push of process {process} stored {places:?}")
                });
            }
        }
    }
}
