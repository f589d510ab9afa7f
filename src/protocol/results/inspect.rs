//! Decodes the replies to get, peek, stats, dues and history.

use crate::error::Error;
use crate::model::history::times::TimeHistogram;
use crate::model::history::{Counted, Record};
use crate::model::life::LifeEvent;
use crate::model::outcomes::{EndKind, MessageEnd, MessageState};
use crate::model::push_rules::Expires;
use crate::model::rate::Rate;
use crate::model::stats::{DueCounts, QueueStats};
use crate::model::stored::{LeaseInfo, MessageCursor, MessageEntry, MessagePage, StoredMessage};
use crate::protocol::replies::{Body, Options, Reply};

pub(crate) fn stored(body: &mut Body) -> Result<Option<StoredMessage>, Error> {
    let mut fields = body.parts()?;
    if fields.is_empty() {
        return Ok(None);
    }
    let state = fields.named("state", Body::text)?;
    let state = MessageState::parse(&state)
        .ok_or_else(|| fields.unexpected(&format!("the state {state:?}")))?;
    let time_ms = fields.named("time_ms", Body::count)?;
    let failures = small(fields.named("failures", Body::count)?);
    let crashes = small(fields.named("crashes", Body::count)?);
    let Options {
        max_attempts,
        trace_parent,
        expires,
        expires_by,
        on_expire,
        cost,
        snoozes,
        window_ms,
        due_by_ms,
        ..
    } = Options::parse(&fields.named("options", Body::text)?);
    // For a leased or dead message the reply has no due time.
    let waits = matches!(state, MessageState::Scheduled | MessageState::Ready);
    let expires_at_ms = expires_by.or(match expires {
        Some(Expires::AtMs(ms)) => Some(ms),
        Some(Expires::AfterMs(ms)) if waits => Some(time_ms.saturating_add(ms)),
        _ => None,
    });
    let error = fields.named("error", Body::text)?;
    let payload = fields.named("payload", Body::bytes)?;
    let (mut next_due_ms, mut payload_bytes) = (None, payload.len() as u64);
    let (mut lease, mut life) = (None::<LeaseInfo>, Vec::new());
    while !fields.is_empty() {
        match (fields.text()?.as_str(), &mut lease) {
            ("next_due", _) => next_due_ms = Some(fields.count()?),
            ("payload_bytes", _) => payload_bytes = fields.count()?,
            ("lease", lease) => *lease = Some(lease_of(&fields.text()?)),
            ("since", Some(lease)) => lease.began(fields.count()?),
            ("to_bury", Some(lease)) => lease.is_to_bury = fields.integer()? == 1,
            ("life", _) => life = LifeEvent::read(&fields.text()?),
            _ => break,
        }
    }
    Ok(Some(StoredMessage {
        window_ms,
        due_by_ms,
        next_due_ms,
        lease,
        expires_at_ms,
        expires_after_ms: match expires {
            Some(Expires::AfterMs(ms)) => Some(ms),
            _ => None,
        },
        on_expire,
        cost: cost.unwrap_or(1),
        snoozes,
        state,
        time_ms,
        failures,
        crashes,
        max_attempts,
        trace_parent,
        error,
        payload,
        payload_bytes,
        life,
    }))
}

/// Decodes the name of a lease: `NAME`, or `NAME NODE`.
fn lease_of(text: &str) -> LeaseInfo {
    let (name, node) = match text.split_once(' ') {
        Some((name, node)) => (name, Some(node.to_owned())),
        None => (text, None),
    };
    let name = name.to_owned();
    LeaseInfo {
        name,
        node,
        since_ms: None,
        is_to_bury: false,
    }
}

/// Whether the reply to `get` has no message.
pub(crate) fn is_absent(body: &Body) -> bool {
    body.is_next_empty()
}

/// Whether the reply to `get`, which has no message, says how one ended.
pub(crate) fn has_end(body: &Body) -> bool {
    body.len() > 1
}

/// Decodes the rest of the reply to get for an absent message: how a remembered id ended.
pub(crate) fn end(body: &mut Body) -> Result<Option<MessageEnd>, Error> {
    if body.is_empty() {
        return Ok(None);
    }
    let word = body.text()?;
    let kind =
        EndKind::parse(&word).ok_or_else(|| body.unexpected(&format!("the end {word:?}")))?;
    Ok(Some(MessageEnd {
        kind,
        ended_at_ms: body.count()?,
        remembered_until_ms: Some(body.count()?).filter(|ms| *ms > 0),
    }))
}

