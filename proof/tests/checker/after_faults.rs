//! Which findings a fault excuses, and for how long: late claims, leases that expired unseen, and
//! refused settlements.

use dueq_proof::check::Kind;
use dueq_proof::history::{Answer, Call, ClaimedItem, Event, Phase, Role, State, Verb};

use crate::story::{Story, assert_clean, assert_has, claim_without_answer, push, settle};

/// Adds a fault with this detail, from one time to another, and moves the story on to its end.
fn fault(story: &mut Story, name: &str, detail: &str, from_ms: u64, to_ms: u64) {
    for (ms, phase) in [
        (from_ms, Phase::Begin),
        (to_ms, Phase::Trace),
        (to_ms, Phase::End),
    ] {
        story.at(ms).write(Event::Fault {
            fault: name.into(),
            number: from_ms,
            phase,
            detail: detail.into(),
        });
    }
}

/// A message becomes due before a fault of 3 s, and is claimed `ms` after its end.
fn claimed_after(name: &str, detail: &str, ms: u64) -> Story {
    let mut story = Story::new();
    story.push("a", "+500", "CREATED");
    fault(&mut story, name, detail, 500, 3_500);
    let token = story.at(3_500 + ms).claim("a", 500, 1);
    story.ack("a", &token);
    story
}

#[test]
fn claim_later_than_8_s_after_an_outage_is_late() {
    for name in [
        "server_stop",
        "answers_dropped",
        "rights_taken",
        "clock_forward",
    ] {
        claimed_after(name, "", 7_900).is_clean();
        claimed_after(name, "", 8_100).has(Kind::Late);
    }
}

#[test]
fn a_message_that_nobody_claims_is_late_at_the_end() {
    let left = |ms| {
        let mut story = Story::new();
        story.push("a", "+500", "CREATED");
        story.at(ms).other("beat", &["n"], &["0"]);
        story.left(State::Scheduled, &[("a", 0, 0)]);
        story
    };
    left(5_400).is_clean();
    left(5_600).has(Kind::Late);
}

#[test]
fn clock_step_back_excuses_a_late_claim_by_its_length() {
    claimed_after("clock_back", "-4000 ms", 11_900).is_clean();
    claimed_after("clock_back", "-4000 ms", 12_100).has(Kind::Late);
}

#[test]
fn a_fault_of_one_process_excuses_no_late_claim() {
    // The story's only worker is at the place `one`.
    claimed_after("worker_kill", "one.2", 7_900).is_clean();
    for (name, detail) in [
        ("worker_kill", "two"),
        ("net_drop", "p1"),
        ("net_cut", "h1 over HTTP"),
        ("producer_kill", "one"),
        ("kill_subscribers", ""),
    ] {
        claimed_after(name, detail, 2_100).has(Kind::Late);
        claimed_after(name, detail, 1_900).is_clean();
    }
}

#[test]
fn late_claim_is_excused_only_while_all_workers_are_away() {
    let away = |of_other: (u64, u64)| {
        let mut story = Story::new();
        let mut other = Story::of(Role::Worker);
        other.write(Event::Begin {
            role: Role::Worker,
            process: "other".into(),
            pid: 2,
        });
        story.push("a", "+500", "CREATED");
        fault(&mut story, "worker_stop", "one", 500, 8_000);
        let (from_ms, to_ms) = of_other;
        fault(&mut other, "worker_stop", "other", from_ms, to_ms);
        let token = story.at(9_000).claim("a", 500, 1);
        story.ack("a", &token).verdict_beside(&[&other])
    };
    assert_clean(&away((600, 7_000)));
    assert_has(&away((600, 800)), Kind::Late);
}

