//! Memory, descriptors and lateness over the time of a soak.

use serde_json::Value;

use super::chart::{Axis, Chart, Series};

const PROCESSES: [(&str, &str); 3] = [
    ("node", "node"),
    ("producer", "producer"),
    ("redis", "Redis"),
];

pub(super) fn charts(report: &Value) -> Vec<Chart> {
    let chart = |title: &str, y, series| Chart {
        title: title.to_owned(),
        x: Axis::linear("minutes"),
        y,
        series,
    };
    let of_each = |figure: &str, unit: f64| -> Vec<_> {
        PROCESSES
            .iter()
            .map(|(key, name)| series(report, name, &format!("/{key}/{figure}"), unit))
            .collect()
    };
    let mut memory = of_each("resident_kib", 1_024.0);
    memory.push(series(
        report,
        "Redis: its data",
        "/redis_data_kib",
        1_024.0,
    ));
    let late = [
        ("p50", "late_p50_ms"),
        ("p99", "late_p99_ms"),
        ("max", "late_max_ms"),
    ];
    let late = late
        .map(|(name, key)| series(report, name, &format!("/{key}"), 1.0))
        .into();
    let rate = report["verdict"]["rate_per_s"].as_u64();
    let title = rate.map_or("memory".to_owned(), |rate| {
        format!("memory at {rate} messages a second")
    });
    vec![
        chart(&title, Axis::linear("MiB"), memory),
        chart(
            "open file descriptors",
            Axis::linear("descriptors"),
            of_each("descriptors", 1.0),
        ),
        chart("lateness", Axis::log("milliseconds"), late),
    ]
}

/// A figure of each sample, over its time in minutes.
fn series(report: &Value, name: &str, pointer: &str, unit: f64) -> Series {
    let samples = report["points"].as_array().into_iter().flatten();
    let points = samples
        .filter_map(|sample| {
            Some((
                sample["at_s"].as_f64()? / 60.0,
                sample.pointer(pointer)?.as_f64()? / unit,
            ))
        })
        .collect();
    Series {
        name: name.to_owned(),
        points,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_figure_has_its_line_over_minutes() {
        let process = json!({ "resident_kib": 2_048.0, "descriptors": 7 });
        let points = json!([{ "at_s": 60.0, "node": process, "producer": process, "redis": process,
            "redis_data_kib": 1_024.0, "late_p50_ms": 0.5, "late_p99_ms": 3.0, "late_max_ms": null }]);
        let charts =
            charts(&json!({ "curve": "soak", "verdict": { "rate_per_s": 5 }, "points": points }));
        let found: Vec<Vec<_>> = charts
            .iter()
            .map(|chart| {
                chart
                    .series
                    .iter()
                    .map(|series| series.points.clone())
                    .collect()
            })
            .collect();
        let at = |value: f64| vec![(1.0, value)];
        assert_eq!(found[0], [at(2.0), at(2.0), at(2.0), at(1.0)]);
        assert_eq!(found[1], [at(7.0), at(7.0), at(7.0)]);
        assert_eq!(found[2], [at(0.5), at(3.0), vec![]]);
        assert!(charts[0].title.contains("at 5 messages"));
    }
}
