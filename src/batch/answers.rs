//! What each caller of a batch is told.

use crate::batch::Pending;
use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::lane::PATIENCE;
use crate::protocol::replies::ItemReply;
use crate::protocol::scripts::Verb;

/// Hands out the answers; gives back what was refused as too late although it was sent for the first time.
pub(super) fn distribute(batch: Vec<Pending>, replies: Vec<ItemReply>, repeated: bool) -> Vec<Pending> {
    let mut early = Vec::new();
    for (pending, reply) in batch.into_iter().zip(replies) {
        let answer = match (reply.word.as_str(), repeated) {
            ("EXPIRED", false) => {
                early.push(pending);
                continue;
            }
            ("EXPIRED", true) => Err(Error::new(
                ErrorKind::Timeout,
                Applied::Unknown,
                format!("{} was repeated for {PATIENCE:?} and its first reply was lost", reply.verb.name()),
            )),
            // The queue's limits may have been others when an earlier attempt was judged.
            ("INVALID", true) => Err(reply.refusal().of_repeated()),
            _ => Ok(reply),
        };
        // The caller may have gone away; its item was sent all the same.
        let _ = pending.answer.send(answer);
    }
    early
}

/// The server's clock is set again and again, faster than we can follow.
pub(super) fn unsteady(verb: Verb) -> Error {
    let message =
        format!("{} was refused as too late for {PATIENCE:?}: is the clock of the server steady?", verb.name());
    Error::new(ErrorKind::Timeout, Applied::No, message)
}

/// Of a call of which an earlier attempt may have been applied nobody knows, whatever became of the last one.
pub(super) fn of(error: Error, repeated: bool) -> Error {
    if repeated { error.of_repeated() } else { error }
}

pub(super) fn fail(batch: Vec<Pending>, error: &Error) {
    for pending in batch {
        let _ = pending.answer.send(Err(error.clone()));
    }
}
