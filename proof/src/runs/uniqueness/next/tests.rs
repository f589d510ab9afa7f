use super::judge::{Answer, Event, History, Run};

fn run(payload: u8, attempt: u32) -> Run {
    Run { payload, attempt }
}

/// A history of one message: three pushes during its first run, and one more run.
fn sound() -> History {
    use Event::{Claimed, Kept, Stored};
    History {
        messages: 1,
        events: [(
            0,
            vec![
                Stored(0),
                Claimed,
                Kept(1),
                Kept(2),
                Kept(3),
                Stored(3),
                Claimed,
            ],
        )]
        .into(),
        runs: [(0, vec![run(0, 1), run(3, 1)])].into(),
        answers: [(0, vec![Answer::Next; 3])].into(),
    }
}

fn with_events(events: &[Event]) -> History {
    let mut history = sound();
    history.events.insert(0, events.to_vec());
    history
}

fn texts_of(history: &History) -> Vec<String> {
    let violations = history.violations();
    violations
        .texts()
        .iter()
        .map(|text| (*text).to_owned())
        .collect()
}

fn first_violation(history: &History, words: &str) {
    let texts = texts_of(history);
    assert!(
        texts.first().is_some_and(|text| text.contains(words)),
        "{texts:?}"
    );
}

#[test]
fn one_more_run_is_sound_even_if_it_crashes() {
    assert!(texts_of(&sound()).is_empty());
    let mut history = sound();
    history
        .events
        .get_mut(&0)
        .expect("its id")
        .push(Event::Claimed);
    history.runs.get_mut(&0).expect("its id").push(run(3, 2));
    assert!(texts_of(&history).is_empty());
}

#[test]
fn delivery_that_ends_between_the_pushes_is_sound() {
    use Event::{Claimed, Kept, Stored};
    // The first push was kept. Then the lease expired, and the second push replaced the waiting
    // message.
    let mut history = with_events(&[
        Stored(0),
        Claimed,
        Kept(1),
        Stored(1),
        Stored(2),
        Claimed,
        Kept(3),
        Stored(3),
        Claimed,
    ]);
    history
        .answers
        .insert(0, vec![Answer::Next, Answer::Moved, Answer::Next]);
    history
        .runs
        .insert(0, vec![run(0, 1), run(2, 1), run(3, 1)]);
    assert!(texts_of(&history).is_empty());
}

#[test]
fn two_more_runs_are_found() {
    let mut history = sound();
    let events = history.events.get_mut(&0).expect("its id");
    events.extend([Event::Stored(3), Event::Claimed]);
    first_violation(&history, "[0, 3, 3] in turn, not [0, 3]");
    let mut history = sound();
    history.runs.get_mut(&0).expect("its id").push(run(3, 1));
    first_violation(&history, "one attempt ran twice");
}

#[test]
fn lost_next_message_is_found() {
    use Event::{Claimed, Kept, Stored};
    let history = with_events(&[Stored(0), Claimed, Kept(1), Kept(2), Kept(3)]);
    first_violation(&history, "[0] in turn, not [0, 3]");
    let mut history = sound();
    history.runs.insert(0, vec![run(0, 1)]);
    first_violation(&history, "its last payload did not run");
}

#[test]
fn older_payload_is_found() {
    use Event::{Claimed, Kept, Stored};
    let history = with_events(&[
        Stored(0),
        Claimed,
        Kept(1),
        Kept(2),
        Kept(3),
        Stored(2),
        Claimed,
        Stored(3),
        Claimed,
    ]);
    first_violation(&history, "[0, 2, 3] in turn, not [0, 3]");
    let mut history = sound();
    history.runs.get_mut(&0).expect("its id").push(run(1, 1));
    first_violation(&history, "payload 1 ran, and was never the message");
}

#[test]
fn retry_of_the_first_run_is_found() {
    use Event::{Claimed, Kept, Stored};
    let mut history = with_events(&[
        Stored(0),
        Claimed,
        Kept(1),
        Kept(2),
        Kept(3),
        Claimed,
        Stored(3),
        Claimed,
    ]);
    history.runs.get_mut(&0).expect("its id").push(run(0, 2));
    first_violation(&history, "instead of the next message");
}

#[test]
fn push_that_found_no_message_is_found() {
    let mut history = sound();
    history
        .answers
        .insert(0, vec![Answer::Next, Answer::Next, Answer::Other]);
    first_violation(&history, "Other");
}
