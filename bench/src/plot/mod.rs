//! Draws SVG curves from the JSON that the other commands save.

mod chart;
mod soak;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use chart::{Axis, Chart, Series, stacked};

/// The default folder of the pictures.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance");

/// Draws SVG curves from the files that `--save` of the other commands wrote.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Files that peers, scale, nodes, concurrency and soak saved
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Folder of the pictures
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    into: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for file in &arguments.files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let report: Value =
            serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        for path in draw(&report, &arguments.into).with_context(|| file.display().to_string())? {
            println!("{}", path.display());
        }
    }
    Ok(())
}

/// Draws the charts of a report; returns the paths of the pictures.
pub(crate) fn draw(report: &Value, into: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(into)?;
    let pictures: Vec<_> = match report["curve"].as_str() {
        Some("soak") => vec![("soak", stacked(&soak::charts(report)))],
        _ => charts(report)?
            .into_iter()
            .map(|(name, chart)| (name, chart.svg()))
            .collect(),
    };
    let mut paths = Vec::new();
    for (name, svg) in pictures {
        let path = into.join(name).with_extension("svg");
        fs::write(&path, svg)?;
        paths.push(path);
    }
    Ok(paths)
}

fn charts(report: &Value) -> Result<Vec<(&'static str, Chart)>> {
    match report["curve"].as_str() {
        Some("scale") => Ok(vec![("cost-by-waiting", scale(report))]),
        Some("nodes") => Ok(vec![
            ("calls-by-nodes", calls(report)),
            ("idle-by-nodes", idle(report)),
        ]),
        Some("concurrency") => Ok(vec![
            (
                "push-by-callers",
                concurrency(
                    report,
                    "push_per_s",
                    "pushes a second by the number of callers",
                ),
            ),
            (
                "life-by-handlers",
                concurrency(
                    report,
                    "life_per_s",
                    "whole lives a second by the number of handlers",
                ),
            ),
        ]),
        None if report["complete"].is_boolean() => Ok(vec![
            (
                "lateness-1000",
                lateness(report, "lateness_ms", "lateness at 1,000 messages a second"),
            ),
            (
                "lateness-10",
                lateness(report, "lateness_10_ms", "lateness at 10 messages a second"),
            ),
        ]),
        _ => bail!("neither a curve nor a report of peers"),
    }
}

fn scale(report: &Value) -> Chart {
    let names = [
        ("push_us", "push"),
        ("push_now_us", "push at once"),
        ("deliver_us", "deliver"),
        ("ack_us", "ack"),
        ("floor_push_us", "floor: push"),
        ("floor_push_now_us", "floor: push at once"),
        ("floor_deliver_us", "floor: deliver"),
        ("floor_ack_us", "floor: ack"),
    ];
    Chart {
        title: "Redis CPU a message, by how many wait".to_owned(),
        x: Axis::log("waiting messages"),
        y: Axis::linear("microseconds"),
        series: names
            .map(|(key, name)| series(name, &report["points"], "waiting", key))
            .into(),
    }
}

fn calls(report: &Value) -> Chart {
    let names = [
        ("promote_calls_per_instant", "promote"),
        ("claim_calls_per_instant", "claim"),
    ];
    Chart {
        title: "script calls per due instant, by the number of nodes".to_owned(),
        x: Axis::log("nodes"),
        y: Axis::linear("calls"),
        series: names
            .map(|(key, name)| series(name, &report["points"], "nodes", key))
            .into(),
    }
}

fn idle(report: &Value) -> Chart {
    Chart {
        title: "commands a second of an idle node, by the number of nodes".to_owned(),
        x: Axis::log("nodes"),
        y: Axis::linear("commands a second"),
        series: vec![series(
            "idle node",
            &report["points"],
            "nodes",
            "idle_commands_per_s_and_node",
        )],
    }
}

fn concurrency(report: &Value, key: &str, title: &str) -> Chart {
    let systems = report["systems"].as_array().into_iter().flatten();
    Chart {
        title: title.to_owned(),
        x: Axis::log("at a time"),
        y: Axis::linear("a second"),
        series: systems
            .map(|system| {
                series(
                    system["system"].as_str().unwrap_or("?"),
                    &system["points"],
                    "callers",
                    key,
                )
            })
            .collect(),
    }
}

/// Draws the share of messages by lateness. Early messages are at the left edge.
fn lateness(report: &Value, key: &str, title: &str) -> Chart {
    const LEAST_MS: f64 = 0.1;
    let systems = report.as_object().into_iter().flatten();
    let mut curves: Vec<_> = systems
        .filter_map(|(name, system)| Some((name, system[key]["curve"].as_array()?)))
        .collect();
    // The curve of dueq comes first, then the floor's.
    curves.sort_by_key(|(name, _)| (*name != "dueq", *name != "floor"));
    Chart {
        title: title.to_owned(),
        x: Axis::log("milliseconds late (the left edge: that or early)"),
        y: Axis::linear("share of messages"),
        series: curves
            .into_iter()
            .map(|(name, points)| Series {
                name: name.clone(),
                points: points
                    .iter()
                    .filter_map(|point| {
                        Some((point[0].as_f64()?.max(LEAST_MS), point[1].as_f64()?))
                    })
                    .collect(),
            })
            .collect(),
    }
}

fn series(name: &str, points: &Value, x: &str, y: &str) -> Series {
    let points = points.as_array().into_iter().flatten();
    let points = points
        .filter_map(|point| Some((point[x].as_f64()?, point[y].as_f64()?)))
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
    fn a_report_of_peers_becomes_two_curves_with_all_systems() {
        let curve = json!({ "curve": [[-5.0, 0.1], [2.0, 1.0]] });
        let report = json!({ "complete": false, "dueq": { "lateness_ms": curve, "lateness_10_ms": curve },
            "arq": { "lateness_ms": null, "lateness_10_ms": curve } });
        let charts = charts(&report).expect("charts");
        let names: Vec<Vec<_>> = charts
            .iter()
            .map(|(_, chart)| {
                chart
                    .series
                    .iter()
                    .map(|series| series.name.clone())
                    .collect()
            })
            .collect();
        assert_eq!(names, [vec!["dueq"], vec!["dueq", "arq"]]);
        assert_eq!(charts[0].1.series[0].points, [(0.1, 0.1), (2.0, 1.0)]);
        assert!(super::charts(&json!({})).is_err());
    }
}
