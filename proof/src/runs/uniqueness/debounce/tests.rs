use super::judge::{Answer, Fired, History, Push};

fn push(number: u64, sent_ms: u64, answer: Answer) -> Push {
    Push {
        number,
        sent_ms,
        answered_ms: sent_ms + 2,
        answer,
    }
}

fn fired(number: u64, due_ms: u64) -> Fired {
    Fired {
        number,
        due_ms,
        started_ms: due_ms + 1,
        attempt: 1,
    }
}

/// A history of pushes every 100 ms with a delay of 1 s and a `max_wait` of 5 s, until the id
/// fires.
fn sound() -> History {
    let mut pushes = vec![push(0, 10_000, Answer::Created { due_ms: 11_001 })];
    pushes.extend((1..50).map(|number| push(number, 10_000 + 100 * number, Answer::Moved)));
    pushes.push(push(50, 15_001, Answer::Running));
    History {
        delay_ms: 1_000,
        max_wait_ms: 5_000,
        pushes: [(7, pushes)].into(),
        fired: [(7, vec![fired(49, 15_001)])].into(),
    }
}

fn delivery(history: &mut History) -> &mut Fired {
    &mut history.fired.get_mut(&7).expect("its id")[0]
}

fn only_violation(history: &History, words: &str) {
    let verdict = history.verdict();
    let texts = verdict.violations.texts();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains(words), "{texts:?}");
}

#[test]
fn firing_at_the_limit_is_sound() {
    let verdict = sound().verdict();
    assert!(verdict.violations.texts().is_empty());
    assert_eq!((verdict.full, verdict.paused), (1, 0));
}

#[test]
fn firing_after_a_pause_is_sound() {
    let mut history = sound();
    history.pushes.get_mut(&7).expect("its id").truncate(10);
    *delivery(&mut history) = fired(9, 11_901);
    let verdict = history.verdict();
    assert!(verdict.violations.texts().is_empty());
    assert_eq!((verdict.full, verdict.paused), (0, 1));
}

#[test]
fn firing_before_the_limit_is_found() {
    let mut history = sound();
    *delivery(&mut history) = fired(49, 15_000);
    only_violation(&history, "was due at 15000");
    let mut history = sound();
    delivery(&mut history).started_ms = 15_000;
    only_violation(&history, "before its due time");
}

#[test]
fn firing_after_the_limit_is_found() {
    let mut history = sound();
    *delivery(&mut history) = fired(49, 15_002);
    only_violation(&history, "was due at 15002");
    // The message fires as if there were no `max_wait`: one second after the last push.
    *delivery(&mut history) = fired(49, 15_901);
    only_violation(&history, "was due at 15901");
}

#[test]
fn older_payload_is_found() {
    let mut history = sound();
    delivery(&mut history).number = 48;
    only_violation(&history, "fired with payload 48");
}

#[test]
fn missing_and_second_firings_are_found() {
    let mut history = sound();
    history.fired.clear();
    only_violation(&history, "fired 0 times for 1");
    let mut history = sound();
    history.fired.insert(7, vec![fired(49, 15_001); 2]);
    only_violation(&history, "fired 2 times for 1");
}

#[test]
fn due_time_that_no_push_asked_for_is_found() {
    let mut history = sound();
    let pushes = history.pushes.get_mut(&7).expect("its id");
    pushes[0].answer = Answer::Created { due_ms: 11_010 };
    *delivery(&mut history) = fired(49, 15_010);
    only_violation(&history, "was stored at 10010");
}