#[test]
fn another_fault_a_stall_or_a_backlog_explains_a_late_claim() {
    let late = |explain: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.push("a", "+500", "CREATED");
        fault(&mut story, "server_stop", "", 500, 3_500);
        explain(&mut story);
        let token = story.at(14_000).claim("a", 500, 1);
        story.ack("a", &token);
        story
    };
    late(&|_| {}).has(Kind::Late);
    late(&|story| fault(story, "disk_full", "", 6_000, 8_000)).is_clean();
    late(&|story| {
        story.at(10_000).write(Event::Stalled { ms: 3_000 });
    })
    .is_clean();
    late(&|story| {
        story.at(5_000).other("pause", &[], &["OK"]);
        story.at(9_000).other("resume", &[], &["OK"]);
    })
    .is_clean();
    // Older messages are claimed all the time.
    late(&|story| {
        for (second, id) in ["b", "c", "d"].into_iter().enumerate() {
            let due = Story::server(100).to_string();
            let ms = 7_000 + 2_000 * second as u64;
            story.at(ms).push(id, &due, "CREATED");
            let token = story.at(ms + 10).claim(id, 100, 1);
            story.ack(id, &token);
        }
    })
    .is_clean();
}

/// A claim without an answer took the message. The worker makes other claims meanwhile, and the
/// lease expires.
fn lost_claim(lease_ms: u64, meanwhile: &dyn Fn(&mut Story)) -> Story {
    let mut story = Story::new();
    story.serves_under(1_000);
    story.push("a", "+0", "CREATED").push("b", "+0", "CREATED");
    story
        .at(10)
        .unanswered(claim_without_answer(lease_ms), true);
    meanwhile(&mut story);
    let token = story.at(1_200).claim("a", 0, 2);
    story.ack("a", &token);
    story
}

fn claim_other(story: &mut Story, ms: u64) {
    let token = story.at(ms).claim("b", 0, 1);
    story.ack("b", &token);
}

#[test]
fn worker_must_ask_for_grants_of_its_lost_claim() {
    lost_claim(1_000, &|story| claim_other(story, 500)).has(Kind::ChargedUnseen);
    // The worker was away until the lease had expired.
    lost_claim(1_000, &|story| claim_other(story, 1_020)).is_clean();
    // The worker asked whether its claim had been applied, by `held` or by the same claim.
    for verb in ["held", "claim"] {
        let asked = |story: &mut Story| {
            let _ = match verb {
                "held" => story.at(100).other("held", &["ffffffffffffffff"], &["0"]),
                _ => story.at(100).unanswered(claim_without_answer(1_000), false),
            };
            claim_other(story, 500);
        };
        let verdict = lost_claim(1_000, &asked).verdict();
        // If the repeated claim gets no answer either, the charged crash is still a violation.
        let charged = u64::from(verb == "claim");
        assert_eq!(verdict.count(Kind::ChargedUnseen), charged, "{verb}");
    }
    // A claim by hand: its caller got an error.
    lost_claim(900, &|story| claim_other(story, 500)).is_clean();
}

#[test]
fn worker_must_start_grants_of_its_lost_claim() {
    let found = |is_started: bool| {
        let mut story = Story::new();
        story.serves_under(1_000);
        story.push("a", "+0", "CREATED");
        story.at(10).unanswered(claim_without_answer(1_000), true);
        let item = ClaimedItem("a".into(), 1, Story::server(0), 1, 100, String::new());
        let token = "ffffffffffffffff";
        let held = Call::Other {
            verb: "held".into(),
            args: vec![token.into()],
        };
        let deadline_ms = Story::server(1_010);
        let (items, paused) = (vec![item], false);
        let answer = Answer::Claimed {
            deadline_ms,
            items,
            paused,
        };
        story.at(100).call(held, answer, false);
        if is_started {
            story.started("a", 1, 1, Story::server(0));
            story.at(200).ack("a", token);
        } else {
            story.left_at(State::Leased, "a", Story::server(0), 0);
        }
        story.ended();
        story
    };
    found(true).is_clean();
    found(false).has(Kind::NeverStarted);
}

/// An answer to `held`: the lost claim has leased `a`.
fn held(story: &mut Story, due_ms: u64) {
    let item = ClaimedItem("a".into(), 1, due_ms, 1, 100, String::new());
    let held = Call::Other {
        verb: "held".into(),
        args: vec!["ffffffffffffffff".into()],
    };
    let answer = Answer::Claimed {
        deadline_ms: Story::server(1_010),
        items: vec![item],
        paused: false,
    };
    story.at(100).call(held, answer, false);
}

