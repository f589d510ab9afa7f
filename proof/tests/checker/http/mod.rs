//! Histories of a server of HTTP and a consumer.

mod pair;

use dueq_proof::check::Kind;
use dueq_proof::history::{Answer, Call, Event, Handed, Phase, Role, State, Verb};

use crate::story::{Story, assert_clean, assert_has, settle};
use pair::{Pair, item};

#[test]
fn a_delivery_over_http_is_clean() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true);
    let token = pair.granted(1);
    pair.handed(1, &token, 1).acked(&token).is_clean();
    let http = pair.verdict().http;
    assert_eq!((http.claims, http.handed_out, http.settled), (1, 1, 1));
    assert_eq!((http.repeated, http.unreceived), (0, 0));
}

#[test]
fn delivery_handed_to_two_claims_is_found() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true).sent(2, true);
    let token = pair.granted(1);
    pair.handed(1, &token, 1).handed(2, &token, 1);
    pair.acked(&token).has(Kind::HandedOutTwice);
}

#[test]
fn delivery_over_http_without_a_grant_is_found() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true);
    let token = pair.granted(1);
    // The consumer names another attempt than the granted one.
    pair.handed(1, &token, 2).acked(&token);
    let found = pair.verdict().violations;
    assert_eq!(found[&Kind::Unexpected], 1);
    assert_eq!(found[&Kind::ChargedToRepetition], 0, "it was sent before");
}

/// The reply to the claim is lost, and `held` shows this attempt and this token.
fn shown(attempt: u32, token: &str) -> Pair {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true);
    pair.next().server.unanswered(claim_by(HELD), true);
    show(&mut pair, attempt, token);
    pair.handed(1, token, attempt).acked(token);
    pair
}

const HELD: &str = "00000000000000aa";

fn claim_by(token: &str) -> Call {
    Call::Claim {
        n: 1,
        token: token.into(),
        lease_ms: 1_000,
        due: true,
    }
}

fn show(pair: &mut Pair, attempt: u32, token: &str) {
    let what = Call::Other {
        verb: "held".into(),
        args: vec![token.into()],
    };
    let answer = Answer::Claimed {
        deadline_ms: Story::server(1_010),
        items: vec![item(attempt)],
        paused: false,
    };
    pair.next().server.call(what, answer, false);
}

#[test]
fn held_may_show_the_grants_of_a_lost_claim() {
    shown(1, HELD).is_clean();
    assert!(shown(2, HELD).verdict().count(Kind::Contradictions) > 0);
    // No claim has this token.
    let other = shown(1, "00000000000000bb").verdict();
    assert!(other.count(Kind::Contradictions) > 0);
}

#[test]
fn held_that_shows_an_unleased_message_is_found() {
    let mut pair = Pair::new();
    show(&mut pair, 1, HELD);
    pair.server.left(State::Scheduled, &[("a", 0, 0)]);
    pair.has(Kind::Contradictions);
}

/// A claim is granted `a` at 20 ms for a second, gets no answer, and is repeated.
fn repeated(sent_ms: u64, answered_ms: u64, repeatable: bool) -> Pair {
    let mut pair = Pair::new();
    pair.at(10).sent(1, repeatable);
    pair.at(20).granted(1);
    pair.at(30).unanswered(1);
    pair.at(sent_ms).sent(1, repeatable);
    pair.at(answered_ms).empty(1);
    pair
}

#[test]
fn repeated_claim_must_get_the_grant_while_leased() {
    let charged = |sent_ms, answered_ms| {
        let mut pair = repeated(sent_ms, answered_ms, true);
        pair.later(3_000, 2);
        pair
    };
    charged(40, 100).has(Kind::ChargedToRepetition);
    charged(40, 1_015).has(Kind::ChargedToRepetition);
    // The lease may have expired by then.
    charged(40, 1_025).is_clean();
    assert_eq!(charged(40, 1_025).verdict().http.unreceived, 1);
}

#[test]
fn claim_repeated_before_the_grant_need_not_get_it() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true).unanswered(1).sent(1, true);
    pair.granted(1);
    pair.empty(1).later(3_000, 2).is_clean();
}

#[test]
fn a_repetition_that_gets_the_grant_is_counted() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true);
    let token = pair.at(20).granted(1);
    pair.at(30).unanswered(1).at(40).sent(1, true);
    pair.handed(1, &token, 1).acked(&token).is_clean();
    let http = pair.verdict().http;
    assert_eq!((http.unanswered, http.repeated), (1, 1));
}

#[test]
fn error_answer_to_a_repeated_claim_is_no_violation() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true);
    pair.at(20).granted(1);
    pair.at(30).unanswered(1).at(40).sent(1, true);
    // Redis is unreachable.
    pair.answered(1, 504, Vec::new());
    pair.later(3_000, 2).is_clean();
}

#[test]
fn a_step_of_the_clock_may_end_a_lease() {
    let stepped_at = |ms| {
        let mut pair = repeated(40, 100, true);
        pair.later(3_000, 2);
        let mut harness = Story::of(Role::Harness);
        harness.at(ms).fault("clock_forward", 1, Phase::Begin);
        harness.fault("clock_forward", 1, Phase::Trace);
        harness.fault("clock_forward", 1, Phase::End);
        pair.server.verdict_beside(&[&pair.consumer, &harness])
    };
    assert_clean(&stepped_at(50));
    assert_has(&stepped_at(500), Kind::ChargedToRepetition);
}

