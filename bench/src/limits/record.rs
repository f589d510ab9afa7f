//! What a node's process writes to its log: its script calls and the answers, with the server's
//! times.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Result, ensure};
use dueq::Applied;
use dueq::harness::{Observer, Reply};
use serde::{Deserialize, Serialize};

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A call is about to be sent. `us` is of the wall clock, which is the server's on one machine.
    /// Settlements and extensions have items: ids and tokens.
    Asked {
        call: u64,
        us: u64,
        verb: String,
        items: Vec<(String, String)>,
    },
    /// The answer of a claim that granted messages. `us` is the server's clock during the call.
    Granted {
        us: u64,
        token: String,
        deadline_ms: u64,
        ids: Vec<String>,
        /// As the claim replies with them: one alone if all ids share it.
        details: Vec<String>,
    },
    /// The answer of a settlement or an extension, a word for each item.
    Settled {
        call: u64,
        us: u64,
        words: Vec<String>,
    },
}

/// Writes each entry with one `write`, before the library acts on the answer: a kill -9 loses no
/// claim whose message a handler has.
pub(crate) struct Recorder {
    log: File,
    /// The tokens of claims and the items of settlements that are in flight.
    in_flight: Mutex<HashMap<u64, InFlight>>,
}

enum InFlight {
    Claim(String),
    Settlement(usize),
}

impl Recorder {
    /// Records every script call of this process.
    pub(crate) fn begin(log: &Path) -> Result<()> {
        let recorder = Self {
            log: OpenOptions::new().create(true).append(true).open(log)?,
            in_flight: Mutex::default(),
        };
        ensure!(
            dueq::harness::observe(recorder),
            "this process has an observer already"
        );
        Ok(())
    }

    /// A log with a gap proves nothing: the process ends at once.
    fn write(&self, entry: &Entry) {
        let line = serde_json::to_string(entry).map(|line| line + "\n");
        let written = line.map(|line| (&self.log).write_all(line.as_bytes()));
        if !matches!(written, Ok(Ok(()))) {
            eprintln!("cannot write the log of script calls: {written:?}");
            std::process::abort();
        }
    }

    fn in_flight(&self) -> std::sync::MutexGuard<'_, HashMap<u64, InFlight>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn invoke(&self, call: u64, verb: &'static str, _queue: &str, args: &[&[u8]]) {
        let items = items_of(verb, args.get(1..).unwrap_or_default());
        if verb == "claim" {
            let token = hex(args.get(2).copied().unwrap_or_default());
            self.in_flight().insert(call, InFlight::Claim(token));
        } else if !items.is_empty() {
            let settlement = InFlight::Settlement(items.len());
            self.in_flight().insert(call, settlement);
        }
        self.write(&Entry::Asked {
            call,
            us: wall_us(),
            verb: verb.to_owned(),
            items,
        });
    }

    fn done(&self, call: u64, result: Result<&Reply, (String, Applied)>) {
        let asked = self.in_flight().remove(&call);
        if let (Some(asked), Ok(reply)) = (asked, result)
            && let Some(entry) = answered(call, asked, reply)
        {
            self.write(&entry);
        }
    }
}

/// The ids and tokens in the arguments of a settlement or an extension.
fn items_of(verb: &str, mut args: &[&[u8]]) -> Vec<(String, String)> {
    let size = match verb {
        "ack" => 0,
        "release" => 2,
        "extend" | "bury" | "again" | "snooze" | "throttle" => 3,
        "retry" => 4,
        _ => return Vec::new(),
    };
    if size > 0 {
        let item = |item: &[&[u8]]| (text(item[0]), hex(item[1]));
        return args.chunks_exact(size).map(item).collect();
    }
    let mut items = Vec::new();
    while let [token, count, rest @ ..] = args {
        let count = text(count).parse().unwrap_or(0);
        let (ids, others) = rest.split_at(rest.len().min(count));
        items.extend(ids.iter().map(|id| (text(id), hex(token))));
        args = others;
    }
    items
}

/// The entry of an answer; none of a claim that granted nothing.
fn answered(call: u64, asked: InFlight, reply: &Reply) -> Option<Entry> {
    let Reply::List(parts) = reply else {
        return None;
    };
    let [Reply::List(header), body @ ..] = &parts[..] else {
        return None;
    };
    let Some(Reply::Int(us)) = header.first() else {
        return None;
    };
    let us = u64::try_from(*us).ok()?;
    match (asked, body) {
        (InFlight::Claim(token), [_, Reply::Int(deadline), Reply::List(ids), rest @ ..])
            if !ids.is_empty() =>
        {
            let details = match rest {
                [_, Reply::List(details), ..] => details.iter().map(word).collect(),
                _ => Vec::new(),
            };
            Some(Entry::Granted {
                us,
                token,
                deadline_ms: u64::try_from(*deadline).ok()?,
                ids: ids.iter().map(word).collect(),
                details,
            })
        }
        (InFlight::Settlement(count), [Reply::List(words), ..]) => {
            let mut words: Vec<_> = words.iter().map(word).collect();
            if let ([word], 2..) = (&words[..], count) {
                words = vec![word.clone(); count]; // the reply has one element if all deliveries share it
            }
            Some(Entry::Settled { call, us, words })
        }
        _ => None,
    }
}

fn word(part: &Reply) -> String {
    match part {
        Reply::Bytes(bytes) => text(bytes),
        other => format!("{other:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(word: &str) -> Reply {
        Reply::Bytes(word.as_bytes().to_vec())
    }

    #[test]
    fn arguments_of_settlements_name_ids_and_tokens() {
        let ack: [&[u8]; 7] = [b"\x01", b"2", b"a", b"b", b"\xff", b"1", b"c"];
        let item = |id: &str, token: &str| (id.to_owned(), token.to_owned());
        assert_eq!(
            items_of("ack", &ack),
            [item("a", "01"), item("b", "01"), item("c", "ff")]
        );
        let extend: [&[u8]; 3] = [b"a", b"\x01", b"2000"];
        assert_eq!(items_of("extend", &extend), [item("a", "01")]);
        assert!(items_of("beat", &extend).is_empty());
    }

    #[test]
    fn answers_have_the_time_of_the_server() {
        let reply = |body: Vec<Reply>| {
            let header = Reply::List(vec![Reply::Int(5), bytes("x"), Reply::Int(1)]);
            Reply::List([vec![header], body].concat())
        };
        let claimed = |ids: Vec<Reply>| reply(vec![Reply::Int(0), Reply::Int(9), Reply::List(ids)]);
        let claim = || InFlight::Claim("01".into());
        assert_eq!(answered(1, claim(), &claimed(Vec::new())), None);
        assert_eq!(
            answered(1, claim(), &claimed(vec![bytes("a")])),
            Some(Entry::Granted {
                us: 5,
                token: "01".into(),
                deadline_ms: 9,
                ids: vec!["a".into()],
                details: Vec::new(),
            })
        );
        let acked = reply(vec![Reply::List(vec![bytes("OK")])]);
        assert_eq!(
            answered(7, InFlight::Settlement(2), &acked),
            Some(Entry::Settled {
                call: 7,
                us: 5,
                words: vec!["OK".into(), "OK".into()],
            })
        );
    }
}
