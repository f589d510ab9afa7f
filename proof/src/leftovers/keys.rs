//! Reads each key of a queue.

use std::collections::HashSet;

use anyhow::Result;

use super::{STEP, Scan, WINDOW, is_timer};
use crate::claims::Claims;
use crate::history::{Event, State};
use crate::payload;

/// A field of a hash and its value, or a member of a sorted set and its score.
type Field = (Vec<u8>, Vec<u8>);

impl<T: FnMut(Event)> Scan<'_, T> {
    pub(super) async fn sentinels(&mut self) -> Result<()> {
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

    /// Calls `each` once for each field of a hash except the placeholder.
    pub(super) async fn hash(
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

    pub(super) async fn attrs(&mut self) -> Result<()> {
        self.hash(5, |scan, id, value| match counts(&value) {
            Some(counts) => drop(scan.attrs.insert(id, counts)),
            None => scan.break_("attributes that cannot be read", &id),
        })
        .await
    }

    pub(super) async fn zset(&mut self, state: State, key: usize, claims: &Claims) -> Result<()> {
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
                // A leased message has the due time that the claim stored.
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

    pub(super) async fn ready(&mut self) -> Result<()> {
        let entries: Vec<Vec<u8>> = redis::cmd("LRANGE")
            .arg(&self.keys[1])
            .arg(1)
            .arg(-1)
            .query_async(self.connection)
            .await?;
        if entries.len() > WINDOW {
            self.say(format!(
                "{} messages are ready, beyond the limit of the ready list",
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

    pub(super) async fn messages(&mut self) -> Result<()> {
        let mut held = HashSet::new();
        self.hash(4, |scan, id, payload| {
            if !scan.places.contains_key(&id) {
                scan.break_("a payload without a place", &id);
            }
            let is_made = payload.iter().all(|byte| *byte == b'-') || payload == b"drill";
            let version = |id| payload::version_of(id, &payload);
            if !is_made && std::str::from_utf8(&id).is_ok_and(|id| version(id) == 0) {
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

    /// Each schedule has a timer, and each timer a schedule.
    pub(super) async fn schedules(&mut self) -> Result<()> {
        let mut found = HashSet::new();
        self.hash(9, |scan, field, value| {
            let Some(name) = field.strip_prefix(b"schedule:") else {
                return;
            };
            let timer = [b"\x04", name].concat();
            if scan.places.get(&timer) != Some(&State::Scheduled) {
                scan.break_("a schedule without its timer", name);
            }
            found.insert(timer);
            match schedule(scan.queue, name, &value) {
                Some(event) => (scan.tell)(event),
                None => scan.break_("a schedule that cannot be read", name),
            }
        })
        .await?;
        let timers = self.places.keys().filter(|id| is_timer(id));
        for timer in timers
            .filter(|timer| !found.contains(*timer))
            .cloned()
            .collect::<Vec<_>>()
        {
            self.break_("a timer without its schedule", &timer);
        }
        Ok(())
    }

    /// Checks that every pushed message still exists, or left the queue in one of four ways, or was
    /// dropped as expired. The counter `expired` includes expired messages that are dead.
    pub(super) async fn counters(&mut self) -> Result<()> {
        // Ticks are not pushed, and messages that move from another partition neither: so a queue
        // with schedules, and one that has or had partitions, do not have this sum.
        let mut command = redis::cmd("HEXISTS");
        command.arg(&self.keys[9]).arg("epoch");
        let has_epoch: bool = command.query_async(self.connection).await?;
        if has_epoch || self.places.keys().any(|id| is_timer(id)) {
            return Ok(());
        }
        let mut command = redis::cmd("HMGET");
        command.arg(&self.keys[9]).arg(&[
            "pushed",
            "expired",
            "acked",
            "cancelled",
            "purged",
            "trimmed",
        ]);
        let counters: Vec<Option<u64>> = command.query_async(self.connection).await?;
        let here = u64::try_from(self.places.len()).unwrap_or(0);
        let pushed = counters[0].unwrap_or(0);
        let expired = counters[1].unwrap_or(0);
        let gone: u64 = counters[2..].iter().flatten().sum();
        if !(here + gone..=here + gone + expired).contains(&pushed) {
            self.say(format!(
                "{pushed} were pushed, {gone} left, {expired} expired and {here} are here: that does not add up"
            ));
        }
        Ok(())
    }
}
/// The placeholder in each key, which keeps the key from disappearing.
fn sentinel() -> Vec<u8> {
    let mut sentinel = vec![b'-'; 71];
    sentinel[0] = 0;
    sentinel
}

/// Parses `<state> <ten numbers>`, LF, live ticks, LF, spec, LF, options, LF, pattern.
fn schedule(queue: &str, name: &[u8], value: &[u8]) -> Option<Event> {
    let text = std::str::from_utf8(value).ok()?;
    let mut lines = text.split('\n');
    let (state, numbers) = lines.next()?.split_once(' ')?;
    let numbers = numbers.split(' ').map(|word| word.parse().ok());
    let numbers = numbers.collect::<Option<Vec<u64>>>()?;
    Some(Event::Schedule {
        queue: queue.to_owned(),
        name: String::from_utf8_lossy(name).into_owned(),
        state: state.to_owned(),
        numbers: Box::new(numbers.try_into().ok()?),
        spec: lines.nth(1)?.to_owned(),
        pattern: lines.nth(1)?.to_owned(),
    })
}

/// Parses `<failures> <crashes> <due or -> <options>`, LF, error.
fn counts(attrs: &[u8]) -> Option<(u32, u32)> {
    let line = attrs.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let counts = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let due = words.next()?;
    (due == "-" || due.parse::<u64>().is_ok()).then_some(counts)
}
