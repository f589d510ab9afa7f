use super::judge::{Accepted, Delivered, History, Push};

fn accepted(id: u32, at_ms: u64) -> Accepted {
    Accepted { id, at_ms }
}

fn delivered(id: u32, due_ms: u64, attempt: u32) -> Delivered {
    let ended_ms = due_ms + 5;
    Delivered {
        id,
        due_ms,
        attempt,
        ended_ms,
    }
}

fn push(sent_ms: u64, answered_ms: u64, is_created: bool) -> Push {
    Push {
        id: 7,
        sent_ms,
        answered_ms,
        is_created,
    }
}

/// A history of two windows of one second, each with a delivery. A push within the first window was
/// refused.
fn sound() -> History {
    History {
        window_ms: 1_000,
        accepted: vec![accepted(7, 10_001), accepted(7, 11_001)],
        delivered: vec![delivered(7, 10_001, 1), delivered(7, 11_001, 1)],
        pushes: vec![
            push(10_000, 10_000, true),
            push(10_001, 10_900, false),
            // The first reply to this push was lost, so another answer is equally correct.
            push(10_990, 11_200, false),
        ],
    }
}

fn only_violation(history: &History, words: &str) {
    let violations = history.violations();
    let texts = violations.texts();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains(words), "{texts:?}");
}

#[test]
fn one_delivery_for_each_window_is_sound() {
    assert!(sound().violations().texts().is_empty());
    assert_eq!(sound().first_deliveries(), 2);
}

#[test]
fn second_attempt_after_a_lost_lease_is_sound() {
    let mut history = sound();
    history.delivered.push(delivered(7, 11_001, 2));
    assert!(history.violations().texts().is_empty());
    assert_eq!(history.first_deliveries(), 2);
}

#[test]
fn two_messages_in_one_window_are_found() {
    let mut history = sound();
    history.accepted[1].at_ms = 11_000;
    history.delivered[1].due_ms = 11_000;
    only_violation(&history, "stored at 10001 and at 11000");
}

#[test]
fn two_deliveries_of_one_message_are_found() {
    let mut history = sound();
    history.delivered.push(delivered(7, 11_001, 1));
    only_violation(&history, "ran twice");
}

#[test]
fn missing_and_unknown_deliveries_are_found() {
    let mut history = sound();
    history.delivered.pop();
    only_violation(&history, "stored at 11001, was not delivered");
    let mut history = sound();
    history.delivered.push(delivered(8, 11_001, 1));
    only_violation(&history, "id 8 was delivered");
}

#[test]
fn refusal_outside_of_a_window_is_found() {
    let mut history = sound();
    history.pushes.push(push(12_002, 12_003, false));
    only_violation(&history, "no window was open");
    // The message was still in the queue.
    history.delivered[1].ended_ms = 12_010;
    assert!(history.violations().texts().is_empty());
    // A push before the first window was not created.
    history.pushes.push(push(9_000, 9_001, false));
    only_violation(&history, "from 9000 to 9001");
}

#[test]
fn created_without_a_message_is_found() {
    let mut history = sound();
    history.pushes.push(push(10_000, 10_002, true));
    only_violation(&history, "answered with created");
}
