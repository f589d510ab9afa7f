//! Checks of the decoders of URLs, names, handles, and replies of servers. Each check is a function
//! that takes any bytes and panics if a decoder breaks its rules.
//!
//! A test applies them to the lines of `fuzz/corpus` and to mutations of these lines; `make proof
//! NAME=fuzz` runs longer.

mod overview;
#[cfg(test)]
mod vectors;
mod wire;

use std::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::model::outcomes::MessageState;
use crate::model::stats::QueueStats;
use crate::protocol::replies::{Body, Header, Reply};
use crate::protocol::results::claim::Claim;
use crate::protocol::results::inspect;
use crate::protocol::results::produce::PushResult;
use crate::protocol::verbs::Verb;
use crate::server::info::{Info, too_old};
use wire::{Sent, check_text};

pub use self::wire::{handle, name, url};

/// Panics if these bytes are decoded wrongly.
pub type Check = fn(&[u8]);

/// All checks, each with the name that its lines have in `fuzz/corpus`.
pub const CHECKS: [(&str, Check); 5] = [
    ("reply", reply),
    ("answer", answer),
    ("url", url),
    ("name", name),
    ("handle", handle),
];

/// Replies about a server, or from a Sentinel, are decoded as they were sent, or not at all. The
/// first byte selects the kind of reply.
pub fn answer(bytes: &[u8]) {
    wire::answer(bytes);
    if let Some(info) = bytes.strip_prefix(b"i")
        && let Some(reason) = too_old(&Info(String::from_utf8_lossy(info).into_owned()))
    {
        assert!(reason.contains("or newer"), "{reason}");
    }
}

/// Replies of scripts are decoded as they were sent, each value at its position. A reply against
/// the protocol is an error that says so. The first byte selects the script, the other bytes are
/// the reply.
pub fn reply(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Some(sent) = Sent::read(rest) else { return };
    let verb = match which {
        b'c' => Verb::Claim,
        b'g' => Verb::Get,
        b'p' => Verb::Peek,
        b's' => Verb::Stats,
        b'a' => Verb::Audit,
        b'y' => Verb::History,
        b'd' => Verb::Dues,
        b'n' => Verb::Nodes,
        b'h' => Verb::Held,
        _ => Verb::Push,
    };
    match Reply::decode(verb, sent.value(), Instant::now()) {
        Ok(reply) => {
            header(&sent, &reply.header);
            refused(match verb {
                Verb::Claim => claim(&sent, reply),
                Verb::Get => get(&sent, reply),
                Verb::Peek => peek(&sent, reply),
                Verb::Stats => stats(&sent, reply),
                Verb::Audit => audit(&sent, reply),
                Verb::History => overview::history(&sent, reply),
                Verb::Dues => overview::dues(&sent, reply),
                Verb::Nodes => overview::nodes(&sent, reply),
                Verb::Held => overview::held(&sent, reply),
                _ => items(&sent, reply),
            });
        }
        Err(error) => refused(Err(error)),
    }
}

fn refused(result: Result<(), Error>) {
    if let Err(error) = result {
        assert_eq!(error.kind(), ErrorKind::Server, "{error}");
        check_text(&error.to_string());
    }
}

fn header(sent: &Sent, header: &Header) {
    // The header has -1 for no time. Another negative value is a time in the past.
    let time = |place: usize| {
        Some(sent.integer(&[0, place]))
            .filter(|ms| *ms != -1)
            .map(|ms| ms.max(0).unsigned_abs())
    };
    assert_eq!(header.now_us, sent.integer(&[0, 0]));
    assert_eq!(header.incarnation, sent.text(&[0, 1]));
    assert_eq!(header.seq, sent.integer(&[0, 2]));
    assert_eq!(header.head_ms, time(3));
    assert_eq!(header.lease_deadline_ms, time(4));
    assert_eq!(header.paused, sent.integer(&[0, 5]) != 0);
}

fn claim(sent: &Sent, reply: Reply) -> Result<(), Error> {
    overview::granted(sent, &Claim::decode(reply, [7; 16])?);
    Ok(())
}

