//! Histories of single ids.

use dueq_proof::check::{Cause, Kind};
use dueq_proof::history::{State, Verb};

use crate::story::{Story, change, push, settle};

/// A message is pushed at 0 ms with a delay of 100 ms, and claimed at 150 ms for a second.
pub(crate) fn claimed() -> (Story, String) {
    let mut story = Story::new();
    story.push("a", "+100", "CREATED");
    let token = story.at(150).claim("a", 100, 1);
    (story, token)
}

#[test]
fn an_acked_message_is_clean() {
    let (mut story, token) = claimed();
    story.at(160).ack("a", &token);
    let verdict = story.verdict();
    assert!(verdict.is_green(), "{verdict:#?}");
    assert_eq!((verdict.messages, verdict.deliveries), (1, 1));
}

#[test]
fn missing_message_is_lost() {
    Story::new().push("a", "+100", "CREATED").has(Kind::Lost);
    // The id is stored again although its message should exist: it was lost in between.
    let mut story = Story::new();
    story
        .push("a", "+100", "CREATED")
        .push("a", "+100", "CREATED");
    story.left(State::Scheduled, &[("a", 0, 0)]).has(Kind::Lost);
    let (mut story, token) = claimed();
    story.settle(Verb::Ack, "a", &token, "GONE").has(Kind::Lost);
    // After a reap the message must still exist.
    claimed().0.has(Kind::Lost);
}

#[test]
fn missing_message_with_an_explanation_is_not_lost() {
    Story::new()
        .push("a", "+100", "CREATED")
        .left(State::Scheduled, &[("a", 0, 0)])
        .is_clean();
    Story::new()
        .push("a", "+100", "CREATED")
        .cancel("a", "CANCELLED")
        .is_clean();
    // Unanswered calls may have removed the message.
    let (mut story, token) = claimed();
    story
        .unanswered(settle(Verb::Ack, "a", &token, ""), true)
        .is_clean();
    Story::new()
        .push("a", "+100", "CREATED")
        .unanswered(change(Verb::Cancel, "a", ""), true)
        .is_clean();
    // No caller learned that the message was stored.
    Story::new()
        .unanswered(push("a", "+1", 0, ""), false)
        .is_clean();
    let (mut story, token) = claimed();
    story
        .settle(Verb::Bury, "a", &token, "OK")
        .left(State::Dead, &[("a", 0, 0)])
        .is_clean();
}

#[test]
fn message_without_a_push_is_unexpected() {
    let mut story = Story::new();
    let token = story.claim("a", 0, 1);
    story.ack("a", &token).has(Kind::Unexpected);
    Story::new()
        .left(State::Ready, &[("a", 0, 0)])
        .has(Kind::Unexpected);
    // The payload is not the pushed one.
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    let token = story.at(5).claim_version("a", 0, 0, 1);
    story.ack("a", &token).has(Kind::Unexpected);
    // The earlier message was replaced.
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .push_with("a", "+10", 0, "on_conflict=replace reuse", "MOVED");
    let token = story.at(15).claim_version("a", 1, 10, 1);
    story.ack("a", &token).has(Kind::Unexpected);
}

#[test]
fn message_of_an_unanswered_push_is_expected() {
    let mut story = Story::new();
    story.unanswered(push("a", "+10", 0, ""), true);
    let token = story.at(15).claim("a", 10, 1);
    story.ack("a", &token).is_clean();
    for version in [1, 2] {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .unanswered(push("a", "+0", 0, "on_conflict=replace reuse"), true);
        let token = story.at(15).claim_version("a", version, 0, 1);
        story.ack("a", &token).is_clean();
    }
}

#[test]
fn a_claim_before_its_due_time_is_early() {
    let mut story = Story::new();
    story.push("a", "+100", "CREATED");
    let token = story.at(99).claim("a", 100, 1);
    story.ack("a", &token).has(Kind::Early);
    let mut story = Story::new();
    story.push("a", "+100", "CREATED");
    let token = story.at(100).claim("a", 100, 1);
    story.ack("a", &token).is_clean();
}

#[test]
fn claim_before_its_delay_by_process_clocks_is_early() {
    let mut story = Story::new();
    story.push("a", "+10000", "CREATED");
    // By the server's clock the message is due.
    story.server_step_ms = 9_000;
    let token = story.at(1_000).claim("a", 10_000, 1);
    story.ack("a", &token).has(Kind::EarlyByClient);
    // An absolute due time, which counts by the server's clock, promises nothing by other clocks.
    let mut story = Story::new();
    story.push("a", &Story::server(10_000).to_string(), "CREATED");
    story.server_step_ms = 9_000;
    let token = story.at(1_000).claim("a", 10_000, 1);
    story.ack("a", &token).is_clean();
    // The harness had changed the server's clock.
    let mut story = Story::new();
    story.push("a", "+10000", "CREATED").fault(
        "server clock",
        1,
        dueq_proof::history::Phase::Begin,
    );
    story.server_step_ms = 9_000;
    let token = story.at(1_000).claim("a", 10_000, 1);
    story.ack("a", &token).is_clean();
}

#[test]
fn claim_before_the_back_off_is_over_is_early() {
    let retried = |ms| {
        let (mut story, token) = claimed();
        story.at(160).retry("a", &token, 460);
        let token = story.at(ms).claim("a", 460, 2);
        story.ack("a", &token);
        story
    };
    retried(459).has(Kind::RetriedEarly);
    retried(460).is_clean();
    let moved = |ms, due_ms| {
        let mut story = Story::new();
        let verdict = format!("MOVED {}", Story::server(500));
        story
            .push("a", "+100", "CREATED")
            .change(Verb::Reschedule, "a", "+500", &verdict);
        let token = story.at(ms).claim("a", due_ms, 1);
        story.ack("a", &token);
        story
    };
    moved(499, 100).has(Kind::RetriedEarly);
    moved(501, 100).has(Kind::WrongDue);
    moved(501, 500).is_clean();
}

