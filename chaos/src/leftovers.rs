//! What is left in a queue when all is quiet: read from its keys, not through its scripts, which may be what is wrong.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;

use crate::claims::Claims;
use crate::history::{Event, LeftItem, State};
use crate::payload;

/// Of one read, and of one line of a history.
const STEP: usize = 1_000;
/// Of one kind, so many are told one by one.
const EXAMPLES: usize = 20;
const WINDOW: usize = 1_000;

/// Of a hash: its name and its value.
type Field = (Vec<u8>, Vec<u8>);

/// What still has to happen before a queue has ended, given workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Scheduled and due within the horizon; those beyond it are nobody's business in this run.
    pub scheduled: u64,
    pub ready: u64,
    /// Leases: one may stand for many messages.
    pub leases: u64,
}

impl Waiting {
    pub fn is_over(self) -> bool {
        self == Self {
            scheduled: 0,
            ready: 0,
            leases: 0,
        }
    }
}

/// Looks once. A queue has ended when producers and cancellers are gone, workers run, and this is over. It takes as long as
/// the last crashes wait on purpose (at most 12 s for the fourth, 24 s for the fifth) and the retries of handlers.
pub async fn waiting(
    connection: &mut MultiplexedConnection,
    queue: &str,
    horizon_ms: u64,
) -> Result<Waiting> {
    let keys = dueq::queue_keys(queue)?;
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    let mut pipeline = redis::pipe();
    pipeline
        .cmd("ZCOUNT")
        .arg(&keys[0])
        .arg("-inf")
        .arg(seconds * 1_000 + horizon_ms);
    pipeline
        .cmd("LLEN")
        .arg(&keys[1])
        .cmd("ZCARD")
        .arg(&keys[2]);
    let (scheduled, ready, leases): (u64, u64, u64) = pipeline.query_async(connection).await?;
    Ok(Waiting {
        scheduled,
        ready: ready.saturating_sub(1),
        leases: leases.saturating_sub(1),
    })
}

/// Tells what is left in a queue that nobody uses any more, and what of it does not fit together.
pub async fn scan(
    connection: &mut MultiplexedConnection,
    queue: &str,
    tell: &mut impl FnMut(Event),
) -> Result<()> {
    let mut scan = Scan {
        queue,
        keys: dueq::queue_keys(queue)?,
        connection,
        places: HashMap::new(),
        attrs: HashMap::new(),
        broken: HashMap::new(),
        tell,
    };
    scan.all()
        .await
        .with_context(|| format!("looking through {queue}"))
}

struct Scan<'a, T> {
    queue: &'a str,
    keys: [String; 10],
    connection: &'a mut MultiplexedConnection,
    places: HashMap<Vec<u8>, State>,
    /// Failures and crashes.
    attrs: HashMap<Vec<u8>, (u32, u32)>,
    /// How often each kind of fault was found.
    broken: HashMap<&'static str, usize>,
    tell: &'a mut T,
}

