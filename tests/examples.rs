//! Runs the examples of the documentation as a reader would, but with shorter times.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use dueq_testkit::{Server, example};

/// Runs an example, which must succeed and leave no key on its server. Returns its output.
fn run(name: &str, arguments: &[&str]) -> Result<String> {
    let server = Server::start(&[])?;
    let output = output(&server, name, arguments)?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}: {words}",
        output.status
    );
    ensure!(words.is_empty(), "{name}: {words}");
    assert_eq!(
        server.command(&["DBSIZE"])?,
        ":0\r\n",
        "{name} removes its queue"
    );
    Ok(String::from_utf8(output.stdout)?)
}

fn output(server: &Server, name: &str, arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(example(name)?)
        .args(arguments)
        .env("REDIS_URL", server.url())
        .output()?)
}

/// Number of lines that contain these words.
fn lines(text: &str, words: &str) -> usize {
    text.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn exactly_one_of_payment_and_cancellation_wins() -> Result<()> {
    let text = run("unpaid_order", &["--speed", "1800"])?;
    for line in [
        "ann pays: in time",
        "bob has not paid in time: the order is cancelled",
        "bob pays: too late, the order is cancelled:",
        "cid has not paid in time",
        "cid pays: too late, the order is being cancelled just now",
        "dee has not paid in time",
        "dee pays: but cancelling the order had failed",
        "each payment learned what had become of its order",
    ] {
        assert_eq!(lines(&text, line), 1, "{line}: {text}");
    }
    assert_eq!(lines(&text, "ann has not paid"), 0, "{text}");
    Ok(())
}

#[test]
fn a_device_goes_offline_once_per_time_online() -> Result<()> {
    let text = run("heartbeat", &["--speed", "50"])?;
    for device in ["door", "lamp", "oven"] {
        // A machine that stalls for 0.5 s can silence a device more often than expected.
        let online = lines(&text, &format!("{device} is online"));
        assert!(online >= 1, "{text}");
        assert_eq!(
            lines(&text, &format!("{device} is offline")),
            online,
            "{text}"
        );
        assert_eq!(
            lines(&text, &format!("{device} was reported after")),
            online,
            "{text}"
        );
    }
    assert_eq!(
        lines(
            &text,
            "each device went offline once per time online, and never before 600ms of silence"
        ),
        1,
        "{text}"
    );
    Ok(())
}

#[test]
fn campaign_reaches_each_recipient_once_on_time() -> Result<()> {
    // At this speed the decades until this date take seconds.
    let at = [
        "--at",
        "2099-12-31T20:00:00[Asia/Shanghai]",
        "--speed",
        "1000000000",
        "--recipients",
        "500",
    ];
    let text = run("campaign", &at)?;
    let moment = "2099-12-31T20:00:00+08:00[Asia/Shanghai], which is 2099-12-31T12:00:00Z";
    assert_eq!(lines(&text, moment), 1, "{text}");
    assert_eq!(
        lines(&text, "500 recipients reached, each once"),
        1,
        "{text}"
    );

    let text = run("campaign", &["--speed", "86400"])?;
    assert_eq!(
        lines(&text, "T20:00:00+08:00[Asia/Shanghai], which is "),
        1,
        "{text}"
    );
    assert_eq!(
        lines(&text, "2000 recipients reached, each once"),
        1,
        "{text}"
    );
    Ok(())
}

#[test]
fn invalid_or_past_campaign_time_is_rejected() -> Result<()> {
    let server = Server::start(&[])?;
    for (at, code, reason) in [
        ("2099-03-29T02:30:00[Europe/Berlin]", 2, "falls into a gap"),
        ("2099-10-25T02:30:00[Europe/Berlin]", 2, "falls into a fold"),
        ("2099-12-31T20:00:00", 2, "time zone"),
        ("2020-12-31T20:00:00[Asia/Shanghai]", 1, "is over"),
    ] {
        let output = output(&server, "campaign", &["--at", at])?;
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{at}: {words}");
        ensure!(words.contains(reason), "{at}: {words}");
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n");
    Ok(())
}

#[test]
fn each_night_has_one_report_of_the_day_before() -> Result<()> {
    for zone in ["Europe/Paris", "Pacific/Chatham"] {
        let text = run("nightly_report", &["--zone", zone, "--nights", "5"])?;
        assert_eq!(lines(&text, "next night: "), 3, "{text}");
        assert_eq!(lines(&text, "an old process is refused"), 1, "{text}");
        // A clock change can move one night into the five days or out of them.
        let reports = lines(&text, "report of ");
        assert!((4..=6).contains(&reports), "{text}");
        assert_eq!(
            lines(&text, &format!("{reports} reports, each of another day")),
            1,
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn a_webhook_is_retried_then_dies_then_is_revived() -> Result<()> {
    let text = run("webhook_retry", &["--speed", "200"])?;
    for line in [
        "stutters: attempt 2 failed: 503 Service Unavailable",
        "stutters: attempt 3 is delivered",
        "down: attempt 5 failed: connection refused",
        "dead: down after 5 failures: connection refused",
        "it says: order 2 is refunded",
        "down: attempt 1 is delivered",
        "both events are delivered",
    ] {
        assert_eq!(lines(&text, line), 1, "{line}: {text}");
    }
    assert_eq!(lines(&text, "attempt 6"), 0, "{text}");
    Ok(())
}

/// Checks the Prometheus text format: help and type before the samples of a metric, no sample
/// twice.
#[test]
fn metrics_page_is_valid_for_prometheus() -> Result<()> {
    let text = run("metrics", &[])?;
    let (mut metric, mut samples, mut buckets) = ("", BTreeMap::new(), Vec::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').context("a name and its help")?;
            ensure!(!text.is_empty() && name.starts_with("dueq_"), "{line}");
            metric = name;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').context("a name and its type")?;
            ensure!(
                name == metric && ["counter", "gauge", "histogram"].contains(&kind),
                "{line}"
            );
        } else {
            let (name, value) = line.rsplit_once(' ').context("a name and its value")?;
            let value: f64 = value.parse()?;
            ensure!(
                name.starts_with(metric)
                    && (name == "dueq_queues_omitted"
                        || name.ends_with('}') && name.contains("{queue=\"metrics\"")),
                "{line}"
            );
            ensure!(
                samples.insert(name.to_owned(), value).is_none(),
                "{line} twice"
            );
            if let Some((_, le)) = name.split_once(",le=\"") {
                let le = le.trim_end_matches("\"}");
                buckets.push((
                    metric,
                    if le == "+Inf" {
                        f64::INFINITY
                    } else {
                        le.parse()?
                    },
                    value,
                ));
            }
        }
    }
    assert_eq!(buckets.len(), 2 * 13);
    ensure!(
        buckets
            .windows(2)
            .all(|pair| pair[0].0 != pair[1].0 || pair[0].1 < pair[1].1 && pair[0].2 <= pair[1].2)
    );
    let sample = |name: &str| {
        samples
            .get(&format!("dueq_{name}{{queue=\"metrics\"}}"))
            .copied()
    };
    for (name, value) in [
        ("push_created_total", 100.0),
        ("claimed_total", 116.0),
        ("acked_total", 106.0),
        ("retried_total", 10.0),
        ("handlers_running", 0.0),
        ("ticks_total", 6.0),
        ("lateness_seconds_count", 116.0),
        ("handling_seconds_count", 116.0),
    ] {
        assert_eq!(sample(name), Some(value), "{name}: {text}");
    }
    ensure!(sample("lateness_seconds_sum") > Some(0.0), "{text}");
    Ok(())
}

/// There are as many series as the limit of labels allows, and their sum loses no fire.
#[test]
fn metrics_of_schedules_have_bounded_labels() -> Result<()> {
    for (most, made, series) in [
        ("100", &[("a", 2), ("b", 2), ("c", 2)][..], 15),
        ("3", &[("a", 2), ("b", 2), ("c", 2)], 15),
        ("2", &[("a", 2), ("b", 2), ("(rest)", 2)], 15),
        ("1", &[("a", 2), ("(rest)", 4)], 10),
        ("0", &[("(rest)", 6)], 5),
    ] {
        let text = run("metrics", &["--schedules", most])?;
        assert_eq!(lines(&text, "schedule=\""), series, "{most}: {text}");
        for (schedule, count) in made {
            let labels = format!("{{queue=\"metrics\",schedule=\"{schedule}\",became=");
            let line = format!("dueq_schedule_fires_total{labels}\"made\"}} {count}");
            assert_eq!(lines(&text, &line), 1, "{line}: {text}");
            for became in ["missed", "overlapped", "paused"] {
                let line = format!("dueq_schedule_fires_total{labels}\"{became}\"}} ");
                assert_eq!(lines(&text, &line), 1, "{line}: {text}");
            }
        }
    }
    Ok(())
}

#[test]
fn idle_connections_are_closed_and_never_early() -> Result<()> {
    let small = [
        "--connections",
        "2000",
        "--seconds",
        "4",
        "--limit",
        "1",
        "--packets",
        "2000",
        "--json",
    ];
    let output = Command::new(example("idle_connections")?)
        .args(small)
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && words.is_empty(),
        "{}: {words}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    for way in ["dueq", "scan", "sleeps", "ring"] {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("\"way\":\"{way}\"")))
            .unwrap_or_default();
        let report: serde_json::Value = serde_json::from_str(line)?;
        // The ring's hand can lag on a machine that stalls.
        assert!(report["wrong"] == 0 || way == "ring", "{text}");
        assert!(
            report["closed"].as_u64() > Some(0) && report["resets_per_second"].as_f64() > Some(0.0),
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn examples_fail_without_a_server() -> Result<()> {
    let mut server = Server::start(&[])?;
    server.kill()?;
    for name in [
        "unpaid_order",
        "heartbeat",
        "campaign",
        "webhook_retry",
        "metrics",
    ] {
        let arguments: &[&str] = if name == "metrics" {
            &[]
        } else {
            &["--speed", "86400"]
        };
        let output = output(&server, name, arguments)?;
        let words = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {words}");
        ensure!(
            words.contains("cannot reach redis at 127.0.0.1"),
            "{name}: {words}"
        );
    }
    Ok(())
}
