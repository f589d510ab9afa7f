//! Looking at a queue: one message, pages of them, counts; and its limits.

use std::time::Duration;

use crate::error::Error;
use crate::model::due::ceil_ms;
use crate::model::outcomes::State;
use crate::protocol::limits::{self, MAX_ITEMS};
use crate::protocol::replies::{Body, Options, Reply};
use crate::protocol::verbs::Verb;
use crate::queue::Queue;
use crate::server::lane::Repeat;

/// A message as it stands in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Where it is.
    pub state: State,
    /// When it is due (scheduled, ready), when its lease ends (leased) or when it died (dead), in Unix milliseconds.
    pub time_ms: u64,
    /// How often a handler failed.
    pub failures: u32,
    /// How often a lease ran out.
    pub crashes: u32,
    /// Its own limit of attempts, if it has one.
    pub max_attempts: Option<u32>,
    /// The trace that its push belonged to, if it said so.
    pub trace_parent: Option<String>,
    /// What the last failure or burial said.
    pub error: String,
    /// The payload.
    pub payload: Vec<u8>,
}

/// A message in a [`Page`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The id as it was pushed.
    pub id: Vec<u8>,
    /// As in [`Stored::time_ms`].
    pub time_ms: u64,
    /// How often a handler failed.
    pub failures: u32,
    /// How often a lease ran out.
    pub crashes: u32,
    /// What the last failure or burial said.
    pub error: String,
}

/// Some of the messages in one state, in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The messages.
    pub messages: Vec<Listed>,
    /// What to ask for the next page with; `None` at the end.
    pub next: Option<Cursor>,
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// The bytes to carry it elsewhere by, such as to the next call of a program; they hold the last id of the page.
    ///
    /// ```
    /// use dueq::Cursor;
    ///
    /// let cursor = Cursor::from_bytes("1700000000000:order:42");
    /// assert_eq!(Cursor::from_bytes(cursor.as_bytes()), cursor);
    /// ```
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The cursor of these bytes. Those that are none are refused by the server when a page is asked for.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }
}

/// What a queue holds and has done since it was made. All zero for a queue that does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Messages that wait for their time, those included that are due and wait for room among the ready.
    pub scheduled: u64,
    /// Of these, how many are due.
    pub due: u64,
    /// Due messages that wait for a free handler; at most 1,000.
    pub ready: u64,
    /// Messages with a handler.
    pub leased: u64,
    /// Messages given up.
    pub dead: u64,
    /// Ids, and calls of ids that nobody else knows, that are remembered so that late repetitions are recognised.
    pub recent: u64,
    /// Live workers.
    pub nodes: u64,
    /// Age of the oldest due, unclaimed message in milliseconds; 0 if there is none.
    pub overdue_ms: u64,
    /// Whether the queue is paused.
    pub paused: bool,
    /// Messages pushed. This and the following count what survived in Redis: a failover or a crash that undid calls undid their
    /// counts. After a start with a cut append-only file they may count a call twice: Redis may carry out later what it had
    /// undone, and the client had repeated.
    pub pushed: u64,
    /// Deliveries made.
    pub claimed: u64,
    /// Deliveries acked.
    pub acked: u64,
    /// Deliveries settled with `again`.
    pub repeated: u64,
    /// Deliveries settled with `retry` that were scheduled anew.
    pub retried: u64,
    /// Deliveries released.
    pub released: u64,
    /// Leases that ran out.
    pub crashed: u64,
    /// Messages that died.
    pub died: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Dead messages revived.
    pub requeued: u64,
    /// Messages purged.
    pub purged: u64,
    /// Dead messages trimmed by age or number.
    pub trimmed: u64,
    /// The limit of attempts of messages without one of their own.
    pub max_attempts: u64,
    /// How many crashes a message survives: at the next one it is dead.
    pub max_crashes: u64,
    /// How many messages it may hold; 0 for no limit.
    pub max_messages: u64,
    /// The largest payload it takes, in bytes.
    pub max_payload_bytes: u64,
    /// How long dead messages are kept, in milliseconds.
    pub keep_dead_ms: u64,
    /// How many dead messages are kept, the youngest.
    pub keep_dead: u64,
}

/// Limits of a queue, to be set with [`Queue::configure`]. What is not set stays as it is.
///
/// ```
/// let limits = dueq::Limits::new().max_attempts(5).max_payload_bytes(4 * 1024 * 1024);
/// # let _ = limits;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Limits(Vec<(&'static str, String)>);

impl Limits {
    /// Nothing set.
    pub fn new() -> Self {
        Self::default()
    }

