//! Pushes a new message under the id of one that has just ended: it is no repetition, and must be
//! stored.

use dueq::{Due, Queue};

use crate::history::Verb;
use crate::recorder::{Diary, outcome};
use crate::workload::{POISON, Push};

pub(super) async fn push(queue: &Queue, diary: &Diary, id: &str) {
    // A poison message kills six workers.
    if id.ends_with(POISON) {
        return;
    }
    let push = Push::again(id.to_owned(), Due::AfterMs(fastrand::u64(0..300)));
    let op = diary.asked(queue.name(), Verb::Push, vec![id.to_owned()]);
    let told = outcome(
        queue.push_message(push.message()).await,
        super::producer::word,
    );
    diary.told(op, vec![told]);
}
