//! What a batcher needs to know of a verb. `partition/verbs` implements it for each verb.

use crate::error::Error;
use crate::protocol::counts::items_of;
use crate::protocol::replies::Body;
use crate::protocol::verbs::Verb;
use crate::telemetry::metrics::Counter;

/// A verb whose script takes many items in one call.
pub(crate) trait BatchVerb: Send + Sync + 'static {
    /// The verb whose script is called.
    const VERB: Verb;

    /// The arguments between `now` and the items.
    const PREFIX: Prefix = Prefix::Nothing;

    /// The most items of one call.
    const MOST: usize = items_of(Self::VERB.name());

    /// With how many waiting items a second call may be in flight. A call costs Redis about as much
    /// as eight items.
    const ENOUGH: usize = 32;

    /// Whether the batcher lets all other tasks run once before it sends a batch. Handlers often
    /// end together, and their settlements then share a call.
    const YIELDS: bool = false;

    /// Whether ARGV names each claim once, followed by the ids that are settled under it.
    const GROUPED_BY_CLAIM: bool = false;

    /// Whether the script may reply with one result for all items.
    const SHARES_RESULT: bool = false;

    /// Whether each call takes exactly one item. [`decode_only`](Self::decode_only) decodes the
    /// reply of such a call.
    const ALONE: bool = false;

    /// The result of one item.
    type Output: Clone + Send + 'static;

    /// Decodes the result of one item, or returns an error if the script refused the item. `now_us`
    /// is the server's time of the call, in Unix microseconds.
    fn decode(text: &str, now_us: i64) -> Result<Self::Output, Error>;

    /// Decodes the result of the only item of a call, for a verb whose reply is not a list of
    /// results. `now_us` is the server's time of the call, in Unix microseconds.
    fn decode_only(body: &mut Body, _now_us: i64) -> Result<Self::Output, Error> {
        Err(body.unexpected("a list of results was expected"))
    }

    /// Whether replicas or disks must confirm before the caller gets this result. Also true if an
    /// earlier call made the change (`EXISTS`).
    fn is_change(_: &Self::Output) -> bool {
        false
    }

    /// Whether this result is final, given the tries of the call.
    fn verdict(_: &Self::Output, _: &Tries) -> Verdict {
        Verdict::Final
    }

    /// The counter to which an item with this result adds one.
    fn count(result: &Result<Self::Output, Error>) -> Option<Counter>;
}

/// The kinds of arguments between `now` and the items.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Prefix {
    Nothing,
    /// A fixed word, such as `ids`.
    Word(&'static str),
    /// A fixed word. In a repetition, the earliest possible server time of the first try follows
    /// it.
    Since(&'static str),
    /// The identity of a call for the server: the server time until which it recognises
    /// repetitions, and a nonce.
    Attempt,
}

/// What is known of the tries of a call when a reply is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tries {
    /// Whether a try before the last one may have been applied.
    pub(crate) repeated: bool,
    /// The latest time at which the first try may have begun, in Unix microseconds of the
    /// server.
    pub(crate) latest_start_us: i64,
}

/// What the batcher does with an item that has a result.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// The caller gets the result.
    Final,
    /// The item was not applied: it is sent again as a new call.
    SendAgain,
    /// The caller gets this error.
    Fail(Error),
}
