//! Decodes the replies of scripts: the header, and the parts after it.

use std::time::Instant;

use redis::Value;

use crate::error::{Applied, Error, ErrorKind, printable};
use crate::model::push_rules::{Expires, OnExpire};
use crate::protocol::limits;
use crate::protocol::verbs::Verb;

/// The header of every reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// When the call was sent, by this machine's monotonic clock.
    pub(crate) sent: Instant,
    /// The server's clock, in Unix microseconds.
    pub(crate) now_us: i64,
    /// The incarnation: a random word that is created with the queue, empty while there is no
    /// queue. When it changes, the store was emptied.
    pub(crate) incarnation: String,
    /// How many calls have changed the queue.
    pub(crate) seq: i64,
    /// The head time: when the first scheduled message is due, in Unix milliseconds.
    pub(crate) head_ms: Option<u64>,
    /// When the first lease expires, in Unix milliseconds.
    pub(crate) lease_deadline_ms: Option<u64>,
    /// Whether the queue is paused.
    pub(crate) paused: bool,
    /// The epoch of the partition's map, if the queue has one.
    pub(crate) epoch: Option<u64>,
}

/// A reply: its header, and its other parts.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) body: Body,
}

/// The parts of a reply, taken in order.
#[derive(Debug)]
pub(crate) struct Body {
    verb: Verb,
    parts: std::vec::IntoIter<Value>,
}

impl Reply {
    pub(crate) fn decode(verb: Verb, value: Value, sent: Instant) -> Result<Self, Error> {
        let mut body = Body::of(verb, value)?;
        let mut header = body.parts()?;
        let header = Header {
            sent,
            now_us: header.integer()?,
            incarnation: header.text()?,
            seq: header.integer()?,
            head_ms: time_ms(header.integer()?),
            lease_deadline_ms: time_ms(header.integer()?),
            paused: header.integer()? != 0,
            epoch: (!header.is_empty()).then(|| header.count()).transpose()?,
        };
        Ok(Self { header, body })
    }
}

/// A time of the header; -1 means none. dueq writes no other negative values. They count as past
/// times, so that due work is not missed.
fn time_ms(integer: i64) -> Option<u64> {
    (integer != -1).then(|| u64::try_from(integer).unwrap_or(0))
}

