//! The state that Redis must have according to the model.

use std::collections::BTreeMap;

use crate::model::message::{Message, Place};
use crate::model::world::{World, record};
use crate::reply::Text;
use crate::state::{Fields, Scores, State, in_order, placeholder};

/// The field of `attrs` with the next message of this id.
fn next_of(id: &Text) -> Text {
    Text([&b"\x03"[..], &id.0].concat())
}

impl World {
    /// The state of all keys according to the model.
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
                let remembered = if *window { "0" } else { "" };
                let due = format!("{remembered}{due}{}", if *own { "+" } else { "" });
                Some((id.clone(), Text([&token.0[..], due.as_bytes()].concat())))
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

        let layout = match (self.has_layout_4, self.has_layout_3) {
            (true, _) => 4,
            (false, true) => 3,
            (false, false) => 1 + i32::from(self.map.is_some()),
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
        meta.extend(self.schedule_fields());
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
                    .chain(
                        self.starts.iter().map(|(id, since)| {
                            (Text([b"\0=", &id.0[..]].concat()), (*since).into())
                        }),
                    )
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
