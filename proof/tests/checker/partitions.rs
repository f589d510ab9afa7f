//! Queues with several partitions: maps, routing, and attendance.

use dueq_proof::check::Kind;
use dueq_proof::history::{Answer, Call, Event, Phase, State, Verb};

use crate::story::{Story, change, push};

/// With 4 partitions, the id `123456789` (CRC-32 CBF43926) belongs to the last one, `q/9`.
const ID: &str = "123456789";

/// The story of a queue with four partitions by the map of epoch 7; its calls go to this one.
fn at(partition: &'static str) -> Story {
    let mut story = Story::new();
    story.write(Event::Map {
        queue: "q".into(),
        map: "7|- 3 5 9|- 3 5 9".into(),
    });
    (story.queue, story.epoch) = (partition, 7);
    story
}

fn pushed(partition: &'static str) -> Story {
    let mut story = at(partition);
    story
        .push(ID, "+0", "CREATED")
        .left(State::Scheduled, &[(ID, 0, 0)]);
    story
}

#[test]
fn a_message_is_made_where_its_id_belongs() {
    pushed("q/9").is_clean();
    for other in ["q", "q/3", "q/5"] {
        pushed(other).has(Kind::InTwoPartitions);
    }
}

/// Like `at`, while the partitions change: the id belongs to `q/9`, and from now on to `q/3`.
fn changing(partition: &'static str) -> Story {
    let mut story = at(partition);
    story.epoch = 8;
    story.write(Event::Map {
        queue: "q".into(),
        map: "8|- 3 5 9|- 3".into(),
    });
    story
}

#[test]
fn while_partitions_change_a_message_is_made_in_the_new_one() {
    let pushed = |partition, probes| {
        let mut story = changing(partition);
        story.probes = probes;
        story.push(ID, "+0", "CREATED");
        story.verdict().count(Kind::InTwoPartitions) > 0
    };
    let calls = ["q/3", "q/9", "q/5"].map(|partition| pushed(partition, false));
    assert_eq!(calls, [false, true, true]);
    let probes = ["q/3", "q/9", "q/5"].map(|partition| pushed(partition, true));
    assert_eq!(probes, [true; 3], "a probe creates nothing");
}

#[test]
fn while_partitions_change_a_message_is_looked_for_in_both() {
    let asked = |partition, probes, verdict| {
        let mut story = changing(partition);
        story.probes = probes;
        story.cancel(ID, verdict);
        story.verdict().count(Kind::InNone)
    };
    assert_eq!(asked("q/9", true, "AWAY"), 0);
    assert_eq!(asked("q/3", true, "AWAY"), 0);
    assert_eq!(asked("q/3", false, "ABSENT"), 0);
    assert_eq!(asked("q/9", false, "ABSENT"), 1);
    assert_eq!(asked("q/5", true, "AWAY"), 1);
}

#[test]
fn while_partitions_change_both_may_grant_a_message() {
    let claimed = |partition| {
        let mut story = changing(partition);
        story.claim(ID, 0, 1);
        story.verdict().count(Kind::InTwoPartitions)
    };
    let found = ["q/3", "q/9", "q/5"].map(claimed);
    assert_eq!(found, [0, 0, 1]);
}

#[test]
fn a_message_that_remains_is_where_the_last_map_has_it() {
    let left = |map: &str| {
        let mut story = pushed("q/9");
        let (queue, map) = ("q".into(), map.into());
        story.write(Event::Map { queue, map });
        story.verdict().count(Kind::InTwoPartitions)
    };
    assert_eq!(left("8|- 3 5 9|- 3 5 9"), 0);
    assert_eq!(left("8|- 3 5 9|- 3"), 1);
}

#[test]
fn caller_gets_what_the_old_partition_remembers() {
    let mut story = changing("q/9");
    story.probes = true;
    story.asked(1, Verb::Cancel, ID);
    story.cancel(ID, "AWAY CANCELLED").told(1, "CANCELLED");
    assert_eq!(story.verdict().count(Kind::ApiLies), 0);
    let mut story = changing("q/9");
    story.probes = true;
    story.asked(1, Verb::Cancel, ID);
    story.cancel(ID, "AWAY").told(1, "CANCELLED");
    assert_eq!(story.verdict().count(Kind::ApiLies), 1);
}

#[test]
fn a_message_is_looked_for_where_its_id_belongs() {
    let asked = |partition| {
        let mut story = at(partition);
        story.cancel(ID, "ABSENT");
        story
    };
    for other in ["q", "q/3", "q/5"] {
        asked(other).has(Kind::InNone);
    }
    assert_eq!(asked("q/9").verdict().count(Kind::OldMapAccepted), 0);
}

#[test]
fn a_claim_grants_what_belongs_to_its_partition() {
    let claimed = |partition| {
        let mut story = at(partition);
        story.claim(ID, 0, 1);
        story.verdict().count(Kind::InTwoPartitions)
    };
    assert_eq!((claimed("q/9"), claimed("q/3")), (0, 1));
}

