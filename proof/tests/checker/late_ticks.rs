//! Histories in which schedules stand still.

use dueq_proof::check::Kind;
use dueq_proof::history::{Event, Phase};

use crate::story::Story;
use crate::ticks::{declared, id, refilled, stored, tick};

/// A schedule with a fire each second is paused at `paused_ms`, and its next fire is at `next_ms`.
fn stood_still(next_ms: u64, paused_ms: u64, explain: &dyn Fn(&mut Story)) -> Story {
    let mut story = declared("");
    let token = tick(story.at(1_005), 1_000, 1);
    story.at(1_010).ack(&id(1_000), &token);
    explain(&mut story);
    story
        .at(paused_ms)
        .other("amend", &["pause", "t"], &["OK 0"]);
    let (last, fires) = (next_ms - 1_000, next_ms / 1_000 - 1);
    stored(&mut story, last, next_ms, 1, fires - 1);
    story
}

#[test]
fn a_schedule_that_stands_still_is_late() {
    stood_still(2_000, 7_100, &|_| {}).has(Kind::Late);
    stood_still(2_000, 6_900, &|_| {}).is_clean();
    // Between the two, claims looked at the fires.
    stood_still(9_000, 9_900, &|_| {}).is_clean();
    // The schedule was already paused before.
    stood_still(2_000, 20_000, &|story| {
        story.at(1_500).other("amend", &["pause", "t"], &["OK 0"]);
    })
    .is_clean();
    stood_still(2_000, 20_000, &|story| {
        story.at(1_500).other("amend", &["pause", "t"], &["OK 0"]);
        story
            .at(2_500)
            .other("amend", &["resume", "t"], &["OK 1000003000"]);
    })
    .has(Kind::Late);
    // The server was unreachable.
    stood_still(2_000, 8_900, &|story| {
        story.at(3_000).fault("server_stop", 1, Phase::Begin);
        story.at(4_000).fault("server_stop", 1, Phase::End);
    })
    .is_clean();
}

#[test]
fn a_queue_of_schedules_without_ticks_is_late() {
    let silent = |calm_ms: u64| {
        let mut story = declared("");
        let token = tick(story.at(1_005), 1_000, 1);
        story.at(1_010).ack(&id(1_000), &token);
        story.at(calm_ms).write(Event::Calm);
        stored(&mut story, 1_000, 2_000, 1, 0);
        story
    };
    silent(5_900).is_clean();
    silent(6_100).has(Kind::Late);
}

#[test]
fn a_cron_that_stands_still_after_a_refill_is_late() {
    let stood_still = |paused_ms: u64| {
        let mut story = refilled("paused", 4_000, 6_000, 2, 0);
        story
            .at(paused_ms)
            .other("amend", &["pause", "t"], &["OK 0"]);
        story
    };
    stood_still(13_900).is_clean();
    stood_still(14_100).has(Kind::Late);
}
