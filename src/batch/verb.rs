//! What a batcher needs to know of a verb. `partition/verbs` implements it for each verb.

use crate::error::Error;
use crate::protocol::counts::items_of;
use crate::protocol::replies::Body;
use crate::protocol::verbs::Verb;
use crate::telemetry::metrics::Counter;

/// A verb whose script takes many items in one call.
pub(crate) trait BatchVerb: Send + Sync + 'static {
    /// The script that is called.
    const VERB: Verb;

    /// ARGV between `now` and the items.
    const PREFIX: Prefix = Prefix::Nothing;

    /// How many items one call has at most.
    const MOST: usize = items_of(Self::VERB.name());

    /// How many items justify a second call in flight. A call costs Redis about as much as eight
    /// items.
    const ENOUGH: usize = 32;

    /// Whether all other tasks run once before a batch is closed: handlers often end together, and
    /// their settlements then share a call.
    const YIELDS: bool = false;

    /// Whether ARGV names each claim once, followed by the ids that are settled under it.
    const GROUPED_BY_CLAIM: bool = false;

    /// Whether the script may reply with one result for all items.
    const SHARES_RESULT: bool = false;

    /// Whether a call takes one item only. Its reply is decoded by [`decode_only`](Self::decode_only).
    const ALONE: bool = false;

    /// The result of one item.
    type Output: Clone + Send + 'static;

    /// Decodes the result of one item; an error if the script refused the item. `now_us` is the
    /// server's time of the call, in Unix microseconds.
    fn decode(text: &str, now_us: i64) -> Result<Self::Output, Error>;

    /// Decodes the result of the only item of a call, for a verb whose reply is not a list of
    /// results. `now_us` is the server's time of the call, in Unix microseconds.
    fn decode_only(body: &mut Body, _now_us: i64) -> Result<Self::Output, Error> {
        Err(body.unexpected("a list of results was expected"))
    }

    /// Whether replicas or disks must confirm before the caller gets this result. Also true if the
    /// change was made by an earlier call (`EXISTS`).
    fn is_change(_: &Self::Output) -> bool {
        false
    }

    /// Whether the result is final, after these tries.
    fn verdict(_: &Self::Output, _: &Tries) -> Verdict {
        Verdict::Final
    }

    /// The metric that an item with this end belongs to.
    fn count(result: &Result<Self::Output, Error>) -> Option<Counter>;
}

/// ARGV between `now` and the items.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Prefix {
    Nothing,
    /// This word, such as `ids`.
    Word(&'static str),
    /// This word. In a repetition the server's earliest possible time of the first try follows it.
    Since(&'static str),
    /// What identifies the tries of one call: the server's time until which it recognises them,
    /// and a nonce.
    Attempt,
}

/// The tries of a call up to the reply that is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tries {
    /// Whether a try before the last one may have been applied.
    pub(crate) repeated: bool,
    /// The latest time at which the first try may have begun, in Unix microseconds of the
    /// server.
    pub(crate) latest_start_us: i64,
}

/// What becomes of an item that has a result.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Its caller gets the result.
    Final,
    /// It was not applied: send it again as a new call.
    SendAgain,
    /// Its caller gets this error.
    Fail(Error),
}
