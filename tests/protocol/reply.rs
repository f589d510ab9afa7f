//! Replies and their words, in types that failing assertions print readably.

use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use redis::{RedisResult, Value};

/// Bytes such as an id, a payload, a token or a word of ARGV. They print as text.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Text(pub(crate) Vec<u8>);

impl Text {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0..=1200 => write!(out, "\"{}\"", self.0.escape_ascii()),
            length => write!(
                out,
                "\"{}...\" ({length} bytes)",
                self.0[..40].escape_ascii()
            ),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self(text.as_bytes().into())
    }
}

impl From<&[u8]> for Text {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<u64> for Text {
    fn from(number: u64) -> Self {
        number.to_string().into()
    }
}

impl From<i32> for Text {
    fn from(number: i32) -> Self {
        number.to_string().into()
    }
}

impl From<&Text> for Text {
    fn from(text: &Text) -> Self {
        text.clone()
    }
}

/// Words of a call: `words!["id", T0 + 5, payload]`.
macro_rules! words {
    ($($word:expr),* $(,)?) => { vec![$({ let word: crate::reply::Text = $word.into(); word }),*] };
}
pub(crate) use words;

/// How many ids an ack has. The words of an ack are, for each claim, the token, a count and this
/// number of ids.
pub(crate) fn acked(mut words: &[Text]) -> usize {
    let mut ids = 0;
    while let [_, count, rest @ ..] = words {
        let count = count.text().parse().unwrap_or(0).min(rest.len());
        ids += count;
        words = &rest[count..];
    }
    ids
}

/// The reply to a script or a command. An error of the server is a reply, too.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Int(i64),
    Text(Text),
    List(Vec<Reply>),
    Error(String),
}

impl fmt::Debug for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => write!(out, "nil"),
            Self::Int(number) => write!(out, "{number}"),
            Self::Text(text) => write!(out, "{text:?}"),
            Self::List(items) => out.debug_list().entries(items).finish(),
            Self::Error(error) => write!(out, "error({error})"),
        }
    }
}

impl From<i64> for Reply {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<u64> for Reply {
    fn from(number: u64) -> Self {
        Self::Int(number as i64)
    }
}

impl From<usize> for Reply {
    fn from(number: usize) -> Self {
        Self::Int(number as i64)
    }
}

macro_rules! texts_are_replies {
    ($($text:ty)*) => { $(impl From<$text> for Reply {
        fn from(text: $text) -> Self {
            Self::Text(text.into())
        }
    })* };
}
texts_are_replies!(&str String &String Text &Text);

impl Reply {
    /// Converts a reply of the client. Fails only if the connection failed.
    pub(crate) fn from_server(result: RedisResult<Value>) -> Result<Self> {
        match result {
            Ok(value) => Self::from_value(value),
            Err(error) => {
                let code = error.code().map(str::to_owned);
                let Some(code) = code else {
                    return Err(error.into());
                };
                Ok(Self::Error(format!(
                    "{code} {}",
                    error.detail().unwrap_or_default()
                )))
            }
        }
    }

    fn from_value(value: Value) -> Result<Self> {
        Ok(match value {
            Value::Nil => Self::Nil,
            Value::Int(number) => Self::Int(number),
            Value::BulkString(bytes) => Self::Text(Text(bytes)),
            Value::SimpleString(text) => Self::Text(text.into()),
            Value::Okay => Self::Text("OK".into()),
            Value::Array(items) => Self::List(
                items
                    .into_iter()
                    .map(Self::from_value)
                    .collect::<Result<_>>()?,
            ),
            Value::ServerError(error) => Self::Error(format!(
                "{} {}",
                error.code(),
                error.details().unwrap_or_default()
            )),
            other => bail!("a reply of an unexpected type: {other:?}"),
        })
    }

    pub(crate) fn list(&self) -> Result<&[Self]> {
        let Self::List(items) = self else {
            bail!("not a list: {self:?}")
        };
        Ok(items)
    }

    pub(crate) fn int(&self) -> Result<i64> {
        let Self::Int(number) = self else {
            bail!("not an integer: {self:?}")
        };
        Ok(*number)
    }

    pub(crate) fn bytes(&self) -> Result<&Text> {
        let Self::Text(text) = self else {
            bail!("not a text: {self:?}")
        };
        Ok(text)
    }

    pub(crate) fn text(&self) -> Result<String> {
        Ok(self.bytes()?.text())
    }

    /// The part of a script's reply at `index`; the header is part 0.
    pub(crate) fn part(&self, index: usize) -> Result<&Self> {
        self.list()?
            .get(index)
            .with_context(|| format!("no part {index} in {self:?}"))
    }

    /// The ids that a claim granted.
    pub(crate) fn granted(&self) -> Result<Vec<String>> {
        let deliveries = self.deliveries()?;
        deliveries.iter().map(|[id, ..]| id.text()).collect()
    }

    /// The deliveries of a claim: id, payload, due, attempt and options of each.
    pub(crate) fn deliveries(&self) -> Result<Vec<[Self; 5]>> {
        let (ids, payloads, details) = (
            self.part(3)?.list()?,
            self.part(4)?.list()?,
            self.part(5)?.list()?,
        );
        // If all details are equal, the reply has them once.
        let details = if let [all] = details {
            vec![all.clone(); ids.len()]
        } else {
            details.to_vec()
        };
        ensure!(
            payloads.len() == ids.len() && details.len() == ids.len(),
            "not deliveries: {self:?}"
        );
        let all = ids.iter().zip(payloads).zip(&details);
        all.map(|((id, payload), details)| {
            let details = details.text()?;
            let [due, attempt, options] = details.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                bail!("not details: {details:?}")
            };
            Ok([
                id.clone(),
                payload.clone(),
                due.parse::<u64>()?.into(),
                attempt.parse::<u64>()?.into(),
                options.into(),
            ])
        })
        .collect()
    }

    /// The reply to a call of `count` items with one result for each. Scripts send a single result
    /// if all items share it.
    pub(crate) fn of_items(mut self, count: usize) -> Self {
        if let Self::List(parts) = &mut self
            && let Some(Self::List(results)) = parts.get_mut(1)
            && let [result] = &results[..]
        {
            *results = vec![result.clone(); count];
        }
        self
    }

    /// Part 1 of the reply as texts: the item results of a batch.
    pub(crate) fn items(&self) -> Result<Vec<String>> {
        self.part(1)?.list()?.iter().map(Self::text).collect()
    }

    /// The error's first word. None if the reply is not an error.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Error(error) => error.split(' ').next(),
            _ => None,
        }
    }
}

/// The reply header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) now_us: i64,
    pub(crate) incarnation: String,
    pub(crate) seq: i64,
    pub(crate) head: i64,
    pub(crate) deadline: i64,
    pub(crate) paused: bool,
    /// The epoch of the partition's map; only in layout 2.
    pub(crate) epoch: Option<i64>,
}

impl Header {
    pub(crate) fn of(reply: &Reply) -> Result<Self> {
        let [now_us, incarnation, seq, head, deadline, paused, epoch @ ..] =
            reply.part(0)?.list()?
        else {
            bail!("not a header in {reply:?}");
        };
        ensure!(epoch.len() <= 1, "{reply:?}");
        Ok(Self {
            now_us: now_us.int()?,
            incarnation: incarnation.text()?,
            seq: seq.int()?,
            head: head.int()?,
            deadline: deadline.int()?,
            paused: paused.int()? == 1,
            epoch: epoch.first().map(Reply::int).transpose()?,
        })
    }
}