/// Decodes the rest of the reply to get behind the end of a message: its life.
pub(crate) fn life(body: &mut Body) -> Result<Vec<LifeEvent>, Error> {
    Ok(match body.is_empty() {
        true => Vec::new(),
        false => LifeEvent::read(&body.text()?),
    })
}

/// The reply to peek.
pub(crate) struct ReadPage {
    pub(crate) page: MessagePage,
    /// The position in the ready list at which the page begins; `None` in other states.
    pub(crate) place: Option<u64>,
}

pub(crate) fn page(body: &mut Body) -> Result<ReadPage, Error> {
    let next = Some(body.bytes()?)
        .filter(|cursor| !cursor.is_empty())
        .map(MessageCursor);
    let mut items = body.parts()?;
    let mut messages = Vec::with_capacity(items.len());
    while !items.is_empty() {
        let mut item = items.parts()?;
        messages.push(MessageEntry {
            id: item.bytes()?,
            time_ms: item.count()?,
            failures: small(item.count()?),
            crashes: small(item.count()?),
            error: item.text()?,
            lease: match item.is_empty() {
                true => None,
                false => {
                    let mut lease = lease_of(&item.text()?);
                    if !item.is_empty() {
                        lease.began(item.count()?);
                        lease.is_to_bury = item.integer()? == 1;
                    }
                    Some(lease)
                }
            },
        });
    }
    let place = (!body.is_empty()).then(|| body.count()).transpose()?;
    let page = MessagePage { messages, next };
    Ok(ReadPage { page, place })
}

/// The cursor of a page of ready messages that begins at this position of the list.
pub(crate) fn cursor_at(place: u64) -> Vec<u8> {
    format!("{place}:").into_bytes()
}

/// The cursor of a page that begins after `message`, the first message of the page from `cursor`
/// on.
pub(crate) fn cursor_after(
    state: MessageState,
    newest: bool,
    cursor: &[u8],
    message: &MessageEntry,
) -> Vec<u8> {
    if state == MessageState::Ready {
        // The cursor is an index into the ready list, where the first message has 1.
        let index = std::str::from_utf8(cursor).ok();
        let index = index.and_then(|text| text.trim_end_matches(':').parse::<u64>().ok());
        let index = index.unwrap_or(1);
        return cursor_at(match newest {
            true => index.saturating_sub(1),
            false => index.saturating_add(1),
        });
    }
    let mut after = format!("{}:", message.time_ms).into_bytes();
    after.extend(&message.id);
    after
}

