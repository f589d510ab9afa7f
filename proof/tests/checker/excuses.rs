//! Which findings a call without an answer explains, and which not. The numbers 1, 7 and 9 in the
//! tests are those of the recorded runs from which the cases come.

use dueq_proof::check::Kind;
use dueq_proof::history::{State, Verb};

use crate::story::{Story, change, claim_without_answer, push, settle};

const HOUR_MS: u64 = 3_600_000;

/// Pushes `count` messages at `pushed_ms`. Each is delivered at its second attempt, and never at
/// its first.
fn at_second_attempt(story: &mut Story, pushed_ms: u64, count: u32) {
    let ids: Vec<_> = (0..count).map(|number| format!("m{number}")).collect();
    for id in &ids {
        story.at(pushed_ms).push(id, "+0", "CREATED");
    }
    // As if the lease of an unanswered claim had expired.
    for id in &ids {
        let token = story.at(pushed_ms + 5_000).claim(id, pushed_ms, 2);
        story.ack(id, &token);
    }
}

#[test]
fn a_lost_claim_does_not_explain_a_later_push() {
    for applied in [false, true] {
        let mut story = Story::new();
        story
            .push("x", "+900000000", "CREATED")
            .unanswered(claim_without_answer(1_000), applied);
        at_second_attempt(story.at(HOUR_MS), HOUR_MS, 1);
        story
            .left(State::Scheduled, &[("x", 0, 0)])
            .has(Kind::Miscounted);
    }
}

#[test]
fn one_lost_claim_does_not_explain_fifty_later_pushes() {
    let mut story = Story::new();
    story
        .push("x", "+900000000", "CREATED")
        .unanswered(claim_of(1_000), true);
    at_second_attempt(story.at(HOUR_MS), HOUR_MS, 50);
    let verdict = story.left(State::Scheduled, &[("x", 0, 0)]).verdict();
    assert_eq!(verdict.count(Kind::Miscounted), 50);
}

fn claim_of(n: u32) -> dueq_proof::history::Call {
    dueq_proof::history::Call::Claim {
        n,
        token: "ffffffffffffffff".into(),
        lease_ms: 1_000,
        due: true,
    }
}

/// `pushed` messages wait while a claim of at most `n` gets no answer. All come back with a crash.
fn lost_claim(n: u32, pushed: u32) -> Story {
    let mut story = Story::new();
    let ids: Vec<_> = (0..pushed).map(|number| format!("m{number}")).collect();
    for id in &ids {
        story.push(id, "+0", "CREATED");
    }
    story.at(50).unanswered(claim_of(n), true);
    for id in &ids {
        let token = story.at(5_000).claim(id, 0, 2);
        story.ack(id, &token);
    }
    story
}

#[test]
fn lost_claim_explains_at_most_the_messages_it_asked_for() {
    lost_claim(5, 5).is_clean();
    lost_claim(4, 5).has(Kind::Miscounted);
    let used = lost_claim(7, 5).verdict().excuses["claim"];
    assert_eq!((used.calls, used.available, used.used), (1, 7, 5));
}

#[test]
fn a_lost_claim_that_changed_nothing_explains_nothing() {
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .at(50)
        .unanswered(claim_without_answer(1_000), false);
    let token = story.at(5_000).claim("a", 0, 2);
    story.ack("a", &token).has(Kind::Miscounted);
}

#[test]
fn a_lost_claim_explains_a_message_once() {
    let attempt = |attempt| {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .at(50)
            .unanswered(claim_without_answer(1_000), true);
        let token = story.at(20_000).claim("a", 0, attempt);
        story.ack("a", &token);
        story
    };
    attempt(2).is_clean();
    attempt(3).has(Kind::Miscounted);
}

/// Either of two lost claims may have taken the message. The lease of the first would last too
/// long; that of the second does not.
#[test]
fn the_shorter_of_two_lost_leases_explains_an_early_crash() {
    let crashed = |second_lease_ms| {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .at(50)
            .unanswered(claim_without_answer(HOUR_MS), true);
        story.at(60).push("b", "+900000000", "CREATED");
        story
            .at(100)
            .unanswered(claim_without_answer(second_lease_ms), true);
        // The message is leased before it is claimed again, so one of the two lost claims took it.
        story.at(200).cancel("a", "LEASED");
        let token = story.at(3_000).claim("a", 0, 2);
        story
            .ack("a", &token)
            .left(State::Scheduled, &[("b", 0, 0)]);
        story
    };
    crashed(1_000).is_clean();
    crashed(HOUR_MS).has(Kind::OverlappingLeases);
}

