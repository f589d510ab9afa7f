//! Parses and checks the request for an operation, before anything is done.

use dueq::MessageState;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::edge::path::read_id;
use crate::edge::problem::{Code, Problem};
use crate::wire::operations::Kind;
use crate::work::operations::named::Named;
use crate::work::operations::selection::{Selection, filter};

/// The most ids that an operation may name.
const MAX_IDS: usize = 10_000;
/// The most messages of a canary: each of them is read repeatedly.
const MAX_CANARY: u64 = 100;
/// The longest wait for a canary, and the default.
const MAX_CANARY_WAIT_MS: u64 = 600_000;
const CANARY_WAIT_MS: u64 = 60_000;
/// The most messages per second; below, the defaults for operations that change messages, and for
/// those that only count or audit.
const MAX_PACE: u64 = 100_000;
const PACE: u64 = 1_000;
const PACE_OF_READS: u64 = 10_000;
/// The most partitions of a queue.
const MAX_PARTITIONS: u64 = 256;
/// The last millisecond of the year 9999.
const MAX_MS: u64 = 253_402_300_799_999;

/// The state of the messages that a purge removes or a cancel cancels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Purged {
    Scheduled,
    Ready,
    Dead,
}

/// An operation on a queue.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOperation)]
pub(crate) struct Request {
    kind: Kind,
    /// Only what died (dead messages) or is due (others) at or before this time, in Unix milliseconds of
    /// Redis: `requeue`, `purge`, and `cancel` with `state`. Without it, or if it is later, now. A purge
    /// of scheduled messages needs it; a cancel of them has no such bound without it.
    #[schema(maximum = 253_402_300_799_999_u64)]
    before_ms: Option<u64>,
    /// Only what died or is due at or after this time, of the same clock: `requeue`, `purge` of dead
    /// messages, and `cancel` with `state`.
    #[schema(maximum = 253_402_300_799_999_u64)]
    after_ms: Option<u64>,
    /// True counts what would be done, and changes nothing.
    dry_run: Option<bool>,
    /// Only what died with this error: its first line, as `GET errors` groups them. Empty for none.
    error: Option<String>,
    /// True: only what died because its leases ran out too often. False: only the others.
    crashed: Option<bool>,
    /// Only messages with this text in their error, in any case: `requeue`, `purge`, and `cancel` with
    /// `state`.
    #[schema(max_length = 300)]
    error_text: Option<String>,
    /// Only messages with at least so many failures; likewise.
    #[schema(format = Int64, maximum = 4_294_967_295_u64)]
    min_failures: Option<u32>,
    /// Only messages with at least so many crashes; likewise.
    #[schema(format = Int64, maximum = 4_294_967_295_u64)]
    min_crashes: Option<u32>,
    /// It ends after so many changed messages; likewise. To try it with one first.
    #[schema(minimum = 1)]
    limit: Option<u64>,
    /// How many messages are requeued first: the others follow if none of them dies again.
    #[schema(minimum = 1, maximum = 100)]
    canary: Option<u64>,
    /// How long to wait until these are settled; 60,000 without it.
    #[schema(minimum = 1, maximum = 600_000)]
    canary_wait_ms: Option<u64>,
    /// How many messages a second; 1,000 without it, and 10,000 if nothing is changed.
    #[schema(minimum = 1, maximum = 100_000)]
    pace: Option<u64>,
    /// Which messages a purge removes, or a cancel cancels.
    state: Option<Purged>,
    /// The messages that a cancel without `state` cancels: each an id, or `~` and its base64url.
    #[schema(min_items = 1, max_items = 10_000)]
    ids: Option<Vec<String>>,
    /// Whether a cancel by `ids` removes dead messages too.
    dead: Option<bool>,
    /// How many partitions a repartition gives the queue.
    #[schema(minimum = 1, maximum = 256)]
    partitions: Option<u64>,
    /// True takes back the change of the number of partitions that runs or was interrupted.
    abort: Option<bool>,
    /// Whether a repartition leaves three quarters of the time to others; true without it.
    gentle: Option<bool>,
}