#[test]
fn a_call_by_an_old_map_is_refused() {
    for (sent, answered) in [(7, 7), (6, 7), (8, 7), (0, 7), (7, 0)] {
        let mut story = at("q/9");
        let answer = Answer::Items(vec!["ABSENT".into()]);
        story.call_by(
            (sent, answered),
            change(Verb::Cancel, ID, ""),
            answer,
            false,
        );
        let found = story.verdict().count(Kind::OldMapAccepted);
        assert_eq!(found, u64::from(sent != answered), "{sent} {answered}");
    }
    // Settlements go to the partition of the message, and carry no epoch.
    let mut story = at("q/9");
    let call = Call::Other {
        verb: "stats".into(),
        args: Vec::new(),
    };
    story.call_by((0, 7), call, Answer::Other(Vec::new()), false);
    assert_eq!(story.verdict().count(Kind::OldMapAccepted), 0);
}

#[test]
fn a_map_changes_when_ended_ids_are_forgotten() {
    let after = |ms, incarnation| {
        let mut story = at("q/9");
        story.push(ID, "+60000", "CREATED").cancel(ID, "CANCELLED");
        story.incarnation = incarnation;
        let args = ["change", "7", "8|- 3 5 9|-"].map(String::from).to_vec();
        let call = Call::Other {
            verb: "remap".into(),
            args,
        };
        story
            .at(ms)
            .call(call, Answer::Other(vec!["DONE".into()]), true);
        story.verdict().count(Kind::OldMapAccepted)
    };
    assert_eq!((after(11_000, "b1"), after(12_500, "b1")), (1, 0));
    assert_eq!(
        after(11_000, "b2"),
        0,
        "an emptied partition remembers nothing"
    );
}

/// Beats come each second except in `missing`; with `touched`, a fault touches the queue then.
/// Returns the number of violations.
fn beats(missing: std::ops::Range<u64>, touched: bool) -> u64 {
    let mut story = Story::new();
    for second in (0..30).filter(|second| !missing.contains(second)) {
        let call = Call::Other {
            verb: "beat".into(),
            args: Vec::new(),
        };
        if touched && second == missing.end {
            let since_us = story.at(missing.start * 1_000).t_us();
            story.at(second * 1_000 - 1).write(Event::Touched {
                queues: vec!["q".into()],
                since_us,
            });
        }
        story
            .at(second * 1_000)
            .call(call, Answer::Other(Vec::new()), false);
    }
    story.at(30_000).write(Event::Calm);
    story.verdict().count(Kind::Unattended)
}

/// Beats come each second except in five of them, during which this fault of the whole run lasts.
fn beats_around(fault: &str) -> u64 {
    let mut story = Story::new();
    for second in (0..30).filter(|second| !(10..15).contains(second)) {
        let call = Call::Other {
            verb: "beat".into(),
            args: Vec::new(),
        };
        if second == 15 {
            story.at(10_000).fault(fault, 1, Phase::Begin);
            story.at(14_999).fault(fault, 1, Phase::End);
        }
        story
            .at(second * 1_000)
            .call(call, Answer::Other(Vec::new()), false);
    }
    story.at(30_000).write(Event::Calm);
    story.verdict().count(Kind::Unattended)
}

#[test]
fn only_an_outage_of_the_server_excuses_missing_beats() {
    assert_eq!(beats_around("server_stop"), 0);
    for other in ["net_drop", "worker_kill", "slot_halfway", "master_kill"] {
        assert_eq!(beats_around(other), 1, "{other}");
    }
}

#[test]
fn a_partition_is_attended_all_the_time() {
    assert_eq!(beats(0..0, false), 0);
    assert_eq!(beats(10..13, false), 0);
    assert_eq!(beats(10..15, false), 1);
    assert_eq!(beats(10..15, true), 0);
    assert_eq!(beats(26..30, false), 1);
}

#[test]
fn a_lost_probe_of_a_push_has_no_effect() {
    let lies = |probes, options: &str| {
        let mut story = changing("q/9");
        story.probes = probes;
        story.asked(1, Verb::Push, ID);
        let call = push(ID, "+0", 0, options);
        story.unanswered(call, false).told(1, "!no");
        story.verdict().count(Kind::ApiLies)
    };
    assert_eq!([lies(true, ""), lies(false, "")], [0, 1]);
    assert_eq!(lies(true, "on_conflict=replace"), 1);
}

#[test]
fn a_partition_is_attended_while_a_map_names_it() {
    let silent_since = |second: u64, map: Option<&str>| {
        let mut story = at("q/9");
        for beat in 0..second {
            story.at(beat * 1_000).other("beat", &[], &[]);
        }
        if let Some(map) = map {
            let (queue, map) = ("q".into(), map.into());
            story.write(Event::Map { queue, map });
        }
        story.at(30_000).write(Event::Calm);
        story.verdict().count(Kind::Unattended)
    };
    assert_eq!(silent_since(30, None), 0);
    assert_eq!(silent_since(20, None), 1);
    assert_eq!(
        silent_since(20, Some("8|- 3 5 9|- 3")),
        1,
        "it is named still"
    );
    assert_eq!(silent_since(20, Some("8|- 3|- 3")), 0);
}

#[test]
fn callers_and_handlers_know_no_partitions() {
    let mut story = at("q/9");
    story.write(Event::Asked {
        op: 1,
        queue: "q".into(),
        verb: Verb::Push,
        ids: vec![ID.into()],
        replicas: 0,
    });
    story.call(
        push(ID, "+0", 0, ""),
        Answer::Items(vec!["CREATED".into()]),
        true,
    );
    story.write(Event::Told {
        op: 1,
        outcomes: vec!["CREATED".into()],
    });
    story.left(State::Scheduled, &[(ID, 0, 0)]).is_clean();
}
