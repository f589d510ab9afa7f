//! `dueq bench` with short durations. No test depends on the speed.

use std::io::Read;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::{Said, command, dueq};

#[test]
fn bench_measures_and_removes_its_queue() -> Result<()> {
    let server = Server::start(&["--maxmemory", "1gb"])?;
    let mut report = serde_json::Value::Null;
    // On a busy machine a message may not be handled within one second, so try longer times too.
    for time in ["1s", "5s", "25s", "125s"] {
        let output = dueq(&server, &["bench", "--for", time, "--rate", "50", "--json"])?;
        assert_eq!(output.code(), Some(0), "{}", output.err());
        report = output.json()?;
        if report["life_per_s"].as_f64() > Some(0.0) {
            break;
        }
    }
    let number = |name: &str| {
        report[name]
            .as_f64()
            .with_context(|| format!("no number {name} in {report}"))
    };
    assert!(
        number("life_per_s")? > 0.0 && number("pushes")? > 0.0,
        "{report}"
    );
    assert!(
        number("rate_per_s")? <= 50.0 && number("lateness_count")? > 0.0,
        "{report}"
    );
    let bars = report["histogram"].as_array().context("bars")?;
    let counted: u64 = bars.iter().filter_map(|bar| bar["count"].as_u64()).sum();
    assert_eq!(Some(counted), report["lateness_count"].as_u64(), "{report}");
    let late = &report["lateness_ms"];
    assert!(
        late["p50"].as_f64() <= late["p99"].as_f64()
            && late["p99"].as_f64() <= late["max"].as_f64(),
        "{late}"
    );
    let waiting = &report["waiting"];
    let bytes = waiting["message_bytes"].as_u64().context("its memory")?;
    // The payload alone takes 100 bytes.
    assert!((100..2_000).contains(&bytes), "{waiting}");
    assert_eq!(waiting["messages_per_gib"], (1 << 30) / bytes);
    let [most, used, room] = [
        "maxmemory_bytes",
        "used_memory_bytes",
        "messages_until_maxmemory",
    ]
    .map(|name| waiting[name].as_u64().unwrap_or_default());
    assert_eq!((most, room), (1 << 30, (most - used) / bytes), "{waiting}");
    for (name, per_s) in [
        ("throughput_cost", "life_per_s"),
        ("rate_cost", "rate_per_s"),
    ] {
        let cost = &report[name];
        assert_eq!(cost["per_s"].as_f64(), report[per_s].as_f64(), "{report}");
        let us = cost["redis_us_per_message"].as_f64().context("its time")?;
        let percent = cost["core_percent"].as_f64().context("its share")?;
        assert!(us > 0.0, "{report}");
        assert!(
            (percent - us * number(per_s)? / 1e4).abs() <= 0.051,
            "{report}"
        );
    }
    assert_eq!(server.command(&["DBSIZE"])?, ":0\r\n", "the queue is gone");
    Ok(())
}

#[test]
fn bench_refuses_an_existing_queue() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(
        &server,
        &["push", "dueq-bench", "mine", "--id", "m", "--delay", "1h"],
    )?;
    let output = dueq(&server, &["bench", "--for", "1s"])?;
    assert_eq!(output.code(), Some(1));
    assert!(
        output.err().contains("the queue dueq-bench is in use"),
        "{}",
        output.err()
    );
    assert!(
        dueq(&server, &["show", "dueq-bench", "m"])?
            .out()
            .contains("mine")
    );
    let output = dueq(&server, &["bench", "--for", "0.5s"])?;
    assert_eq!(output.code(), Some(2), "{}", output.err());
    Ok(())
}

#[test]
fn interrupted_bench_removes_its_queue() -> Result<()> {
    let server = Server::start(&[])?;
    for signal in ["-INT", "-TERM"] {
        let mut bench = command(&server)
            .args(["bench", "--for", "10m"])
            .stderr(Stdio::piped())
            .spawn()?;
        // The queue exists as soon as the measurement runs.
        while server.command(&["EXISTS", "dueq:{dueq-bench}:meta"])? != ":1\r\n" {
            assert!(bench.try_wait()?.is_none(), "it ended before the signal");
        }
        Command::new("kill")
            .args([signal, &bench.id().to_string()])
            .status()?;
        let mut said = String::new();
        bench
            .stderr
            .take()
            .context("its errors")?
            .read_to_string(&mut said)?;
        assert_eq!(bench.wait()?.code(), Some(1), "{said}");
        assert!(said.contains("interrupted"), "{said}");
        assert_eq!(
            server.command(&["DBSIZE"])?,
            ":0\r\n",
            "{signal}: the queue is gone"
        );
    }
    Ok(())
}
