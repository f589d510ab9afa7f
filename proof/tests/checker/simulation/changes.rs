//! Calls of the simulated queue that change messages: settle, cancel, reschedule, reap.

use super::*;

impl Simulation {
    pub(super) fn settle(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let place = self.rng.usize(..self.held.len());
        let (id, token) = if self.rng.u32(0..8) > 0 {
            self.held.swap_remove(place)
        } else {
            self.held[place].clone()
        };
        let verb = *self
            .rng
            .choice(&[
                Verb::Ack,
                Verb::Ack,
                Verb::Again,
                Verb::Retry,
                Verb::Release,
                Verb::Bury,
                Verb::Extend,
            ])
            .expect("there are verbs");
        let rest = match verb {
            Verb::Again => "+50",
            Verb::Retry => "50",
            Verb::Extend => "1000",
            _ => "",
        };
        for _ in 0..3 {
            let call = settle(verb, &id, &token, rest);
            if self.answer(call, |it| it.settled(verb, &id, &token)) {
                return;
            }
        }
    }

    fn settled(&mut self, verb: Verb, id: &str, token: &str) -> (Answer, bool) {
        let now_ms = self.ms;
        let ignored = self.wrong == Wrong::TokenIsIgnored;
        let Some(message) = self.messages.get_mut(id) else {
            return Self::verdict("GONE".into(), false);
        };
        if message
            .leased
            .as_ref()
            .is_none_or(|(current, _)| current != token && !ignored)
        {
            return Self::verdict("LOST".into(), false);
        }
        if verb == Verb::Extend {
            let deadline_ms = message.leased.as_ref().map_or(0, |leased| leased.1);
            let deadline_ms = match self.wrong {
                Wrong::ExtendIsForgotten => deadline_ms,
                _ => deadline_ms.max(now_ms + LEASE_MS),
            };
            message.leased = Some((token.into(), deadline_ms));
            return Self::verdict(told("OK", deadline_ms), true);
        }
        message.leased = None;
        let word = match verb {
            Verb::Ack => {
                if self.wrong != Wrong::AckIsForgotten {
                    self.messages.remove(id);
                }
                "OK".into()
            }
            Verb::Again => {
                (message.due_ms, message.failures, message.crashes) = (now_ms + 50, 0, 0);
                message.reported_ms = message.due_ms;
                told("OK", message.due_ms)
            }
            Verb::Retry => {
                message.failures += if self.wrong == Wrong::RetryIsCountedTwice {
                    2
                } else {
                    1
                };
                (message.due_ms, message.reported_ms) = (now_ms + 50, now_ms + 50);
                (message.dead, message.died_ms) = (message.failures >= 20, now_ms);
                if message.dead {
                    "DEAD".into()
                } else {
                    told("SCHEDULED", message.due_ms)
                }
            }
            Verb::Release => {
                message.due_ms = message.reported_ms;
                "OK".into()
            }
            _ => {
                (message.dead, message.died_ms) = (true, now_ms);
                "OK".into()
            }
        };
        Self::verdict(word, true)
    }

    pub(super) fn cancel(&mut self) {
        let id = self.id();
        self.answer(change(Verb::Cancel, &id, ""), |it| {
            let now_ms = it.ms;
            match it.messages.get(&id) {
                Some(message) if message.dead => Self::verdict("DEAD".into(), false),
                Some(message) if message.leased.is_some() => Self::verdict("LEASED".into(), false),
                Some(_) => {
                    if it.wrong != Wrong::CancelIsForgotten {
                        it.messages.remove(&id);
                    }
                    it.cancelled.insert(id.clone(), now_ms + 12_000);
                    Self::verdict("CANCELLED".into(), true)
                }
                None if it
                    .cancelled
                    .get(&id)
                    .is_some_and(|until_ms| *until_ms > now_ms) =>
                {
                    Self::verdict("CANCELLED".into(), false)
                }
                None => Self::verdict("ABSENT".into(), false),
            }
        });
    }

    pub(super) fn reschedule(&mut self) {
        let (id, delay_ms) = (self.id(), self.rng.u64(0..400));
        // A move to exactly the present due time, in ms. It is frequent here, and the checker takes
        // it for a change.
        if self
            .messages
            .get(&id)
            .is_some_and(|message| message.due_ms == self.ms + delay_ms)
        {
            return;
        }
        self.answer(
            change(Verb::Reschedule, &id, &format!("+{delay_ms}")),
            |it| {
                let due_ms = it.ms + delay_ms;
                match it.messages.get_mut(&id) {
                    Some(message) if message.dead => Self::verdict("DEAD".into(), false),
                    Some(message) if message.leased.is_some() => {
                        Self::verdict("LEASED".into(), false)
                    }
                    Some(message) => {
                        (message.due_ms, message.reported_ms) = (due_ms, due_ms);
                        Self::verdict(told("MOVED", due_ms), true)
                    }
                    None => Self::verdict("ABSENT".into(), false),
                }
            },
        );
    }

    pub(super) fn reap(&mut self) {
        let call = Call::Other {
            verb: "reap".into(),
            args: vec!["256".into()],
        };
        self.answer(call, |it| {
            let (mut reaped, mut died) = (0, 0);
            for message in it.messages.values_mut() {
                let early_ms = if it.wrong == Wrong::ReapIsEarly {
                    LEASE_MS / 2
                } else {
                    0
                };
                let Some((_, deadline_ms)) = message.leased else {
                    continue;
                };
                if deadline_ms > it.ms + early_ms {
                    continue;
                }
                (message.leased, reaped) = (None, reaped + 1);
                if it.wrong != Wrong::CrashIsFree {
                    message.crashes += 1;
                }
                if message.crashes > 5 {
                    (message.dead, message.died_ms, died) = (true, it.ms, died + 1);
                } else if message.crashes > 1 {
                    let pause_ms = 1_000 << (message.crashes - 1);
                    message.due_ms = it.ms + pause_ms / 2 + it.rng.u64(..pause_ms);
                } else {
                    message.due_ms = message.reported_ms;
                }
            }
            (
                Answer::Other(vec![reaped.to_string(), died.to_string()]),
                reaped > 0,
            )
        });
    }
}