impl Body {
    fn of(verb: Verb, value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(parts) => Ok(Self {
                verb,
                parts: parts.into_iter(),
            }),
            other => Err(unexpected(
                verb,
                &format!("an array was expected, not {other:?}"),
            )),
        }
    }

    /// Takes the next part, an array, as parts of its own.
    pub(crate) fn parts(&mut self) -> Result<Self, Error> {
        let value = self.next()?;
        Self::of(self.verb, value)
    }

    /// Takes the next part, an integer.
    pub(crate) fn integer(&mut self) -> Result<i64, Error> {
        match self.next()? {
            Value::Int(number) => Ok(number),
            other => Err(unexpected(
                self.verb,
                &format!("an integer was expected, not {other:?}"),
            )),
        }
    }

    /// Takes the next part, an integer that must not be negative.
    pub(crate) fn count(&mut self) -> Result<u64, Error> {
        let number = self.integer()?;
        u64::try_from(number)
            .map_err(|_| unexpected(self.verb, &format!("a count was expected, not {number}")))
    }

    /// Takes the next part as bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(bytes),
            other => Err(unexpected(
                self.verb,
                &format!("a string was expected, not {other:?}"),
            )),
        }
    }

    /// Takes the next part as text; bytes that are not UTF-8 are replaced.
    pub(crate) fn text(&mut self) -> Result<String, Error> {
        Ok(String::from_utf8(self.bytes()?)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Takes the next part, an array of texts.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Error> {
        let mut parts = self.parts()?;
        (0..parts.len()).map(|_| parts.text()).collect()
    }

    /// Takes the next part: an array of texts, or a single word in its place.
    pub(crate) fn texts_or_word(&mut self) -> Result<Result<Vec<String>, String>, Error> {
        match self.parts.as_slice().first() {
            Some(Value::BulkString(_)) => self.text().map(Err),
            _ => self.texts().map(Ok),
        }
    }

    /// Takes the next part, a text of words: first N counts, then options.
    pub(crate) fn counts_and_options<const N: usize>(
        &mut self,
    ) -> Result<([u64; N], Options), Error> {
        let bytes = self.bytes()?;
        let mut words = bytes.splitn(N + 1, |byte| *byte == b' ');
        let mut counts = [0; N];
        for count in &mut counts {
            let read = words
                .next()
                .and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
            let unread = || {
                self.unexpected(&format!(
                    "counts were expected, not {}",
                    bytes.escape_ascii()
                ))
            };
            *count = read.ok_or_else(unread)?;
        }
        Ok((
            counts,
            Options::parse(&String::from_utf8_lossy(words.next().unwrap_or_default())),
        ))
    }

    /// Takes the next two parts: this name, and its value, which `read` decodes.
    pub(crate) fn named<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.text()? {
            found if found == name => read(self),
            found => Err(self.unexpected(&format!("{name} was expected, not {found:?}"))),
        }
    }

    /// The error of a reply that does not follow the protocol.
    pub(crate) fn unexpected(&self, what: &str) -> Error {
        unexpected(self.verb, what)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.len() == 0
    }

    /// Whether the next part is an array without parts.
    pub(crate) fn is_next_empty(&self) -> bool {
        matches!(self.parts.as_slice().first(), Some(Value::Array(parts)) if parts.is_empty())
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    fn next(&mut self) -> Result<Value, Error> {
        self.parts
            .next()
            .ok_or_else(|| unexpected(self.verb, "a part is missing"))
    }
}

/// The stored options of a message. Unknown words are ignored: a later version may have written
/// them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) max_attempts: Option<u32>,
    pub(crate) trace_parent: Option<String>,
    pub(crate) expires: Option<Expires>,
    /// A fixed time of expiry that a retry or a snooze has set. It does not depend on the due time.
    pub(crate) expires_by: Option<u64>,
    pub(crate) on_expire: OnExpire,
    pub(crate) cost: Option<u32>,
    pub(crate) snoozes: u32,
    pub(crate) window_ms: Option<u64>,
    /// When the debounce ends, in Unix milliseconds.
    pub(crate) due_by_ms: Option<u64>,
    /// How many earlier leases expired. Only the reply to a claim has this, and only if there is
    /// any.
    pub(crate) crashes: u32,
    /// Whether the message is a tick of a schedule.
    pub(crate) is_tick: bool,
}

impl Options {
    pub(crate) fn parse(text: &str) -> Self {
        let mut options = Self::default();
        for word in text.split(' ') {
            match word.split_once('=') {
                Some(("max_attempts", limit)) => options.max_attempts = limit.parse().ok(),
                Some(("expires", time)) => {
                    options.expires = match time.strip_prefix('+') {
                        Some(ms) => ms.parse().ok().map(Expires::AfterMs),
                        None => time.parse().ok().map(Expires::AtMs),
                    };
                }
                Some(("expires_by", ms)) => options.expires_by = ms.parse().ok(),
                Some(("on_expire", "drop")) => options.on_expire = OnExpire::Drop,
                Some(("cost", cost)) => options.cost = cost.parse().ok(),
                Some(("window", ms)) => options.window_ms = ms.parse().ok(),
                Some(("due_by", ms)) => options.due_by_ms = ms.parse().ok(),
                Some(("snoozes", count)) => options.snoozes = count.parse().unwrap_or(0),
                Some(("crashes", count)) => options.crashes = count.parse().unwrap_or(0),
                // Handlers copy the value into HTTP headers and environment variables, so invalid
                // values are ignored.
                Some(("traceparent", parent)) if limits::check_trace_parent(parent).is_ok() => {
                    options.trace_parent = Some(parent.to_owned());
                }
                None if word == "tick" => options.is_tick = true,
                _ => {}
            }
        }
        options
    }

