//! Names in paths, parameters, and bodies of operations.

use axum::http::Uri;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dueq::MessageState;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::edge::auth::front::no_token_in;
use crate::edge::body::parse_json;
use crate::edge::path::{decode, queue_named};
use crate::edge::problem::check_problem;
use crate::routes::checks::read_parameters;
use crate::work::operations::{Plan, Request};

/// The bytes are a path segment. Each of the two encodings of any bytes decodes to these bytes. An
/// accepted segment decodes to what an independent decoder reads.
pub fn http_path(bytes: &[u8]) {
    let encoded = percent_encode(bytes, NON_ALPHANUMERIC).to_string();
    assert_eq!(decode(&encoded).ok().as_deref(), Some(bytes), "{encoded}");
    let base64 = format!("~{}", URL_SAFE_NO_PAD.encode(bytes));
    assert_eq!(decode(&base64).ok().as_deref(), Some(bytes), "{base64}");
    let Ok(segment) = std::str::from_utf8(bytes) else {
        return;
    };
    match decode(segment) {
        Ok(decoded) => {
            assert!(decoded.len() <= segment.len());
            if !segment.starts_with('~') {
                let other: Vec<u8> = percent_decode_str(segment).collect();
                assert_eq!(decoded, other, "{segment:?}");
            }
        }
        Err(problem) => check_problem(&problem),
    }
    match queue_named(segment) {
        Ok(name) => {
            assert!(dueq::admin::queue_keys(&name).is_ok(), "{name:?}");
            assert!(segment.starts_with('~') || name == segment);
        }
        Err(problem) => check_problem(&problem),
    }
}

/// The bytes are a query string. Each reader of parameters accepts it within its limits or refuses
/// it. A query string that contains an access token is always refused.
pub fn http_query(bytes: &[u8]) {
    let Ok(uri) = Uri::try_from([b"/v1?", bytes].concat()) else {
        return;
    };
    for problem in read_parameters(&uri) {
        check_problem(&problem);
    }
    if let Err(problem) = no_token_in(&uri) {
        check_problem(&problem);
        return;
    }
    let token = format!("dueq_{}", "x".repeat(43));
    for more in [
        "&token=1",
        "&%74oken=1",
        "&x=TOKEN",
        "&TOKEN",
        ";access_token=1",
    ] {
        let more = more.replace("TOKEN", &token);
        if let Ok(uri) = Uri::try_from(format!("{uri}{more}")) {
            let problem = no_token_in(&uri).expect_err("a token is refused");
            check_problem(&problem);
            assert!(!problem.reason().1.contains(&token));
        }
    }
}

const NOW_MS: u64 = 1_800_000_000_000;

/// The bytes are the body of a request for an operation. An accepted body gives a plan within its
/// limits, and the same plan when it is read again.
pub fn http_operation(bytes: &[u8]) {
    let plan = || Plan::new(parse_json::<Request>(bytes)?, NOW_MS);
    let (plan, again) = match (plan(), plan()) {
        (Ok(plan), Ok(again)) => (plan, again),
        (Err(problem), Err(_)) => return check_problem(&problem),
        other => panic!("{other:?}"),
    };
    assert!(plan.is_wished_by(&again));
    assert!((1..=100_000).contains(&plan.pace) && plan.ids.count <= 10_000);
    if let Some(selection) = plan
        .selection
        .filter(|one| one.state != MessageState::Scheduled)
    {
        assert!(
            selection
                .before_ms
                .is_some_and(|before_ms| before_ms <= NOW_MS)
        );
    }
    let canary = plan.canary.map(|canary| (canary.messages, canary.wait_ms));
    assert!(canary.is_none_or(|(messages, wait_ms)| {
        (1..=100).contains(&messages) && (1..=600_000).contains(&wait_ms)
    }));
}
