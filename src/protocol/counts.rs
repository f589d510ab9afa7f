//! How much a client asks one call for, so that it takes less than about 5 ms of Redis's time in any
//! state of the queue.
//! `tests/protocol/vectors/cost/table.rs` includes this file and measures the calls.

/// How many items one script call takes at most. Verbs with a limit instead of items do a part.
pub(crate) const MAX_ITEMS: usize = 1_000;
/// How many messages one claim takes.
pub(crate) const MAX_CLAIM: usize = 256;
/// How many messages one promote and one reap move.
pub(crate) const PROMOTE: usize = 256;
pub(crate) const REAP: usize = 64;
/// About how many entries one call of `audit` checks.
pub(crate) const AUDIT: usize = 250;
/// Between how many times one call counts the messages by their due times.
pub(crate) const MAX_DUES: usize = 60;
/// How many messages may follow one delivery.
pub(crate) const MAX_FOLLOW_UPS: usize = 100;
/// How many schedules one call declares. A list of fires has 64 then at least, so that those of 24
/// crons fit into a call: workers, or [`refill_schedules`](crate::Queue::refill_schedules), add the
/// rest.
pub(crate) const DECLARE: usize = 24;
pub(crate) const DECLARE_FIRES: usize = 64;
/// How many fires a list holds at most, and how many lists one call refills.
pub(crate) const LIST: usize = 512;
pub(crate) const REFILL: usize = 8;
/// How many ticks one call of a backfill makes.
pub(crate) const BACKFILL: usize = 64;

/// How many items one call of this verb has. A push and an ack cost half as much as an item of the
/// others. An upsert also searches the ready list, and a throttle moves it: up to 1,000 messages.
pub(crate) const fn items_of(verb: &str) -> usize {
    match verb.as_bytes() {
        b"push" | b"ack" => 256,
        b"upsert" => 64,
        b"throttle" => 16,
        _ => 128,
    }
}
