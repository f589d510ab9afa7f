//! Histories of schedules and their ticks.

use dueq_proof::check::Kind;
use dueq_proof::history::{Answer, Call, ClaimedItem, Event, Verb};
use dueq_proof::queues::TICKS;

use crate::story::{Story, claim_without_answer};

/// A schedule `t` with a fire every second, beginning with the first second.
pub(crate) fn declared(more: &str) -> Story {
    let mut story = Story::new();
    story.queue = TICKS;
    apply(&mut story, "7", more, &["OK", "CREATED 1000001000"]);
    story
}

pub(crate) fn apply(story: &mut Story, revision: &str, more: &str, answer: &[&str]) {
    let spec = format!("every=1000{more}");
    let args = ["chaos", revision, "", "t", &spec, "", "", "", "-"];
    let strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let what = Call::Other {
        verb: "schedule".into(),
        args: strings(&args),
    };
    story.call(what, Answer::Other(strings(answer)), answer[0] == "OK");
}

pub(crate) fn id(ms: u64) -> String {
    format!("t@{}", Story::server(ms))
}

/// A claim is granted the tick of this fire.
pub(crate) fn tick(story: &mut Story, ms: u64, attempt: u32) -> String {
    let due_ms = Story::server(ms);
    story.grant(&[ClaimedItem(id(ms), 0, due_ms, attempt, 1, "tick".into())])
}

/// The schedule as it remains: the times of its last and next fire, and the counts of made and
/// missed fires.
pub(crate) fn stored(
    story: &mut Story,
    last: u64,
    next: u64,
    made: u64,
    missed: u64,
) -> &mut Story {
    let [last, next, since] = [last, next, 1_000].map(Story::server);
    story.write(Event::Schedule {
        queue: TICKS.into(),
        name: "t".into(),
        state: "paused".into(),
        numbers: Box::new([next, last, since, made, missed, 0, 0, 0, 0, 1]),
        spec: "set=chaos every=1000".into(),
        pattern: String::new(),
    })
}

#[test]
fn ticks_of_a_declared_schedule_are_clean() {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_000, 1);
    story.at(1_010).ack(&id(1_000), &token);
    let token = tick(story.at(3_002), 3_000, 1);
    story.at(3_010).ack(&id(3_000), &token);
    stored(&mut story, 3_000, 4_000, 2, 1).is_clean();
}

#[test]
fn tick_that_no_schedule_makes_is_unexpected() {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_001, 1);
    story.ack(&id(1_001), &token).has(Kind::Unexpected);
    let mut story = Story::new();
    story.queue = TICKS;
    let token = tick(story.at(1_005), 1_000, 1);
    story.ack(&id(1_000), &token).has(Kind::Unexpected);
    // A trigger makes a tick at any time.
    let mut story = declared("");
    let created = format!("CREATED {}", id(1_001));
    story.at(1_001).other("trigger", &["t", "now"], &[&created]);
    let token = tick(story.at(1_005), 1_001, 1);
    story.ack(&id(1_001), &token).is_clean();
}

#[test]
fn tick_before_its_fire_or_jitter_is_a_violation() {
    let mut story = declared("");
    let token = tick(story.at(999), 1_000, 1);
    story.ack(&id(1_000), &token).has(Kind::Early);
    // For this name, no fire has a jitter that gives this time.
    let mut story = declared(" jitter=900");
    let token = tick(story.at(1_999), 1_000, 1);
    story.ack(&id(1_000), &token).has(Kind::WrongDue);
}

#[test]
fn a_second_grant_of_a_tick_needs_an_ended_lease() {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_000, 1);
    story.at(1_010).ack(&id(1_000), &token);
    let token = tick(story.at(1_020), 1_000, 1);
    story.ack(&id(1_000), &token).has(Kind::ClaimedAfterAck);
    let mut story = declared("");
    tick(story.at(1_005), 1_000, 1);
    let token = tick(story.at(1_010), 1_000, 1);
    story.ack(&id(1_000), &token).has(Kind::OverlappingLeases);
    // The lease has expired.
    let mut story = declared("");
    tick(story.at(1_005), 1_000, 1);
    let token = tick(story.at(2_010), 1_000, 2);
    story.at(2_020).ack(&id(1_000), &token).is_clean();
    // The claim that made the tick got no answer.
    let mut story = declared("");
    story
        .at(1_005)
        .unanswered(claim_without_answer(1_000), true);
    let token = tick(story.at(2_010), 1_000, 2);
    story.at(2_020).ack(&id(1_000), &token).is_clean();
}

#[test]
fn tick_may_be_gone_after_a_flushall() {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_000, 1);
    story.write(Event::Emptied {
        queue: TICKS.into(),
        incarnation: "b1".into(),
    });
    (story.incarnation, story.seq) = ("b2", 0);
    apply(&mut story, "7", "", &["OK", "CREATED 1000002000"]);
    story
        .settle(Verb::Ack, &id(1_000), &token, "GONE")
        .is_clean();
}

