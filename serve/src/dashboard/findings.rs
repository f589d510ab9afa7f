//! The doctor's findings, sorted with the worst first.

use dueq::admin::Checkup;

use crate::dashboard::show;
use crate::wire::about::Finding;

/// The codes of findings about the server, the worst first: first those that lose messages, then
/// those that stop or delay them, then those that cost time. A code that is not in the list ranks
/// in the middle.
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

/// The rank of a finding: the worst has the lowest number.
fn rank(code: &str) -> usize {
    let worst = WORST.iter().position(|known| *known == code);
    let least = LEAST.iter().rev().position(|known| *known == code);
    match (worst, least) {
        (Some(place), _) => place,
        (None, Some(place)) => WORST.len() + 1 + place,
        (None, None) => WORST.len(),
    }
}

/// Sorts the findings with the worst first, for display.
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
    fn finding_that_loses_messages_is_first() {
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
