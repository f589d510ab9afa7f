//! Limits of queues and messages: rate, `max_leased`, expiry, snooze and throttle.

use dueq_proof::check::Kind;
use dueq_proof::history::{Event, State, Verb};

use crate::story::{Story, Token, settle};

/// A queue with this setting and some pushed messages.
fn limited(name: &str, value: &str, options: &str) -> Story {
    let mut story = Story::new();
    for id in ["a", "b", "c", "d"] {
        story.push_with(id, "+0", 0, options, "CREATED");
    }
    story.other("configure", &[name, value], &["OK"]);
    story
}

fn acked_at(story: &mut Story, ids: &[(&str, u64)]) {
    for (id, ms) in ids {
        let token = story.at(*ms).claim(id, 0, 1);
        story.ack(id, &token);
    }
}

#[test]
fn no_window_has_more_starts_than_the_rate() {
    let fourth_at = |ms, options: &str| {
        let mut story = limited("rate", "3/1000/2", options);
        acked_at(&mut story, &[("a", 10), ("b", 10), ("c", 500), ("d", ms)]);
        story
    };
    fourth_at(1_009, "").has(Kind::OverRate);
    fourth_at(1_010, "").is_clean();
    // Each costs 5 and is charged the burst, 2: c and d together are four starts.
    fourth_at(1_010, "cost=5").has(Kind::OverRate);
}

#[test]
fn a_rate_counts_proven_starts_under_one_clock_and_master() {
    let then = |then: &dyn Fn(&mut Story)| {
        let mut story = limited("rate", "3/1000/2", "");
        acked_at(&mut story, &[("a", 10), ("b", 10), ("c", 500)]);
        then(&mut story);
        acked_at(&mut story, &[("d", 600)]);
        story
    };
    then(&|_| ()).has(Kind::OverRate);
    then(&|story| story.server_step_ms = -300).is_clean();
    // The rate was set only after the first starts.
    then(&|story| {
        story.other("configure", &["rate", "3/1000/3"], &["OK"]);
    })
    .is_clean();
    // The new master does not know the grants of the old one.
    let mut story = limited("rate", "3/1000/2", "");
    let survived = story.seq;
    acked_at(&mut story, &[("a", 10), ("b", 10)]);
    story.failed_over(survived);
    acked_at(&mut story, &[("a", 500), ("b", 500), ("c", 600)]);
    story.left(State::Scheduled, &[("d", 0, 0)]).is_clean();
}

#[test]
fn no_more_messages_are_leased_than_allowed() {
    let then = |ms, then: &dyn Fn(&mut Story, &Token)| {
        let mut story = limited("max_leased", "2", "");
        let (a, b) = (story.at(10).claim("a", 0, 1), story.at(20).claim("b", 0, 1));
        then(&mut story, &a);
        let c = story.at(ms).claim("c", 0, 1);
        story.ack("b", &b).ack("c", &c);
        story
    };
    let left = |mut story: Story| {
        story.left(State::Scheduled, &[("d", 0, 0)]);
        story
    };
    let kept = |_: &mut Story, _: &Token| ();
    let late = |story: &mut Story| {
        story.left(State::Leased, &[("a", 0, 0)]);
    };
    let mut story = left(then(900, &kept));
    late(&mut story);
    story.has(Kind::OverLeased);
    // The lease has expired.
    let mut story = left(then(1_010, &kept));
    late(&mut story);
    story.is_clean();
    left(then(900, &|story, token| {
        story.ack("a", token);
    }))
    .is_clean();
    let lost = settle(Verb::Ack, "a", "0000000000000001", "");
    left(then(900, &|story, _| {
        story.unanswered(lost.clone(), true);
    }))
    .is_clean();
    // An extension moves the deadline.
    let mut story = left(then(1_010, &|story, token| {
        let until = format!("OK {}", story.now_ms() + 2_000);
        story.settle(Verb::Extend, "a", token, &until);
    }));
    late(&mut story);
    story.has(Kind::OverLeased);
}

#[test]
fn grant_after_the_deadline_is_a_violation() {
    let claimed_at = |ms, expires: &str| {
        let mut story = Story::new();
        story.push_with("a", "+10", 0, expires, "CREATED");
        let token = story.at(ms).claim("a", 10, 1);
        story.ack("a", &token);
        story
    };
    claimed_at(60, "expires=+50").is_clean();
    claimed_at(61, "expires=+50").has(Kind::GrantedExpired);
    let at = format!("expires={}", Story::server(70));
    claimed_at(70, &at).is_clean();
    claimed_at(71, &at).has(Kind::GrantedExpired);
}