#[test]
fn a_lost_cancel_does_not_explain_a_later_push() {
    // The lost cancel was sent an hour before the push; or just before, when no change after the
    // push is missing.
    for before_ms in [HOUR_MS, 10] {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .unanswered(change(Verb::Cancel, "a", ""), true);
        story
            .at(before_ms)
            .push("a", "+0", "CREATED")
            .has(Kind::Lost);
    }
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .at(10)
        .unanswered(change(Verb::Cancel, "a", ""), true);
    story.is_clean();
    assert_eq!(story.verdict().excuses["cancel"].used, 1);
}

#[test]
fn lost_cancel_explains_only_one_message() {
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .unanswered(change(Verb::Cancel, "a", ""), true);
    story
        .at(10)
        .push("a", "+0", "CREATED")
        .unanswered(push("b", "+0", 0, ""), true);
    story
        .left_at(State::Ready, "b", Story::server(10), 0)
        .has(Kind::Lost);
}

#[test]
fn a_lost_call_does_not_explain_a_change_an_hour_later() {
    // Between two pushes, `seq` counts a change that no recorded call made. A call without an
    // answer is sent before the first push, or after the second.
    let changed = |lost_ms: [Option<u64>; 2], changed_ms: u64| {
        let mut story = Story::new();
        let lose = |story: &mut Story, ms: Option<u64>| {
            if let Some(ms) = ms {
                story.at(ms).unanswered(push("x", "+0", 0, ""), false);
            }
        };
        story.push("a", "+900000000", "CREATED");
        lose(&mut story, lost_ms[0]);
        story.at(changed_ms).push("b", "+900000000", "CREATED");
        story.seq += 1;
        story.at(changed_ms + 10).push("c", "+900000000", "CREATED");
        lose(&mut story, lost_ms[1]);
        story.left(State::Scheduled, &[("a", 0, 0), ("b", 0, 0), ("c", 0, 0)]);
        story
    };
    changed([Some(0), None], HOUR_MS).has(Kind::UnaskedChanges);
    changed([None, Some(HOUR_MS)], 5).has(Kind::UnaskedChanges);
    changed([Some(5), None], 6).is_clean();
}

#[test]
fn unanswered_overdue_push_is_not_out_of_order() {
    let due = |ms| Story::server(ms).to_string();
    let claimed_after = |due_ms: u64, pushed_ms: u64| {
        let mut story = Story::new();
        story.push("x", "+0", "CREATED");
        let token = story.at(5).claim("x", 0, 1);
        // The server's clock goes back before the push.
        story.server_step_ms = -2;
        story.ack("x", &token).push("b", &due(100), "CREATED");
        story
            .at(pushed_ms)
            .other("promote", &["256"], &["0"])
            .unanswered(push("a", &due(due_ms), 0, ""), true)
            .other("promote", &["256"], &["0"]);
        let b = story.at(203).claim("b", 100, 1);
        let a = story
            .push("a", &due(due_ms), "EXISTS scheduled")
            .at(204)
            .claim("a", due_ms, 1);
        story.ack("b", &b).ack("a", &a);
        story
    };
    // The other message may have been promoted before this push.
    claimed_after(50, 200).is_clean();
    claimed_after(50, 20).has(Kind::OutOfOrder);
}

#[test]
fn a_lost_release_after_a_clock_step_makes_it_due_earlier() {
    // A message is pushed at 0, due at 5,000, claimed at 6,000, and released soon after.
    let released = |step_ms: i64, extended: bool, due_ms: u64| {
        let mut story = Story::new();
        story.push("a", "+5000", "CREATED");
        let token = story.at(6_000).claim("a", 5_000, 1);
        story.server_step_ms = -step_ms;
        if extended {
            let answer = format!("OK {}", Story::server(8_000));
            story.at(6_050).settle(Verb::Extend, "a", &token, &answer);
        }
        story
            .at(6_100)
            .unanswered(settle(Verb::Release, "a", &token, ""), true);
        let token = story.at(6_200).claim("a", due_ms, 1);
        story.ack("a", &token);
        story
    };
    for extended in [false, true] {
        // The clock went back to before the due time: the message is due at the time of the
        // release.
        released(4_000, extended, 2_100).is_clean();
        // The clock went back by less, or not at all.
        released(500, extended, 5_000).is_clean();
        released(0, extended, 5_000).is_clean();
        released(0, extended, 4_900).has(Kind::OverlappingLeases);
    }
    // A release never makes a message due later.
    released(500, false, 5_100).has(Kind::Miscounted);
}
