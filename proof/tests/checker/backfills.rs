//! Ticks of past fires that a trigger makes.

use dueq_proof::check::Kind;
use dueq_proof::history::{Answer, Call, ClaimedItem, Event, Verb};
use dueq_proof::queues::TICKS;

use crate::story::{Story, Token, claim_without_answer};
use crate::ticks::{apply, declared, id, tick};

#[test]
fn a_backfill_makes_a_tick_again_with_the_payload_of_its_time() {
    let fire = Story::server(1_000).to_string();
    for (by_hand, is_clean) in [
        (Some("CREATED"), true),
        (Some("EXISTS"), false),
        (None, false),
    ] {
        let mut story = declared("");
        let token = tick(story.at(1_005), 1_000, 1);
        story.at(1_010).ack(&id(1_000), &token);
        if let Some(word) = by_hand {
            let answer = format!("{word} {}", id(1_000));
            story.at(5_000).other("trigger", &["t", &fire], &[&answer]);
        }
        let again = ClaimedItem(id(1_000), 0, Story::server(5_000), 1, 9, "tick".into());
        let token = story.at(5_005).grant(&[again]);
        story.at(5_010).ack(&id(1_000), &token);
        let verdict = story.verdict();
        assert_eq!(verdict.is_clean(), is_clean, "{:#?}", verdict.examples);
    }
}

/// A trigger of this fire at this time.
fn backfill(story: &mut Story, at_ms: u64, fire_ms: u64, word: &str) {
    let args = vec!["t".into(), Story::server(fire_ms).to_string()];
    let verb = "trigger".to_owned();
    let answer = Answer::Other(vec![format!("{word} {}", id(fire_ms))]);
    let changed = word == "CREATED";
    story
        .at(at_ms)
        .call(Call::Other { verb, args }, answer, changed);
}

/// A trigger of the fire at a second that gets no answer.
fn lost_backfill(story: &mut Story, at_ms: u64, applied: bool) {
    let args = vec!["t".into(), Story::server(1_000).to_string()];
    let verb = "trigger".to_owned();
    story
        .at(at_ms)
        .unanswered(Call::Other { verb, args }, applied);
}

/// The tick of the fire at a second, that a trigger made at this time.
fn backfilled(story: &mut Story, at_ms: u64, due_ms: u64) -> Token {
    let item = ClaimedItem(id(1_000), 0, Story::server(due_ms), 1, 9, "tick".into());
    story.at(at_ms).grant(&[item])
}

/// A tick is leased as the store is emptied, and its schedule is declared again.
fn emptied(mut story: Story, token: Token, next: &str) -> (Story, Token) {
    story.at(1_500).write(Event::Emptied {
        queue: TICKS.into(),
        incarnation: "b1".into(),
    });
    (story.incarnation, story.seq) = ("b2", 0);
    apply(&mut story, "7", "", &["OK", &format!("CREATED {next}")]);
    (story, token)
}

/// What comes before the settlement with the stale token, between it and the claim, and after.
type Steps = [Step; 3];
type Step = fn(&mut Story);

/// A stale token finds none; then a claim grants the tick with this due time.
fn granted_after_a_stale_token(steps: Steps, due_ms: u64) -> Story {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_000, 1);
    let (mut story, token) = emptied(story, token, "1000002000");
    steps[0](&mut story);
    let stale = story.at(2_500);
    stale.settle(Verb::Ack, &id(1_000), &token, "GONE");
    steps[1](&mut story);
    let token = backfilled(&mut story, 5_005, due_ms);
    story.at(5_010).ack(&id(1_000), &token);
    steps[2](&mut story);
    story
}

#[test]
fn a_tick_that_was_not_due_comes_in_an_emptied_store() {
    for (stale_ms, is_clean) in [(1_600, true), (2_002, false)] {
        let mut story = declared("");
        let token = tick(story.at(1_005), 1_000, 1);
        story.server_step_ms = -1_000;
        let (mut story, stale) = emptied(story, token, "1000001000");
        let stale_call = story.at(stale_ms);
        stale_call.settle(Verb::Bury, &id(1_000), &stale, "GONE");
        let token = tick(story.at(2_005), 1_000, 1);
        story.at(2_010).ack(&id(1_000), &token);
        let verdict = story.verdict();
        assert_eq!(verdict.count(Kind::Unexpected), u64::from(!is_clean));
        assert_eq!(verdict.is_clean(), is_clean, "{:#?}", verdict.examples);
    }
}

#[test]
fn a_backfill_makes_a_tick_that_a_stale_token_has_not_found() {
    let none: Step = |_| {};
    let created: Step = |story| backfill(story, 5_000, 1_000, "CREATED");
    granted_after_a_stale_token([none, created, none], 5_000).is_clean();
    // A second trigger makes it once more.
    let twice: Step = |story| {
        backfill(story, 6_000, 1_000, "CREATED");
        let token = backfilled(story, 6_005, 6_000);
        story.at(6_010).ack(&id(1_000), &token);
    };
    granted_after_a_stale_token([none, created, twice], 5_000).is_clean();
    let existed: Step = |story| backfill(story, 5_000, 1_000, "EXISTS");
    let another: Step = |story| backfill(story, 5_000, 0, "CREATED");
    let early: Step = |story| backfill(story, 2_000, 1_000, "CREATED");
    let late: Step = |story| backfill(story, 5_020, 1_000, "CREATED");
    for (steps, due_ms) in [
        ([none, none, none], 5_000),
        ([none, existed, none], 5_000),
        ([none, another, none], 5_000),
        ([early, none, none], 2_000),
        ([none, none, late], 5_000),
        ([none, created, none], 4_999), // it is due when the trigger made it
        ([none, created, none], 1_000),
    ] {
        granted_after_a_stale_token(steps, due_ms).has(Kind::Unexpected);
    }
}

#[test]
fn a_backfill_of_an_emptied_store_makes_no_tick_of_the_next() {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_000, 1);
    story.at(1_010).ack(&id(1_000), &token);
    backfill(&mut story, 1_200, 1_000, "CREATED");
    let token = backfilled(&mut story, 1_205, 1_200);
    let (mut story, token) = emptied(story, token, "1000002000");
    let stale = story.at(2_500);
    stale.settle(Verb::Ack, &id(1_000), &token, "GONE");
    let token = backfilled(&mut story, 5_005, 1_200);
    story.at(5_010).ack(&id(1_000), &token);
    story.has(Kind::Unexpected);
}

#[test]
fn a_backfill_without_an_answer_may_have_made_it() {
    let none: Step = |_| {};
    let applied: Step = |story| lost_backfill(story, 5_000, true);
    granted_after_a_stale_token([none, applied, none], 5_000).is_clean();
    let not_applied: Step = |story| lost_backfill(story, 5_000, false);
    let another_call: Step = |story| {
        story.at(5_000).unanswered(claim_without_answer(1), true);
    };
    let early: Step = |story| lost_backfill(story, 2_000, true);
    let late: Step = |story| lost_backfill(story, 5_020, true);
    for steps in [
        [none, not_applied, none],
        [none, another_call, none],
        [early, none, none],
        [none, none, late],
    ] {
        granted_after_a_stale_token(steps, 5_000).has(Kind::Unexpected);
    }
}
