//! Checks the reader of the body of a claim.

use serde_json::Value;

use crate::edge::body::parse_json;
use crate::edge::problem::check_problem;
use crate::routes::claims::Claim;

/// The bytes are the body of a claim. The values of an accepted body are within their ranges, and
/// an independent parser finds the same ones.
pub fn http_claim(bytes: &[u8]) {
    let claim = match parse_json::<Claim>(bytes) {
        Ok(claim) => claim,
        Err(problem) => return check_problem(&problem),
    };
    if let Err(problem) = claim.check_ranges() {
        return check_problem(&problem);
    }
    assert!((1..=256).contains(&claim.max) && claim.wait_ms <= 50_000);
    assert!((1..=86_400_000).contains(&claim.lease_ms));
    let other: Value = serde_json::from_slice(bytes).expect("JSON");
    let number = |field: &str, default| match &other[field] {
        Value::Null => Some(default),
        value => value.as_u64(),
    };
    assert_eq!(number("max", 1), Some(claim.max));
    assert_eq!(number("lease_ms", 30_000), Some(claim.lease_ms));
    assert_eq!(number("wait_ms", 0), Some(claim.wait_ms));
    assert_eq!(other["claim_id"].as_str(), claim.claim_id.as_deref());
    let id = claim.claim_id.as_deref().unwrap_or("a");
    assert!((1..=200).contains(&id.len()) && id.bytes().all(|byte| (b'!'..=b'~').contains(&byte)));
}