    /// When a message with this due time expires, in Unix milliseconds.
    pub(crate) fn expires_at_ms(&self, due_ms: u64) -> Option<u64> {
        self.expires_by.or(match self.expires? {
            Expires::AfterMs(ms) => Some(due_ms.saturating_add(ms)),
            Expires::AtMs(ms) => Some(ms),
        })
    }
}

pub(crate) fn unexpected(verb: Verb, what: &str) -> Error {
    let what = printable(&what.chars().take(200).collect::<String>());
    Error::new(
        ErrorKind::Server,
        Applied::Unknown,
        format!(
            "the reply to {} is not the protocol: {what} (`dueq doctor QUEUE` finds why)",
            verb.name()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn reply_header_is_read_with_and_without_times() {
        let header = |head, deadline| {
            Value::Array(vec![
                Value::Array(vec![
                    Value::Int(5_000),
                    text("b"),
                    Value::Int(9),
                    Value::Int(head),
                    Value::Int(deadline),
                    Value::Int(1),
                ]),
                Value::Int(3),
            ])
        };
        let sent = Instant::now();
        let decode = |value| Reply::decode(Verb::Promote, value, sent);
        let mut reply = decode(header(-1, -1)).expect("a header");
        assert_eq!(
            reply.header,
            Header {
                sent,
                now_us: 5_000,
                incarnation: "b".into(),
                seq: 9,
                head_ms: None,
                lease_deadline_ms: None,
                paused: true,
                epoch: None
            }
        );
        assert_eq!(reply.body.count().expect("moved"), 3);
        let reply = decode(header(7, 8)).expect("a header");
        assert_eq!(
            (reply.header.head_ms, reply.header.lease_deadline_ms),
            (Some(7), Some(8))
        );
        let reply = decode(header(-5, i64::MIN)).expect("a header");
        assert_eq!(
            (reply.header.head_ms, reply.header.lease_deadline_ms),
            (Some(0), Some(0)),
            "past, not none"
        );
    }

    #[test]
    fn the_header_of_a_queue_with_a_map_has_its_epoch() {
        let decode = |epoch| {
            let mut parts = vec![Value::Int(0); 6];
            parts[1] = text("b");
            parts.push(Value::Int(epoch));
            let reply = Value::Array(vec![Value::Array(parts)]);
            Reply::decode(Verb::Promote, reply, Instant::now())
        };
        assert_eq!(decode(7).expect("a header").header.epoch, Some(7));
        assert!(decode(-7).is_err());
    }

    #[test]
    fn malformed_replies_are_errors_and_cause_no_panic() {
        for value in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![Value::Array(vec![text("x")])]),
        ] {
            let error = Reply::decode(Verb::Stats, value, Instant::now()).expect_err("not a reply");
            assert_eq!(error.kind(), ErrorKind::Server);
        }
    }

    #[test]
    fn stored_options_are_decoded_word_by_word() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let both = Options {
            max_attempts: Some(5),
            trace_parent: Some(parent.into()),
            crashes: 2,
            ..Options::default()
        };
        assert_eq!(
            Options::parse(&format!("max_attempts=5 traceparent={parent} crashes=2")),
            both
        );
        assert_eq!(
            Options::parse(&format!(
                "later=1 crashes=2 traceparent={parent} max_attempts=5 new"
            )),
            both
        );
        assert_eq!(Options::parse(""), Options::default());
        let expiring = Options::parse("expires=+5 on_expire=drop cost=3 snoozes=4");
        assert_eq!((expiring.cost, expiring.snoozes), (Some(3), 4));
        assert_eq!(expiring.on_expire, OnExpire::Drop);
        assert_eq!(expiring.expires_at_ms(100), Some(105));
        let fixed = Options::parse("expires=+5 expires_by=70");
        assert_eq!(fixed.expires_at_ms(100), Some(70));
        assert_eq!(Options::parse("expires=9").expires_at_ms(100), Some(9));
        assert_eq!(
            Options::parse("traceparent=00-\r\nx max_attempts=x crashes=-1"),
            Options::default()
        );
    }
}
