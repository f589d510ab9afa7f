//! The model of a queue, and the state that Redis must have for it.

use std::collections::BTreeMap;

use crate::model::message::{Message, Place};
use crate::reply::{Reply, Text};
use crate::state::{Fields, Scores, State, in_order, placeholder};

/// The deduplication window. The `until` of a push may be this far ahead.
pub(crate) const REPEAT_MS: u64 = 12_000;
/// The ready limit.
pub(crate) const READY_LIMIT: usize = 1_000;
pub(crate) const CENTURY_MS: u64 = 3_155_760_000_000;

/// The server's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Now(pub(crate) u64);

impl Now {
    /// Times up to this one are past.
    pub(crate) fn floor(self) -> u64 {
        self.0 / 1_000
    }

    /// Delays count from this time.
    pub(crate) fn ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// As ARGV\[1\]: ms, with a fraction if there is one.
    pub(crate) fn word(self) -> Text {
        match self.0 % 1_000 {
            0 => self.floor().into(),
            fraction => format!("{}.{fraction:03}", self.floor()).into(),
        }
    }
}

/// The field of `claims` with a claim's ids (kind 1) or the number of its leased ids (kind 2).
fn record(kind: char, token: &Text) -> Text {
    Text([kind.to_string().as_bytes(), &token.0].concat())
}

/// The field of `attrs` with the next message of this id.
fn next_of(id: &Text) -> Text {
    Text([&b"\x03"[..], &id.0].concat())
}

