//! Histories with actions of operators, and with faults that were not applied.

use dueq_proof::check::Kind;
use dueq_proof::history::{Call, Event, Phase, State, Verb};

use crate::story::{Story, change, push};

fn lost(verb: &str, args: &[&str]) -> Call {
    Call::Other {
        verb: verb.into(),
        args: args.iter().map(|word| (*word).to_owned()).collect(),
    }
}

#[test]
fn a_fault_that_was_not_applied_leaves_a_run_valid() {
    let mut story = Story::new();
    story.push("a", "+0", "CREATED");
    let token = story.at(5).claim("a", 0, 1);
    story
        .ack("a", &token)
        .fault("kill_blocked", 1, Phase::Begin)
        .fault("kill_blocked", 1, Phase::NotApplied);
    assert!(story.verdict().valid);
}

#[test]
fn grant_between_a_pause_and_its_resume_is_a_violation() {
    let paused = |resume: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .other("pause", &[], &["OK"]);
        resume(&mut story);
        let token = story.at(50).claim("a", 0, 1);
        story.ack("a", &token);
        story
    };
    paused(&|_| ()).has(Kind::GrantedWhilePaused);
    paused(&|story| {
        story.other("resume", &[], &["OK"]);
    })
    .is_clean();
    paused(&|story| {
        story.unanswered(lost("resume", &[]), false);
    })
    .is_clean();
    // The queue was already paused: such an answer has the `seq` of the earlier change.
    paused(&|story| {
        story
            .other("resume", &[], &["OK"])
            .other("pause", &[], &["OK"]);
        let seq = story.seq;
        story.other("pause", &[], &["OK"]).seq = seq;
    })
    .has(Kind::GrantedWhilePaused);
}

#[test]
fn grant_before_a_closed_queue_opens_is_a_violation() {
    let closed = |period_ms: &str, opens: &str, then: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let opens = format!("OK {}", story.now_ms() + opens.parse::<u64>().expect("ms"));
        story.other("pause", &[period_ms], &[&opens]);
        then(&mut story);
        let token = story.at(50).claim("a", 0, 1);
        story.ack("a", &token);
        story
    };
    closed("500", "500", &|_| ()).has(Kind::GrantedWhileClosed);
    closed("20", "20", &|_| ()).is_clean();
    // The queue was closed for longer.
    closed("20", "500", &|_| ()).has(Kind::GrantedWhileClosed);
    closed("500", "500", &|story| {
        story.other("resume", &[], &["OK"]);
    })
    .is_clean();
    closed("500", "500", &|story| {
        story.unanswered(lost("resume", &[]), false);
    })
    .is_clean();
    // A pause and its resume open the queue, too; a pause alone leaves it closed.
    closed("500", "500", &|story| {
        story.other("pause", &[], &["OK"]);
        story.other("resume", &[], &["OK"]);
    })
    .is_clean();
    closed("20", "20", &|story| {
        story.other("pause", &[], &["OK"]);
    })
    .has(Kind::GrantedWhilePaused);
    // Release 0.1 does not know that the queue is closed.
    closed("500", "500", &|story| {
        story.write(Event::OlderScripts);
    })
    .is_clean();
    // The closing was over. If the clock then goes back, the queue stays open.
    let set_back = |has_opened: bool| {
        closed("20", "20", &|story| {
            if has_opened {
                story.push("b", "+0", "CREATED");
                let token = story.at(30).claim("b", 0, 1);
                story.ack("b", &token);
            }
            story.server_step_ms = -40;
        })
    };
    set_back(false).has(Kind::GrantedWhileClosed);
    set_back(true).is_clean();
    let mut story = Story::new();
    story.other("pause", &["500"], &["OK"]).has(Kind::ApiLies);
}

/// A claim that finds nothing is right while the queue is closed, and wrong once it is open.
#[test]
fn a_claim_finds_nothing_while_its_queue_is_closed() {
    let empty_at = |ms, is_resumed, undone: Option<u64>| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let opens = format!("OK {}", story.now_ms() + 500);
        story.other("pause", &["500"], &[&opens]).at(100);
        if is_resumed {
            story.other("resume", &[], &["OK"]);
        }
        if let Some(undone) = undone {
            story.failed_over(story.seq - undone);
        }
        story.at(ms).find_nothing(false);
        let token = story.at(1_600).claim("a", 0, 1);
        story.ack("a", &token);
        story
    };
    empty_at(490, false, None).is_clean();
    empty_at(510, false, None).has(Kind::Late);
    empty_at(490, true, None).has(Kind::Late);
    // A failover undoes the resume, or both the resume and the pause.
    empty_at(490, true, Some(1)).is_clean();
    empty_at(510, true, Some(1)).has(Kind::Late);
    empty_at(490, true, Some(2)).has(Kind::Late);
}

#[test]
fn a_resume_that_a_failover_undid_ends_no_pause() {
    let failed_over = |survived_more| {
        let mut story = Story::new();
        story
            .push("a", "+0", "CREATED")
            .other("pause", &[], &["OK"])
            .other("resume", &[], &["OK"]);
        let survived = story.seq - 1 + survived_more;
        story.failed_over(survived);
        let token = story.at(50).claim("a", 0, 1);
        story.ack("a", &token);
        story
    };
    failed_over(1).is_clean();
    failed_over(0).has(Kind::GrantedWhilePaused);
}