fn get(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let Some(stored) = inspect::stored(&mut reply.body)? else {
        assert_eq!(sent.len(&[1]), 0, "somebody is there");
        if let Some(outcome) = inspect::end(&mut reply.body)? {
            assert_eq!(outcome.kind.as_str(), sent.text(&[2]));
            let at = sent.integer(&[3]);
            assert_eq!(i64::try_from(outcome.ended_at_ms), Ok(at));
            let until = outcome.remembered_until_ms.unwrap_or(0);
            assert_eq!(i64::try_from(until), Ok(sent.integer(&[4])));
        }
        return Ok(());
    };
    let names = [
        "state", "time_ms", "failures", "crashes", "options", "error", "payload",
    ];
    for (place, name) in names.into_iter().enumerate() {
        assert_eq!(sent.text(&[1, 2 * place]), name);
    }
    assert_eq!(stored.state.as_str(), sent.text(&[1, 1]));
    assert_eq!(i64::try_from(stored.time_ms), Ok(sent.integer(&[1, 3])));
    assert_eq!(
        i64::from(stored.failures),
        sent.integer(&[1, 5]).min(i64::from(u32::MAX))
    );
    assert_eq!(
        i64::from(stored.crashes),
        sent.integer(&[1, 7]).min(i64::from(u32::MAX))
    );
    let options = sent.text(&[1, 9]);
    let attempts = options
        .split(' ')
        .filter_map(|word| word.strip_prefix("max_attempts="))
        .next_back();
    assert_eq!(
        stored.max_attempts,
        attempts.and_then(|text| text.parse().ok())
    );
    assert!(stored.trace_parent.is_none_or(|parent| {
        options
            .split(' ')
            .any(|word| word == format!("traceparent={parent}"))
    }));
    let has = |name: &str| options.split(' ').any(|word| word.starts_with(name));
    assert!(stored.expires_at_ms.is_none() || has("expires=") || has("expires_by="));
    assert!(stored.expires_after_ms.is_none() || has("expires=+"));
    assert!(stored.cost == 1 || has("cost="));
    assert!(stored.snoozes == 0 || has("snoozes="));
    assert!(stored.window_ms.is_none() || has("window="));
    assert!(stored.due_by_ms.is_none() || has("due_by="));
    if let Some(ms) = stored.next_due_ms {
        assert_eq!(sent.text(&[1, 14]), "next_due");
        assert_eq!(i64::try_from(ms), Ok(sent.integer(&[1, 15])));
    }
    assert_eq!(stored.error, sent.text(&[1, 11]));
    assert_eq!(stored.payload, sent.bytes(&[1, 13]));
    let place = if stored.next_due_ms.is_some() { 16 } else { 14 };
    if stored.payload_bytes != stored.payload.len() as u64 {
        assert_eq!(sent.text(&[1, place]), "payload_bytes");
        let bytes = i64::try_from(stored.payload_bytes);
        assert_eq!(bytes, Ok(sent.integer(&[1, place + 1])));
    }
    Ok(())
}

fn peek(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let read = inspect::page(&mut reply.body)?;
    if let Some(place) = read.place {
        assert_eq!(i64::try_from(place), Ok(sent.integer(&[3])));
    }
    let page = read.page;
    assert_eq!(
        page.next
            .as_ref()
            .map_or(&b""[..], |cursor| cursor.as_bytes()),
        sent.bytes(&[1])
    );
    assert_eq!(page.messages.len(), sent.len(&[2]));
    for (place, message) in page.messages.iter().enumerate() {
        assert_eq!(message.id, sent.bytes(&[2, place, 0]));
        assert_eq!(
            i64::try_from(message.time_ms),
            Ok(sent.integer(&[2, place, 1]))
        );
        assert_eq!(
            i64::from(message.failures),
            sent.integer(&[2, place, 2]).min(i64::from(u32::MAX))
        );
        assert_eq!(
            i64::from(message.crashes),
            sent.integer(&[2, place, 3]).min(i64::from(u32::MAX))
        );
        assert_eq!(message.error, sent.text(&[2, place, 4]));
    }
    Ok(())
}