/// The new master has the schedule as it was before a claim made the tick. Until a claim makes the
/// tick again, a settlement with the old token finds none.
#[test]
fn a_tick_that_a_failover_has_undone_is_made_again() {
    let made_again = |fails_over: bool| {
        let mut story = declared("");
        let token = tick(story.at(1_005), 1_000, 1);
        if fails_over {
            story.failed_over(1);
        }
        apply(&mut story, "8", "", &["OK", "KEPT 1000001000"]);
        story
            .at(1_050)
            .settle(Verb::Ack, &id(1_000), &token, "GONE");
        let token = tick(&mut story, 1_000, 1);
        story.ack(&id(1_000), &token);
        story
    };
    made_again(true).is_clean();
    assert_eq!(made_again(false).verdict().count(Kind::Lost), 1);
    let mut twice = made_again(true);
    let token = tick(&mut twice, 1_000, 1);
    twice.ack(&id(1_000), &token).has(Kind::ClaimedAfterAck);
}

#[test]
fn a_removed_schedule_may_repeat_after_a_step_back() {
    for removed in [false, true] {
        let mut story = declared("");
        let token = tick(story.at(1_005), 1_000, 1);
        story.at(1_010).ack(&id(1_000), &token);
        if removed {
            story.other("amend", &["remove", "t"], &["OK 0"]);
        }
        story.server_step_ms = -500;
        apply(&mut story, "8", "", &["OK", "CREATED 1000001000"]);
        // The new schedule has a payload of seven bytes.
        let due_ms = Story::server(1_000);
        let item = ClaimedItem(id(1_000), 0, due_ms, 1, 7, "tick".into());
        let token = story.at(1_600).grant(&[item]);
        story.ack(&id(1_000), &token);
        let verdict = story.verdict();
        assert_eq!(verdict.is_clean(), removed, "{:#?}", verdict.examples);
    }
}

#[test]
fn a_waiting_tick_may_be_replaced() {
    for (more, is_clean) in [(" overlap=replace", true), ("", false)] {
        let mut story = declared(more);
        let token = tick(story.at(1_005), 1_000, 1);
        story
            .at(1_010)
            .settle(Verb::Release, &id(1_000), &token, "OK");
        let token = tick(story.at(2_010), 2_000, 1);
        story.at(2_020).ack(&id(2_000), &token);
        let verdict = story.verdict();
        assert_eq!(verdict.is_clean(), is_clean, "{:#?}", verdict.examples);
        assert_eq!(verdict.count(Kind::Lost), u64::from(!is_clean));
    }
}

#[test]
fn fire_that_no_count_has_is_a_violation() {
    let granted = || {
        let mut story = declared("");
        let token = tick(story.at(1_005), 1_000, 1);
        story.at(1_010).ack(&id(1_000), &token);
        story
    };
    stored(&mut granted(), 1_000, 2_000, 1, 0).is_clean();
    for (last, next, made, missed) in [
        (1_000, 2_000, 1, 1), // one tick too many
        (3_000, 4_000, 1, 1), // one tick too few
        (1_000, 3_000, 1, 0), // no count has one of the fires
        (2_000, 3_000, 2, 0), // a tick that no claim granted
        (1_000, 2_000, 0, 1), // a tick that was not counted
        (1_500, 2_500, 1, 0), // the time is not a fire
    ] {
        stored(&mut granted(), last, next, made, missed).has(Kind::UnaccountedFires);
    }
}

#[test]
fn wrongly_accepted_or_refused_declaration_is_found() {
    let mut story = declared("");
    apply(&mut story, "7", "", &["OK", "KEPT 1000001000"]);
    apply(&mut story, "6", "", &["STALE 7", "KEPT 0"]);
    apply(&mut story, "8", " jitter=5", &["OK", "CHANGED 1000001000"]);
    story.is_clean();
    for (revision, more, answer) in [
        ("6", "", ["OK", "KEPT 1000001000"]),
        ("8", "", ["STALE 7", "KEPT 0"]),
        ("8", "", ["OK", "CHANGED 1000001000"]),
        ("8", " jitter=5", ["OK", "KEPT 1000001000"]),
    ] {
        let mut story = declared("");
        apply(&mut story, revision, more, &answer);
        story.has(Kind::Contradictions);
    }
}

#[test]
fn a_dry_run_declares_nothing() {
    let mut story = Story::new();
    story.queue = TICKS;
    let args = ["chaos", "7", "dry_run", "t", "every=1000", "", "", "", "-"];
    let what = Call::Other {
        verb: "schedule".into(),
        args: args.map(str::to_owned).into(),
    };
    let judged = ["OK", "CREATED 1000001000"].map(str::to_owned);
    story.call(what, Answer::Other(judged.into()), false);
    apply(&mut story, "7", "", &["OK", "CREATED 1000001000"]);
    story.is_clean();
}

