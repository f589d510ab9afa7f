//! What the doctor found, the worst first.

use dueq::admin::Checkup;

use crate::dashboard::show;
use crate::wire::about::Finding;

/// The codes of findings about the server: first what loses messages, then what stops or delays them,
/// then what costs time. A code that is not here is in the middle.
const WORST: [&str; 8] = [
    "eviction",
    "persistence",
    "disk",
    "replica",
    "noreplicas",
    "replicas",
    "min_replicas",
    "memory",
];
const LEAST: [&str; 6] = [
    "slow",
    "uneven",
    "buffers",
    "functions",
    "version",
    "clients",
];

/// How bad a finding is: the worst is the least number.
fn rank(code: &str) -> usize {
    let worst = WORST.iter().position(|known| *known == code);
    let least = LEAST.iter().rev().position(|known| *known == code);
    match (worst, least) {
        (Some(place), _) => place,
        (None, Some(place)) => WORST.len() + 1 + place,
        (None, None) => WORST.len(),
    }
}

/// The findings with the worst first, as they are shown.
pub(super) fn worst_first(findings: impl IntoIterator<Item = Finding>) -> Vec<Finding> {
    let mut findings: Vec<_> = findings
        .into_iter()
        .map(|finding| Finding {
            problem: show::text(&finding.problem),
            consequence: show::text(&finding.consequence),
            remedy: show::text(&finding.remedy),
            ..finding
        })
        .collect();
    findings.sort_by_key(|finding| rank(&finding.code));
    findings
}

/// The findings of an examination.
pub(super) fn of(checkup: &Checkup) -> Vec<Finding> {
    worst_first(checkup.findings.iter().map(Finding::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_loses_messages_is_first() {
        let findings = ["clients", "slow", "new_code", "replica", "eviction"].map(|code| Finding {
            code: code.to_owned(),
            subject: String::new(),
            problem: format!("{code}\u{202e}"),
            consequence: String::new(),
            remedy: String::new(),
        });
        let sorted = worst_first(findings);
        let codes: Vec<_> = sorted.iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(
            codes,
            ["eviction", "replica", "new_code", "clients", "slow"]
        );
        assert_eq!(sorted[0].problem, "eviction\\u{202e}");
    }
}
