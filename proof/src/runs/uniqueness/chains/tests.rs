use super::judge::{Answer, History, Run, Stored};
use super::step::{STEPS, Step, Uid};

const KILLED: Uid = Uid { worker: 9, run: 9 };

fn step(number: usize) -> Step {
    Step { chain: 0, number }
}

/// The run that acks a step.
fn uid(number: usize) -> Uid {
    let run = number as u64;
    Uid { worker: 1, run }
}

/// The history of one chain. Step 1 had an earlier run that was killed.
fn sound() -> History {
    let mut history = History {
        chains: 1,
        ..History::default()
    };
    for number in 0..STEPS {
        let by = number.checked_sub(1).map(uid);
        let (step, answer) = (step(number), Some(Answer::Done));
        history.stored.push(Stored { step, by });
        history.runs.insert(uid(number), Run { step, answer });
    }
    let (step, answer) = (step(1), None);
    history.runs.insert(KILLED, Run { step, answer });
    history.stale.push((KILLED, Answer::Lost));
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

fn only_violation(history: &History, words: &str) {
    let texts = texts_of(history);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains(words), "{texts:?}");
}

fn answer(history: &mut History, uid: Uid, answer: Answer) {
    history.runs.get_mut(&uid).expect("a run").answer = Some(answer);
}

#[test]
fn ids_of_steps_are_parsed_and_written() {
    for (id, number) in [
        ("chain:12", 0),
        ("{chain:12}/1", 1),
        ("{chain:12}/1/1/1/1", 4),
    ] {
        let step = Step { chain: 12, number };
        assert_eq!(Step::parse(id), Some(step));
        assert_eq!(step.to_string(), id);
    }
    let stale = step(2).stale_id(KILLED);
    for id in [
        "",
        "chain:",
        "{chain:1}",
        "{chain:1}/2",
        "{chain:1}/1/1/1/1/1",
        "{chain:1}/1/",
        stale.as_str(),
    ] {
        assert_eq!(Step::parse(id), None, "{id}");
    }
    assert_eq!("9-9".parse::<Uid>().expect("a run"), KILLED);
    assert!("9".parse::<Uid>().is_err());
}

#[test]
fn chain_with_a_killed_run_is_sound() {
    assert!(texts_of(&sound()).is_empty());
    let mut history = sound();
    answer(&mut history, KILLED, Answer::Lost);
    // The reply was lost, and the repeated call found that the delivery had ended.
    answer(&mut history, uid(2), Answer::Gone);
    assert!(texts_of(&history).is_empty());
}

#[test]
fn missing_and_second_messages_are_found() {
    let mut history = sound();
    history.stored.pop();
    history.runs.remove(&uid(4));
    history.runs.remove(&uid(3));
    let texts = texts_of(&history);
    assert!(
        texts[0].contains("{chain:0}/1/1/1 had no effect"),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("{chain:0}/1/1/1/1 was stored 0 times"),
        "{texts:?}"
    );
    let mut history = sound();
    history.stored.push(history.stored[3]);
    only_violation(&history, "stored 2 times");
}

#[test]
fn child_of_a_refused_ack_is_found() {
    let mut history = sound();
    answer(&mut history, uid(2), Answer::Lost);
    only_violation(&history, "the ack of {chain:0}/1/1 with it was refused");
    let mut history = sound();
    history.strays.push("{chain:0}/stale/9-9".to_owned());
    only_violation(&history, "the child of a refused ack");
}

#[test]
fn two_acks_of_a_step_are_found() {
    let mut history = sound();
    answer(&mut history, KILLED, Answer::Done);
    let texts = texts_of(&history);
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("2 runs acked {chain:0}/1"), "{texts:?}");
    assert!(texts[1].contains("is not its child"), "{texts:?}");
}

#[test]
fn child_of_another_step_is_found() {
    let mut history = sound();
    history.stored[3].by = Some(uid(1));
    let texts = texts_of(&history);
    assert!(texts[0].contains("no run of {chain:0}/1/1"), "{texts:?}");
}

#[test]
fn accepted_stale_token_is_found() {
    let mut history = sound();
    history.stale.push((uid(1), Answer::Done));
    only_violation(&history, "gave its delivery back");
}
