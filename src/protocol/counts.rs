//! How many items or entries a client asks one call for, so that it takes less than about 5 ms of
//! Redis's time in any state of the queue. `tests/protocol/vectors/cost/table.rs` includes this
//! file and measures the calls.

/// The most items of one script call. A call with a limit instead of items does a part of the work.
pub(crate) const MAX_ITEMS: usize = 1_000;
/// The most messages that one claim asks for.
pub(crate) const MAX_CLAIM: usize = 256;
/// The most messages that one promote or reap moves.
pub(crate) const PROMOTE: usize = 256;
pub(crate) const REAP: usize = 64;
/// About how many entries one call of `audit` checks.
pub(crate) const AUDIT: usize = 250;
/// The most times between which one call counts messages by their due times.
pub(crate) const MAX_DUES: usize = 60;
/// The most follow-ups of one delivery.
pub(crate) const MAX_FOLLOW_UPS: usize = 100;
/// The most schedules that one call declares. A new list has at least 64 fires, so that the lists
/// of 24 crons fit into a call. Workers or [`refill_schedules`](crate::Queue::refill_schedules) add
/// the other fires.
pub(crate) const DECLARE: usize = 24;
pub(crate) const DECLARE_FIRES: usize = 64;
/// The most fires of a list, and the most lists that one call refills.
pub(crate) const LIST: usize = 512;
pub(crate) const REFILL: usize = 8;
/// The most ticks that one call of a backfill makes.
pub(crate) const BACKFILL: usize = 64;

/// The most items of one call of this verb. A push and an ack cost half as much as an item of the
/// others. An upsert also searches the ready list, and a throttle moves it: up to 1,000 messages.
pub(crate) const fn items_of(verb: &str) -> usize {
    match verb.as_bytes() {
        b"push" | b"ack" => 256,
        b"upsert" => 64,
        b"throttle" => 16,
        _ => 128,
    }
}
