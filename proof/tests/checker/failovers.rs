//! Which changes a failover may undo, and which it must not.

use dueq_proof::check::Kind;
use dueq_proof::history::{Event, Phase, State, Verb};

use crate::story::{Story, push};

/// `a` is pushed, and `tell` adds a push of `b`. After a failover the new master has only `a`.
fn undone(tell: impl FnOnce(&mut Story) -> &mut Story) -> Story {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    tell(&mut story);
    story.failed_over(1).left(State::Scheduled, &[("a", 0, 0)]);
    story
}

#[test]
fn a_replicated_push_must_not_be_undone() {
    undone(|story| story.push_replicated("b", "CREATED", "CREATED")).has(Kind::Lost);
    // The message was moved, and the failover undid the move.
    undone(|story| story.push_replicated("a", "MOVED", "MOVED")).has(Kind::Lost);
    // Another process pushed the message. A push that found it has the guarantee of the push that
    // stored it.
    undone(|story| {
        story.push("b", "+0", "CREATED").push_replicated(
            "b",
            "EXISTS scheduled",
            "EXISTS scheduled",
        )
    })
    .has(Kind::Lost);
    // The new master has the message.
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .push_replicated("b", "CREATED", "CREATED")
        .failed_over(2);
    story
        .left(State::Scheduled, &[("a", 0, 0), ("b", 0, 0)])
        .is_clean();
    assert_eq!(story.verdict().replicated, 1);
}

#[test]
fn an_unreplicated_push_may_be_undone_and_is_counted() {
    let clean = |mut story: Story, declared| {
        let verdict = story.verdict();
        assert!(verdict.is_clean(), "{:#?}", verdict.examples);
        assert_eq!(verdict.lost_in_declared_window, declared);
    };
    clean(undone(|story| story), 0);
    clean(undone(|story| story.push("b", "+0", "CREATED")), 1);
    // The caller knows that the message may be lost.
    clean(
        undone(|story| story.push_replicated("b", "CREATED", "?only 0 of 1 replicas confirmed it")),
        0,
    );
    // The message existed before, and still exists.
    clean(
        undone(|story| {
            story
                .push("b", "+0", "CREATED")
                .push_replicated("a", "EXISTS ready", "EXISTS ready")
        }),
        1,
    );
    // The message was handled or cancelled before the failover undid everything.
    let mut handled = Story::new();
    handled
        .push("a", "+0", "CREATED")
        .push("b", "+0", "CREATED");
    let token = handled.at(5).claim("b", 0, 1);
    handled
        .ack("b", &token)
        .failed_over(1)
        .left(State::Scheduled, &[("a", 0, 0)]);
    clean(handled, 0);
    clean(
        undone(|story| story.push("b", "+0", "CREATED").cancel("b", "CANCELLED")),
        0,
    );
}

#[test]
fn a_concurrent_push_without_replicas_may_be_undone() {
    let mut story = undone(|story| {
        let asked = |op, replicas| Event::Asked {
            queue: "q".into(),
            op,
            verb: Verb::Push,
            ids: vec!["b".into()],
            replicas,
        };
        let told = |op, word: &str| Event::Told {
            op,
            outcomes: vec![word.into()],
        };
        story
            .write(asked(100, 0))
            .write(asked(101, 1))
            .push("b", "+0", "CREATED");
        story
            .write(told(100, "CREATED"))
            .write(told(101, "CREATED"))
    });
    assert!(story.verdict().is_clean());
    assert_eq!(story.verdict().replicated, 0);
}

/// An old master grants `a` after the new one has taken over. The new one knows nothing after
/// `survived`.
fn split() -> (Story, String) {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED").push("b", "+0", "CREATED");
    let stale = story.at(5).claim("a", 0, 1);
    story.failed_over(1);
    (story, stale)
}