/// After a failover, a worker asks by `held` for the grants of its lost claim, before any call
/// changes the queue.
#[test]
fn held_after_a_failover_proves_that_the_claim_lasted() {
    let acked = |is_asked: bool| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        story.at(10).unanswered(claim_without_answer(1_000), true);
        story.failed_over(2);
        if is_asked {
            held(&mut story, Story::server(0));
        }
        story.at(110).ack("a", "ffffffffffffffff");
        story
    };
    acked(true).is_clean();
    acked(false).has(Kind::StaleTokensAccepted);
}

/// Neither the push nor the claim was answered: only `held` shows the due time.
#[test]
fn grant_of_a_lost_claim_keeps_its_due_time() {
    let claimed_again = |due_ms| {
        let mut story = Story::new();
        story.unanswered(push("a", "+0", 0, ""), true);
        story.at(10).unanswered(claim_without_answer(1_000), true);
        held(&mut story, Story::server(3));
        story
            .at(110)
            .settle(Verb::Release, "a", "ffffffffffffffff", "OK");
        let token = story.at(120).claim("a", due_ms, 1);
        story.ack("a", &token);
        story
    };
    claimed_again(3).is_clean();
    claimed_again(4).has(Kind::WrongDue);
}

/// The time of the lost claim is not known, but `held` shows the deadline of its lease.
#[test]
fn grant_of_a_lost_claim_keeps_its_deadline() {
    let extended = |deadline_ms| {
        let mut story = Story::new();
        story.unanswered(push("a", "+0", 0, ""), true);
        story.at(10).unanswered(claim_without_answer(1_000), true);
        held(&mut story, Story::server(3));
        let told = format!("OK {}", Story::server(deadline_ms));
        let token = "ffffffffffffffff";
        story
            .at(110)
            .settle_asking(Verb::Extend, "a", token, "500", &told);
        story.ack("a", token);
        story
    };
    extended(1_010).is_clean();
    extended(1_009).has(Kind::WrongTimes);
}

/// A worker's node sends an ack that is refused, and perhaps sends it again. A frozen worker sends
/// nothing while the lease lasts.
fn refused_ack(refused_ms: u64, again_ms: Option<u64>, last_ms: u64, is_frozen: bool) -> Story {
    let mut story = Story::new();
    story.lease_ms = 1_000;
    story
        .push("a", "+0", "CREATED")
        .push("z", "+900000", "CREATED");
    // The checker counts a lease from when its claim was sent.
    let token = story.at(10).claim_for("a", 0, 2_000);
    story
        .at(refused_ms)
        .refused(settle(Verb::Ack, "a", &token, ""));
    if let Some(ms) = again_ms {
        story.at(ms).ack("a", &token);
    }
    if last_ms > 2_010 && again_ms.is_none() {
        if !is_frozen {
            story.at(1_900).push("z", "+900000", "EXISTS scheduled");
        }
        let token = story.at(last_ms).claim("a", 0, 2);
        story.ack("a", &token);
    }
    story
}

#[test]
fn a_refused_settlement_is_sent_again_while_its_lease_lasts() {
    use State::{Leased, Scheduled};
    let left = |mut story: Story, state| {
        story.left(Scheduled, &[("z", 0, 0)]);
        if state == Leased {
            story.left_at(Leased, "a", Story::server(0), 0);
        }
        story
    };
    left(refused_ack(100, None, 3_000, false), Scheduled).has(Kind::SettlementDropped);
    left(refused_ack(100, Some(900), 3_000, false), Scheduled).is_clean();
    left(refused_ack(100, None, 3_000, true), Scheduled).is_clean();
    // The lease was nearly over when the ack was refused.
    left(refused_ack(700, None, 3_000, false), Scheduled).is_clean();
    // The process died soon after the refusal.
    left(refused_ack(100, None, 100, true), Leased).is_clean();
}

#[test]
fn a_caller_gets_the_refusal_of_its_own_settlement() {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    let token = story.at(10).claim_for("a", 0, 2_000);
    story.at(100).asked(1, Verb::Ack, "a");
    story
        .refused(settle(Verb::Ack, "a", &token, ""))
        .told(1, "!NOPERM");
    let token = story.at(3_000).claim("a", 0, 2);
    story.ack("a", &token).is_clean();
}