/// A cron `t` with a fire every two seconds; its list has two of them.
fn declared_cron(story: &mut Story, fires: &str, answer: &str) {
    let spec = "zone=Europe/Paris limit=3";
    let args = ["chaos", "7", "", "t", spec, "*/2 * * * * *", "", fires, "-"];
    let strings = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let what = Call::Other {
        verb: "schedule".into(),
        args: strings(&args),
    };
    story.call(what, Answer::Other(strings(&["OK", answer])), true);
}

/// A cron whose list ran dry and was refilled at 9 s, with this state and these counts.
pub(crate) fn refilled(state: &str, last: u64, next: u64, made: u64, missed: u64) -> Story {
    let mut story = Story::new();
    story.queue = TICKS;
    let list = |from: u64| {
        let [first, second] = [from, from + 2_000].map(Story::server);
        format!("2026a 0\n{first} {second}")
    };
    declared_cron(&mut story, &list(2_000), "CREATED 1000002000");
    for ms in [2_000, 4_000] {
        let token = tick(story.at(ms + 5), ms, 1);
        story.at(ms + 10).ack(&id(ms), &token);
    }
    // Nothing has changed except the list, so the schedule is kept.
    declared_cron(story.at(4_500), &list(6_000), "KEPT 0");
    let (listed, more) = (Story::server(4_000).to_string(), list(6_000));
    story
        .at(9_000)
        .other("refill", &["t", "1", &listed, &more], &["OK 2"]);
    let [last, next, since] = [last, next, 2_000].map(Story::server);
    let next = if matches!(state, "active" | "paused") {
        next
    } else {
        0
    };
    story.write(Event::Schedule {
        queue: TICKS.into(),
        name: "t".into(),
        state: state.into(),
        numbers: Box::new([next, last, since, made, missed, 0, 0, 0, 0, 1]),
        spec: "set=chaos zone=Europe/Paris limit=3".into(),
        pattern: "*/2 * * * * *".into(),
    });
    story
}

#[test]
fn fires_of_a_cron_are_counted_across_a_dry_list() {
    refilled("active", 4_000, 6_000, 2, 0).is_clean();
    refilled("active", 8_000, 10_000, 2, 2).is_clean();
    let verdict = refilled("dry", 4_000, 0, 2, 0).verdict();
    assert!(verdict.is_clean(), "{:#?}", verdict.examples);
    assert_eq!((verdict.schedules.refilled, verdict.schedules.dry), (1, 1));
    for (state, last, next, made, missed) in [
        ("active", 6_000, 8_000, 2, 0),  // a fire that is in no count
        ("active", 8_000, 10_000, 2, 1), // the refill left a fire out
        ("active", 4_000, 8_000, 2, 0),  // the next one is left out
        ("active", 5_000, 6_000, 2, 0),  // no fire
        ("ended", 4_000, 0, 2, 0),       // its limit is 3
    ] {
        refilled(state, last, next, made, missed).has(Kind::UnaccountedFires);
    }
}

#[test]
fn a_schedule_ends_at_its_limit() {
    for (state, made, is_clean) in [
        ("active", 2, true),
        ("ended", 2, false),
        ("active", 3, false),
        ("ended", 3, true),
        ("ended", 4, false),
    ] {
        let mut story = declared(" limit=3");
        for fire in 1..=made {
            let token = tick(story.at(fire * 1_000 + 5), fire * 1_000, 1);
            story.at(fire * 1_000 + 10).ack(&id(fire * 1_000), &token);
        }
        let next = match state {
            "active" => Story::server((made + 1) * 1_000),
            _ => 0,
        };
        let [last, since] = [made * 1_000, 1_000].map(Story::server);
        story.write(Event::Schedule {
            queue: TICKS.into(),
            name: "t".into(),
            state: state.into(),
            numbers: Box::new([next, last, since, made, 0, 0, 0, 0, 0, 1]),
            spec: "set=chaos every=1000 limit=3".into(),
            pattern: String::new(),
        });
        let verdict = story.verdict();
        assert_eq!(verdict.is_clean(), is_clean, "{:#?}", verdict.examples);
    }
}

/// Only a lost declaration may have come between, and no other lost call.
#[test]
fn kept_answer_for_a_changed_schedule_is_a_violation() {
    let kept = |is_lost: bool| {
        let mut story = declared("");
        story.unanswered(claim_without_answer(1_000), true);
        if is_lost {
            let args = [
                "chaos",
                "7",
                "",
                "t",
                "every=1000 jitter=5",
                "",
                "",
                "",
                "-",
            ];
            let args = args.map(str::to_owned).to_vec();
            let verb = "schedule".to_owned();
            story.unanswered(Call::Other { verb, args }, true);
        }
        apply(&mut story, "8", " jitter=5", &["OK", "KEPT 1000001000"]);
        story.verdict().count(Kind::Contradictions)
    };
    assert_eq!((kept(false), kept(true)), (1, 0));
}
