//! Makes calls, and the words of their item results.

use dueq_proof::history::{Answer, Call, ChangeItem, PushItem, SettleItem, Verb};
pub(super) fn due_ms(due: &str, now_ms: u64) -> u64 {
    match due.strip_prefix('+') {
        Some(delay) => now_ms + delay.parse::<u64>().expect("a delay"),
        None => due.parse().expect("a due"),
    }
}

pub(super) fn words(verdict: &str) -> Answer {
    Answer::Items(vec![verdict.to_owned()])
}

pub(super) fn changes(verdict: &str) -> bool {
    [
        "CREATED",
        "MOVED",
        "OK",
        "SCHEDULED",
        "CANCELLED",
        "REQUEUED",
        "DROPPED",
    ]
    .iter()
    .any(|word| verdict.starts_with(word))
}

pub(crate) fn push(id: &str, due: &str, until_ms: u64, options: &str) -> Call {
    let version = if options.contains("replace") { 2 } else { 1 };
    Call::Push {
        until_ms,
        nonce: String::new(),
        items: vec![PushItem(
            id.into(),
            due.into(),
            version,
            100,
            options.into(),
        )],
    }
}

pub(crate) fn settle(verb: Verb, id: &str, token: &str, rest: &str) -> Call {
    Call::Settle {
        verb,
        items: vec![SettleItem(id.into(), token.into(), rest.into())],
    }
}

pub(crate) fn change(verb: Verb, id: &str, rest: &str) -> Call {
    Call::Change {
        verb,
        items: vec![ChangeItem(id.into(), rest.into())],
    }
}

pub(crate) fn claim_without_answer(lease_ms: u64) -> Call {
    Call::Claim {
        n: 10,
        token: "ffffffffffffffff".into(),
        lease_ms,
        due: true,
    }
}
