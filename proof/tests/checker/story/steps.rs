//! The steps of a story: calls with their answers, and other events.

use super::*;

impl Story {
    pub(crate) fn push(&mut self, id: &str, due: &str, verdict: &str) -> &mut Self {
        self.call(push(id, due, 0, ""), words(verdict), changes(verdict))
    }

    /// A push that must be on a replica before its caller gets an outcome; and that outcome.
    pub(crate) fn push_replicated(&mut self, id: &str, verdict: &str, told: &str) -> &mut Self {
        self.call += 1;
        let op = self.call;
        self.write(Event::Asked {
            queue: "q".into(),
            op,
            verb: Verb::Push,
            ids: vec![id.into()],
            replicas: 1,
        });
        self.push(id, "+0", verdict).write(Event::Told {
            op,
            outcomes: vec![told.into()],
        })
    }

    /// A failover to a master that has the changes up to this `seq`.
    pub(crate) fn failed_over(&mut self, survived: u64) -> &mut Self {
        self.seq = survived + 1_000_000;
        self.write(Event::Undone {
            queue: self.queue.into(),
            incarnation: self.incarnation.into(),
            survived,
            next: self.seq,
        })
    }

    pub(crate) fn push_with(
        &mut self,
        id: &str,
        due: &str,
        until: u64,
        options: &str,
        verdict: &str,
    ) -> &mut Self {
        self.call(
            push(id, due, until, options),
            words(verdict),
            changes(verdict),
        )
    }

    /// A claim of one message, of version 1, for a second; its handler starts.
    pub(crate) fn claim(&mut self, id: &str, due_ms: u64, attempt: u32) -> Token {
        self.claim_version(id, 1, due_ms, attempt)
    }

    pub(crate) fn claim_version(
        &mut self,
        id: &str,
        version: u32,
        due_ms: u64,
        attempt: u32,
    ) -> Token {
        let due_ms = Self::server(due_ms);
        let options = self.options.get(id).cloned().unwrap_or_default();
        let token = self.grant(&[ClaimedItem(
            id.into(),
            version,
            due_ms,
            attempt,
            100,
            options,
        )]);
        self.started(id, version, attempt, due_ms);
        token
    }

    /// A handler of the node starts with these values of its message.
    pub(crate) fn started(
        &mut self,
        id: &str,
        version: u32,
        attempt: u32,
        due_ms: u64,
    ) -> &mut Self {
        self.write(Event::Started {
            by_hand: false,
            queue: "q".into(),
            id: id.into(),
            version,
            attempt,
            due_ms,
            started_us: 0,
        })
    }

    /// Like `claim`, with a lease of `lease_ms`.
    pub(crate) fn claim_for(&mut self, id: &str, due_ms: u64, lease_ms: u64) -> Token {
        let asked_ms = std::mem::replace(&mut self.asked_ms, lease_ms);
        let granted_ms = std::mem::replace(&mut self.lease_ms, lease_ms);
        let token = self.claim(id, due_ms, 1);
        (self.asked_ms, self.lease_ms) = (asked_ms, granted_ms);
        token
    }

    /// A claim that grants these messages; no handler starts.
    pub(crate) fn grant(&mut self, items: &[ClaimedItem]) -> Token {
        self.token += 1;
        let token = format!("{:016x}", self.token);
        let deadline_ms = self.now_ms() + self.lease_ms;
        for item in items {
            self.times.entry(item.0.clone()).or_insert(item.2);
        }
        let what = Call::Claim {
            n: 10,
            token: token.clone(),
            lease_ms: self.asked_ms,
            due: true,
        };
        self.call(
            what,
            Answer::Claimed {
                deadline_ms,
                items: items.to_vec(),
                paused: false,
            },
            !items.is_empty(),
        );
        token
    }

    /// A claim that may take due messages, and finds none.
    pub(crate) fn find_nothing(&mut self, paused: bool) -> &mut Self {
        let what = Call::Claim {
            n: 10,
            token: "eeeeeeeeeeeeeeee".into(),
            lease_ms: 1_000,
            due: true,
        };
        self.call(
            what,
            Answer::Claimed {
                deadline_ms: 0,
                items: Vec::new(),
                paused,
            },
            false,
        )
    }

