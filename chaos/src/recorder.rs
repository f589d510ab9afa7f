//! Writes every script call of this process into its history, before it is sent and when it is answered.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};
use dueq::harness::{Observer, Reply};
use dueq::{Applied, Error};

use crate::history::{
    Answer, Call, ChangeItem, ClaimedItem, Event, PushItem, Role, SettleItem, Verb, Writer, now_us,
};
use crate::{payload, stored};

/// The history of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Diary(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    writer: Writer,
    ops: AtomicU64,
    /// Redis's clock less our monotonic one, in microseconds, by the last reply.
    offset_us: AtomicI64,
}

impl Diary {
    /// Begins a history and has every script call of this process written into it.
    pub fn begin(path: &Path, role: Role, process: &str) -> Result<Self> {
        let inner = Inner {
            writer: Writer::create(path)?,
            ops: AtomicU64::new(1),
            offset_us: AtomicI64::new(0),
        };
        let diary = Self(Arc::new(inner));
        diary.write(&Event::Begin {
            role,
            process: process.to_owned(),
            pid: std::process::id(),
        });
        let observed = dueq::harness::observe(Recorder {
            diary: diary.clone(),
            verbs: Mutex::default(),
        });
        ensure!(observed, "somebody else observes this process already");
        Ok(diary)
    }

    /// A process whose history has a gap proves nothing: it ends at once.
    pub fn write(&self, event: &Event) {
        if let Err(error) = self.0.writer.write(event) {
            eprintln!("the history cannot be written: {error:#}");
            std::process::abort();
        }
    }

    /// Writes down that the library is asked for something; the number is for [`told`](Diary::told).
    pub fn asked(&self, verb: Verb, ids: Vec<String>) -> u64 {
        self.asked_durably(verb, ids, 0)
    }

    /// The same if so many replicas must have it before there is an answer.
    pub fn asked_durably(&self, verb: Verb, ids: Vec<String>, replicas: u32) -> u64 {
        let op = self.0.ops.fetch_add(1, Ordering::Relaxed);
        self.write(&Event::Asked {
            op,
            verb,
            ids,
            replicas,
        });
        op
    }

    pub fn told(&self, op: u64, outcomes: Vec<String>) {
        self.write(&Event::Told { op, outcomes });
    }

    /// Redis's time as the last reply told it, in Unix milliseconds; 0 before the first.
    pub fn server_now_ms(&self) -> u64 {
        let offset_us = self.0.offset_us.load(Ordering::Relaxed);
        let local_us = if offset_us == 0 { 0 } else { now_us() };
        u64::try_from((i64::try_from(local_us).unwrap_or(0) + offset_us) / 1_000).unwrap_or(0)
    }
}

/// What a caller was told, in one word or a few: `?` if it may have taken effect, `!` if it has not.
pub fn outcome<T>(result: Result<T, Error>, word: impl Fn(T) -> String) -> String {
    match result {
        Ok(value) => word(value),
        Err(error) if error.was_applied() == Applied::No => format!("!{error}"),
        Err(error) => format!("?{error}"),
    }
}