/// A queue. It has a leader and nodes from the first beat on.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// The script chooses the text. The model checks that it never changes.
    pub(crate) incarnation: Option<Text>,
    pub(crate) seq: u64,
    pub(crate) paused: bool,
    pub(crate) messages: BTreeMap<Text, Message>,
    /// The ready ids in the order of claims.
    pub(crate) ready: Vec<Text>,
    /// The ids that each claim granted, by its token, while one of them is under its lease.
    pub(crate) grants: BTreeMap<Text, Vec<Text>>,
    /// Names and scores, as `memory` makes them.
    pub(crate) recent: BTreeMap<Text, f64>,
    /// Until when `recent` remembers the end or move of any id.
    pub(crate) ended_until: u64,
    /// The latest end of a window.
    pub(crate) windows_until: u64,
    /// Number of names in `recent` that count against `max_remembered` for this call.
    pub(crate) remembered_names: u64,
    /// A power of two that no payload's length exceeds. 0 if none exceeded 4,096 bytes.
    pub(crate) largest: u64,
    pub(crate) nodes: BTreeMap<Text, u64>,
    /// leader, leader_until, last_beat, reap_after.
    pub(crate) beats: Option<(Text, u64, u64, u64)>,
    /// Until when parked nodes are silent, once a node has parked.
    pub(crate) parked_until: Option<u64>,
    /// Until when the queue is closed, if it ever was and nobody resumed it since.
    pub(crate) closed_until: Option<u64>,
    /// Whether `closed_until` says "full".
    pub(crate) is_full: bool,
    /// Whether the queue is full for this call.
    pub(crate) was_full: bool,
    pub(crate) tat: Option<u64>,
    pub(crate) rate_until: Option<u64>,
    /// Until when the last throttles and pauses close the queue.
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
    pub(crate) wake: usize,
    pub(crate) is_home: bool,
    /// Of the last map; 0 without one.
    pub(crate) epoch: u64,
    /// The map, in layout 2.
    pub(crate) map: Option<String>,
    /// The word of the leader's last beat in layout 2.
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

    /// The lease of a leased message as Redis names it (its own or its claim's), and its position
    /// in the claim.
    fn lease(&self, id: &Text) -> Option<(Text, usize)> {
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

    /// The number of ids under this claim's lease.
    fn held_by(&self, token: &Text) -> usize {
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

    /// The reply header.
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

    /// The state that Redis must have.
    pub(crate) fn expected(&self) -> State {
        let mut meta = Fields::from([("test".into(), "1".into())]);
        let Some(incarnation) = &self.incarnation else {
            return State {
                meta,
                ..State::default()
            };
        };
        let zset = |members: Vec<(Text, f64)>| -> Scores {
            in_order(
                members
                    .into_iter()
                    .chain([(placeholder(), f64::INFINITY)])
                    .collect(),
            )
        };
        let hash = |fields: Vec<(Text, Text)>| -> Fields {
            fields
                .into_iter()
                .chain([(placeholder(), "".into())])
                .collect()
        };
        let placed = |state| {
            let listed = self.listed(state).into_iter();
            zset(listed.map(|(time, id)| (id, time as f64)).collect())
        };
        let claim = |(id, message): (&Text, &Message)| match &message.place {
            Place::Leased {
                token,
                due,
                own,
                window,
                ..
            } => {
                let mark = if *window { "w" } else { "" };
                let mark = format!("{mark}{}", if *own { "+" } else { "" });
                Some((
                    id.clone(),
                    Text([&token.0[..], format!("{due}{mark}").as_bytes()].concat()),
                ))
            }
            _ => None,
        };
        let lists = self.grants.iter().flat_map(|(token, ids)| {
            let ids: Vec<&[u8]> = ids.iter().map(|id| &id.0[..]).collect();
            let held = (self.held_by(token) as u64).into();
            [
                (record('\u{1}', token), Text(ids.join(&b'\n'))),
                (record('\u{2}', token), held),
            ]
        });
        let lease =
            |(id, message): (&Text, &Message)| Some((self.lease(id)?.0, message.place.time()));
        let leases: BTreeMap<Text, u64> = self.messages.iter().filter_map(lease).collect();
        let entry = |(due, id): (u64, Text)| Text([format!("{due}:").as_bytes(), &id.0].concat());
        let attributes = |(id, message): (&Text, &Message)| {
            let own = message.attributes().map(|text| (id.clone(), text));
            let kept = message.next.as_ref().map(|next| (next_of(id), next.kept()));
            [own, kept].into_iter().flatten()
        };

        let layout = match self.has_layout_3 {
            true => 3,
            false => 1 + i32::from(self.map.is_some()),
        };
        meta.extend([
            ("layout".into(), layout.into()),
            ("incarnation".into(), incarnation.clone()),
            (placeholder(), "".into()),
        ]);
        if self.seq > 0 {
            meta.insert("seq".into(), self.seq.into());
        }
        meta.extend(self.map_fields());
        if self.paused {
            meta.insert("paused".into(), "1".into());
        }
        if let Some(until) = self.closed_until {
            let word = if self.is_full { "full " } else { "" };
            meta.insert("closed_until".into(), format!("{word}{until}").into());
        }
        for (name, time) in [
            ("tat", self.tat),
            ("rate_until", self.rate_until),
            ("break_until", self.break_until),
        ] {
            meta.extend(time.map(|time| (name.into(), time.into())));
        }
        let flags = [
            ("expiring", self.is_expiring),
            ("selective", self.is_selective),
        ];
        for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
            meta.insert(name.into(), "1".into());
        }
        if let Some((leader, leader_until, seen, reap_after)) = &self.beats {
            meta.insert("leader".into(), leader.clone());
            for (name, time) in [
                ("leader_until", leader_until),
                ("last_beat", seen),
                ("reap_after", reap_after),
            ] {
                meta.insert(name.into(), (*time).into());
            }
        }
        meta.extend(
            self.limits
                .iter()
                .map(|(name, limit)| (Text::from(*name), limit.clone())),
        );
        if let Some(until) = self.parked_until {
            meta.insert("parked_until".into(), until.into());
        }
        if self.ended_until > 0 {
            meta.insert("ended_until".into(), self.ended_until.into());
        }
        if self.windows_until > 0 {
            meta.insert("windows_until".into(), self.windows_until.into());
        }
        if self.largest > 0 {
            meta.insert("largest_payload_bytes".into(), self.largest.into());
        }
        meta.extend(
            self.counters
                .iter()
                .map(|(name, count)| (Text::from(*name), (*count).into())),
        );
        State {
            scheduled: placed("scheduled"),
            ready: [placeholder()]
                .into_iter()
                .chain(self.listed("ready").into_iter().map(entry))
                .collect(),
            leases: zset(
                leases
                    .into_iter()
                    .map(|(lease, time)| (lease, time as f64))
                    .collect(),
            ),
            claims: hash(
                self.messages
                    .iter()
                    .filter_map(claim)
                    .chain(lists)
                    .collect(),
            ),
            messages: hash(
                self.messages
                    .iter()
                    .map(|(id, message)| (id.clone(), message.payload.clone()))
                    .collect(),
            ),
            attrs: hash(self.messages.iter().flat_map(attributes).collect()),
            dead: placed("dead"),
            recent: zset(
                self.recent
                    .iter()
                    .map(|(id, score)| (id.clone(), *score))
                    .collect(),
            ),
            nodes: zset(
                self.nodes
                    .iter()
                    .map(|(node, seen)| (node.clone(), *seen as f64))
                    .collect(),
            ),
            meta,
            wake: vec!["1".into(); self.wake],
        }
    }
}
