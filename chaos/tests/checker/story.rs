//! Writes histories that read like what happened.

use std::collections::HashMap;

use dueq_chaos::check::{Kind, Verdict, check_events};
use dueq_chaos::history::{
    Answer, Call, ChangeItem, ClaimedItem, Event, LeftItem, Phase, PushItem, Role, SettleItem,
    State, Verb,
};

/// The server's clock and that of the processes, when a story begins.
const SERVER_MS: u64 = 1_000_000_000;
const LOCAL_US: u64 = 5_000_000;

pub(crate) struct Story {
    ms: u64,
    /// How far the server's clock was set, forward or back.
    pub(crate) server_step_ms: i64,
    pub(crate) seq: u64,
    pub(crate) incarnation: &'static str,
    call: u64,
    token: u64,
    /// The lease that claims are granted; they ask for a second.
    pub(crate) lease_ms: u64,
    /// Of each id the due by which it waits, or when it died.
    times: HashMap<String, u64>,
    /// Of each id the options that a claim tells.
    options: HashMap<String, String>,
    events: Vec<(u64, Event)>,
}

/// Of the claims of a story.
pub(crate) type Token = String;

impl Story {
    pub(crate) fn new() -> Self {
        Self::of(Role::Worker)
    }

    /// The story of a process of this role.
    pub(crate) fn of(role: Role) -> Self {
        let begin = Event::Begin {
            role,
            process: "one".into(),
            pid: 1,
        };
        let events = vec![(LOCAL_US, begin)];
        let (times, options) = (HashMap::new(), HashMap::new());
        Self {
            ms: 0,
            server_step_ms: 0,
            seq: 0,
            incarnation: "b1",
            call: 0,
            token: 0,
            lease_ms: 1_000,
            times,
            options,
            events,
        }
    }

    /// So many ms after the start.
    pub(crate) fn at(&mut self, ms: u64) -> &mut Self {
        self.ms = ms;
        self
    }

    /// The server's time so many ms after the start.
    pub(crate) fn server(ms: u64) -> u64 {
        SERVER_MS + ms
    }

    /// What the server's clock says now.
    fn now_ms(&self) -> u64 {
        SERVER_MS
            .checked_add(self.ms)
            .and_then(|ms| ms.checked_add_signed(self.server_step_ms))
            .expect("a time")
    }

    fn t_us(&mut self) -> u64 {
        // Lines are never at the same time.
        let t_us =
            (LOCAL_US + self.ms * 1_000).max(self.events.last().map_or(0, |(t_us, _)| t_us + 1));
        t_us.max(LOCAL_US)
    }

    pub(crate) fn write(&mut self, event: Event) -> &mut Self {
        let t_us = self.t_us();
        self.events.push((t_us, event));
        self
    }

    fn invoke(&mut self, what: Call) -> u64 {
        self.call += 1;
        let call = self.call;
        self.write(Event::Invoke {
            call,
            queue: "q".into(),
            what,
        });
        call
    }

    /// A call and its answer.
    pub(crate) fn call(&mut self, what: Call, answer: Answer, changed: bool) -> &mut Self {
        self.note_times(&what, &answer);
        let call = self.invoke(what);
        self.seq += u64::from(changed);
        let now_us = i64::try_from(self.now_ms() * 1_000).expect("a time");
        self.write(Event::Ok {
            call,
            seq: self.seq,
            now_us,
            incarnation: self.incarnation.into(),
            answer,
        })
    }