#[test]
fn a_retry_moves_no_deadline_and_again_does() {
    let claimed_at = |ms, verb| {
        let mut story = Story::new();
        story.push_with("a", "+0", 0, "expires=+50", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        let (word, attempt) = match verb {
            Verb::Again => ("OK", 1),
            Verb::Snooze => ("SCHEDULED", 1),
            _ => ("SCHEDULED", 2),
        };
        story.settle(verb, "a", &token, &format!("{word} {}", Story::server(40)));
        let token = story.at(ms).claim("a", 40, attempt);
        story.ack("a", &token);
        story
    };
    for verb in [Verb::Retry, Verb::Snooze] {
        claimed_at(50, verb).is_clean();
        claimed_at(51, verb).has(Kind::GrantedExpired);
    }
    claimed_at(90, Verb::Again).is_clean();
    claimed_at(91, Verb::Again).has(Kind::GrantedExpired);
}

#[test]
fn a_message_ends_only_after_its_deadline() {
    let dropped = |last_ms| {
        let mut story = Story::new();
        let options = "expires=+50 on_expire=drop";
        story.push_with("a", "+0", 0, options, "CREATED");
        story.at(last_ms).find_nothing(true);
        story
    };
    dropped(51).is_clean();
    dropped(50).has(Kind::Lost);
    let died_at = |ms| {
        let mut story = Story::new();
        story.push_with("a", "+0", 0, "expires=+50", "CREATED");
        story.at(200).find_nothing(true);
        story.left_at(State::Dead, "a", Story::server(ms), 0);
        story
    };
    died_at(51).is_clean();
    died_at(50).has(Kind::WrongDeaths);
    // A message that was dropped must not come back.
    let mut story = Story::new();
    let options = "expires=+50 on_expire=drop";
    story.push_with("a", "+0", 0, options, "CREATED").at(60);
    story.change(Verb::Get, "a", "", "ABSENT");
    let token = story.at(70).claim("a", 0, 1);
    story.ack("a", &token).has(Kind::GrantedExpired);
}

#[test]
fn a_retry_beyond_the_deadline_ends_the_message() {
    let settled = |verb, after_ms: u64, options: &str, verdict: &str| {
        let mut story = Story::new();
        story.push_with("a", "+0", 0, options, "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        let rest = match verb {
            Verb::Snooze => format!("+{after_ms}"),
            _ => after_ms.to_string(),
        };
        story.settle_asking(verb, "a", &token, &rest, verdict);
        if verdict == "DEAD" {
            story.left(State::Dead, &[("a", u32::from(verb == Verb::Retry), 0)]);
        }
        story
    };
    let drops = "expires=+50 on_expire=drop";
    for verb in [Verb::Retry, Verb::Snooze] {
        settled(verb, 46, "expires=+50", "DEAD").is_clean();
        settled(verb, 45, "expires=+50", "DEAD").has(Kind::WrongDeaths);
        settled(verb, 46, drops, "DROPPED").is_clean();
        settled(verb, 45, drops, "DROPPED").has(Kind::WrongDeaths);
        settled(verb, 46, "expires=+50", "DROPPED").has(Kind::WrongDeaths);
    }
}

#[test]
fn a_snooze_and_a_throttle_charge_no_attempt() {
    let again_as = |verb, attempt| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        let (word, due_ms) = match verb {
            Verb::Snooze => ("SCHEDULED", 40),
            _ => ("OK", 0),
        };
        story.settle(verb, "a", &token, &format!("{word} {}", Story::server(40)));
        let token = story.at(50).claim("a", due_ms, attempt);
        story.ack("a", &token);
        story
    };
    for verb in [Verb::Snooze, Verb::Throttle] {
        again_as(verb, 1).is_clean();
        again_as(verb, 2).has(Kind::Miscounted);
    }
}

#[test]
fn grant_before_a_throttle_ends_is_a_violation() {
    let claimed_at = |ms, then: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.push("a", "+0", "CREATED").push("b", "+0", "CREATED");
        let token = story.at(5).claim("a", 0, 1);
        let until = format!("OK {}", Story::server(105));
        story.settle(Verb::Throttle, "a", &token, &until);
        then(&mut story);
        acked_at(&mut story, &[("a", ms), ("b", ms)]);
        story
    };
    claimed_at(104, &|_| ()).has(Kind::GrantedWhileClosed);
    claimed_at(105, &|_| ()).is_clean();
    claimed_at(104, &|story| {
        story.other("resume", &[], &["OK"]);
    })
    .is_clean();
    // The throttle of another partition closed this one for longer.
    claimed_at(105, &|story| {
        let until = format!("OK {}", Story::server(305));
        story.other("throttle", &["close", "300"], &[&until]);
    })
    .has(Kind::GrantedWhileClosed);
    // Release 0.1 does not know that the queue is closed.
    claimed_at(104, &|story| {
        story.write(Event::OlderScripts);
    })
    .is_clean();
}