#[test]
fn grant_in_an_emptied_store_need_not_be_handed_out() {
    // The store answers a call that was sent at `asked_ms`. The answer arrives long afterwards.
    let emptied = |is_emptied, asked_ms| {
        let mut pair = repeated(40, 100, true);
        let invoke = Event::Invoke {
            call: 90,
            queue: "q".into(),
            master: String::new(),
            epoch: 0,
            probes: false,
            what: Call::Other {
                verb: "stats".into(),
                args: Vec::new(),
            },
        };
        pair.server.at(asked_ms).write(invoke);
        let answer = Event::Ok {
            call: 90,
            seq: pair.server.seq,
            now_us: i64::try_from(Story::server(asked_ms) * 1_000).expect("a time"),
            incarnation: "b1".into(),
            epoch: 0,
            answer: Answer::Items(Vec::new()),
        };
        pair.at(190).server.write(answer);
        if is_emptied {
            let (queue, incarnation) = ("q".to_owned(), "b1".to_owned());
            let event = Event::Emptied { queue, incarnation };
            pair.server.write(event);
        }
        pair.server.incarnation = "b2";
        pair.server.seq = 0;
        pair.at(200).server.push("b", "+0", "CREATED");
        pair.server.left(State::Scheduled, &[("b", 0, 0)]);
        pair.verdict()
    };
    assert_clean(&emptied(true, 50));
    assert!(emptied(false, 50).count(Kind::ChargedToRepetition) > 0);
    let was_there = emptied(true, 150);
    assert!(was_there.count(Kind::ChargedToRepetition) > 0);
}

#[test]
fn grant_must_reach_a_consumer_or_be_given_back() {
    let granted = |is_answered, is_released, is_killed: bool| {
        let mut pair = Pair::new();
        pair.at(10).sent(1, false);
        let token = pair.granted(1);
        if is_answered {
            pair.empty(1);
        } else {
            pair.unanswered(1);
        }
        if is_released {
            pair.next().server.settle(Verb::Release, "a", &token, "OK");
        }
        let (ms, attempt) = if is_released { (100, 1) } else { (3_000, 2) };
        pair.later(ms, attempt);
        if !is_killed {
            pair.server.ended();
        }
        pair
    };
    granted(true, false, false).has(Kind::NeverStarted);
    granted(true, true, false).is_clean();
    granted(true, false, true).is_clean();
    granted(false, false, false).is_clean();
    assert_eq!(granted(true, true, false).verdict().http.given_back, 1);
}

#[test]
fn consumer_must_start_each_delivery_it_gets() {
    let mut pair = Pair::new();
    pair.at(10).sent(1, true);
    let token = pair.granted(1);
    let due_ms = Story::server(0);
    pair.answered(1, 200, vec![Handed("a".into(), token, 1, due_ms, 1)]);
    pair.later(3_000, 2).consumer.ended();
    pair.has(Kind::NeverStarted);
}

#[test]
fn a_grant_without_a_claim_is_found() {
    let mut pair = Pair::new();
    let token = pair.at(10).granted(1);
    pair.at(20).sent(1, true).handed(1, &token, 1).acked(&token);
    pair.has(Kind::Unexpected);
}

/// A server settles `a`. `has_it`: whether the consumer had received it.
fn settled(repeatable: bool, has_it: bool, verb: Verb, verdict: &str) -> Pair {
    let mut pair = Pair::new();
    pair.at(10).sent(1, repeatable);
    let token = pair.granted(1);
    if has_it {
        pair.handed(1, &token, 1);
    } else {
        pair.unanswered(1);
    }
    pair.next().server.call(
        settle(verb, "a", &token, ""),
        Answer::Items(vec![verdict.into()]),
        true,
    );
    pair
}

#[test]
fn settlement_that_no_consumer_asked_for_is_found() {
    settled(true, true, Verb::Ack, "OK").has(Kind::SettledUnasked);
    settled(false, false, Verb::Ack, "OK").has(Kind::SettledUnasked);
    let released = |repeatable, has_it| {
        let mut pair = settled(repeatable, has_it, Verb::Release, "OK");
        pair.later(100, 1);
        pair
    };
    released(true, false).has(Kind::SettledUnasked);
    released(true, true).has(Kind::SettledUnasked);
    released(false, true).has(Kind::SettledUnasked);
    released(false, false).is_clean();
}

#[test]
fn outcome_told_to_a_consumer_must_be_the_queues_answer() {
    let told = |answer: Option<&str>, outcome: &str| {
        let mut pair = Pair::new();
        pair.at(10).sent(1, true);
        let token = pair.granted(1);
        pair.handed(1, &token, 1).acked(&token);
        pair.asks(2, Verb::Release, &token);
        let call = settle(Verb::Release, "a", &token, "");
        pair.next();
        match answer {
            Some(word) => {
                pair.server
                    .call(call, Answer::Items(vec![word.into()]), false);
            }
            None => drop(pair.server.refused(call)),
        }
        pair.is_told(2, outcome);
        pair
    };
    told(Some("GONE"), "GONE").is_clean();
    told(Some("GONE"), "OK").has(Kind::ApiLies);
    told(None, "GONE").has(Kind::ApiLies);
    told(None, "? no answer").is_clean();
}
