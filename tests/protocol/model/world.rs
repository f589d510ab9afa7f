//! The state of the model of a queue.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::model::message::{Message, Place};
use crate::model::schedules::fields::counted;
use crate::model::schedules::schedule::{NEVER_MS, Schedule};
use crate::reply::{Reply, Text};
use crate::state::State;

/// The deduplication window. The `until` of a push may be this far ahead.
pub(crate) const REPEAT_MS: u64 = 12_000;
/// The ready limit.
pub(crate) const READY_LIMIT: usize = 1_000;
pub(crate) const CENTURY_MS: u64 = 3_155_760_000_000;

/// The server's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Now(pub(crate) u64);

impl Now {
    /// The present time in ms, rounded down. Times up to it are past.
    pub(crate) fn floor(self) -> u64 {
        self.0 / 1_000
    }

    /// The present time in ms, rounded up. Delays count from it.
    pub(crate) fn ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The time as `ARGV[1]`: ms, with a fraction if there is one.
    pub(crate) fn word(self) -> Text {
        match self.0 % 1_000 {
            0 => self.floor().into(),
            fraction => format!("{}.{fraction:03}", self.floor()).into(),
        }
    }
}

/// The field of `claims` with a claim's ids (kind 1) or the number of its leased ids (kind 2).
pub(crate) fn record(kind: char, token: &Text) -> Text {
    Text([kind.to_string().as_bytes(), &token.0].concat())
}

/// The modelled queue. It has a leader and nodes from the first beat on.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// The incarnation. The script chooses it, and the model checks that it never changes.
    pub(crate) incarnation: Option<Text>,
    pub(crate) seq: u64,
    pub(crate) paused: bool,
    pub(crate) messages: BTreeMap<Text, Message>,
    /// The ready ids in the order of claims.
    pub(crate) ready: Vec<Text>,
    /// The ids that each claim granted, by the claim's token, as long as any of them is under its
    /// lease.
    pub(crate) grants: BTreeMap<Text, Vec<Text>>,
    /// When the deliveries of extended messages began, by id, as claims has it. 0: unknown.
    pub(crate) starts: BTreeMap<Text, u64>,
    /// The extended messages before this call, and their tokens.
    pub(crate) were_extended: Vec<(Text, Text)>,
    /// The entries of the deduplication memory: names and scores, as `memory` makes them.
    pub(crate) recent: BTreeMap<Text, f64>,
    /// Until when `recent` remembers the end or move of any id.
    pub(crate) ended_until: u64,
    /// The latest end of any window.
    pub(crate) windows_until: u64,
    /// How many names in `recent` count towards `max_remembered` in this call.
    pub(crate) remembered_names: u64,
    /// A power of two that no payload's length exceeds. 0 if none exceeded 4,096 bytes.
    pub(crate) largest: u64,
    pub(crate) nodes: BTreeMap<Text, u64>,
    /// The fields leader, leader_until, last_beat and reap_after of meta.
    pub(crate) beats: Option<(Text, u64, u64, u64)>,
    /// Until when parked nodes are silent, once a node has parked.
    pub(crate) parked_until: Option<u64>,
    /// Until when the queue is closed, if it was closed and not resumed since.
    pub(crate) closed_until: Option<u64>,
    /// Whether the field `closed_until` has the word "full".
    pub(crate) is_full: bool,
    /// Whether the queue is full for this call.
    pub(crate) was_full: bool,
    pub(crate) tat: Option<u64>,
    pub(crate) rate_until: Option<u64>,
    /// Until when throttles and pauses with an end close the queue.
    pub(crate) break_until: Option<u64>,
    pub(crate) is_expiring: bool,
    pub(crate) is_selective: bool,
    /// Whether release 0.1 answers this call.
    pub(crate) is_frozen: bool,
    pub(crate) limits: BTreeMap<&'static str, Text>,
    pub(crate) counters: BTreeMap<&'static str, u64>,
    /// How often each event happened that no reply shows.
    pub(crate) met: BTreeMap<String, usize>,
    /// Whether the queue has layout 3.
    pub(crate) has_layout_3: bool,
    /// Whether the queue has layout 4, which includes layout 3.
    pub(crate) has_layout_4: bool,
    pub(crate) schedules: BTreeMap<String, Schedule>,
    /// The revision of each set of schedules.
    pub(crate) sets: BTreeMap<String, Option<u64>>,
    /// Whether meta has each of the fields `schedules`, `low_lists` and `dry_lists`.
    pub(crate) has_counted: [bool; 3],
    pub(crate) wake: usize,
    pub(crate) is_home: bool,
    /// The epoch of the last map; 0 without a map.
    pub(crate) epoch: u64,
    /// When the partition took its map.
    pub(crate) mapped_ms: u64,
    /// The map, in a queue of layout 2.
    pub(crate) map: Option<String>,
    /// The word about its rank in the leader's last beat, in a queue of layout 2.
    pub(crate) leader_rank: Option<&'static str>,
}

