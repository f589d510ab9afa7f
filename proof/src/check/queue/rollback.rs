//! Changes that a failover or a truncated file undid: some of them may be lost, others must not.

use crate::check::collect::Collection;
use crate::check::describe::story;
use crate::check::record::{Changed, Held, Pushed, Record, Settled, What};
use crate::check::verdict::{Kind, Verdict};
use crate::history::Verb;

/// Judges all undone records, by id and in the order of the server that wrote them.
pub(crate) fn judge(all: &Collection, void: &[Record], verdict: &mut Verdict) {
    let window = |record: &Record| all.epochs[usize::from(record.epoch)].void(record.seq());
    let same = |one: &Record, other: &Record| {
        (one.id, one.epoch) == (other.id, other.epoch) && window(one) == window(other)
    };
    for records in void.chunk_by(same) {
        // What the push asked for that stored the message in the undone range: `None` if there was
        // none, or the message has ended since.
        let mut made = None;
        for (place, record) in records.iter().enumerate() {
            let kept = match record.what {
                What::Push {
                    push,
                    verdict: Pushed::Created,
                } => {
                    made = Some(push.held);
                    push.held
                }
                // A push that found the message has the guarantee of the push that stored it.
                What::Push {
                    push,
                    verdict: Pushed::Exists(_),
                } if made.is_some_and(|held| held != Held::Replicas) => {
                    made = made.map(|held| {
                        if push.held == Held::Replicas {
                            push.held
                        } else {
                            held
                        }
                    });
                    push.held
                }
                What::Push {
                    push,
                    verdict: Pushed::Moved,
                } => push.held,
                What::Settle {
                    verb: Verb::Ack,
                    verdict: Settled::Done,
                    ..
                }
                | What::Change {
                    verb: Verb::Cancel,
                    verdict: Changed::Done,
                    ..
                } => {
                    made = None;
                    Held::NotAsked
                }
                _ => Held::NotAsked,
            };
            if kept == Held::Replicas {
                let name = || {
                    format!(
                        "{}, undone although a replica had it",
                        all.name_of(record.id)
                    )
                };
                verdict.found(Kind::Lost, || {
                    story(&name(), records.get(..=place).unwrap_or_default(), &[])
                });
            }
        }
        verdict.lost_in_declared_window += u64::from(made == Some(Held::NotAsked));
    }
}
