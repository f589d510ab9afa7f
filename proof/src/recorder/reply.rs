//! Reads the reply of a script into an event.

use dueq::harness::Reply;

use super::{batch, text};
use crate::history::{Answer, ClaimedItem, Event};
use crate::{payload, stored};
/// Parses a reply; `None` if this verb cannot reply so. `id` is the id of a get.
pub(crate) fn answered(call: u64, verb: &str, id: &str, reply: &Reply) -> Option<Event> {
    let Reply::List(parts) = reply else {
        return None;
    };
    let [Reply::List(header), body @ ..] = &parts[..] else {
        return None;
    };
    let [
        Reply::Int(now_us),
        Reply::Bytes(incarnation),
        Reply::Int(seq),
        rest @ ..,
    ] = &header[..]
    else {
        return None;
    };
    let answer = match (verb, body) {
        (
            "claim" | "held",
            [
                _,
                Reply::Int(deadline_ms),
                Reply::List(ids),
                Reply::List(payloads),
                Reply::List(details),
                ..,
            ],
        ) => {
            // A single detail applies to all messages.
            let shared = details.len() == 1;
            if payloads.len() != ids.len() || details.len() != ids.len() && !shared {
                return None;
            }
            let item = |(place, (id, payload))| {
                claimed_item(id, payload, &details[if shared { 0 } else { place }])
            };
            Answer::Claimed {
                deadline_ms: u64::try_from(*deadline_ms).unwrap_or(0),
                items: ids
                    .iter()
                    .zip(payloads)
                    .enumerate()
                    .map(item)
                    .collect::<Option<_>>()?,
                paused: rest.get(2) == Some(&Reply::Int(1)),
            }
        }
        (
            "depart",
            [
                Reply::Int(number),
                Reply::Bytes(tag),
                _,
                Reply::Bytes(bytes),
            ],
        ) => {
            Answer::Departed {
                number: u64::try_from(*number).ok()?,
                // The number of a new batch is at least the time in microseconds.
                is_new: number >= now_us,
                tag: text(tag),
                sum: batch::sum(bytes),
                items: match &bytes[..] {
                    [] => Vec::new(),
                    bytes => batch::items(bytes)?,
                },
            }
        }
        // Pages and figures change nothing, so only their length is recorded.
        ("peek" | "stats", _) => Answer::Other(body.iter().map(length).collect()),
        // If the queue remembers the id, further elements tell how the message ended.
        ("get", [Reply::List(fields), ..]) => Answer::Items(vec![stored::of_reply(id, fields)?]),
        ("verify", [Reply::List(found)]) => Answer::Other(found.iter().map(finding).collect()),
        ("audit", [cursor, looked, Reply::List(found)]) => Answer::Other(
            [word(cursor), word(looked)]
                .into_iter()
                .chain(found.iter().map(finding))
                .collect(),
        ),
        // If its result is not OK, it is the result of all its messages.
        ("ack_push", [outcome, Reply::List(words)]) => {
            let outcome = word(outcome);
            let is_done = outcome == "OK";
            let words = words.iter().filter(|_| is_done).map(word);
            Answer::Items(std::iter::once(outcome).chain(words).collect())
        }
        // The items of these verbs are schedules, not messages.
        ("trigger" | "amend" | "refill", [Reply::List(words)]) => {
            Answer::Other(words.iter().map(word).collect())
        }
        ("schedule", [outcome, Reply::List(items), Reply::List(removed), ..]) => Answer::Other(
            std::iter::once(word(outcome))
                .chain(items.iter().map(word))
                .chain(removed.iter().map(|name| format!("REMOVED {}", word(name))))
                .collect(),
        ),
        ("schedules", [_, Reply::List(found)]) => Answer::Other(vec![found.len().to_string()]),
        (_, [Reply::List(words)]) => Answer::Items(words.iter().map(word).collect()),
        _ => Answer::Other(body.iter().map(word).collect()),
    };
    Some(Event::Ok {
        call,
        seq: u64::try_from(*seq).ok()?,
        now_us: *now_us,
        incarnation: text(incarnation),
        epoch: match rest.get(3) {
            Some(Reply::Int(epoch)) => u64::try_from(*epoch).ok()?,
            _ => 0,
        },
        answer,
    })
}

fn claimed_item(id: &Reply, payload: &Reply, details: &Reply) -> Option<ClaimedItem> {
    let (Reply::Bytes(id), Reply::Bytes(payload), Reply::Bytes(details)) = (id, payload, details)
    else {
        return None;
    };
    let (id, details) = (text(id), text(details));
    let mut details = details.splitn(3, ' ');
    let (version, bytes) = (
        payload::version_of(&id, payload),
        u32::try_from(payload.len()).unwrap_or(u32::MAX),
    );
    let (due_ms, attempt) = (details.next()?.parse().ok()?, details.next()?.parse().ok()?);
    Some(ClaimedItem(
        id,
        version,
        due_ms,
        attempt,
        bytes,
        stored::as_pushed(details.next().unwrap_or_default()),
    ))
}

/// A finding of an audit: kind, what, detail, mended.
fn finding(part: &Reply) -> String {
    match part {
        Reply::List(words) => words.iter().map(word).collect::<Vec<_>>().join(" "),
        other => word(other),
    }
}

fn word(part: &Reply) -> String {
    match part {
        Reply::Int(number) => number.to_string(),
        Reply::Bytes(bytes) => text(bytes),
        other => format!("{other:?}"),
    }
}