#[test]
fn a_purge_explains_only_present_and_reported_messages() {
    // The message was pushed after the purge, or vanished before it.
    let mut story = Story::new();
    story
        .other("purge", &["scheduled", "1000"], &["1", "0"])
        .push("a", "+0", "CREATED");
    story.has(Kind::Lost);
    let mut story = Story::new();
    story.push("a", "+0", "CREATED").push("a", "+0", "FINISHED");
    story
        .other("purge", &["scheduled", "1000"], &["1", "0"])
        .has(Kind::Contradictions);
    // A dead message is not scheduled, so a purge of scheduled ones does not explain its end.
    let dead = |state: &str| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        story
            .settle(Verb::Bury, "a", &token, "OK")
            .other("purge", &[state, "1000"], &["1", "0"]);
        story.change(Verb::Requeue, "a", "", "ABSENT");
        story
    };
    dead("dead").is_clean();
    dead("scheduled").has(Kind::Lost);
    let two = |told: &str| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED").push("b", "+0", "CREATED");
        story.other("purge", &["scheduled", "1000"], &[told, "0"]);
        story
    };
    two("2").is_clean();
    Story::new()
        .push("a", "+0", "CREATED")
        .other("purge", &["scheduled", "1000", "", "0"], &["1", "0", "0"])
        .is_clean();
    two("1").has(Kind::Lost);
    let mut story = two("1");
    story
        .unanswered(lost("purge", &["ready", "1000"]), true)
        .is_clean();
}

#[test]
fn a_purged_message_is_never_delivered() {
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .other("purge", &["scheduled", "1000"], &["1", "0"]);
    story
        .change(Verb::Get, "a", "", "ABSENT")
        .at(5)
        .claim("a", 0, 1);
    story
        .left(State::Leased, &[("a", 0, 0)])
        .has(Kind::FiredAfterCancel);
}

#[test]
fn a_requeue_of_the_oldest_explains_only_dead_messages() {
    let revived = |before: bool| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        if before {
            story.other("requeue", &["oldest", "1000", ""], &["1", "0"]);
        }
        story.settle(Verb::Bury, "a", &token, "OK").at(20);
        if !before {
            story.other("requeue", &["oldest", "1000", ""], &["1", "0"]);
        }
        let token = story.at(30).claim("a", 20, 1);
        story.ack("a", &token);
        story
    };
    revived(false).is_clean();
    revived(true).has(Kind::DeadAndDelivered);
}

#[test]
fn a_purge_explains_messages_that_a_requeue_revived() {
    let ended = |verbs: [(&str, &[&str]); 2]| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        story.settle(Verb::Bury, "a", &token, "OK");
        for (verb, args) in verbs {
            story.other(verb, args, &["1", "0"]);
        }
        story
    };
    let requeue: (&str, &[&str]) = ("requeue", &["oldest", "1000", ""]);
    let purge: (&str, &[&str]) = ("purge", &["ready", "1000"]);
    ended([requeue, purge]).is_clean();
    ended([purge, requeue]).has(Kind::Lost);
}

#[test]
fn a_queue_without_a_limit_is_never_full() {
    let full = |limited: bool| {
        let mut story = Story::new();
        if limited {
            story.other("configure", &["max_messages", "1"], &["OK"]);
        }
        story.call(
            push("a", "+0", 0, ""),
            dueq_proof::history::Answer::Items(vec!["FULL 1".into()]),
            false,
        );
        story
    };
    full(true).is_clean();
    full(false).has(Kind::ApiLies);
    let mut story = full(true);
    story.at(5).claim("a", 0, 1);
    story
        .left(State::Leased, &[("a", 0, 0)])
        .has(Kind::RefusedLeftTrace);
}

#[test]
fn a_get_reports_the_state() {
    let got = |word: &str| {
        let mut story = Story::new();
        story
            .push("a", "1000000500", "CREATED")
            .change(Verb::Get, "a", "", word);
        story.left(State::Scheduled, &[("a", 0, 0)]);
        story
    };
    got("IS scheduled 1000000500 0 0 1 100").is_clean();
    got("IS scheduled 1000000501 0 0 1 100").has(Kind::WrongDue);
    got("IS scheduled 1000000500 1 0 1 100").has(Kind::Miscounted);
    got("IS scheduled 1000000500 0 0 2 100").has(Kind::Unexpected);
    got("IS dead 1000000500 0 0 1 100").has(Kind::Contradictions);
    got("ABSENT").has(Kind::Lost);
    let told = |outcome: &str| {
        let mut story = Story::new();
        story.write(Event::Asked {
            queue: "q".into(),
            op: 1,
            verb: Verb::Get,
            ids: vec!["a".into()],
            replicas: 0,
        });
        story
            .change(Verb::Get, "a", "", "ABSENT")
            .write(Event::Told {
                op: 1,
                outcomes: vec![outcome.into()],
            });
        story
    };
    told("ABSENT").is_clean();
    told("IS ready 5 0 0 1 100").has(Kind::ApiLies);
}

#[test]
fn a_get_without_an_answer_changes_nothing() {
    let mut story = Story::new();
    story
        .push("a", "+0", "CREATED")
        .unanswered(change(Verb::Get, "a", ""), false);
    story.seq += 1;
    story
        .push("b", "+0", "CREATED")
        .left(State::Scheduled, &[("a", 0, 0), ("b", 0, 0)])
        .has(Kind::UnaskedChanges);
}

#[test]
fn an_audit_that_finds_something_is_a_violation() {
    let audited = |verb: &str, words: &[&str]| {
        let mut story = Story::new();
        story.other(verb, &[], words);
        story
    };
    audited("audit", &["0", "12"]).is_clean();
    audited("audit", &["0", "12", "doubled a ready, dead 1"]).has(Kind::TwoStates);
    audited("verify", &["meta seq x 0"]).has(Kind::TwoStates);
    audited("verify", &["silent dueq:{q}:wake 4000 1"]).is_clean();
    audited("pause", &["no"]).has(Kind::ApiLies);
}
