//! The metrics `dueq_redis_*`, from the latest examination of the server.

use std::collections::BTreeMap;

use dueq::admin::Checkup;
use dueq::metrics::PrometheusText;

/// The facts that are numbers worth a chart. The flag says whether a value is in microseconds, and so
/// shown in seconds.
const FACTS: [(&str, &str, &str, bool); 4] = [
    (
        "used_memory",
        "dueq_redis_memory_used_bytes",
        "Memory that Redis uses.",
        false,
    ),
    (
        "maxmemory",
        "dueq_redis_memory_max_bytes",
        "The limit of this memory; 0 if there is none.",
        false,
    ),
    (
        "clients",
        "dueq_redis_clients",
        "Connections of all clients.",
        false,
    ),
    (
        "round_trip_us",
        "dueq_redis_round_trip_seconds",
        "The shortest of five round trips.",
        true,
    ),
];

pub(super) fn write(text: &mut PrometheusText, checkup: &Checkup) {
    let mut findings = BTreeMap::new();
    for finding in &checkup.findings {
        *findings.entry(finding.code).or_insert(0) += 1;
    }
    let name = "dueq_redis_findings";
    text.metric(
        name,
        "gauge",
        "What dueq doctor finds wrong with Redis, by its code.",
    );
    for (code, count) in findings {
        text.sample(name, &[("finding", code)], f64::from(count));
    }
    // In a cluster the facts are those of one master.
    if checkup.facts.iter().any(|(name, _)| *name == "masters") {
        return;
    }
    for (fact, metric, help, is_us) in FACTS {
        let found = checkup.facts.iter().find(|(name, _)| *name == fact);
        if let Some(value) = found.and_then(|(_, value)| value.parse::<f64>().ok()) {
            text.gauge(metric, help, if is_us { value / 1e6 } else { value });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(facts: &[(&'static str, &str)]) -> String {
        let mut checkup = Checkup::default();
        checkup.facts = facts
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let mut text = PrometheusText::default();
        write(&mut text, &checkup);
        text.into_string()
    }

    #[test]
    fn facts_of_one_server_are_gauges_in_base_units() {
        let facts = [
            ("used_memory", "1000"),
            ("round_trip_us", "250"),
            ("role", "master"),
        ];
        let alone = page(&facts);
        assert!(
            alone.contains("\ndueq_redis_memory_used_bytes 1000\n"),
            "{alone}"
        );
        assert!(
            alone.contains("\ndueq_redis_round_trip_seconds 0.00025\n"),
            "{alone}"
        );
        let cluster = page(&[&[("masters", "3")], &facts[..]].concat());
        assert!(!cluster.contains("bytes"), "{cluster}");
    }
}
