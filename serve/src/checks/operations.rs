//! The bodies of operations.

use dueq::State;

use crate::body::parse_json;
use crate::checks::check_problem;
use crate::operations::{Plan, Request};

const NOW_MS: u64 = 1_800_000_000_000;

/// The body of an operation: a plan within its limits, which the same body asks for again.
pub fn http_operation(bytes: &[u8]) {
    let plan = || Plan::new(parse_json::<Request>(bytes)?, NOW_MS);
    let (plan, again) = match (plan(), plan()) {
        (Ok(plan), Ok(again)) => (plan, again),
        (Err(problem), Err(_)) => return check_problem(&problem),
        other => panic!("{other:?}"),
    };
    assert!(plan.is_wished_by(&again));
    assert!((1..=100_000).contains(&plan.pace) && plan.ids.count <= 10_000);
    if plan.selected() != State::Scheduled {
        assert!(plan.before_ms.is_none_or(|before_ms| before_ms <= NOW_MS));
    }
    let canary = plan.canary.map(|canary| (canary.messages, canary.wait_ms));
    assert!(canary.is_none_or(|(messages, wait_ms)| {
        (1..=100).contains(&messages) && (1..=600_000).contains(&wait_ms)
    }));
}
