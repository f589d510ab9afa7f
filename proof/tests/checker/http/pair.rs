//! A server and a consumer, each with a history.

use dueq_proof::check::{Kind, Verdict};
use dueq_proof::history::{ClaimedItem, Event, Handed, Http, Role, Verb};

use crate::story::{Story, Token, assert_clean, assert_has};

/// Both histories have one clock, which advances by 1 ms with each step.
pub(super) struct Pair {
    ms: u64,
    pub(super) server: Story,
    pub(super) consumer: Story,
}

impl Pair {
    /// Begins with a due message `a`.
    pub(super) fn new() -> Self {
        let mut server = Story::of(Role::Serve);
        server.push("a", "+0", "CREATED");
        let consumer = Story::of(Role::Consumer);
        let ms = 0;
        Self {
            ms,
            server,
            consumer,
        }
    }

    pub(super) fn at(&mut self, ms: u64) -> &mut Self {
        self.ms = ms;
        self.server.at(ms);
        self.consumer.at(ms);
        self
    }

    pub(super) fn next(&mut self) -> &mut Self {
        self.at(self.ms + 1)
    }

    /// Adds a line to the consumer's history.
    pub(super) fn write(&mut self, event: Http) -> &mut Self {
        self.next().consumer.write(Event::Http(event));
        self
    }

    pub(super) fn sent(&mut self, claim: u64, repeatable: bool) -> &mut Self {
        self.write(Http::Claim {
            claim,
            queue: "q".into(),
            server: "h1".into(),
            max: 1,
            lease_ms: 1_000,
            repeatable,
        })
    }

    pub(super) fn unanswered(&mut self, claim: u64) -> &mut Self {
        let error = "closed".to_owned();
        self.write(Http::Unanswered { claim, error })
    }

    /// The server's claim is granted `a`.
    pub(super) fn granted(&mut self, attempt: u32) -> Token {
        self.next().server.grant(&[item(attempt)])
    }

    pub(super) fn empty(&mut self, claim: u64) -> &mut Self {
        self.answered(claim, 204, Vec::new())
    }

    pub(super) fn answered(
        &mut self,
        claim: u64,
        status: u16,
        deliveries: Vec<Handed>,
    ) -> &mut Self {
        self.write(Http::Claimed {
            claim,
            status,
            more: 0,
            deliveries,
        })
    }

    /// The consumer receives `a`, and starts a handler.
    pub(super) fn handed(&mut self, claim: u64, token: &str, attempt: u32) -> &mut Self {
        let due_ms = Story::server(0);
        let handed = Handed("a".into(), token.into(), 1, due_ms, attempt);
        self.answered(claim, 200, vec![handed]);
        self.consumer.write(Event::Started {
            by_hand: true,
            queue: "q".into(),
            id: "a".into(),
            version: 1,
            attempt,
            due_ms,
            started_us: 0,
        });
        self
    }

    pub(super) fn asks(&mut self, op: u64, verb: Verb, token: &str) -> &mut Self {
        self.write(Http::Settle {
            op,
            queue: "q".into(),
            verb,
            id: "a".into(),
            token: token.into(),
        })
    }

    pub(super) fn is_told(&mut self, op: u64, outcome: &str) -> &mut Self {
        let outcome = outcome.to_owned();
        self.write(Http::Settled { op, outcome })
    }

    /// The consumer acks `a`, and no message is left.
    pub(super) fn acked(&mut self, token: &str) -> &mut Self {
        self.asks(99, Verb::Ack, token);
        self.next().server.ack("a", token);
        self.is_told(99, "OK")
    }

    /// A later claim receives `a`, and its consumer acks it.
    pub(super) fn later(&mut self, ms: u64, attempt: u32) -> &mut Self {
        self.at(ms).sent(50, true);
        let token = self.granted(attempt);
        self.handed(50, &token, attempt).acked(&token)
    }

    pub(super) fn verdict(&mut self) -> Verdict {
        self.server.verdict_beside(&[&self.consumer])
    }

    #[track_caller]
    pub(super) fn is_clean(&mut self) {
        assert_clean(&self.verdict());
    }

    #[track_caller]
    pub(super) fn has(&mut self, kind: Kind) {
        assert_has(&self.verdict(), kind);
    }
}

pub(super) fn item(attempt: u32) -> ClaimedItem {
    let due_ms = Story::server(0);
    ClaimedItem("a".into(), 1, due_ms, attempt, 100, String::new())
}