/// The plan of an operation, with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    /// The messages that a requeue, a purge, or a cancel without ids selects.
    pub(crate) selection: Option<Selection>,
    /// Whether the request gave `before_ms`. If not, it is the time of the request.
    has_before: bool,
    pub(crate) is_dry_run: bool,
    pub(crate) canary: Option<Canary>,
    pub(crate) pace: u64,
    pub(crate) ids: Named,
    pub(crate) with_dead: bool,
    pub(crate) change: Option<Change>,
}

/// A change of the number of partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// `None` takes a change back.
    pub(crate) partitions: Option<usize>,
    pub(crate) is_gentle: bool,
}

/// The first messages of a requeue, which are requeued alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Canary {
    pub(crate) messages: usize,
    pub(crate) wait_ms: u64,
}

impl Plan {
    /// Makes a plan of a request. `now_ms` is the time of Redis.
    pub(crate) fn new(request: Request, now_ms: u64) -> Result<Self, Problem> {
        let kind = request.kind;
        let repartitions = kind == Kind::Repartition;
        let is_dry_run = request.dry_run.unwrap_or(false);
        let state = request.state.map(|state| match state {
            Purged::Scheduled => MessageState::Scheduled,
            Purged::Ready => MessageState::Ready,
            Purged::Dead => MessageState::Dead,
        });
        let selected = selected(kind, state);
        let (selects, requeues) = (selected.is_some(), kind == Kind::Requeue);
        let cancels_ids = kind == Kind::Cancel && !selects;
        let after = selects && (kind == Kind::Cancel || selected == Some(MessageState::Dead));
        let has = [
            (
                "state",
                state.is_some(),
                matches!(kind, Kind::Purge | Kind::Cancel),
            ),
            ("before_ms", request.before_ms.is_some(), selects),
            ("after_ms", request.after_ms.is_some(), after),
            ("error", request.error.is_some(), requeues),
            ("crashed", request.crashed.is_some(), requeues),
            ("error_text", request.error_text.is_some(), selects),
            ("min_failures", request.min_failures.is_some(), selects),
            ("min_crashes", request.min_crashes.is_some(), selects),
            ("limit", request.limit.is_some(), selects),
            ("canary", request.canary.is_some(), kind == Kind::Requeue),
            (
                "canary_wait_ms",
                request.canary_wait_ms.is_some(),
                request.canary.is_some(),
            ),
            ("ids", request.ids.is_some(), cancels_ids),
            ("dead", request.dead.is_some(), cancels_ids),
            ("partitions", request.partitions.is_some(), repartitions),
            ("abort", request.abort.is_some(), repartitions),
            ("gentle", request.gentle.is_some(), repartitions),
            ("pace", request.pace.is_some(), !repartitions),
            ("dry_run", request.dry_run.is_some(), !repartitions),
        ];
        if let Some((field, ..)) = has.into_iter().find(|(_, has, may)| *has && !may) {
            let what = match field {
                "canary_wait_ms" => "it belongs to canary",
                _ => "an operation of this kind has no such field",
            };
            return Err(invalid(format!("{field}: {what}")));
        }
        let reads = is_dry_run || kind == Kind::Audit;
        let pace = request
            .pace
            .unwrap_or(if reads { PACE_OF_READS } else { PACE });
        within("pace", pace, 1, MAX_PACE)?;
        let canary = match request.canary {
            Some(messages) => Some(canary(messages, request.canary_wait_ms)?),
            None => None,
        };
        for (field, time) in [
            ("before_ms", request.before_ms),
            ("after_ms", request.after_ms),
        ] {
            within(field, time.unwrap_or(0), 0, MAX_MS)?;
        }
        if kind == Kind::Purge && !selects {
            return Err(invalid("state: a purge needs it: scheduled, ready or dead"));
        }
        within("limit", request.limit.unwrap_or(1), 1, u64::MAX)?;
        let before_ms = match (kind, selected) {
            (Kind::Purge, Some(MessageState::Scheduled)) => {
                let needed = "before_ms: a purge of scheduled messages needs the due time until which it removes them";
                Some(request.before_ms.ok_or_else(|| invalid(needed))?)
            }
            (_, Some(MessageState::Scheduled) | None) => request.before_ms,
            _ => Some(request.before_ms.unwrap_or(now_ms).min(now_ms)),
        };
        let filter = filter(
            request.error_text,
            request.min_failures,
            request.min_crashes,
        )?;
        let selection = selected.map(|state| Selection {
            state,
            error: request.error,
            crashed: request.crashed,
            filter,
            after_ms: request.after_ms,
            before_ms,
            limit: request.limit,
        });
        Ok(Self {
            kind,
            selection,
            has_before: request.before_ms.is_some(),
            is_dry_run,
            canary,
            pace,
            ids: Named::new(ids_of(cancels_ids, request.ids)?),
            with_dead: request.dead.unwrap_or(false),
            change: match repartitions {
                true => Some(change(request.partitions, request.abort, request.gentle)?),
                false => None,
            },
        })
    }