impl World {
    pub(crate) fn limit(&self, name: &str) -> Option<u64> {
        self.limits
            .get(name)
            .and_then(|value| value.text().parse().ok())
    }

    pub(crate) fn count(&mut self, name: &'static str, more: usize) {
        if more > 0 {
            *self.counters.entry(name).or_default() += more as u64;
        }
    }

    pub(crate) fn meet(&mut self, event: impl Into<String>) {
        *self.met.entry(event.into()).or_default() += 1;
    }

    pub(crate) fn place(&self, id: &Text) -> Option<&Place> {
        self.messages.get(id).map(|message| &message.place)
    }

    /// The name of a leased message's lease in Redis (its own or its claim's), and the message's
    /// position in the claim.
    pub(crate) fn lease(&self, id: &Text) -> Option<(Text, usize)> {
        match self.place(id)? {
            Place::Leased { own: true, .. } => Some((id.clone(), 0)),
            Place::Leased { token, .. } => {
                let place = self
                    .grants
                    .get(token)?
                    .iter()
                    .position(|granted| granted == id)?;
                Some((record('\u{1}', token), place))
            }
            _ => None,
        }
    }

    /// The messages with a lease of their own, and their tokens.
    pub(crate) fn extended(&self) -> Vec<(Text, Text)> {
        let extended = |(id, message): (&Text, &Message)| match &message.place {
            Place::Leased {
                own: true, token, ..
            } => Some((id.clone(), token.clone())),
            _ => None,
        };
        self.messages.iter().filter_map(extended).collect()
    }

    /// The number of ids under this claim's lease.
    pub(crate) fn held_by(&self, token: &Text) -> usize {
        let under = |message: &&Message| matches!(&message.place, Place::Leased { token: of, own: false, .. } if of == token);
        self.messages.values().filter(under).count()
    }

    /// The ids in a state, by time, then by lease, then by id. Ready ids are in the order of
    /// claims.
    pub(crate) fn listed(&self, state: &str) -> Vec<(u64, Text)> {
        if state == "ready" {
            let due = |id: &Text| self.place(id).map_or(0, Place::time);
            return self.ready.iter().map(|id| (due(id), id.clone())).collect();
        }
        let in_state = self
            .messages
            .iter()
            .filter(|(_, message)| message.place.name() == state);
        let mut listed: Vec<_> = in_state
            .map(|(id, message)| (message.place.time(), self.lease(id), id.clone()))
            .collect();
        listed.sort();
        listed.into_iter().map(|(time, _, id)| (time, id)).collect()
    }

    /// Removes an id from the ready list, if the list has it.
    pub(crate) fn unready(&mut self, id: &Text) {
        self.ready.retain(|ready| ready != id);
    }