fn stats(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let stats = inspect::stats(&mut reply)?;
    let mut expected = QueueStats {
        paused: sent.integer(&[0, 5]) != 0,
        ..QueueStats::default()
    };
    for pair in 0..sent.len(&[1]) / 2 {
        let name = sent.text(&[1, 2 * pair]);
        // A selection of fields, chosen so that a mix-up of two fields is noticed.
        let field = match name.as_str() {
            "scheduled" => &mut expected.scheduled,
            "dead" => &mut expected.dead,
            "overdue_ms" => &mut expected.overdue_ms,
            "acked" => &mut expected.acked,
            "throttled" => &mut expected.throttled,
            "max_payload_bytes" => &mut expected.max_payload_bytes,
            _ => continue,
        };
        *field = sent.integer(&[1, 2 * pair + 1]).unsigned_abs();
    }
    let some = |stats: &QueueStats| {
        let QueueStats {
            paused,
            scheduled,
            dead,
            overdue_ms,
            acked,
            throttled,
            max_payload_bytes,
            ..
        } = *stats;
        (
            paused,
            scheduled,
            dead,
            overdue_ms,
            acked,
            throttled,
            max_payload_bytes,
        )
    };
    assert_eq!(some(&stats), some(&expected));
    Ok(())
}

fn audit(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let (cursor, looked) = (reply.body.text()?, reply.body.count()?);
    let raws = crate::doctor::raw_findings(&mut reply.body)?;
    assert_eq!(
        (cursor, i64::try_from(looked)),
        (sent.text(&[1]), Ok(sent.integer(&[2])))
    );
    assert_eq!(raws.len(), sent.len(&[3]));
    for (place, raw) in raws.iter().enumerate() {
        assert_eq!(raw.kind, sent.text(&[3, place, 0]));
        assert_eq!(raw.subject, sent.bytes(&[3, place, 1]));
        assert_eq!(raw.detail, sent.text(&[3, place, 2]));
        assert_eq!(raw.repaired, sent.integer(&[3, place, 3]) == 1);
    }
    Ok(())
}

/// Checks the item results of a batch.
fn items(sent: &Sent, mut reply: Reply) -> Result<(), Error> {
    let mut items: Body = reply.body.parts()?;
    for place in 0..sent.len(&[1]) {
        let (text, said) = (items.text()?, sent.text(&[1, place]));
        assert_eq!(text, said);
        let is = |word: &str| said == word || said.starts_with(&format!("{word} "));
        match PushResult::decode(Verb::Push, &text, 0) {
            Ok(PushResult::Created { .. }) => assert!(is("CREATED"), "{said:?}"),
            Ok(PushResult::Moved { .. }) => assert!(is("MOVED"), "{said:?}"),
            Ok(PushResult::Next { .. }) => assert!(is("NEXT"), "{said:?}"),
            Ok(PushResult::Remembered { until_ms }) => {
                assert_eq!(
                    said.split_once(' ').map(|(word, _)| word),
                    Some("REMEMBERED")
                );
                assert_eq!(said[11..].parse(), Ok(until_ms));
            }
            Ok(PushResult::Finished { ended_us }) => {
                assert!(is("FINISHED"), "{said:?}");
                if let Some(ended_us) = ended_us {
                    let (ms, fraction) = said[9..].split_once('.').expect("milliseconds");
                    let us = ms.parse::<i64>().expect("a number") * 1_000;
                    assert_eq!(us + fraction.parse::<i64>().expect("a number"), ended_us);
                }
            }
            Ok(PushResult::Used) => assert!(is("USED"), "{said:?}"),
            Ok(PushResult::Expired) => assert!(is("EXPIRED"), "{said:?}"),
            Ok(PushResult::Exists(state)) => {
                assert_eq!(said, format!("EXISTS {}", MessageState::as_str(state)))
            }
            Err(error) => assert!(
                !["CREATED", "MOVED", "NEXT", "FINISHED", "EXPIRED"]
                    .iter()
                    .any(|word| is(word)),
                "{error}"
            ),
        }
    }
    assert!(items.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_and_its_mutations_hold() {
        for (name, check) in super::CHECKS {
            dueq_testkit::fuzz(name, check);
        }
    }
}
