//! `dueq history`: shows the reports of a node.

use std::fs;

use anyhow::Result;
use dueq_testkit::Server;
use serde_json::Value;

use crate::{Said, dueq};

/// A beat with this report.
fn beat(server: &Server, report: &str) -> Result<()> {
    let lua = concat!(env!("CARGO_MANIFEST_DIR"), "/../lua/dist/beat.lua");
    let lua = fs::read_to_string(lua)?;
    let keys = "scheduled ready leases claims messages attrs dead recent nodes meta";
    let keys: Vec<_> = keys
        .split(' ')
        .map(|key| format!("dueq:{{q}}:{key}"))
        .collect();
    let mut words = vec!["EVAL", &lua, "10"];
    words.extend(keys.iter().map(String::as_str));
    words.extend(["", "node", "stay", report]);
    server.command(&words)?;
    Ok(())
}

#[test]
fn history_shows_counts_and_lateness_of_each_slot() -> Result<()> {
    let server = Server::start(&[])?;
    dueq(&server, &["push", "q", "x", "--delay", "1h"])?;
    let nothing = dueq(&server, &["history", "q"])?;
    assert_eq!((nothing.code(), nothing.out().as_str()), (Some(0), ""));
    assert!(nothing.err().contains("nothing was recorded"));
    beat(&server, "|")?;
    dueq(&server, &["push", "q", "x", "--delay", "1h"])?;
    // Two messages were at most 724 µs late; one was handled for at most 256 µs.
    beat(&server, "5 2|2 1")?;

    for flag in [None, Some("--hours"), Some("--days")] {
        let args = ["history", "q"].into_iter().chain(flag);
        let args: Vec<_> = args.collect();
        let said = dueq(&server, &args)?.out();
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].contains("late p99"), "{said}");
        // The end of a slot may fall into the test.
        let shown = lines[1..].join("\n");
        assert!(lines.len() <= 3 && shown.contains("0.72 ms"), "{said}");

        let json = dueq(&server, &[&args[..], &["--json"]].concat())?;
        let mut sums = (0, 0);
        for line in json.out().lines() {
            let point: Value = serde_json::from_str(line)?;
            sums.0 += point["pushed"].as_u64().unwrap_or(0);
            sums.1 += point["lateness"]["count"].as_u64().unwrap_or(0);
            assert_eq!(point["scheduled"], 2, "{line}");
            if point["handling"]["count"] == 1 {
                assert_eq!(point["handling"]["p99_us"], 256, "{line}");
                assert_eq!(point["lateness"]["p50_us"], 724, "{line}");
            }
        }
        assert_eq!(sums, (1, 2), "{}", json.out());
    }
    Ok(())
}