    /// What is left of each id later has the time that was told last.
    fn note_times(&mut self, what: &Call, answer: &Answer) {
        let Answer::Items(verdicts) = answer else {
            return;
        };
        if let Call::Push { items, .. } = what {
            let told =
                |word: &&str| word.starts_with("max_attempts=") || word.starts_with("traceparent=");
            let told = |options: &str| {
                options
                    .split(' ')
                    .filter(told)
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            self.options
                .extend(items.iter().map(|item| (item.0.clone(), told(&item.4))));
        }
        let now_ms = self.now_ms();
        let items: Vec<(String, u64)> = match what {
            Call::Push { items, .. } => items
                .iter()
                .map(|item| (item.0.clone(), due_ms(&item.1, now_ms)))
                .collect(),
            Call::Settle { items, .. } => {
                items.iter().map(|item| (item.0.clone(), now_ms)).collect()
            }
            Call::Change { items, .. } => {
                items.iter().map(|item| (item.0.clone(), now_ms)).collect()
            }
            _ => Vec::new(),
        };
        for ((id, time_ms), verdict) in items.into_iter().zip(verdicts) {
            let died = matches!(
                what,
                Call::Settle {
                    verb: Verb::Bury | Verb::Retry,
                    ..
                }
            ) && matches!(&**verdict, "OK" | "DEAD");
            let time_ms = match verdict.split_once(' ') {
                Some(("MOVED" | "SCHEDULED" | "OK", ms)) => ms.parse().expect("a time"),
                None if verdict == "CREATED"
                    || verdict == "MOVED"
                    || verdict == "REQUEUED"
                    || died =>
                {
                    time_ms
                }
                _ => continue,
            };
            if !matches!(
                what,
                Call::Settle {
                    verb: Verb::Extend,
                    ..
                }
            ) {
                self.times.insert(id, time_ms);
            }
        }
    }

    /// A call that nobody knows the end of; it was applied if `applied`.
    pub(crate) fn unanswered(&mut self, what: Call, applied: bool) -> &mut Self {
        let call = self.invoke(what);
        self.seq += u64::from(applied);
        self.write(Event::Unknown {
            call,
            error: "the connection was lost".into(),
        })
    }

    /// A call that was refused whole.
    pub(crate) fn refused(&mut self, what: Call) -> &mut Self {
        let call = self.invoke(what);
        self.write(Event::Refused {
            call,
            error: "OOM".into(),
        })
    }

    pub(crate) fn push(&mut self, id: &str, due: &str, verdict: &str) -> &mut Self {
        self.call(push(id, due, 0, ""), words(verdict), changes(verdict))
    }

    /// A push that a replica must have before it is answered, and what its caller is told.
    pub(crate) fn push_replicated(&mut self, id: &str, verdict: &str, told: &str) -> &mut Self {
        self.call += 1;
        let op = self.call;
        self.write(Event::Asked {
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

    /// Another master, which has what has at most this `seq`.
    pub(crate) fn failed_over(&mut self, survived: u64) -> &mut Self {
        self.seq = survived + 1_000_000;
        self.write(Event::Undone {
            queue: "q".into(),
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

    /// A claim of one message, version 1, for a second; its handler starts.
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
        self.write(Event::Started {
            id: id.into(),
            version,
            attempt,
            due_ms,
            started_us: 0,
        });
        token
    }

    /// A claim that grants these; no handler starts.
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
            lease_ms: 1_000,
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

    /// A claim that takes what is due and finds nothing.
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

    /// A caller of the library asks for something of one id, and is told an outcome.
    pub(crate) fn asked(&mut self, op: u64, verb: Verb, id: &str) -> &mut Self {
        self.write(Event::Asked {
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

    /// The process ends as it was told to.
    pub(crate) fn ended(&mut self) -> &mut Self {
        self.write(Event::End)
    }

    /// A settle that asks for the time which it is answered.
    pub(crate) fn settle(&mut self, verb: Verb, id: &str, token: &str, verdict: &str) -> &mut Self {
        let told_ms = verdict
            .split_once(' ')
            .and_then(|(_, ms)| ms.parse::<u64>().ok());
        let rest = told_ms
            .map(|told_ms| told_ms - self.now_ms())
            .map(|after_ms| match verb {
                Verb::Again => format!("+{after_ms}"),
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

    /// What is left at the times that were told last: id, failures, crashes.
    pub(crate) fn left(&mut self, state: State, items: &[(&str, u32, u32)]) -> &mut Self {
        let item = |(id, failures, crashes): &(&str, u32, u32)| {
            let time_ms = self.times.get(*id).copied().unwrap_or_default();
            LeftItem((*id).into(), time_ms, *failures, *crashes)
        };
        let items = items.iter().map(item).collect();
        self.write(Event::Left {
            queue: "q".into(),
            state,
            items,
        })
    }

    /// One message is left at this time, without failures.
    pub(crate) fn left_at(
        &mut self,
        state: State,
        id: &str,
        time_ms: u64,
        crashes: u32,
    ) -> &mut Self {
        let items = vec![LeftItem(id.into(), time_ms, 0, crashes)];
        self.write(Event::Left {
            queue: "q".into(),
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

    /// The history so far, and that nothing more is left.
    pub(crate) fn verdict(&mut self) -> Verdict {
        self.left(State::Scheduled, &[]);
        check_events([self.events.clone()]).expect("a story that can be told")
    }

    #[track_caller]
    pub(crate) fn is_clean(&mut self) {
        let verdict = self.verdict();
        assert!(verdict.is_clean(), "{:#?}", verdict.examples);
        assert_eq!(verdict.unjudged, 0);
    }

    /// Exactly this, and nothing else.
    #[track_caller]
    pub(crate) fn has(&mut self, kind: Kind) {
        let verdict = self.verdict();
        let found: Vec<_> = verdict
            .violations
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, _)| *kind)
            .collect();
        assert_eq!(found, [kind], "{:#?}", verdict.examples);
    }
}

fn due_ms(due: &str, now_ms: u64) -> u64 {
    match due.strip_prefix('+') {
        Some(delay) => now_ms + delay.parse::<u64>().expect("a delay"),
        None => due.parse().expect("a due"),
    }
}

fn words(verdict: &str) -> Answer {
    Answer::Items(vec![verdict.to_owned()])
}

fn changes(verdict: &str) -> bool {
    [
        "CREATED",
        "MOVED",
        "OK",
        "SCHEDULED",
        "CANCELLED",
        "REQUEUED",
    ]
    .iter()
    .any(|word| verdict.starts_with(word))
}

pub(crate) fn push(id: &str, due: &str, until_ms: u64, options: &str) -> Call {
    let version = if options.contains("replace") { 2 } else { 1 };
    Call::Push {
        until_ms,
        nonce: String::new(),
        items: vec![PushItem(
            id.into(),
            due.into(),
            version,
            100,
            options.into(),
        )],
    }
}

pub(crate) fn settle(verb: Verb, id: &str, token: &str, rest: &str) -> Call {
    Call::Settle {
        verb,
        items: vec![SettleItem(id.into(), token.into(), rest.into())],
    }
}

pub(crate) fn change(verb: Verb, id: &str, rest: &str) -> Call {
    Call::Change {
        verb,
        items: vec![ChangeItem(id.into(), rest.into())],
    }
}

pub(crate) fn claim_without_answer(lease_ms: u64) -> Call {
    Call::Claim {
        n: 10,
        token: "ffffffffffffffff".into(),
        lease_ms,
        due: true,
    }
}