    /// The header of the reply.
    pub(crate) fn header(&self, now: Now) -> Reply {
        let Some(incarnation) = &self.incarnation else {
            return Reply::List(vec![
                now.0.into(),
                "".into(),
                0i64.into(),
                (-1i64).into(),
                (-1i64).into(),
                0i64.into(),
            ]);
        };
        let lease = self.listed("leased").first().map(|(time, _)| *time);
        let mut header = vec![
            now.0.into(),
            incarnation.into(),
            self.seq.into(),
            self.head(now).map_or(-1, |time| time as i64).into(),
            lease.map_or(-1, |time| time as i64).into(),
            i64::from(self.paused).into(),
        ];
        header.extend(self.map.is_some().then(|| self.epoch.into()));
        Reply::List(header)
    }

    /// Ends a call: numbers the change, and fills the wake-up list if work remains. `quiet` calls
    /// add no wake-up tokens.
    pub(crate) fn finish(&mut self, now: Now, changed: bool, quiet: bool) -> Reply {
        let held: Vec<Text> = self
            .grants
            .keys()
            .filter(|token| self.held_by(token) > 0)
            .cloned()
            .collect();
        self.grants.retain(|token, _| held.contains(token));
        // Release 0.1 leaves the entries of deliveries that it ends.
        let extended = self.extended();
        for ended in std::mem::take(&mut self.were_extended) {
            if !self.is_frozen && !extended.contains(&ended) {
                self.starts.remove(&ended.0);
            }
        }
        for (has, (_, count)) in self.has_counted.iter_mut().zip(counted(&self.schedules)) {
            *has |= count > 0;
        }
        if self.incarnation.is_some() {
            self.seq += u64::from(changed);
            if changed && !quiet && !self.is_frozen {
                self.reopen();
            }
            if self.has_work(now) && !self.paused && !quiet {
                self.wake = 2;
            }
        }
        self.header(now)
    }

    /// Whether a claim could take a message now.
    pub(crate) fn has_work(&self, now: Now) -> bool {
        if self.closed(now).is_some() {
            return false;
        }
        let due = |message: &Message| matches!(message.place, Place::Scheduled { due } if due <= now.floor());
        !self.ready.is_empty() || self.messages.values().any(due)
    }
}

impl World {
    /// Until when the queue is closed, if it is; the largest number if it is full. Release 0.1 does
    /// not know closings.
    pub(crate) fn closed(&self, now: Now) -> Option<u64> {
        match self.was_full && !self.is_frozen {
            true => Some(u64::MAX),
            false => self.opens(now),
        }
    }

    /// The head in the header: when a client should next look for due messages.
    pub(crate) fn head(&self, now: Now) -> Option<u64> {
        let first = self.listed("scheduled").first().map(|(due, _)| *due);
        let head = match self.closed(now) {
            Some(until) if !self.ready.is_empty() => Some(until),
            Some(until) => first.map(|due| due.max(until)),
            None => first,
        };
        head.filter(|head| *head < NEVER_MS)
    }

    pub(crate) fn pause(
        &mut self,
        now: Now,
        period_ms: Option<u64>,
        after: &State,
    ) -> Result<Reply> {
        self.create(after)?;
        let (changed, result) = match period_ms {
            None => {
                let was_paused = std::mem::replace(&mut self.paused, true);
                (!was_paused, "OK".to_owned())
            }
            Some(period_ms) => {
                let (until, is_longer) = self.close_until(now, now.ceil() + period_ms);
                (is_longer, format!("OK {until}"))
            }
        };
        let header = self.finish(now, changed, false);
        Ok(Reply::List(vec![header, result.into()]))
    }

    pub(crate) fn resume(&mut self, now: Now) -> Reply {
        let mut changed = std::mem::take(&mut self.paused);
        if !self.is_frozen {
            // Removed even if the times have passed, because the clock may go back.
            changed |= self.closed_until.take().is_some() | self.break_until.take().is_some();
            (self.is_full, self.was_full) = (false, false);
        }
        let header = self.finish(now, changed, false);
        Reply::List(vec![header, "OK".into()])
    }
}