#[test]
fn back_off_grows_with_each_crash() {
    let crashed_twice = |ms| {
        let (mut story, _) = claimed();
        story.at(1_150).claim("a", 100, 2);
        let token = story.at(ms).claim("a", 100, 3);
        story.ack("a", &token);
        story
    };
    // The second lease lasts until 2,150 ms, and the back-off of the second crash is at least 1 s.
    crashed_twice(3_149).has(Kind::RetriedEarly);
    crashed_twice(3_150).is_clean();
}

#[test]
fn claim_during_a_lease_is_an_overlap() {
    let again_at = |ms, attempt| {
        let (mut story, _) = claimed();
        let token = story.at(ms).claim("a", 100, attempt);
        story.at(ms + 10).ack("a", &token);
        story
    };
    again_at(1_149, 2).has(Kind::OverlappingLeases);
    again_at(1_150, 2).is_clean();
    let verdict = again_at(1_150, 2).verdict();
    assert_eq!(
        verdict.explained_duplicates.get(&Cause::LeaseRanOut),
        Some(&1)
    );
    // An extended lease continues. An unanswered extension may have been applied.
    let (mut story, token) = claimed();
    story.at(500).settle(
        Verb::Extend,
        "a",
        &token,
        &format!("OK {}", Story::server(1_500)),
    );
    let other = story.at(1_200).claim("a", 100, 2);
    story.ack("a", &other).has(Kind::OverlappingLeases);
    let (mut story, token) = claimed();
    story
        .at(500)
        .unanswered(settle(Verb::Extend, "a", &token, "1000"), false);
    let other = story.at(1_200).claim("a", 100, 2);
    story.ack("a", &other).is_clean();
    // An unanswered release may have been applied.
    let (mut story, token) = claimed();
    story
        .at(500)
        .unanswered(settle(Verb::Release, "a", &token, ""), true);
    let other = story.at(600).claim("a", 100, 1);
    story.ack("a", &other).is_clean();
}

#[test]
fn lease_that_ends_before_its_deadline_is_cut_short() {
    let lost_at = |ms| {
        let (mut story, token) = claimed();
        story.at(ms).settle(Verb::Ack, "a", &token, "LOST");
        story
    };
    let mut story = lost_at(1_100);
    story
        .left(State::Leased, &[("a", 0, 0)])
        .has(Kind::LeasesCutShort);
    lost_at(1_200)
        .left(State::Scheduled, &[("a", 0, 1)])
        .is_clean();
}

#[test]
fn settlement_with_a_stale_token_is_a_violation() {
    let late = |verdict| {
        let (mut story, old) = claimed();
        let token = story.at(1_200).claim("a", 100, 2);
        story.at(1_210).settle(Verb::Ack, "a", &old, verdict);
        (story, token)
    };
    late("OK").0.has(Kind::StaleTokensAccepted);
    let (mut story, token) = late("LOST");
    story.ack("a", &token).is_clean();
}

#[test]
fn claim_after_an_ack_is_a_violation() {
    let (mut story, token) = claimed();
    story.at(160).ack("a", &token);
    let token = story.at(170).claim("a", 100, 1);
    story.ack("a", &token).has(Kind::ClaimedAfterAck);
    let (mut story, token) = claimed();
    story
        .at(160)
        .ack("a", &token)
        .push_with("a", "+0", 0, "reuse", "CREATED");
    let token = story.at(170).claim("a", 160, 1);
    story.ack("a", &token).is_clean();
}

#[test]
fn claim_after_a_cancel_is_a_violation() {
    let mut story = Story::new();
    story.push("a", "+100", "CREATED").cancel("a", "CANCELLED");
    let token = story.at(150).claim("a", 100, 1);
    story.ack("a", &token).has(Kind::FiredAfterCancel);
    // Either the cancel or the claim succeeds, not both.
    claimed()
        .0
        .cancel("a", "CANCELLED")
        .has(Kind::FiredAfterCancel);
    let (mut story, token) = claimed();
    story
        .cancel("a", "LEASED")
        .ack("a", &token)
        .cancel("a", "ABSENT")
        .is_clean();
    // The id was pushed again.
    let mut story = Story::new();
    story
        .push("a", "+100", "CREATED")
        .cancel("a", "CANCELLED")
        .cancel("a", "CANCELLED");
    story.push_with("a", "+100", 0, "reuse", "CREATED");
    let token = story.at(150).claim("a", 100, 1);
    story.ack("a", &token).is_clean();
}

#[test]
fn id_in_two_states_is_a_violation() {
    let mut story = Story::new();
    story
        .push("a", "+100", "CREATED")
        .left(State::Scheduled, &[("a", 0, 0)]);
    story
        .left(State::Ready, &[("a", 0, 0)])
        .has(Kind::TwoStates);
    let (mut story, token) = claimed();
    story
        .settle(Verb::Bury, "a", &token, "OK")
        .left(State::Scheduled, &[("a", 0, 0)])
        .has(Kind::TwoStates);
}

#[test]
fn dead_message_that_is_delivered_is_a_violation() {
    let (mut story, token) = claimed();
    story.settle(Verb::Bury, "a", &token, "OK");
    let token = story.at(200).claim("a", 100, 1);
    story.ack("a", &token).has(Kind::DeadAndDelivered);
    let (mut story, token) = claimed();
    story
        .settle(Verb::Bury, "a", &token, "OK")
        .at(200)
        .change(Verb::Requeue, "a", "", "REQUEUED");
    let token = story.at(210).claim("a", 200, 1);
    story.ack("a", &token).is_clean();
}