#[test]
fn a_grant_of_a_replaced_master_is_void() {
    // Either the message waits on the new master, or another process has it there.
    for waits in [true, false] {
        let settled = |verdict: &str| {
            let (mut story, stale) = split();
            let token = if waits {
                None
            } else {
                Some(story.at(10).claim("a", 0, 1))
            };
            story.at(20).settle(Verb::Ack, "a", &stale, verdict);
            (story, token)
        };
        let (mut story, _) = settled("OK");
        story.has(Kind::StaleTokensAccepted);
        let (mut story, token) = settled("LOST");
        let token = token.unwrap_or_else(|| story.at(30).claim("a", 0, 1));
        story.ack("a", &token).is_clean();
    }
    // The new master's own grant of the message is valid.
    let (mut story, _) = split();
    let token = story.at(10).claim("a", 0, 1);
    story.ack("a", &token).is_clean();
}

#[test]
fn answers_of_a_replaced_master_are_void() {
    let (mut story, stale) = split();
    let seq = std::mem::replace(&mut story.seq, 3);
    story
        .at(10)
        .ack("a", &stale)
        .push("c", "+0", "CREATED")
        .cancel("b", "CANCELLED");
    // The old master still answers while the new one is already in use, with lower `seq`.
    story.seq = seq;
    let token = story.at(15).claim("a", 0, 1);
    story.ack("a", &token).is_clean();
    let verdict = story.verdict();
    assert_eq!(
        verdict.lost_in_declared_window, 1,
        "only c: b was cancelled where it was made"
    );
    // Without a failover, this history is a claim after an ack.
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    let token = story.at(5).claim("a", 0, 1);
    story.ack("a", &token);
    let token = story.at(15).claim("a", 0, 1);
    story.ack("a", &token).has(Kind::ClaimedAfterAck);
}

#[test]
fn a_run_with_failovers_and_nothing_replicated_proves_nothing() {
    let run = |replicated: bool| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        story
            .ack("a", &token)
            .fault("failover", 1, Phase::Begin)
            .fault("failover", 1, Phase::Trace);
        if replicated {
            story
                .push_replicated("b", "CREATED", "CREATED")
                .left(State::Ready, &[("b", 0, 0)]);
        }
        story.verdict()
    };
    assert!(!run(false).valid);
    assert!(run(true).is_green(), "{:#?}", run(true));
}

#[test]
fn a_push_without_an_answer_may_have_survived_or_not() {
    for there in [true, false] {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .unanswered(push("b", "+0", 0, ""), true);
        story
            .failed_over(if there { 2 } else { 1 })
            .left(State::Scheduled, &[("a", 0, 0)]);
        if there {
            story.left_at(State::Scheduled, "b", Story::server(0), 0);
        }
        story.is_clean();
    }
}

/// After a failover from the master `old`, this master answers a call with the state that the
/// replica had.
fn answered_by(master: &'static str, is_replaced: bool) -> Story {
    let mut story = Story::new();
    story.master = "old";
    story.push("a", "+0", "CREATED").failed_over(1);
    if is_replaced {
        story.write(Event::Replaced {
            queue: "q".into(),
            incarnation: story.incarnation.into(),
            survived: 1,
            master: "old".into(),
        });
    }
    story.master = "new";
    story.push("b", "+0", "CREATED");
    let newest = std::mem::replace(&mut story.seq, 1);
    story.master = master;
    story.cancel("c", "ABSENT");
    story.seq = newest;
    story.left(State::Scheduled, &[("a", 0, 0), ("b", 0, 0)]);
    story
}

#[test]
fn only_a_replaced_master_may_answer_with_an_old_seq() {
    answered_by("old", true).is_clean();
    answered_by("new", true).has(Kind::RolledBack);
    answered_by("old", false).has(Kind::RolledBack);
}

#[test]
fn a_queue_that_only_the_replaced_master_had_is_lost() {
    let pushed = |master| {
        let mut story = Story::new();
        story.master = master;
        story.push("a", "+0", "CREATED");
        let (queue, master) = ("q".into(), "m1".into());
        story.write(Event::Vanished { queue, master });
        story
    };
    pushed("m1").is_clean();
    pushed("m2").has(Kind::Lost);
    let mut story = pushed("m1");
    story.incarnation = "b2";
    story.at(1_000).push("b", "+0", "CREATED");
    story.has(Kind::Lost);
}