    /// A caller of the library starts an operation on one id. The operation is then answered.
    pub(crate) fn asked(&mut self, op: u64, verb: Verb, id: &str) -> &mut Self {
        self.write(Event::Asked {
            queue: "q".into(),
            op,
            verb,
            ids: vec![id.into()],
            replicas: 0,
        })
    }

    pub(crate) fn told(&mut self, op: u64, outcome: &str) -> &mut Self {
        self.write(Event::Told {
            op,
            outcomes: vec![outcome.into()],
        })
    }

    /// The process ends on request.
    pub(crate) fn ended(&mut self) -> &mut Self {
        self.write(Event::End)
    }

    /// A settlement that asks for the time which its answer has.
    pub(crate) fn settle(&mut self, verb: Verb, id: &str, token: &str, verdict: &str) -> &mut Self {
        let told_ms = verdict
            .split_once(' ')
            .and_then(|(_, ms)| ms.parse::<u64>().ok());
        let rest = told_ms
            .map(|told_ms| told_ms - self.now_ms())
            .map(|after_ms| match verb {
                Verb::Again | Verb::Snooze => format!("+{after_ms}"),
                _ => after_ms.to_string(),
            });
        self.settle_asking(verb, id, token, &rest.unwrap_or_default(), verdict)
    }

    pub(crate) fn settle_asking(
        &mut self,
        verb: Verb,
        id: &str,
        token: &str,
        rest: &str,
        verdict: &str,
    ) -> &mut Self {
        self.call(
            settle(verb, id, token, rest),
            words(verdict),
            changes(verdict) || verdict == "DEAD",
        )
    }

    pub(crate) fn ack(&mut self, id: &str, token: &str) -> &mut Self {
        self.settle(Verb::Ack, id, token, "OK")
    }

    pub(crate) fn retry(&mut self, id: &str, token: &str, due_ms: u64) -> &mut Self {
        self.settle(
            Verb::Retry,
            id,
            token,
            &format!("SCHEDULED {}", Self::server(due_ms)),
        )
    }

    pub(crate) fn change(&mut self, verb: Verb, id: &str, rest: &str, verdict: &str) -> &mut Self {
        self.call(change(verb, id, rest), words(verdict), changes(verdict))
    }

    pub(crate) fn cancel(&mut self, id: &str, verdict: &str) -> &mut Self {
        self.change(Verb::Cancel, id, "", verdict)
    }

    pub(crate) fn other(&mut self, verb: &str, args: &[&str], answer: &[&str]) -> &mut Self {
        let strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let changed = answer.first().is_some_and(|word| *word != "0");
        self.call(
            Call::Other {
                verb: verb.into(),
                args: strings(args),
            },
            Answer::Other(strings(answer)),
            changed,
        )
    }

    /// The messages that remain, at their last reported times: id, failures, crashes.
    pub(crate) fn left(&mut self, state: State, items: &[(&str, u32, u32)]) -> &mut Self {
        let item = |(id, failures, crashes): &(&str, u32, u32)| {
            let time_ms = self.times.get(*id).copied().unwrap_or_default();
            LeftItem((*id).into(), time_ms, *failures, *crashes)
        };
        let items = items.iter().map(item).collect();
        self.write(Event::Left {
            queue: self.queue.into(),
            state,
            items,
        })
    }

    /// One message that remains, at this time and without failures.
    pub(crate) fn left_at(
        &mut self,
        state: State,
        id: &str,
        time_ms: u64,
        crashes: u32,
    ) -> &mut Self {
        let items = vec![LeftItem(id.into(), time_ms, 0, crashes)];
        self.write(Event::Left {
            queue: self.queue.into(),
            state,
            items,
        })
    }

    pub(crate) fn fault(&mut self, fault: &str, number: u64, phase: Phase) -> &mut Self {
        self.write(Event::Fault {
            fault: fault.into(),
            number,
            phase,
            detail: String::new(),
        })
    }
}
