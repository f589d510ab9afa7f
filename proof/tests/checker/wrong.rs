//! Wrong histories from a review, beginning with number 2. The first number in a comment is the
//! review's.

use dueq_proof::check::Kind;
use dueq_proof::history::{ClaimedItem, Event, State, Verb};

use crate::histories::claimed;
use crate::story::{Story, change, push};

const HOUR_MS: u64 = 3_600_000;

// Number 2: nothing else happens, and the claim is an hour late.
#[test]
fn claim_an_hour_late_is_late() {
    let late = |ms| {
        let mut story = Story::new();
        story.push("a", "+100", "CREATED");
        let token = story.at(ms).claim("a", 100, 1);
        story.ack("a", &token);
        story
    };
    late(HOUR_MS).has(Kind::Late);
    late(5_200).has(Kind::Late);
    late(5_000).is_clean();
    // The time of a fault or a stall is subtracted.
    let mut story = Story::new();
    story
        .push("a", "+100", "CREATED")
        .at(59_000)
        .write(Event::Stalled { ms: 58_000 });
    let token = story.at(60_000).claim("a", 100, 1);
    story.ack("a", &token).is_clean();
}

// By mutant 32: claims find nothing while the message is due.
#[test]
fn claim_that_misses_a_due_message_is_late() {
    let empty_at = |ms, paused| {
        let mut story = Story::new();
        story
            .push("a", "+100", "CREATED")
            .at(ms)
            .find_nothing(paused);
        let token = story.at(1_600).claim("a", 100, 1);
        story.ack("a", &token);
        story
    };
    empty_at(100, false).has(Kind::Late);
    empty_at(99, false).is_clean();
    empty_at(500, true).is_clean();
}

// Number 8.
#[test]
fn the_newest_first_is_out_of_order() {
    let claimed_in = |order: [u64; 2]| {
        let mut story = Story::new();
        story
            .push("m10", "+10", "CREATED")
            .push("m90", "+90", "CREATED")
            .at(200);
        let tokens = order.map(|due_ms| {
            (
                format!("m{due_ms}"),
                story.claim(&format!("m{due_ms}"), due_ms, 1),
            )
        });
        for (id, token) in &tokens {
            story.ack(id, token);
        }
        story
    };
    claimed_in([90, 10]).has(Kind::OutOfOrder);
    claimed_in([10, 90]).is_clean();
}

// Number 3: a reschedule expects a due time that the message does not have.
#[test]
fn a_reschedule_compares_the_expected_due() {
    let moved = |expected_ms, verdict: &str, due_ms| {
        let mut story = Story::new();
        let rest = format!("{} {}", Story::server(300), Story::server(expected_ms));
        story
            .push("a", "+100", "CREATED")
            .change(Verb::Reschedule, "a", &rest, verdict);
        story.left_at(State::Scheduled, "a", Story::server(due_ms), 0);
        story
    };
    let [to_100, to_300, to_200] = [100, 300, 200].map(Story::server);
    moved(200, &format!("MOVED {to_300}"), 300).has(Kind::Contradictions);
    moved(100, &format!("MOVED {to_300}"), 300).is_clean();
    moved(100, &format!("CONFLICT {to_100}"), 100).has(Kind::Contradictions);
    moved(200, &format!("CONFLICT {to_100}"), 100).is_clean();
    moved(200, &format!("CONFLICT {to_200}"), 100).has(Kind::WrongTimes);
}

// Number 3b.
#[test]
fn a_run_now_without_effect_is_found() {
    let run_at = |ms, verdict: &str| {
        let mut story = Story::new();
        story
            .push("a", "+100", "CREATED")
            .at(ms)
            .change(Verb::RunNow, "a", "", verdict);
        story.left(State::Ready, &[("a", 0, 0)]);
        story
    };
    run_at(50, "ALREADY").has(Kind::Contradictions);
    run_at(100, "ALREADY").is_clean();
    run_at(50, &format!("MOVED {}", Story::server(50))).is_clean();
    run_at(50, &format!("MOVED {}", Story::server(60))).has(Kind::WrongTimes);
    run_at(150, &format!("MOVED {}", Story::server(150))).has(Kind::Contradictions);
}

// Number 3c.
#[test]
fn a_reschedule_reports_the_requested_due_time() {
    let mut story = Story::new();
    let in_15_min = format!("MOVED {}", Story::server(900_000));
    story
        .push("a", "+100", "CREATED")
        .change(Verb::Reschedule, "a", "+200", &in_15_min);
    story
        .left(State::Scheduled, &[("a", 0, 0)])
        .has(Kind::WrongTimes);
}

// Number 4.
#[test]
fn outcomes_contain_the_whole_answer() {
    let told = |outcome: &str| {
        let mut story = Story::new();
        story.push("a", "+900000000", "CREATED");
        story
            .asked(1, Verb::Push, "a")
            .push("a", "+0", "EXISTS scheduled")
            .told(1, outcome);
        story.left(State::Scheduled, &[("a", 0, 0)]);
        story
    };
    told("EXISTS dead").has(Kind::ApiLies);
    told("EXISTS scheduled").is_clean();
}

// Number 4b. A server that grants 1 s must not answer 60 s. If it grants 60 s, that answer is right.
#[test]
fn outcomes_contain_the_granted_lease() {
    let extended = |given_ms: u64, told_ms: u64| {
        let (mut story, token) = claimed();
        let word = |ms| format!("OK {}", Story::server(ms));
        story.asked(1, Verb::Extend, "a").settle_asking(
            Verb::Extend,
            "a",
            &token,
            "1000",
            &word(given_ms),
        );
        story.told(1, &word(told_ms)).ack("a", &token);
        story
    };
    extended(1_150, 1_150).is_clean();
    extended(1_150, 60_150).has(Kind::ApiLies);
    extended(60_150, 60_150).has(Kind::WrongTimes);
    // The server does not extend the lease, and says so.
    let (mut story, token) = claimed();
    let word = format!("OK {}", Story::server(1_150));
    story
        .at(600)
        .settle_asking(Verb::Extend, "a", &token, "1000", &word)
        .ack("a", &token)
        .has(Kind::WrongTimes);
}

