//! Writes histories that read like what happened.

use dueq_chaos::check::{Kind, Verdict, check_events};
use dueq_chaos::history::{
    Answer, Call, ChangeItem, ClaimedItem, Event, LeftItem, Phase, PushItem, Role, SettleItem, State, Verb,
};

/// The server's clock and that of the processes, when a story begins.
const SERVER_MS: u64 = 1_000_000_000;
const LOCAL_US: u64 = 5_000_000;

pub(crate) struct Story {
    ms: u64,
    /// How far the server's clock was set, forward or back.
    pub(crate) server_step_ms: i64,
    pub(crate) seq: u64,
    pub(crate) born: &'static str,
    call: u64,
    token: u64,
    events: Vec<(u64, Event)>,
}

/// Of the claims of a story.
pub(crate) type Token = String;

impl Story {
    pub(crate) fn new() -> Self {
        let begin = Event::Begin { role: Role::Worker, process: "one".into(), pid: 1 };
        let events = vec![(LOCAL_US, begin)];
        Self { ms: 0, server_step_ms: 0, seq: 0, born: "b1", call: 0, token: 0, events }
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

    fn t_us(&mut self) -> u64 {
        // Lines are never at the same time.
        let t_us = (LOCAL_US + self.ms * 1_000).max(self.events.last().map_or(0, |(t_us, _)| t_us + 1));
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
        self.write(Event::Invoke { call, queue: "q".into(), what });
        call
    }

    /// A call and its answer.
    pub(crate) fn call(&mut self, what: Call, answer: Answer, changed: bool) -> &mut Self {
        let call = self.invoke(what);
        self.seq += u64::from(changed);
        let now_us =
            (i64::try_from(SERVER_MS + self.ms).expect("a story that can be told") + self.server_step_ms) * 1_000;
        self.write(Event::Ok { call, seq: self.seq, now_us, born: self.born.into(), answer })
    }

    /// A call that nobody knows the end of; it was applied if `applied`.
    pub(crate) fn unanswered(&mut self, what: Call, applied: bool) -> &mut Self {
        let call = self.invoke(what);
        self.seq += u64::from(applied);
        self.write(Event::Unknown { call, error: "the connection was lost".into() })
    }

    /// A call that was refused whole.
    pub(crate) fn refused(&mut self, what: Call) -> &mut Self {
        let call = self.invoke(what);
        self.write(Event::Refused { call, error: "OOM".into() })
    }

    pub(crate) fn push(&mut self, id: &str, due: &str, verdict: &str) -> &mut Self {
        self.call(push(id, due, 0, ""), words(verdict), changes(verdict))
    }

    /// A push that a replica must have before it is answered, and what its caller is told.
    pub(crate) fn push_replicated(&mut self, id: &str, verdict: &str, told: &str) -> &mut Self {
        self.call += 1;
        let op = self.call;
        self.write(Event::Asked { op, verb: Verb::Push, ids: vec![id.into()], replicas: 1 });
        self.push(id, "+0", verdict).write(Event::Told { op, outcomes: vec![told.into()] })
    }

    /// Another master, which has what has at most this `seq`.
    pub(crate) fn failed_over(&mut self, survived: u64) -> &mut Self {
        self.seq = survived + 1_000_000;
        self.write(Event::Undone { queue: "q".into(), born: self.born.into(), survived, next: self.seq })
    }

    pub(crate) fn push_with(&mut self, id: &str, due: &str, until: u64, options: &str, verdict: &str) -> &mut Self {
        self.call(push(id, due, until, options), words(verdict), changes(verdict))
    }

    /// A claim of one message, version 1, for a second.
    pub(crate) fn claim(&mut self, id: &str, due_ms: u64, attempt: u32) -> Token {
        self.claim_version(id, 1, due_ms, attempt)
    }

    pub(crate) fn claim_version(&mut self, id: &str, version: u32, due_ms: u64, attempt: u32) -> Token {
        self.token += 1;
        let token = format!("{:016x}", self.token);
        let items = vec![ClaimedItem(id.into(), version, Self::server(due_ms), attempt)];
        let deadline_ms = Self::server(self.ms) + 1_000;
        let what = Call::Claim { n: 10, token: token.clone(), lease_ms: 1_000 };
        self.call(what, Answer::Claimed { deadline_ms, items }, true);
        token
    }

    pub(crate) fn settle(&mut self, verb: Verb, id: &str, token: &str, verdict: &str) -> &mut Self {
        self.call(settle(verb, id, token, ""), words(verdict), changes(verdict) || verdict == "DEAD")
    }

    pub(crate) fn ack(&mut self, id: &str, token: &str) -> &mut Self {
        self.settle(Verb::Ack, id, token, "OK")
    }

    pub(crate) fn retry(&mut self, id: &str, token: &str, due_ms: u64) -> &mut Self {
        self.settle(Verb::Retry, id, token, &format!("SCHEDULED {}", Self::server(due_ms)))
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
        self.call(Call::Other { verb: verb.into(), args: strings(args) }, Answer::Other(strings(answer)), changed)
    }

    pub(crate) fn left(&mut self, state: State, items: &[(&str, u32, u32)]) -> &mut Self {
        let item = |(id, failures, crashes): &(&str, u32, u32)| LeftItem((*id).into(), 0, *failures, *crashes);
        self.write(Event::Left { queue: "q".into(), state, items: items.iter().map(item).collect() })
    }

    pub(crate) fn fault(&mut self, fault: &str, number: u64, phase: Phase) -> &mut Self {
        self.write(Event::Fault { fault: fault.into(), number, phase, detail: String::new() })
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
        let found: Vec<_> = verdict.violations.iter().filter(|(_, count)| **count > 0).map(|(kind, _)| *kind).collect();
        assert_eq!(found, [kind], "{:#?}", verdict.examples);
    }
}

fn words(verdict: &str) -> Answer {
    Answer::Items(vec![verdict.to_owned()])
}

fn changes(verdict: &str) -> bool {
    ["CREATED", "MOVED", "OK", "SCHEDULED", "CANCELLED", "REQUEUED"].iter().any(|word| verdict.starts_with(word))
}

pub(crate) fn push(id: &str, due: &str, until_ms: u64, options: &str) -> Call {
    let version = if options.contains("replace") { 2 } else { 1 };
    Call::Push { until_ms, items: vec![PushItem(id.into(), due.into(), version, 100, options.into())] }
}

pub(crate) fn settle(verb: Verb, id: &str, token: &str, rest: &str) -> Call {
    Call::Settle { verb, items: vec![SettleItem(id.into(), token.into(), rest.into())] }
}

pub(crate) fn change(verb: Verb, id: &str, rest: &str) -> Call {
    Call::Change { verb, items: vec![ChangeItem(id.into(), rest.into())] }
}

pub(crate) fn claim_without_answer(lease_ms: u64) -> Call {
    Call::Claim { n: 10, token: "ffffffffffffffff".into(), lease_ms }
}