struct Recorder {
    diary: Diary,
    /// Of the calls that are under way; and which message a get is about.
    verbs: Mutex<HashMap<u64, (&'static str, String)>>,
}

impl Recorder {
    fn verbs(&self) -> MutexGuard<'_, HashMap<u64, (&'static str, String)>> {
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn invoke(&self, call: u64, verb: &'static str, queue: &str, args: &[&[u8]]) {
        let id = if verb == "get" {
            args.get(1).map(|id| text(id)).unwrap_or_default()
        } else {
            String::new()
        };
        self.verbs().insert(call, (verb, id));
        self.diary.write(&Event::Invoke {
            call,
            queue: queue.to_owned(),
            what: call_of(verb, args),
        });
    }

    fn done(&self, call: u64, result: Result<&Reply, (String, Applied)>) {
        let (verb, id) = self.verbs().remove(&call).unwrap_or_default();
        let event = match result {
            Ok(reply) => match answered(call, verb, &id, reply) {
                Some(event) => event,
                None => Event::Unknown {
                    call,
                    error: format!("this is no reply of {verb}: {reply:?}"),
                },
            },
            Err((error, Applied::No)) => Event::Refused { call, error },
            Err((error, _)) => Event::Unknown { call, error },
        };
        if let Event::Ok {
            now_us: server_us, ..
        } = event
        {
            let offset_us = server_us - i64::try_from(now_us()).unwrap_or(0);
            self.diary.0.offset_us.store(offset_us, Ordering::Relaxed);
        }
        self.diary.write(&event);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number<N: std::str::FromStr + Default>(bytes: &[u8]) -> N {
    std::str::from_utf8(bytes)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default()
}

/// The first 8 bytes, in hexadecimal: enough to tell claims apart.
fn token(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes
        .iter()
        .take(8)
        .flat_map(|byte| [digit(byte >> 4), digit(*byte)])
        .collect()
}

/// Reads a script's ARGV, of which the first is the time override.
fn call_of(verb: &str, args: &[&[u8]]) -> Call {
    let args = args.get(1..).unwrap_or_default();
    let settle = |verb, size| Call::Settle {
        verb,
        items: args
            .chunks_exact(size)
            // What follows the token is a time for all but bury, which takes a reason.
            .map(|item| {
                SettleItem(
                    text(item[0]),
                    token(item[1]),
                    item.get(2)
                        .filter(|_| verb != Verb::Bury)
                        .map(|rest| text(rest))
                        .unwrap_or_default(),
                )
            })
            .collect(),
    };
    let change = |verb, ids: &[&[u8]], rest: &str| Call::Change {
        verb,
        items: ids
            .iter()
            .map(|id| ChangeItem(text(id), rest.to_owned()))
            .collect(),
    };
    match (verb, args) {
        ("push", [until, items @ ..]) => {
            let until = until.strip_suffix(b" fresh").unwrap_or(until);
            let digits = until
                .iter()
                .position(|byte| !byte.is_ascii_digit())
                .unwrap_or(until.len());
            let (until, nonce) = until.split_at(digits);
            let items = items.chunks_exact(4).map(push_item).collect();
            Call::Push {
                until_ms: number(until),
                nonce: text(nonce),
                items,
            }
        }
        ("claim", [n, given, lease, rest @ ..]) => {
            let due = rest.first().is_some_and(|due| *due == b"1");
            Call::Claim {
                n: number(n),
                token: token(given),
                lease_ms: number(lease),
                due,
            }
        }
        ("ack", _) => Call::Settle {
            verb: Verb::Ack,
            items: acked(args),
        },
        ("release", _) => settle(Verb::Release, 2),
        ("again", _) => settle(Verb::Again, 3),
        ("extend", _) => settle(Verb::Extend, 3),
        ("bury", _) => settle(Verb::Bury, 3),
        ("retry", _) => settle(Verb::Retry, 4),
        ("cancel", [dead, ids @ ..]) => change(
            Verb::Cancel,
            ids,
            if dead.starts_with(b"1") { "dead" } else { "" },
        ),
        ("get", ids) => change(Verb::Get, ids, ""),
        ("run_now", ids) => change(Verb::RunNow, ids, ""),
        ("requeue", [b"ids", ids @ ..]) => change(Verb::Requeue, ids, ""),
        ("reschedule", items) => Call::Change {
            verb: Verb::Reschedule,
            items: items
                .chunks_exact(3)
                .map(|item| {
                    ChangeItem(
                        text(item[0]),
                        [text(item[1]), text(item[2])]
                            .join(" ")
                            .trim_end()
                            .to_owned(),
                    )
                })
                .collect(),
        },
        _ => Call::Other {
            verb: verb.to_owned(),
            args: args.iter().map(|arg| text(arg)).collect(),
        },
    }
}

/// Of each claim its token, how many ids, and these.
fn acked(mut args: &[&[u8]]) -> Vec<SettleItem> {
    let mut items = Vec::new();
    while let [given, count, rest @ ..] = args {
        let (ids, others) = rest.split_at(number::<usize>(count).min(rest.len()));
        items.extend(
            ids.iter()
                .map(|id| SettleItem(text(id), token(given), String::new())),
        );
        args = others;
    }
    items
}

fn push_item(item: &[&[u8]]) -> PushItem {
    let (id, payload) = (text(item[0]), item[2]);
    let version = payload::version_of(&id, payload);
    PushItem(
        id,
        text(item[1]),
        version,
        u32::try_from(payload.len()).unwrap_or(u32::MAX),
        text(item[3]),
    )
}

/// Nothing if it is not what this verb answers. `id` is what a get is about.
fn answered(call: u64, verb: &str, id: &str, reply: &Reply) -> Option<Event> {
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
            "claim",
            [
                _,
                Reply::Int(deadline_ms),
                Reply::List(ids),
                Reply::List(payloads),
                Reply::List(details),
                ..,
            ],
        ) => {
            // One detail may stand for all.
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
        // Pages and figures change nothing: how long they are says enough.
        ("peek" | "stats", _) => Answer::Other(body.iter().map(length).collect()),
        ("get", [Reply::List(fields)]) => Answer::Items(vec![stored::of_reply(id, fields)?]),
        ("verify", [Reply::List(found)]) => Answer::Other(found.iter().map(finding).collect()),
        ("audit", [cursor, looked, Reply::List(found)]) => Answer::Other(
            [word(cursor), word(looked)]
                .into_iter()
                .chain(found.iter().map(finding))
                .collect(),
        ),
        (_, [Reply::List(words)]) => Answer::Items(words.iter().map(word).collect()),
        _ => Answer::Other(body.iter().map(word).collect()),
    };
    Some(Event::Ok {
        call,
        seq: u64::try_from(*seq).ok()?,
        now_us: *now_us,
        incarnation: text(incarnation),
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
        details.next().unwrap_or_default().to_owned(),
    ))
}

/// Kind, what, detail, mended.
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
    fn calls_are_read_as_the_scripts_read_them() {
        let payload = payload::make("p1-7", 2, 100);
        let item = PushItem("p1-7".into(), "+5".into(), 2, 100, "reuse".into());
        for (until, nonce) in [
            ("123", ""),
            ("123 fresh", ""),
            ("123.5 n1", ".5 n1"),
            ("123 n1", " n1"),
        ] {
            let push = call_of(
                "push",
                &[b"", until.as_bytes(), b"p1-7", b"+5", &payload, b"reuse"],
            );
            assert_eq!(
                push,
                Call::Push {
                    until_ms: 123,
                    nonce: nonce.into(),
                    items: vec![item.clone()]
                }
            );
        }

        let given = b"\x00\xffABCDEFrest....";
        let claim = call_of("claim", &[b"", b"4", given, b"2000", b"1"]);
        assert_eq!(
            claim,
            Call::Claim {
                n: 4,
                token: "00ff414243444546".into(),
                lease_ms: 2_000,
                due: true
            }
        );

        let retry = call_of(
            "retry",
            &[b"", b"a", given, b"50", b"why", b"b", given, b"60", b""],
        );
        let item =
            |id: &str, rest: &str| SettleItem(id.into(), "00ff414243444546".into(), rest.into());
        assert_eq!(
            retry,
            Call::Settle {
                verb: Verb::Retry,
                items: vec![item("a", "50"), item("b", "60")]
            }
        );
        let other = b"\x01\xffABCDEFrest....";
        let ack = call_of("ack", &[b"", given, b"2", b"a", b"b", other, b"1", b"c"]);
        let last = SettleItem("c".into(), "01ff414243444546".into(), String::new());
        assert_eq!(
            ack,
            Call::Settle {
                verb: Verb::Ack,
                items: vec![item("a", ""), item("b", ""), last]
            }
        );
        let bury = call_of("bury", &[b"", b"a", given, b"why"]);
        assert_eq!(
            bury,
            Call::Settle {
                verb: Verb::Bury,
                items: vec![item("a", "")]
            }
        );

        let moved = call_of("reschedule", &[b"", b"a", b"+5", b"", b"b", b"70", b"60"]);
        let items = vec![
            ChangeItem("a".into(), "+5".into()),
            ChangeItem("b".into(), "70 60".into()),
        ];
        assert_eq!(
            moved,
            Call::Change {
                verb: Verb::Reschedule,
                items
            }
        );
        let oldest = call_of("requeue", &[b"", b"oldest", b"10", b""]);
        let args = vec!["oldest".to_owned(), "10".to_owned(), String::new()];
        assert_eq!(
            oldest,
            Call::Other {
                verb: "requeue".into(),
                args
            }
        );
    }

    #[test]
    fn replies_are_read_with_seq_and_what_the_payload_says() {
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
    fn reads_and_audits_are_recorded_with_what_they_found() {
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
