//! Histories with follow-ups and with windows.

use dueq_proof::check::Kind;
use dueq_proof::history::{Answer, Call, PushItem, SettleItem};

use crate::histories::claimed;
use crate::story::Story;

/// An ack with two follow-ups.
fn follow(story: &mut Story, token: &str, answer: &[&str]) {
    let child = |id: &str| PushItem(id.into(), "+0".into(), 1, 100, String::new());
    let what = Call::Follow {
        ack: Box::new(SettleItem("a".into(), token.into(), String::new())),
        items: vec![child("a/1"), child("a/2")],
    };
    let words = answer.iter().map(|word| (*word).to_owned()).collect();
    story.call(what, Answer::Items(words), answer[0] == "OK");
}

#[test]
fn follow_up_of_a_refused_ack_is_a_violation() {
    let (mut story, token) = claimed();
    follow(story.at(160), &token, &["OK", "CREATED", "CREATED"]);
    for child in ["a/1", "a/2"] {
        let token = story.at(170).claim(child, 160, 1);
        story.ack(child, &token);
    }
    story.is_clean();
    for (answer, kind) in [
        (["OK", "CREATED", "INVALID why"], Kind::ChildOfRefusedAck),
        (["OK", "CREATED", "CREATED"], Kind::Lost),
    ] {
        let (mut story, token) = claimed();
        follow(story.at(160), &token, &answer);
        let token = story.at(170).claim("a/1", 160, 1);
        story.ack("a/1", &token).has(kind);
    }
    for answer in ["REFUSED", "LOST"] {
        let (mut story, token) = claimed();
        let sent = if answer == "LOST" { "99" } else { &token };
        follow(story.at(160), sent, &[answer]);
        story.at(165).ack("a", &token);
        let token = story.at(170).claim("a/1", 160, 1);
        story.ack("a/1", &token).has(Kind::ChildOfRefusedAck);
    }
}

#[test]
fn second_message_within_a_window_is_a_violation() {
    for (again_ms, is_clean) in [(3_005, true), (2_900, false)] {
        let mut story = Story::new();
        for ms in [0, again_ms] {
            story
                .at(ms)
                .push_with("a", "+0", 0, "window=3000", "CREATED");
            let token = story.at(ms + 10).claim("a", ms, 1);
            story.at(ms + 20).ack("a", &token);
        }
        let verdict = story.verdict();
        assert_eq!(verdict.is_clean(), is_clean, "{:#?}", verdict.examples);
        assert_eq!(
            verdict.count(Kind::SecondCreatedInWindow),
            u64::from(!is_clean)
        );
    }
}

/// A window that has ended does not start again when the server's clock is set back.
#[test]
fn clock_step_back_does_not_renew_an_ended_window() {
    for (seen_ms, is_clean) in [(3_100, true), (2_900, false)] {
        let mut story = Story::new();
        story.push_with("a", "+0", 0, "window=3000", "CREATED");
        let token = story.at(10).claim("a", 0, 1);
        story.at(20).ack("a", &token);
        story.at(seen_ms).find_nothing(false);
        story.server_step_ms = -3_000;
        story
            .at(3_200)
            .push_with("a", "+0", 0, "window=3000", "CREATED");
        let token = story.at(3_210).claim("a", 200, 1);
        story.at(3_220).ack("a", &token);
        let verdict = story.verdict();
        assert_eq!(
            verdict.count(Kind::SecondCreatedInWindow),
            u64::from(!is_clean),
            "{:#?}",
            verdict.examples
        );
    }
}