// Number 6.
#[test]
fn remaining_message_with_another_due_time_is_found() {
    let left = |state, time_ms| {
        let mut story = Story::new();
        story
            .push("a", "+100", "CREATED")
            .left_at(state, "a", time_ms, 0);
        story
    };
    left(State::Scheduled, Story::server(100 + 24 * HOUR_MS)).has(Kind::WrongTimes);
    left(State::Scheduled, Story::server(100)).is_clean();
    left(State::Ready, Story::server(101)).has(Kind::WrongTimes);
    let leased = |due_ms| {
        let mut story = claimed().0;
        story.left_at(State::Leased, "a", Story::server(due_ms), 0);
        story
    };
    leased(101).has(Kind::WrongTimes);
    leased(100).is_clean();
    let dead = |died_ms| {
        let (mut story, token) = claimed();
        story.settle(Verb::Bury, "a", &token, "OK").left_at(
            State::Dead,
            "a",
            Story::server(died_ms),
            0,
        );
        story
    };
    dead(100).has(Kind::WrongTimes);
    dead(150).is_clean();
}

// Run 10: a message crashed twice and was rescheduled. Later replies name the new due time.
#[test]
fn a_reschedule_after_two_crashes_has_one_due() {
    let claimed_with = |due_ms| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED").claim("a", 0, 1);
        story.at(1_000).claim("a", 0, 2);
        story.at(2_000).other("reap", &["100"], &["1", "0"]);
        let moved = format!("MOVED {}", Story::server(6_000));
        story
            .at(2_100)
            .change(Verb::Reschedule, "a", "+3900", &moved);
        let token = story.at(6_000).claim("a", due_ms, 3);
        story.ack("a", &token);
        story
    };
    claimed_with(0).has(Kind::WrongDue);
    claimed_with(5_000).has(Kind::WrongDue);
    claimed_with(6_000).is_clean();
}

// Number 11.
#[test]
fn a_retry_waits_for_the_requested_delay() {
    let (mut story, token) = claimed();
    let in_15_min = format!("SCHEDULED {}", Story::server(900_150));
    story.settle_asking(Verb::Retry, "a", &token, "50", &in_15_min);
    story
        .left(State::Scheduled, &[("a", 1, 0)])
        .has(Kind::WrongTimes);
    let (mut story, token) = claimed();
    let again = format!("OK {}", Story::server(300));
    story.settle_asking(Verb::Again, "a", &token, "+50", &again);
    story
        .left(State::Scheduled, &[("a", 0, 0)])
        .has(Kind::WrongTimes);
}

// Number 12.
#[test]
fn unknown_outcome_needs_a_call_without_an_answer() {
    let told = |lost, outcome: &str| {
        let mut story = Story::new();
        story.asked(1, Verb::Push, "a");
        if lost {
            story.unanswered(push("a", "+0", 0, ""), false);
        }
        story
            .push("a", "+0", "CREATED")
            .told(1, outcome)
            .left(State::Ready, &[("a", 0, 0)]);
        story
    };
    told(false, "?timeout").has(Kind::ApiLies);
    told(true, "?timeout").is_clean();
    told(true, "CREATED").is_clean();
}

// Number 13.
#[test]
fn operation_without_an_outcome_is_found() {
    let asked = |end| {
        let mut story = Story::of(dueq_proof::history::Role::Producer);
        story
            .asked(1, Verb::Push, "a")
            .push("a", "+0", "CREATED")
            .left(State::Ready, &[("a", 0, 0)]);
        if end {
            story.ended()
        } else {
            &mut story
        };
        story
    };
    asked(true).has(Kind::ApiLies);
    // The process was killed.
    asked(false).is_clean();
    let mut story = asked(false);
    story.told(1, "CREATED").ended().is_clean();
}

#[test]
fn a_delivery_has_the_length_and_the_options_of_the_push() {
    let delivered = |bytes, options: &str| {
        let mut story = Story::new();
        story
            .push_with("a", "+0", 0, "max_attempts=3 on_conflict=keep", "CREATED")
            .at(5);
        let token = story.grant(&[ClaimedItem(
            "a".into(),
            1,
            Story::server(0),
            1,
            bytes,
            options.into(),
        )]);
        story.ack("a", &token);
        story
    };
    delivered(100, "max_attempts=3").is_clean();
    delivered(99, "max_attempts=3").has(Kind::Unexpected);
    delivered(100, "").has(Kind::Unexpected);
    delivered(100, "max_attempts=4").has(Kind::Unexpected);
}

#[test]
fn claim_whose_deadline_is_not_its_lease_is_found() {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED").at(5).lease_ms = 1_001;
    let token = story.claim("a", 0, 1);
    story.ack("a", &token).has(Kind::WrongTimes);
}

// Number 9 of the review is in `excuses`; this is the opposite case: a lost reschedule that expects
// another due time moved nothing.
#[test]
fn a_lost_reschedule_needs_the_expected_due_time() {
    let moved = |expected_ms: u64| {
        let mut story = Story::new();
        let rest = format!("{} {}", Story::server(300), Story::server(expected_ms));
        story
            .push("a", "+100", "CREATED")
            .unanswered(change(Verb::Reschedule, "a", &rest), true);
        story.left_at(State::Scheduled, "a", Story::server(300), 0);
        story
    };
    moved(100).is_clean();
    moved(101).has(Kind::WrongTimes);
}
