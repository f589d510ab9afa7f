//! Several tries of one push, and a new push of its id.

use dueq_proof::check::Kind;
use dueq_proof::history::{State, Verb};

use crate::histories::claimed;
use crate::story::{Story, push};

/// The time limit of a call whose first try is made at this time.
fn until(ms: u64) -> u64 {
    Story::server(ms + 10_000)
}

/// The first try is made at 0 ms; its message is delivered and acked; then comes the second try.
fn repeated(is_lost: bool, verdict: &str) -> Story {
    let mut story = Story::new();
    if is_lost {
        story.unanswered(push("a", "+0", until(0), ""), true);
    } else {
        story.push_with("a", "+0", until(0), "", "CREATED");
    }
    let token = story.at(5).claim("a", 0, 1);
    story
        .ack("a", &token)
        .at(10)
        .push_with("a", "+0", until(0), "", verdict);
    story.left_at(State::Ready, "a", Story::server(10), 0);
    story
}

#[test]
fn a_second_created_of_one_call_is_an_unexplained_duplicate() {
    for is_lost in [true, false] {
        repeated(is_lost, "CREATED").has(Kind::UnexplainedDuplicates);
    }
    let mut story = Story::new();
    story.unanswered(push("a", "+0", until(0), ""), true);
    let token = story.at(5).claim("a", 0, 1);
    story
        .ack("a", &token)
        .at(10)
        .push_with("a", "+0", until(0), "", "FINISHED")
        .is_clean();
}

#[test]
fn a_new_push_makes_a_new_message() {
    // Another call, or one without a mark of its tries.
    for until_ms in [until(6), 0] {
        let (mut story, token) = claimed();
        story
            .ack("a", &token)
            .at(160)
            .push_with("a", "+0", until_ms, "", "CREATED");
        story.left(State::Ready, &[("a", 0, 0)]).is_clean();
    }
}

#[test]
fn a_new_push_that_is_taken_for_a_repetition_is_lost() {
    let ends: [fn(&mut Story); 2] = [
        |story| {
            story.cancel("a", "CANCELLED");
        },
        |story| {
            let token = story.at(150).claim("a", 100, 1);
            story.ack("a", &token);
        },
    ];
    for end in ends {
        for until_ms in [until(200), 0] {
            let mut story = Story::new();
            story.push_with("a", "+100", until(0), "", "CREATED");
            end(&mut story);
            story
                .at(200)
                .push_with("a", "+100", until_ms, "", "FINISHED")
                .has(Kind::Lost);
        }
    }
}

#[test]
fn a_cancel_between_two_attempts_ends_both() {
    // Either the first try found a message and its reply is lost; or it was never applied.
    let repeated = |cancelled_ms: u64, first_ms: u64, verdict: &str| {
        let mut story = Story::new();
        story.push_with("a", "+900", until(0), "", "CREATED");
        let lose = |story: &mut Story| {
            story
                .at(first_ms)
                .unanswered(push("a", "+900", until(first_ms), ""), false);
        };
        if first_ms < cancelled_ms {
            lose(&mut story);
        }
        story.at(cancelled_ms).cancel("a", "CANCELLED");
        if first_ms > cancelled_ms {
            lose(&mut story);
        }
        story
            .asked(7, Verb::Push, "a")
            .unanswered(push("a", "+900", until(first_ms), ""), false);
        story
            .at(300)
            .push_with("a", "+900", until(first_ms), "", verdict)
            .told(7, "FINISHED");
        story
    };
    let finished = |ms| format!("FINISHED {}.250", Story::server(ms));
    repeated(200, 100, "FINISHED").is_clean();
    repeated(200, 100, &finished(200)).is_clean();
    // The message was cancelled before the first try, and the caller knew that.
    repeated(50, 100, "FINISHED").has(Kind::Lost);
    repeated(50, 100, &finished(50)).has(Kind::Lost);
    // This is correct by the clock that the call used, but its caller must not be told so.
    repeated(99, 100, &finished(99)).has(Kind::Lost);
}

#[test]
fn a_single_try_is_repeated_after_finished() {
    let mut story = Story::new();
    story
        .push_with("a", "+900", until(0), "", "CREATED")
        .at(100)
        .cancel("a", "CANCELLED");
    story.asked(7, Verb::Push, "a").at(101);
    story.push_with(
        "a",
        "+900",
        until(99),
        "",
        &format!("FINISHED {}.5", Story::server(100)),
    );
    story
        .push_with("a", "+900", until(102), "", "CREATED")
        .told(7, "CREATED");
    story.left(State::Scheduled, &[("a", 0, 0)]).is_clean();
}

/// The message belongs to another call, which is forgotten by now.
#[test]
fn a_call_that_found_a_message_is_remembered_until_its_end() {
    let mut story = Story::new();
    story.push_with("a", "+9400", until(0), "", "CREATED");
    story
        .at(9_000)
        .unanswered(push("a", "+9400", until(9_000), ""), false);
    let token = story.at(9_500).claim("a", 9_400, 1);
    story.ack("a", &token);
    story
        .at(11_000)
        .push_with("a", "+9400", until(9_000), "", "FINISHED")
        .is_clean();
}