fn length(part: &Reply) -> String {
    match part {
        Reply::List(parts) => parts.len().to_string(),
        other => word(other),
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, ChangeItem, Verb};
    use crate::recorder::call::call_of;
    fn bytes(words: &[&str]) -> Reply {
        Reply::List(
            words
                .iter()
                .map(|word| Reply::Bytes(word.as_bytes().to_vec()))
                .collect(),
        )
    }

    fn header() -> Reply {
        let incarnation = Reply::Bytes(b"abc".to_vec());
        Reply::List(vec![
            Reply::Int(5_000),
            incarnation,
            Reply::Int(9),
            Reply::Int(-1),
            Reply::Int(-1),
            Reply::Int(0),
        ])
    }
    #[test]
    fn replies_are_parsed_with_seq_and_payload_version() {
        let payload = payload::make("a", 3, 50);
        let spoilt = u32::try_from("a 3 spoilt".len()).expect("short");
        let payloads = Reply::List([payload, b"a 3 spoilt".to_vec()].map(Reply::Bytes).into());
        let claim = |details: &[&str]| {
            let lists = [bytes(&["a", "a"]), payloads.clone(), bytes(details)];
            Reply::List([vec![header(), Reply::Int(0), Reply::Int(77)], lists.into()].concat())
        };
        let event = |attempt, options: &str| {
            let first = ClaimedItem("a".into(), 3, 4, 2, 50, String::new());
            let items = vec![
                first,
                ClaimedItem("a".into(), 0, 4, attempt, spoilt, options.into()),
            ];
            let answer = Answer::Claimed {
                deadline_ms: 77,
                items,
                paused: false,
            };
            Event::Ok {
                call: 1,
                seq: 9,
                now_us: 5_000,
                incarnation: "abc".into(),
                epoch: 0,
                answer,
            }
        };
        assert_eq!(
            answered(1, "claim", "", &claim(&["4 2 "])),
            Some(event(2, ""))
        );
        let options = "max_attempts=2 traceparent=00-1";
        let details = ["4 2 ", &format!("4 3 {options}")];
        assert_eq!(
            answered(1, "claim", "", &claim(&details)),
            Some(event(3, options))
        );
        assert_eq!(answered(1, "claim", "", &claim(&[])), None);

        let reply = Reply::List(vec![header(), bytes(&["OK", "GONE"])]);
        let Some(Event::Ok { answer, .. }) = answered(1, "ack", "", &reply) else {
            panic!("a reply")
        };
        assert_eq!(answer, Answer::Items(vec!["OK".into(), "GONE".into()]));
        let reply = Reply::List(vec![header(), Reply::Int(12), Reply::Int(1)]);
        let Some(Event::Ok { answer, .. }) = answered(1, "reap", "", &reply) else {
            panic!("a reply")
        };
        assert_eq!(answer, Answer::Other(vec!["12".into(), "1".into()]));
        assert_eq!(answered(1, "ack", "", &Reply::Int(1)), None);
    }

    #[test]
    fn gets_and_audits_are_recorded_with_their_findings() {
        let text = |word: &str| Reply::Bytes(word.as_bytes().to_vec());
        let payload = Reply::Bytes(payload::make("a", 2, 60));
        let fields = [
            ("state", text("leased")),
            ("time_ms", Reply::Int(7)),
            ("failures", Reply::Int(1)),
            ("crashes", Reply::Int(0)),
            ("options", text("max_attempts=3")),
            ("error", text("why")),
            ("payload", payload),
        ];
        let fields = fields
            .into_iter()
            .flat_map(|(name, value)| [text(name), value])
            .collect();
        assert_eq!(
            call_of("get", &[b"", b"a"]),
            Call::Change {
                verb: Verb::Get,
                items: vec![ChangeItem("a".into(), "".into())]
            }
        );
        let answer = |verb, body: Vec<Reply>| match answered(
            1,
            verb,
            "a",
            &Reply::List([vec![header()], body].concat()),
        ) {
            Some(Event::Ok { answer, .. }) => Some(answer),
            _ => None,
        };
        let seen = answer("get", vec![Reply::List(fields)]);
        assert_eq!(
            seen,
            Some(Answer::Items(vec![
                "IS leased 7 1 0 2 60 max_attempts=3".into()
            ]))
        );
        assert_eq!(
            answer("get", vec![Reply::List(vec![])]),
            Some(Answer::Items(vec!["ABSENT".into()]))
        );
        assert_eq!(
            answer(
                "get",
                vec![Reply::List(vec![text("state"), text("leased")])]
            ),
            None
        );
        let found = Reply::List(vec![
            text("doubled"),
            text("a"),
            text("ready, dead"),
            Reply::Int(1),
        ]);
        let remembered = vec![
            Reply::List(Vec::new()),
            text("cancelled"),
            Reply::Int(7),
            Reply::Int(0),
        ];
        let absent = answer("get", vec![Reply::List(Vec::new())]);
        assert_eq!(answer("get", remembered), absent);
        let audit = answer(
            "audit",
            vec![text("0"), Reply::Int(9), Reply::List(vec![found.clone()])],
        );
        assert_eq!(
            audit,
            Some(Answer::Other(
                ["0", "9", "doubled a ready, dead 1"]
                    .map(str::to_owned)
                    .into()
            ))
        );
        let verify = answer("verify", vec![Reply::List(vec![found])]);
        assert_eq!(
            verify,
            Some(Answer::Other(vec!["doubled a ready, dead 1".into()]))
        );
    }
}