    /// After how many failed attempts a message without a limit of its own is dead: 1 to 1,000,000, 20 unless set.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.with("max_attempts", max_attempts.to_string())
    }

    /// How many crashes (leases that ran out) a message survives: 0 to 1,000,000, 5 unless set.
    #[must_use]
    pub fn max_crashes(self, max_crashes: u32) -> Self {
        self.with("max_crashes", max_crashes.to_string())
    }

    /// How many messages the queue may hold, all states together; `None` for no limit, as it is unless set.
    #[must_use]
    pub fn max_messages(self, max_messages: Option<u64>) -> Self {
        self.with(
            "max_messages",
            max_messages
                .map(|number| number.to_string())
                .unwrap_or_default(),
        )
    }

    /// The largest payload it takes in bytes: 1 to 16 MiB, 1 MiB unless set.
    #[must_use]
    pub fn max_payload_bytes(self, max_payload_bytes: u32) -> Self {
        self.with("max_payload_bytes", max_payload_bytes.to_string())
    }

    /// How long dead messages are kept: 1 ms to 100 years, 30 days unless set.
    #[must_use]
    pub fn keep_dead_for(self, time: Duration) -> Self {
        self.with("dead_keep_ms", ceil_ms(time).to_string())
    }

    /// How many dead messages are kept, the youngest: at least 1, 100,000 unless set.
    #[must_use]
    pub fn keep_dead(self, number: u64) -> Self {
        self.with("dead_keep", number.to_string())
    }

    fn with(mut self, name: &'static str, value: String) -> Self {
        self.0.push((name, value));
        self
    }
}

impl Queue {
    /// The message of this id, whatever its state; `None` if there is none.
    pub async fn get(&self, id: impl AsRef<[u8]>) -> Result<Option<Stored>, Error> {
        limits::check_id(id.as_ref())?;
        let mut reply = self
            .call(Verb::Get, &[id.as_ref()], Repeat::Harmless)
            .await?;
        Stored::decode(&mut reply.body)
    }

    /// A page of up to `limit` (1 to 1,000) messages in one state, in the order of their times; the first one without a
    /// cursor. What enters or leaves between two pages may be missing or seen twice.
    pub async fn list(
        &self,
        state: State,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        if !(1..=MAX_ITEMS).contains(&limit) {
            return Err(Error::invalid(format!(
                "a page of {limit} messages: a page has 1 to {MAX_ITEMS}"
            )));
        }
        let cursor = cursor.map_or(&b""[..], |cursor| &cursor.0);
        let args = [
            state.as_str().as_bytes(),
            cursor,
            &limit.to_string().into_bytes(),
        ];
        let mut reply = self.call(Verb::Peek, &args, Repeat::Harmless).await?;
        Page::decode(&mut reply.body)
    }

    /// What the queue holds and has done.
    pub async fn stats(&self) -> Result<Stats, Error> {
        let mut reply = self.call(Verb::Stats, &[], Repeat::Harmless).await?;
        Stats::decode(&mut reply)
    }

    /// Sets limits of the queue; it is made if it does not exist.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if one is out of its range, or none is given; then nothing
    /// is changed.
    pub async fn configure(&self, limits: Limits) -> Result<(), Error> {
        let args: Vec<&[u8]> = limits
            .0
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
            .collect();
        self.call(Verb::Configure, &args, Repeat::Harmless)
            .await
            .map(drop)
    }
}

impl Stored {
    pub(crate) fn decode(body: &mut Body) -> Result<Option<Self>, Error> {
        let mut fields = body.parts()?;
        if fields.is_empty() {
            return Ok(None);
        }
        let state = fields.named("state", Body::text)?;
        let state = State::parse(&state)
            .ok_or_else(|| fields.unexpected(&format!("the state {state:?}")))?;
        let time_ms = fields.named("time_ms", Body::count)?;
        let failures = small(fields.named("failures", Body::count)?);
        let crashes = small(fields.named("crashes", Body::count)?);
        let Options {
            max_attempts,
            trace_parent,
        } = Options::parse(&fields.named("options", Body::text)?);
        Ok(Some(Self {
            state,
            time_ms,
            failures,
            crashes,
            max_attempts,
            trace_parent,
            error: fields.named("error", Body::text)?,
            payload: fields.named("payload", Body::bytes)?,
        }))
    }
}

impl Page {
    pub(crate) fn decode(body: &mut Body) -> Result<Self, Error> {
        let next = Some(body.bytes()?)
            .filter(|cursor| !cursor.is_empty())
            .map(Cursor);
        let mut items = body.parts()?;
        let mut messages = Vec::with_capacity(items.len());
        while !items.is_empty() {
            let mut item = items.parts()?;
            messages.push(Listed {
                id: item.bytes()?,
                time_ms: item.count()?,
                failures: small(item.count()?),
                crashes: small(item.count()?),
                error: item.text()?,
            });
        }
        Ok(Self { messages, next })
    }
}

impl Stats {
    pub(crate) fn decode(reply: &mut Reply) -> Result<Self, Error> {
        let mut stats = Stats {
            paused: reply.header.paused,
            ..Stats::default()
        };
        let mut fields = reply.body.parts()?;
        while !fields.is_empty() {
            let name = fields.text()?;
            let field = match name.as_str() {
                "scheduled" => &mut stats.scheduled,
                "due" => &mut stats.due,
                "ready" => &mut stats.ready,
                "leased" => &mut stats.leased,
                "dead" => &mut stats.dead,
                "recent" => &mut stats.recent,
                "nodes" => &mut stats.nodes,
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
                "max_attempts" => &mut stats.max_attempts,
                "max_crashes" => &mut stats.max_crashes,
                "max_messages" => &mut stats.max_messages,
                "max_payload_bytes" => &mut stats.max_payload_bytes,
                "dead_keep_ms" => &mut stats.keep_dead_ms,
                "dead_keep" => &mut stats.keep_dead,
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
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
