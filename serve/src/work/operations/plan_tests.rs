use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

fn plan(json: &str) -> Result<Plan, String> {
    let request = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Plan::new(request, NOW_MS).map_err(|problem| problem.reason().1.to_owned())
}

fn selection(plan: &Plan) -> &Selection {
    plan.selection.as_ref().expect("a selection")
}

#[test]
fn plan_has_safe_defaults_and_no_future_time_of_death() {
    let requeue = plan(r#"{"kind": "requeue"}"#).expect("a plan");
    assert_eq!((requeue.before_ms(), requeue.pace), (Some(NOW_MS), 1_000));
    assert_eq!(
        (requeue.canary, selection(&requeue).state),
        (None, MessageState::Dead)
    );
    let later = plan(r#"{"kind": "requeue", "before_ms": 253402300799999}"#).expect("a plan");
    assert_eq!(later.before_ms(), requeue.before_ms());
    // A request without a time means the running operation; a request with another time does not.
    let earlier = plan(r#"{"kind": "requeue", "before_ms": 5}"#).expect("a plan");
    assert!(earlier.is_wished_by(&requeue) && !requeue.is_wished_by(&earlier));
    let dry = plan(r#"{"kind": "purge", "state": "ready", "dry_run": true}"#).expect("a plan");
    assert_eq!((dry.before_ms(), dry.pace), (Some(NOW_MS), 10_000));
    // For scheduled messages `before_ms` is a due time, so it may lie in the future.
    let due = plan(r#"{"kind": "purge", "state": "scheduled", "before_ms": 1900000000000}"#);
    assert_eq!(due.expect("a plan").before_ms(), Some(1_900_000_000_000));
    // A requeue of a group is not a requeue of all.
    let group = plan(r#"{"kind": "requeue", "error": "", "crashed": false}"#).expect("a plan");
    assert!(!selection(&group).is_by_time() && selection(&requeue).is_by_time());
    assert!(!group.is_wished_by(&requeue) && !requeue.is_wished_by(&group));
    let canary = plan(r#"{"kind": "requeue", "canary": 10}"#)
        .expect("a plan")
        .canary;
    assert_eq!(canary.map(|canary| canary.wait_ms), Some(60_000));
}

#[test]
fn plan_of_a_filtered_cancel_has_no_bound_in_the_future() {
    let cancel = plan(r#"{"kind": "cancel", "state": "scheduled", "error_text": ""}"#);
    let cancel = cancel.expect("a plan");
    assert_eq!(selection(&cancel).times(), 0..=u64::MAX);
    assert!(selection(&cancel).filter.is_all() && cancel.ids.count == 0);
    let dead = plan(r#"{"kind": "cancel", "state": "dead", "after_ms": 5, "min_crashes": 2}"#);
    let dead = dead.expect("a plan");
    assert_eq!(selection(&dead).times(), 5..=NOW_MS);
    assert!(selection(&dead).has(0, 2, "") && !selection(&dead).has(9, 1, ""));
    // A limit makes it another operation.
    let one = plan(r#"{"kind": "cancel", "state": "scheduled", "limit": 1}"#).expect("a plan");
    assert!(!one.is_wished_by(&cancel) && !selection(&one).is_by_time());
}

#[test]
fn plan_refuses_foreign_fields_and_wrong_ranges() {
    for (json, reason) in [
        (r#"{}"#, "missing field"),
        (r#"{"kind": "drop"}"#, "unknown variant"),
        (r#"{"kind": "purge"}"#, "state: a purge needs it"),
        (r#"{"kind": "purge", "state": "leased"}"#, "unknown variant"),
        (
            r#"{"kind": "purge", "state": "scheduled"}"#,
            "before_ms: a purge of scheduled",
        ),
        (
            r#"{"kind": "purge", "state": "dead", "canary": 1}"#,
            "canary:",
        ),
        (r#"{"kind": "requeue", "state": "dead"}"#, "state:"),
        (r#"{"kind": "requeue", "ids": ["a"]}"#, "ids:"),
        (r#"{"kind": "cancel", "ids": ["a"], "error": ""}"#, "error:"),
        (
            r#"{"kind": "purge", "state": "dead", "crashed": true}"#,
            "crashed:",
        ),
        (
            r#"{"kind": "purge", "state": "ready", "after_ms": 5}"#,
            "after_ms:",
        ),
        (r#"{"kind": "requeue", "canary": 0}"#, "canary: 0"),
        (r#"{"kind": "requeue", "canary": 101}"#, "canary: 101"),
        (
            r#"{"kind": "requeue", "canary_wait_ms": 5}"#,
            "belongs to canary",
        ),
        (
            r#"{"kind": "requeue", "canary": 1, "canary_wait_ms": 0}"#,
            "canary_wait_ms: 0",
        ),
        (r#"{"kind": "requeue", "pace": 0}"#, "pace: 0"),
        (r#"{"kind": "requeue", "pace": 100001}"#, "pace: 100001"),
        (r#"{"kind": "requeue", "before_ms": -1}"#, "invalid value"),
        (
            r#"{"kind": "requeue", "before_ms": 1e400}"#,
            "number out of range",
        ),
        (
            r#"{"kind": "requeue", "before_ms": 253402300800000}"#,
            "before_ms: ",
        ),
        (r#"{"kind": "cancel"}"#, "ids: 0"),
        (r#"{"kind": "cancel", "ids": []}"#, "ids: 0"),
        (r#"{"kind": "cancel", "ids": [""]}"#, "1 to 200 bytes"),
        (r#"{"kind": "cancel", "ids": ["\u0000"]}"#, "control byte"),
        (r#"{"kind": "cancel", "ids": ["~?"]}"#, "base64url"),
        (
            r#"{"kind": "cancel", "ids": ["a"], "before_ms": 1}"#,
            "before_ms:",
        ),
        (
            r#"{"kind": "cancel", "state": "ready", "ids": ["a"]}"#,
            "ids:",
        ),
        (
            r#"{"kind": "cancel", "state": "dead", "dead": true}"#,
            "dead:",
        ),
        (r#"{"kind": "cancel", "ids": ["a"], "limit": 1}"#, "limit:"),
        (r#"{"kind": "requeue", "limit": 0}"#, "limit: 0"),
        (r#"{"kind": "audit", "error_text": "a"}"#, "error_text:"),
        (r#"{"kind": "audit", "before_ms": 1}"#, "before_ms:"),
        (r#"{"kind": "repair", "ids": ["a"]}"#, "ids:"),
        (r#"{"kind": "audit", "kind": "repair"}"#, "duplicate field"),
        (r#"{"kind": "audit", "force": true}"#, "unknown field"),
        (r#"{"kind": "repartition"}"#, "either partitions or"),
        (
            r#"{"kind": "repartition", "abort": false}"#,
            "either partitions or",
        ),
        (
            r#"{"kind": "repartition", "partitions": 3, "abort": true}"#,
            "either partitions or",
        ),
        (
            r#"{"kind": "repartition", "partitions": 0}"#,
            "partitions: 0",
        ),
        (
            r#"{"kind": "repartition", "partitions": 257}"#,
            "partitions: 257",
        ),
        (
            r#"{"kind": "repartition", "partitions": 3, "pace": 5}"#,
            "pace: an operation of this kind",
        ),
        (
            r#"{"kind": "repartition", "abort": true, "dry_run": true}"#,
            "dry_run:",
        ),
        (r#"{"kind": "audit", "partitions": 3}"#, "partitions:"),
        (
            r#"{"kind": "purge", "state": "dead", "abort": true}"#,
            "abort:",
        ),
        (r#"{"kind": "requeue", "gentle": false}"#, "gentle:"),
    ] {
        let refusal = plan(json).expect_err(json);
        assert!(refusal.contains(reason), "{json}: {refusal}");
    }
    let long = "e".repeat(301);
    let refusal = plan(&format!(r#"{{"kind": "requeue", "error_text": "{long}"}}"#));
    assert!(refusal.expect_err("too long").contains("301 characters"));
    let many = vec!["a"; 10_001].join("\",\"");
    let refusal = plan(&format!(r#"{{"kind": "cancel", "ids": ["{many}"]}}"#));
    assert!(refusal.expect_err("too many").contains("10001"));
}
