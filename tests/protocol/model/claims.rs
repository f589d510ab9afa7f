//! The part of the model for claims.

use crate::model::consumers::SILENCE_MS;
use crate::model::message::Place;
use crate::model::schedules::schedule::is_timer;
use crate::model::world::{Now, READY_LIMIT, World};
use crate::reply::{Reply, Text};

const CLAIM_BYTES: usize = 4_194_304;
/// The most timers of schedules that one claim handles. The next claim handles the others.
const TIMERS_OF_CLAIM: usize = 64;

impl World {
    pub(crate) fn claim(&mut self, now: Now, count: usize, token: &Text, lease: u64) -> Reply {
        let live = self
            .nodes
            .values()
            .filter(|seen| **seen + SILENCE_MS >= now.floor())
            .count();
        let mut all_due = self.listed("scheduled");
        all_due.retain(|(at, _)| *at <= now.floor());
        all_due.truncate(READY_LIMIT - self.ready.len());
        let available: Vec<Text> = self
            .ready
            .iter()
            .cloned()
            .chain(all_due.into_iter().map(|(_, id)| id))
            .collect();
        let share = (available.len() / live.max(1)).max(1).min(count);
        let is_closed = self.closed(now).is_some();
        if self.paused || is_closed || available.is_empty() || count == 0 {
            let left = if is_closed { 0 } else { self.ready.len() }.into();
            let none = || Reply::List(Vec::new());
            return Reply::List(vec![
                self.finish(now, false, false),
                left,
                (-1i64).into(),
                none(),
                none(),
                none(),
            ]);
        }
        let is_frozen = self.is_frozen;
        let mut grant = (self.is_selective && !is_frozen).then(|| self.read_limits(now, share));
        let mut candidates = match &mut grant {
            None => available[..share].to_vec(),
            Some(grant) if grant.share == 0 => {
                self.charge(now, grant, &[]);
                let none = || Reply::List(Vec::new());
                let header = self.finish(now, true, false);
                let parts = vec![header, 0i64.into(), (-1i64).into(), none(), none(), none()];
                return Reply::List(parts);
            }
            Some(grant) => self.choose(now, grant, &available),
        };
        let mut timers = candidates.iter().enumerate().filter(|(_, id)| is_timer(id));
        let cut = timers.nth(TIMERS_OF_CLAIM).map(|(position, _)| position);
        candidates.truncate(cut.unwrap_or(candidates.len()));
        let mut positions = Vec::new();
        let deadline = now.ceil() + lease;
        let (mut granted, mut payloads, mut details) =
            (Vec::new(), Vec::<Reply>::new(), Vec::<Reply>::new());
        let (mut bytes, mut taken, mut replaced) = (0, 0, Vec::new());
        for (position, id) in candidates.iter().enumerate() {
            let Some(message) = self.messages.get_mut(id) else {
                continue;
            };
            let bytes_then = bytes + message.payload.0.len();
            if !granted.is_empty() && bytes_then > CLAIM_BYTES {
                break;
            }
            taken += 1;
            let due = message.place.time();
            if due > now.floor() {
                // The clock went back after the promotion: the message is not due yet.
                message.place = Place::Scheduled { due };
                continue;
            }
            if is_timer(id) {
                let fire = self.fire_timer(now, id, &mut replaced);
                let Some((tick, mut message)) = fire else {
                    continue;
                };
                bytes = bytes_then;
                let due = message.place.time();
                details.push(format!("{due} 1 {}", message.options()).into());
                payloads.push((&message.payload).into());
                message.place = Place::Leased {
                    token: token.clone(),
                    due,
                    deadline,
                    own: false,
                    window: false,
                    since: now.ceil(),
                };
                self.messages.insert(tick.clone(), message);
                granted.push(tick);
                positions.push(position);
                continue;
            }
            bytes = bytes_then;
            let due = message.original.unwrap_or(due);
            message.place = Place::Leased {
                token: token.clone(),
                due,
                deadline,
                own: false,
                window: message.window.is_some() && !is_frozen,
                since: if is_frozen { 0 } else { now.ceil() },
            };
            granted.push(id.clone());
            positions.push(position);
            payloads.push((&message.payload).into());
            let told = message.crashes > 0 && !is_frozen;
            let crashes = told.then(|| format!("crashes={}", message.crashes));
            let crashes = crashes.unwrap_or_default();
            let options = [message.options(), crashes];
            let options = options.iter().filter(|words| !words.is_empty());
            let options: Vec<&str> = options.map(String::as_str).collect();
            let attempt = message.failures + message.crashes + 1;
            details.push(format!("{due} {attempt} {}", options.join(" ")).into());
        }
        if let Some(grant) = &grant {
            taken = self.expire(now, grant, taken);
        }
        self.ready.drain(..taken.min(self.ready.len()));
        self.remove_waiting(&replaced);
        self.count("claimed", granted.len());
        if let Some(grant) = &grant {
            self.charge(now, grant, &positions);
        }
        let ids = Reply::List(granted.iter().map(Reply::from).collect());
        // The first line of the record is the length of the lease.
        if !is_frozen {
            granted.insert(0, format!("\u{3}{lease}").into());
        }
        self.grants.insert(token.clone(), granted);
        // If all details are equal, the reply has them once.
        if details.windows(2).all(|two| two[0] == two[1]) {
            details.truncate(1);
        }
        let is_closed = grant.is_some() && self.closed(now).is_some();
        let left = if is_closed { 0 } else { self.ready.len() }.into();
        let header = self.finish(now, true, false);
        let mut parts = vec![
            header,
            left,
            deadline.into(),
            ids,
            Reply::List(payloads),
            Reply::List(details),
        ];
        let limit = self.limit("max_attempts").unwrap_or(20);
        parts.extend((!is_frozen).then(|| Reply::from(limit)));
        Reply::List(parts)
    }
}
