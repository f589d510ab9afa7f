//! Histories of several ids or of a whole queue.

use dueq_proof::check::Kind;
use dueq_proof::history::{ClaimedItem, Event, Phase, State, Verb};

use crate::story::{Story, push};

#[test]
fn a_run_that_proves_nothing_is_invalid() {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    assert!(!story.verdict().valid, "nothing was claimed");
    let token = story.at(5).claim("a", 0, 1);
    assert!(story.ack("a", &token).verdict().valid);
    story.fault("kill -9 of a worker", 1, Phase::Begin);
    assert!(!story.verdict().valid, "the fault left no trace");
    let verdict = story
        .fault("kill -9 of a worker", 1, Phase::Trace)
        .verdict();
    assert!(verdict.valid);
    assert_eq!(verdict.faults.get("kill -9 of a worker"), Some(&1));
    assert!(
        !dueq_proof::check::check_events([])
            .expect("no histories are no error")
            .valid,
        "there are no histories"
    );
}

#[test]
fn change_that_the_server_forgot_is_a_violation() {
    let forgetful = |undone| {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .push("b", "+0", "CREATED")
            .push("c", "+0", "CREATED");
        if undone {
            story.write(Event::Undone {
                queue: "q".into(),
                incarnation: "b1".into(),
                survived: 1,
                next: 1_000_000,
            });
            story.seq = 1_000_000;
        } else {
            story.seq = 1;
        }
        story.at(100).push("d", "+0", "CREATED");
        let left = ["a", "b", "c", "d"].map(|id| (id, 0, 0));
        story.left(
            State::Scheduled,
            if undone {
                &[("a", 0, 0), ("d", 0, 0)]
            } else {
                &left
            },
        );
        story
    };
    forgetful(false).has(Kind::RolledBack);
    forgetful(true).is_clean();
}

#[test]
fn change_without_a_call_is_a_violation() {
    let changed = |unknown| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        for _ in 0..unknown {
            story.unanswered(push("x", "+0", 0, ""), false);
        }
        story.seq += 2;
        story
            .push("b", "+0", "CREATED")
            .left(State::Scheduled, &[("a", 0, 0), ("b", 0, 0)]);
        story
    };
    changed(1).has(Kind::UnaskedChanges);
    changed(2).is_clean();
}

#[test]
fn an_emptied_store_promises_nothing() {
    let emptied = |by_us: bool| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        if by_us {
            story.write(Event::Emptied {
                queue: "q".into(),
                incarnation: "b1".into(),
            });
        }
        (story.incarnation, story.seq) = ("b2", 0);
        story
            .at(50)
            .push("a", "+0", "CREATED")
            .left(State::Scheduled, &[("a", 0, 0)]);
        story
    };
    emptied(true).is_clean();
    emptied(false).has(Kind::Lost);
}

#[test]
fn a_purge_may_take_waiting_messages() {
    let mut story = Story::new();
    let until_ms = Story::server(10_000);
    story.unanswered(push("a", "+0", until_ms, ""), true).other(
        "purge",
        &["scheduled", "1000"],
        &["1", "0"],
    );
    story
        .push_with("a", "+0", until_ms, "", "FINISHED")
        .is_clean();
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .other("purge", &["scheduled", "1000"], &["1", "0"]);
    story
        .push("a", "+0", "CREATED")
        .left(State::Ready, &[("a", 0, 0)])
        .is_clean();
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    let token = story.at(5).claim("a", 0, 1);
    story.other("purge", &["scheduled", "1000"], &["0", "0"]);
    story.settle(Verb::Ack, "a", &token, "GONE").has(Kind::Lost);
}

#[test]
fn a_clock_step_back_allows_an_earlier_redelivery() {
    let stepped = |step_ms: i64| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        story.at(4_000).claim("a", 0, 1);
        story.server_step_ms = -step_ms;
        story.at(5_200).other("reap", &["100"], &["1", "0"]);
        let token = story.at(5_300).claim("a", 0, 2);
        story.ack("a", &token);
        story
    };
    stepped(3_000).is_clean();
    stepped(0).is_clean();
}

#[test]
fn inconsistent_keys_are_two_states() {
    Story::new()
        .write(Event::Broken {
            queue: "q".into(),
            what: "a is scheduled and ready".into(),
        })
        .has(Kind::TwoStates);
}

#[test]
fn handler_that_gets_other_values_is_a_violation() {
    let started = |version, attempt| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let due_ms = Story::server(0);
        let token = story
            .at(5)
            .grant(&[ClaimedItem("a".into(), 1, due_ms, 1, 100, String::new())]);
        story.started("a", version, attempt, due_ms);
        story.ack("a", &token);
        story
    };
    started(1, 1).is_clean();
    started(0, 1).has(Kind::ApiLies);
    started(1, 2).has(Kind::ApiLies);
}

#[test]
fn outcome_that_redis_did_not_report_is_a_violation() {
    let told = |outcome: &str| {
        let mut story = Story::new();
        story.write(Event::Asked {
            queue: "q".into(),
            op: 1,
            verb: Verb::Push,
            ids: vec!["a".into()],
            replicas: 0,
        });
        story.push("a", "+0", "CREATED").write(Event::Told {
            op: 1,
            outcomes: vec![outcome.into()],
        });
        story.left(State::Ready, &[("a", 0, 0)]);
        story
    };
    told("CREATED").is_clean();
    told("?timeout").has(Kind::ApiLies);
    told("FINISHED").has(Kind::ApiLies);
    told("!not applied").has(Kind::ApiLies);
}