pub(crate) fn stats(reply: &mut Reply) -> Result<QueueStats, Error> {
    let mut stats = QueueStats {
        paused: reply.header.paused,
        paused_partitions: u64::from(reply.header.paused),
        // A queue that does not exist has none.
        partitions: u64::from(!reply.header.incarnation.is_empty()),
        ..QueueStats::default()
    };
    let now_ms = reply.header.now_us / 1_000;
    let left = |until_ms: i64| u64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(0);
    let mut fields = reply.body.parts()?;
    while !fields.is_empty() {
        let name = fields.text()?;
        let field = match name.as_str() {
            "scheduled" => &mut stats.scheduled,
            "due" => &mut stats.due,
            "ready" => &mut stats.ready,
            "leased" => &mut stats.leased,
            "dead" => &mut stats.dead,
            "moving" => &mut stats.moving,
            "recent" => &mut stats.recent,
            "nodes" => &mut stats.nodes,
            "drained" => &mut stats.drained_nodes,
            "overdue_ms" => &mut stats.overdue_ms,
            "pushed" => &mut stats.pushed,
            "claimed" => &mut stats.claimed,
            "acked" => &mut stats.acked,
            "repeated" => &mut stats.repeated,
            "retried" => &mut stats.retried,
            "released" => &mut stats.released,
            "crashed" => &mut stats.crashed,
            "died" => &mut stats.died,
            "cancelled" => &mut stats.cancelled,
            "requeued" => &mut stats.requeued,
            "purged" => &mut stats.purged,
            "trimmed" => &mut stats.trimmed,
            "expired" => &mut stats.expired,
            "throttled" => &mut stats.throttled,
            "snoozed" => &mut stats.snoozed,
            "schedules" => &mut stats.schedules,
            "low_lists" => &mut stats.low_lists,
            "dry_lists" => &mut stats.dry_lists,
            "max_leased" => &mut stats.max_leased,
            "max_throttle_ms" => &mut stats.max_throttle_ms,
            "max_attempts" => &mut stats.max_attempts,
            "max_crashes" => &mut stats.max_crashes,
            "max_messages" => &mut stats.max_messages,
            "max_payload_bytes" => &mut stats.max_payload_bytes,
            "dead_keep_ms" => &mut stats.keep_dead_ms,
            "max_remembered" => &mut stats.max_remembered,
            "dead_keep" => &mut stats.keep_dead,
            "parked_until" => {
                stats.parked_ms = left(fields.integer()?);
                continue;
            }
            "closed_until" => {
                stats.closed_ms = left(fields.integer()?);
                continue;
            }
            "life_keep_ms" => {
                stats.keep_life_ms = u64::try_from(fields.integer()?).ok();
                continue;
            }
            "full" => {
                stats.full = fields.integer()? == 1;
                continue;
            }
            "rate" => {
                stats.rate = Rate::parse(&fields.text()?);
                continue;
            }
            "leader" => {
                fields.text()?;
                continue;
            }
            _ => {
                fields.integer()?;
                continue;
            }
        };
        *field = fields.count()?;
    }
    Ok(stats)
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(crate) fn dues(mut reply: Reply) -> Result<DueCounts, Error> {
    let mut parts = reply.body.parts()?;
    let counts = (0..parts.len()).map(|_| parts.count());
    Ok(DueCounts {
        counts: counts.collect::<Result<_, _>>()?,
        // -1 means that no message is scheduled.
        last_ms: u64::try_from(reply.body.integer()?).ok(),
        now_ms: u64::try_from(reply.header.now_us / 1_000).unwrap_or(0),
    })
}

/// Decodes the records of a partition in order of time. A record that cannot be read is skipped:
/// somebody has changed that field of meta.
pub(crate) fn records(reply: &mut Reply) -> Result<Vec<Record>, Error> {
    let texts = reply.body.texts()?;
    Ok(texts.iter().filter_map(|text| record(text)).collect())
}

fn record(text: &str) -> Option<Record> {
    // Later releases may add parts, and numbers at the end of a part. Both are ignored.
    let mut parts = text.split('|');
    let at_ms = parts.next()?.parse().ok()?;
    let (counters, states) = (numbers(parts.next()?)?, numbers(parts.next()?)?);
    let counted = Counted {
        counters,
        lateness: TimeHistogram::parse(parts.next()?)?,
        handling: TimeHistogram::parse(parts.next()?)?,
    };
    Some(Record {
        at_ms,
        counted,
        states,
    })
}

fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let mut words = text.split(' ');
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTERS: &str = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";

    #[test]
    fn a_history_record_of_a_later_release_is_read() {
        let plain = record(&format!("1700|{COUNTERS}|1 2 3 4|5 6 7|")).expect("a record");
        assert_eq!((plain.at_ms, plain.states), (1_700, [1, 2, 3, 4]));
        assert_eq!(plain.counted.counters[14], 15);
        assert_eq!(plain.counted.lateness.count(), 13);
        let later = format!("1700|{COUNTERS} 16|1 2 3 4 5|5 6 7||new");
        assert_eq!(record(&later), Some(plain));
    }

    #[test]
    fn a_malformed_history_record_is_skipped() {
        let bad = [
            String::new(),
            "x".to_owned(),
            format!("1700|{COUNTERS}|1 2 3 4|"),
            format!("1700|{COUNTERS}|1 2 3|0 1|"),
            "1700|1 2 3|1 2 3 4|0 1|".to_owned(),
            format!("-1|{COUNTERS}|1 2 3 4|0 1|"),
            format!("1700|{COUNTERS}|1 2 3 4|68 1|"),
            format!("1700|{COUNTERS}|1 2 3 4||0 x"),
        ];
        for text in bad {
            assert_eq!(record(&text), None, "{text}");
        }
    }
}