impl<T: FnMut(Event)> Scan<'_, T> {
    async fn all(&mut self) -> Result<()> {
        let exist: usize = redis::cmd("EXISTS")
            .arg(&self.keys)
            .query_async(self.connection)
            .await?;
        if exist == 0 {
            return Ok(()); // emptied, and not used since
        }
        self.sentinels().await?;
        self.attrs().await?;
        let mut claims = Claims::default();
        self.hash(3, |scan, field, value| {
            if !claims.add(&field, value) {
                scan.break_("a claim that cannot be read", &field);
            }
        })
        .await?;
        self.zset(State::Scheduled, 0, &claims).await?;
        self.ready().await?;
        self.zset(State::Leased, 2, &claims).await?;
        self.zset(State::Dead, 6, &claims).await?;
        for id in claims
            .ids()
            .filter(|id| self.places.get(*id) != Some(&State::Leased))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.break_("a claim without a lease", &id);
        }
        for id in claims.miscounted() {
            self.break_("a claim that counts more or less than it holds", &id);
        }
        self.messages().await?;
        self.counters().await?;
        for (what, number) in std::mem::take(&mut self.broken) {
            if number > EXAMPLES {
                self.say(format!("{what}: {number} in all"));
            }
        }
        Ok(())
    }

    fn say(&mut self, what: String) {
        (self.tell)(Event::Broken {
            queue: self.queue.to_owned(),
            what,
        });
    }

    fn break_(&mut self, what: &'static str, id: &[u8]) {
        let number = self.broken.entry(what).or_default();
        *number += 1;
        if *number <= EXAMPLES {
            self.say(format!("{what}: {}", String::from_utf8_lossy(id)));
        }
    }

    /// An id is found in a state.
    fn place(&mut self, id: &[u8], state: State) {
        if self.places.insert(id.to_vec(), state).is_some() {
            self.break_("an id in two places", id);
        }
    }

    async fn sentinels(&mut self) -> Result<()> {
        let sentinel = sentinel();
        for key in self.keys.clone() {
            let kind: String = redis::cmd("TYPE")
                .arg(&key)
                .query_async(self.connection)
                .await?;
            let command = match kind.as_str() {
                "zset" => redis::cmd("ZSCORE").arg(&key).arg(&sentinel).to_owned(),
                "hash" => redis::cmd("HGET").arg(&key).arg(&sentinel).to_owned(),
                _ => redis::cmd("LINDEX").arg(&key).arg(0).to_owned(),
            };
            let found: Option<Vec<u8>> = if kind == "none" {
                None
            } else {
                command.query_async(self.connection).await?
            };
            let wanted = match kind.as_str() {
                "zset" => &b"inf"[..],
                "hash" => b"",
                _ => &sentinel,
            };
            if found.as_deref() != Some(wanted) {
                self.break_("a key without its sentinel", key.as_bytes());
            }
        }
        Ok(())
    }

    /// Calls `each` with all fields of a hash but the sentinel, each once.
    async fn hash(
        &mut self,
        key: usize,
        mut each: impl FnMut(&mut Self, Vec<u8>, Vec<u8>),
    ) -> Result<()> {
        let (mut cursor, mut seen, sentinel) = (0_u64, HashSet::new(), sentinel());
        loop {
            let mut command = redis::cmd("HSCAN");
            command
                .arg(&self.keys[key])
                .arg(cursor)
                .arg("COUNT")
                .arg(STEP);
            let (next, fields): (u64, Vec<Field>) = command.query_async(self.connection).await?;
            for (field, value) in fields {
                if field != sentinel && seen.insert(field.clone()) {
                    each(self, field, value);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    async fn attrs(&mut self) -> Result<()> {
        self.hash(5, |scan, id, value| match counts(&value) {
            Some(counts) => drop(scan.attrs.insert(id, counts)),
            None => scan.break_("attributes that cannot be read", &id),
        })
        .await
    }

    async fn zset(&mut self, state: State, key: usize, claims: &Claims) -> Result<()> {
        let (mut start, sentinel) = (0, sentinel());
        loop {
            let mut command = redis::cmd("ZRANGE");
            command
                .arg(&self.keys[key])
                .arg(start)
                .arg(start + STEP - 1)
                .arg("WITHSCORES");
            let page: Vec<Field> = command.query_async(self.connection).await?;
            let (end, mut items) = (page.len() < STEP, Vec::new());
            for (member, score) in page.into_iter().filter(|(member, _)| *member != sentinel) {
                let Some(score) = std::str::from_utf8(&score)
                    .ok()
                    .and_then(|score| score.parse::<u64>().ok())
                else {
                    self.break_("a time that is no whole number of ms", &member);
                    continue;
                };
                if state != State::Leased {
                    items.push((member, score));
                    continue;
                }
                // Of the leased, the time that counts is the due of the claim.
                let held = claims.under(&member);
                if held.is_empty() {
                    self.break_("a lease without a claim", &member);
                }
                items.extend(held);
            }
            for items in items.chunks(STEP) {
                items.iter().for_each(|(id, _)| self.place(id, state));
                self.left(state, items.to_vec());
            }
            start += STEP;
            if end {
                return Ok(());
            }
        }
    }

    async fn ready(&mut self) -> Result<()> {
        let entries: Vec<Vec<u8>> = redis::cmd("LRANGE")
            .arg(&self.keys[1])
            .arg(1)
            .arg(-1)
            .query_async(self.connection)
            .await?;
        if entries.len() > WINDOW {
            self.say(format!(
                "{} messages are ready, beyond the window",
                entries.len()
            ));
        }
        let mut items = Vec::new();
        for entry in entries {
            let colon = entry.iter().position(|byte| *byte == b':').unwrap_or(0);
            match std::str::from_utf8(&entry[..colon])
                .ok()
                .and_then(|due| due.parse().ok())
            {
                None => self.break_("a ready entry that cannot be read", &entry),
                Some(due) => {
                    let id = entry[colon + 1..].to_vec();
                    self.place(&id, State::Ready);
                    items.push((id, due));
                }
            }
        }
        self.left(State::Ready, items);
        Ok(())
    }

    fn left(&mut self, state: State, items: Vec<(Vec<u8>, u64)>) {
        if items.is_empty() {
            return;
        }
        let item = |(id, time): (Vec<u8>, u64)| {
            let (failures, crashes) = self.attrs.get(&id).copied().unwrap_or_default();
            LeftItem(
                String::from_utf8_lossy(&id).into_owned(),
                time,
                failures,
                crashes,
            )
        };
        let items = items.into_iter().map(item).collect();
        (self.tell)(Event::Left {
            queue: self.queue.to_owned(),
            state,
            items,
        });
    }

    async fn messages(&mut self) -> Result<()> {
        let mut held = HashSet::new();
        self.hash(4, |scan, id, payload| {
            if !scan.places.contains_key(&id) {
                scan.break_("a payload without a place", &id);
            }
            if std::str::from_utf8(&id).is_ok_and(|id| payload::version_of(id, &payload) == 0) {
                scan.break_("a payload that is not as it was pushed", &id);
            }
            held.insert(id);
        })
        .await?;
        for id in self
            .places
            .keys()
            .filter(|id| !held.contains(*id))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.break_("a place without a payload", &id);
        }
        for id in self
            .attrs
            .keys()
            .filter(|id| !held.contains(*id))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.break_("attributes without a payload", &id);
        }
        Ok(())
    }

    /// Whatever was pushed is here, or went in one of four ways.
    async fn counters(&mut self) -> Result<()> {
        let mut command = redis::cmd("HMGET");
        command
            .arg(&self.keys[9])
            .arg(&["pushed", "acked", "cancelled", "purged", "trimmed"]);
        let counters: Vec<Option<u64>> = command.query_async(self.connection).await?;
        let here = u64::try_from(self.places.len()).unwrap_or(0);
        let pushed = counters[0].unwrap_or(0);
        let gone: u64 = counters[1..].iter().flatten().sum();
        if pushed != here + gone {
            self.say(format!(
                "{pushed} were pushed, {gone} left and {here} are here: that does not add up"
            ));
        }
        Ok(())
    }
}

/// In each key, so that it is never absent.
fn sentinel() -> Vec<u8> {
    let mut sentinel = vec![b'-'; 71];
    sentinel[0] = 0;
    sentinel
}

/// `<failures> <crashes> <due or -> <options>`, LF, error.
fn counts(attrs: &[u8]) -> Option<(u32, u32)> {
    let line = attrs.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let counts = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let due = words.next()?;
    (due == "-" || due.parse::<u64>().is_ok()).then_some(counts)
}

#[cfg(test)]
mod tests {
    use dueq::{Client, Message};
    use dueq_testkit::Server;

    use super::*;

    async fn scanned(connection: &mut MultiplexedConnection) -> Result<(Vec<Event>, Vec<String>)> {
        let mut told = Vec::new();
        scan(connection, "q", &mut |event| told.push(event)).await?;
        let what = |event| match event {
            Event::Broken { what, .. } => Ok(what),
            other => Err(other),
        };
        let (left, mut broken): (Vec<_>, Vec<_>) = told.into_iter().map(what).fold(
            (Vec::new(), Vec::new()),
            |(mut left, mut broken), result| {
                match result {
                    Ok(what) => broken.push(what),
                    Err(event) => left.push(event),
                }
                (left, broken)
            },
        );
        broken.sort();
        Ok((left, broken))
    }

    #[tokio::test]
    async fn a_sound_queue_is_told_as_it_is_and_each_fault_by_name() -> Result<()> {
        let server = Server::start(&[])?;
        let mut connection = redis::Client::open(server.url())?
            .get_multiplexed_async_connection()
            .await?;
        assert_eq!(
            scanned(&mut connection).await?,
            (Vec::new(), Vec::new()),
            "no queue"
        );

        let client = Client::connect(&server.url()).await?;
        let queue = client.queue("q")?;
        let push = |id: &str, ms| {
            queue.push(
                Message::new(payload::make(id, 1, 50))
                    .id(id)
                    .due(dueq::Due::AtMs(ms)),
            )
        };
        push("a", 1).await?;
        push("b", 2).await?;
        push("c", 3).await?;
        push("d", 4_000_000_000_000).await?;
        let claimed = queue.claim(2, std::time::Duration::from_secs(60)).await?;
        claimed[0].bury("done for").await?;
        // As a worker does: who claims by hand leaves the rest where it waits.
        client.load_functions().await?;
        let mut promote = redis::cmd("FCALL");
        promote
            .arg("dueq_promote")
            .arg(10)
            .arg(&dueq::queue_keys("q")?)
            .arg(&["", "1000", ""]);
        promote.query_async::<redis::Value>(&mut connection).await?;
        let (left, broken) = scanned(&mut connection).await?;
        let told = |state, id: &str, time| Event::Left {
            queue: "q".into(),
            state,
            items: vec![LeftItem(id.into(), time, 0, 0)],
        };
        assert_eq!(broken, Vec::<String>::new());
        let Event::Left { items, .. } = &left[3] else {
            panic!("the dead one")
        };
        let died_ms = items[0].1;
        let wanted = [
            told(State::Scheduled, "d", 4_000_000_000_000),
            told(State::Ready, "c", 3),
            told(State::Leased, "b", 2),
            told(State::Dead, "a", died_ms),
        ];
        assert_eq!(left, wanted);
        let waits = waiting(&mut connection, "q", 60_000).await?;
        assert_eq!(
            waits,
            Waiting {
                scheduled: 0,
                ready: 1,
                leases: 1
            }
        );

        for fault in [
            &["ZADD", "dueq:{q}:scheduled", "5", "c"][..],
            &["ZREM", "dueq:{q}:dead", "a"],
            &["HDEL", "dueq:{q}:claims", "b"],
            &["HSET", "dueq:{q}:claims", "x", "short"],
            &["HSET", "dueq:{q}:attrs", "y", "0 0 - max_attempts=1\n"],
            &["HSET", "dueq:{q}:messages", "d", "d 1 something else"],
            &["ZADD", "dueq:{q}:dead", "1.5", "e"],
            &["DEL", "dueq:{q}:recent"],
        ] {
            server.command(fault)?;
        }
        let (_, broken) = scanned(&mut connection).await?;
        let without_token =
            |what: String| what.split(": \u{1}").next().unwrap_or_default().to_owned();
        let broken: Vec<String> = broken.into_iter().map(without_token).collect();
        let wanted = [
            "a claim that cannot be read: x",
            "a claim that counts more or less than it holds",
            "a claim without a lease: x",
            "a key without its sentinel: dueq:{q}:recent",
            "a lease without a claim",
            "a payload without a place: b",
            "a payload that is not as it was pushed: d",
            "a payload without a place: a",
            "a time that is no whole number of ms: e",
            "an id in two places: c",
            "attributes without a payload: y",
            "4 were pushed, 0 left and 2 are here: that does not add up",
        ];
        let mut wanted = wanted.map(str::to_owned);
        wanted.sort();
        assert_eq!(broken, wanted);
        Ok(())
    }
}
