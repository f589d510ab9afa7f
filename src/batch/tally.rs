//! Which count the answer to one item of a batch belongs to.

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::replies::ItemReply;
use crate::protocol::verbs::Verb;
use crate::telemetry::metrics::{Count, Meters};

/// Redis answered one item.
pub(crate) fn answered(meters: &Meters, reply: &ItemReply) {
    let word = &*reply.word;
    if reply.is_unconfirmed() {
        meters.add(Count::Unconfirmed);
    }
    let count = match (reply.verb, word) {
        (Verb::Push, "CREATED") => Count::PushCreated,
        (Verb::Push, "EXISTS") => Count::PushExisting,
        (Verb::Push, "MOVED") => Count::PushMoved,
        (Verb::Push, "FINISHED") => Count::PushFinished,
        (Verb::Push, "INVALID" | "FULL") => Count::PushRefused,
        (Verb::Cancel, "CANCELLED") => Count::Cancelled,
        (Verb::Reschedule, "MOVED") => Count::Rescheduled,
        (Verb::Ack, "OK") => Count::Acked,
        (Verb::Again, "OK") => Count::Repeated,
        (Verb::Retry, "SCHEDULED") => Count::Retried,
        (Verb::Retry, "DEAD") => Count::Died,
        (Verb::Release, "OK") => Count::Released,
        (Verb::Bury, "OK") => Count::Buried,
        (Verb::Extend, "OK") => Count::LeaseExtended,
        (Verb::Ack | Verb::Again | Verb::Retry | Verb::Release | Verb::Bury, "GONE" | "LOST") => {
            Count::SettledLate
        }
        _ => return,
    };
    meters.add(count);
}

/// One item ended with an error, and is not sent again.
pub(crate) fn failed(meters: &Meters, verb: Verb, error: &Error) {
    let count = match (verb, error.was_applied()) {
        (Verb::Push, Applied::No)
            if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Full) =>
        {
            Count::PushRefused
        }
        (Verb::Push, Applied::No) => Count::PushFailed,
        (Verb::Push, _) => Count::PushUnknown,
        (Verb::Ack | Verb::Again | Verb::Retry | Verb::Release | Verb::Bury, _) => {
            Count::SettleFailed
        }
        _ => return,
    };
    meters.add(count);
}
