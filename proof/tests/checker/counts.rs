//! Histories of single ids: counts of attempts, refused pushes, and impossible answers.

use dueq_proof::check::{Cause, Kind};
use dueq_proof::history::{State, Verb};

use crate::histories::claimed;
use crate::story::{Story, claim_without_answer, push};

#[test]
fn refused_push_that_left_a_trace_is_a_violation() {
    for verdict in ["INVALID option", "INVALID payload", "EXPIRED"] {
        let mut story = Story::new();
        story.push("a", "+0", verdict);
        let token = story.at(5).claim("a", 0, 1);
        story.ack("a", &token).has(Kind::RefusedLeftTrace);
    }
    Story::new()
        .refused(push("a", "+0", 0, ""))
        .left(State::Ready, &[("a", 0, 0)])
        .has(Kind::RefusedLeftTrace);
    // Another push of the id was accepted.
    let mut story = Story::new();
    story
        .push("a", "+0", "INVALID payload")
        .push("a", "+0", "CREATED")
        .left(State::Ready, &[("a", 0, 0)])
        .is_clean();
}

#[test]
fn counts_that_no_answer_explains_are_a_violation() {
    let crashed = |attempt| {
        let (mut story, _) = claimed();
        let token = story.at(1_200).claim("a", 100, attempt);
        story.ack("a", &token);
        story
    };
    crashed(1).has(Kind::Miscounted);
    crashed(3).has(Kind::Miscounted);
    crashed(2).is_clean();
    let (mut story, token) = claimed();
    story
        .retry("a", &token, 200)
        .left(State::Scheduled, &[("a", 0, 0)])
        .has(Kind::Miscounted);
    let (mut story, token) = claimed();
    story
        .retry("a", &token, 200)
        .left(State::Scheduled, &[("a", 1, 0)])
        .is_clean();
}

#[test]
fn a_claim_without_an_answer_explains_a_crash_after_its_lease() {
    let hidden = |ms, claims| {
        let mut story = Story::new();
        story.push("a", "+100", "CREATED");
        for _ in 0..claims {
            story.at(150).unanswered(claim_without_answer(1_000), true);
        }
        let token = story.at(ms).claim("a", 100, 2);
        story.ack("a", &token);
        story
    };
    hidden(1_200, 1).is_clean();
    hidden(1_090, 1).has(Kind::Miscounted);
    hidden(1_200, 0).has(Kind::Miscounted);
    let mut story = Story::new();
    story
        .push("a", "+100", "CREATED")
        .at(150)
        .unanswered(claim_without_answer(1_000), true);
    story
        .cancel("a", "LEASED")
        .left(State::Leased, &[("a", 0, 0)])
        .is_clean();
}

#[test]
fn death_before_or_beyond_its_limit_is_a_violation() {
    let (mut story, token) = claimed();
    story
        .settle(Verb::Retry, "a", &token, "DEAD")
        .left(State::Dead, &[("a", 1, 0)])
        .has(Kind::WrongDeaths);
    let limited = |verdict: &str, state| {
        let mut story = Story::new();
        story.push_with("a", "+100", 0, "max_attempts=1", "CREATED");
        let token = story.at(150).claim("a", 100, 1);
        story
            .settle(Verb::Retry, "a", &token, verdict)
            .left(state, &[("a", 1, 0)]);
        story
    };
    limited(
        &format!("SCHEDULED {}", Story::server(200)),
        State::Scheduled,
    )
    .has(Kind::WrongDeaths);
    limited("DEAD", State::Dead).is_clean();
    // Five crashes are one fewer than the limit.
    let crashed = |crashes: u32| {
        let (mut story, mut ms) = (Story::new(), 0);
        story.push("a", "+0", "CREATED");
        for attempt in 1..=crashes {
            story.at(ms).claim("a", 0, attempt);
            ms += 100_000;
        }
        let died_ms = Story::server(ms);
        story.left_at(State::Dead, "a", died_ms, crashes);
        story
    };
    crashed(5).has(Kind::WrongDeaths);
    crashed(6).is_clean();
}

#[test]
fn an_outcome_without_a_push_is_a_violation() {
    Story::new().push("a", "+0", "FINISHED").has(Kind::ApiLies);
    Story::new()
        .push("a", "+0", "EXISTS ready")
        .has(Kind::ApiLies);
    let mut story = Story::new();
    story
        .unanswered(push("a", "+0", 0, ""), true)
        .push("a", "+0", "EXISTS scheduled");
    story.left(State::Ready, &[("a", 0, 0)]).is_clean();
}

#[test]
fn answers_that_contradict_each_other_are_a_violation() {
    let (mut story, token) = claimed();
    story
        .push("a", "+0", "EXISTS scheduled")
        .ack("a", &token)
        .has(Kind::Contradictions);
    let (mut story, token) = claimed();
    story
        .push("a", "+0", "EXISTS leased")
        .ack("a", &token)
        .is_clean();
}

#[test]
fn retry_is_charged_release_is_not_and_again_resets_counts() {
    let (mut story, token) = claimed();
    story.retry("a", &token, 200);
    let token = story.at(210).claim("a", 200, 2);
    story.settle(
        Verb::Again,
        "a",
        &token,
        &format!("OK {}", Story::server(300)),
    );
    let token = story.at(300).claim("a", 300, 1);
    story.settle(Verb::Release, "a", &token, "OK");
    let token = story.at(310).claim("a", 300, 1);
    let verdict = story.ack("a", &token).verdict();
    assert!(verdict.is_clean(), "{:#?}", verdict.examples);
    let explained = [(Cause::Retry, 1), (Cause::Again, 1), (Cause::Release, 1)];
    assert!(verdict.explained_duplicates.into_iter().eq(explained));
}