    /// Whether an operation with this plan is what the request `wish` asks for. A request without
    /// `before_ms` means the running operation: it may be a repetition, because the answer was
    /// lost.
    pub(crate) fn is_wished_by(&self, wish: &Self) -> bool {
        let mut wish = wish.clone();
        if let (Some(wish_of), Some(own), false) =
            (&mut wish.selection, &self.selection, wish.has_before)
        {
            wish_of.before_ms = own.before_ms;
        }
        wish.has_before = self.has_before;
        wish == *self
    }

    /// Whether the operation changes nothing.
    pub(crate) fn only_reads(&self) -> bool {
        self.is_dry_run || self.kind == Kind::Audit
    }

    /// The time until which the operation selects messages.
    pub(super) fn before_ms(&self) -> Option<u64> {
        self.selection.as_ref()?.before_ms
    }
}

/// The state of the messages that the operation selects, unless it names ids or does not select.
fn selected(kind: Kind, state: Option<MessageState>) -> Option<MessageState> {
    match kind {
        Kind::Requeue => Some(MessageState::Dead),
        Kind::Purge | Kind::Cancel => state,
        Kind::Audit | Kind::Repair | Kind::Repartition => None,
    }
}

fn canary(messages: u64, wait_ms: Option<u64>) -> Result<Canary, Problem> {
    within("canary", messages, 1, MAX_CANARY)?;
    let wait_ms = wait_ms.unwrap_or(CANARY_WAIT_MS);
    within("canary_wait_ms", wait_ms, 1, MAX_CANARY_WAIT_MS)?;
    Ok(Canary {
        messages: usize::try_from(messages).unwrap_or(1),
        wait_ms,
    })
}

fn change(
    partitions: Option<u64>,
    abort: Option<bool>,
    gentle: Option<bool>,
) -> Result<Change, Problem> {
    if partitions.is_some() == abort.is_some() || abort == Some(false) {
        return Err(invalid(
            "partitions: a repartition has either partitions or \"abort\": true",
        ));
    }
    if let Some(partitions) = partitions {
        within("partitions", partitions, 1, MAX_PARTITIONS)?;
    }
    Ok(Change {
        partitions: partitions.and_then(|count| usize::try_from(count).ok()),
        is_gentle: gentle.unwrap_or(true),
    })
}

fn ids_of(is_needed: bool, ids: Option<Vec<String>>) -> Result<Vec<Vec<u8>>, Problem> {
    let ids = ids.unwrap_or_default();
    if is_needed && !(1..=MAX_IDS).contains(&ids.len()) {
        let detail = format!("ids: {}; a cancel names 1 to {MAX_IDS} ids", ids.len());
        return Err(invalid(detail));
    }
    ids.iter().map(|id| read_id(id)).collect()
}

fn within(field: &str, value: u64, least: u64, most: u64) -> Result<(), Problem> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(format!(
        "{field}: {value}; it is {least} to {most}"
    )))
}

fn invalid(detail: impl Into<String>) -> Problem {
    Problem::new(Code::InvalidInput, detail)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
