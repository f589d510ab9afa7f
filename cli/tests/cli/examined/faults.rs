//! `dueq doctor` finds each fault that the test creates, and `--repair` repairs the faults of
//! queues.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq_testkit::Server;

use crate::examined::doctor::{LATER, finds, healthy, run, server};
use crate::queues::operator::one_in_each_state;
use crate::{Said, command, dueq, words};

#[tokio::test]
async fn doctor_finds_and_repairs_each_fault_of_a_queue() -> Result<()> {
    let server = server()?;
    let leased = one_in_each_state(&server).await?;
    healthy(&server)?;
    // The extension gives the message its own lease.
    let extended = leased.extend(Duration::from_secs(600)).await?;
    assert!(
        matches!(extended, dueq::outcomes::ExtendOutcome::Until(_)),
        "{extended:?}"
    );
    healthy(&server)?;
    let key = |suffix: &str| format!("dueq:{{q}}:{suffix}");
    let placeholder = format!("\0{}", "-".repeat(70));
    // Each row: a command that makes the fault, the expected finding, and a command that prepares
    // the next fault.
    let entry = format!("{LATER}:nobody");
    let count = format!("\u{2}{}", "k".repeat(16));
    let faults: [(&[&str], &str, &[&str]); 18] = [
        (
            &["ZREM", "scheduled", "waits"],
            "unplaced waits",
            &["requeue", "q", "waits"],
        ),
        (
            &["ZADD", "dead", "5", "waits"],
            "doubled waits",
            &["requeue", "q", "waits"],
        ),
        (
            &["ZADD", "scheduled", LATER, "leased"],
            "doubled leased",
            &[],
        ),
        (&["HDEL", "claims", "leased"], "unclaimed leased", &[]),
        (&["ZREM", "leases", "leased"], "unleased leased", &[]),
        (
            &["HSET", "claims", "nobody", "xxxxxxxxxxxxxxxx5"],
            "unleased nobody",
            &[],
        ),
        (
            &["HSET", "claims", "leased", "xxxxxxxxxxxxxxxx5"],
            "unmarked leased",
            &[],
        ),
        (
            &["HSET", "claims", &count, "3"],
            "claim 6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b",
            &[],
        ),
        (
            &["HSET", "attrs", "nobody", "1 0 0 \n"],
            "attrs nobody",
            &[],
        ),
        (&["HSET", "attrs", "dead", "gibberish"], "attrs dead", &[]),
        (&["RPUSH", "ready", "gibberish"], "entry gibberish", &[]),
        (&["RPUSH", "ready", &entry], "hollow nobody", &[]),
        (
            &["ZADD", "scheduled", LATER, "nobody"],
            "hollow nobody",
            &[],
        ),
        (&["ZADD", "dead", "+inf", "dead"], "score dead", &[]),
        (
            &["ZREM", "dead", &placeholder],
            "placeholder dueq:{q}:dead",
            &[],
        ),
        (&["LPOP", "ready"], "placeholder dueq:{q}:ready", &[]),
        (
            &["HSET", "meta", "max_attempts", "many"],
            "meta max_attempts",
            &[],
        ),
        (&["HDEL", "meta", "layout"], "meta layout", &[]),
    ];
    for (plant, expected, then) in faults {
        let name = key(plant[1]);
        run(&server, &[&[plant[0], &name], &plant[2..]].concat())?;
        finds(&server, &["q"], expected)?;
        let finding = finds(&server, &["q", "--repair"], expected)?;
        assert_eq!(finding["repaired"], true, "{finding}");
        healthy(&server)?;
        if !then.is_empty() {
            assert_eq!(dueq(&server, then)?.code(), Some(0), "{then:?}");
            // Otherwise the message would be overdue.
            dueq(&server, &["reschedule", "q", "waits", "--at", LATER])?;
        }
    }
    // The next fault is a missing payload.
    run(&server, &["HDEL", "dueq:{q}:messages", "waits"])?;
    finds(&server, &["--repair"], "hollow waits")?;
    healthy(&server)
}

#[tokio::test]
async fn doctor_finds_faults_that_it_cannot_repair() -> Result<()> {
    let server = server()?;
    let _leased = one_in_each_state(&server).await?;
    let stale = dueq::admin::functions_code().replace(
        &format!("return {}\n", dueq::admin::functions_version()),
        "return 0\n",
    );
    let used: u64 = server
        .command(&["INFO", "memory"])?
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok())
        .context("used_memory")?;
    let nearly = (used + used / 50).to_string();
    let faults: [(&[&str], &str, &[&str]); 7] = [
        (
            &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
            "eviction maxmemory-policy",
            &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
        ),
        (
            &["CONFIG", "SET", "appendonly", "no"],
            "persistence appendonly",
            &["CONFIG", "SET", "appendonly", "yes"],
        ),
        (
            &["CONFIG", "SET", "maxmemory", &nearly],
            "memory maxmemory",
            &["CONFIG", "SET", "maxmemory", "0"],
        ),
        (
            &words("CONFIG SET client-output-buffer-limit 'pubsub 1000 0 0'"),
            "buffers client-output-buffer-limit",
            &words("CONFIG SET client-output-buffer-limit 'pubsub 33554432 8388608 60'"),
        ),
        (
            &["FUNCTION", "LOAD", "REPLACE", &stale],
            "functions dueq",
            &["FUNCTION", "FLUSH"],
        ),
        (
            &["SET", "dueq:{q}:wake", "x"],
            "wake dueq:{q}:wake",
            &["DEL", "dueq:{q}:wake"],
        ),
        (
            &["HSET", "dueq:{q}:meta", "layout", "99"],
            "layout layout",
            &["HSET", "dueq:{q}:meta", "layout", "1"],
        ),
    ];
    for (plant, expected, mend) in faults {
        run(&server, plant)?;
        for args in [&[][..], &["q", "--repair"]] {
            let finding = finds(&server, args, expected)?;
            assert_eq!(finding["repaired"], false, "{finding}");
        }
        run(&server, mend)?;
        healthy(&server)?;
    }
    run(&server, &["DEL", "dueq:{q}:recent"])?;
    run(&server, &["SET", "dueq:{q}:recent", "somebody else's"])?;
    finds(&server, &["q", "--repair"], "type dueq:{q}:recent")?;
    finds(&server, &["other"], "absent other")?;
    Ok(())
}

#[test]
fn doctor_counts_findings_beyond_the_printed_ones() -> Result<()> {
    let server = Server::start(&["--appendonly", "yes"])?;
    assert!(
        command(&server)
            .args(["push", "q", "x", "--id", "one", "--delay", "48h"])
            .output()?
            .status
            .success()
    );
    let plant = "for i = 1, 1500 do redis.call('HSET', KEYS[1], 'lost:' .. i, 'x') end";
    server.command(&["EVAL", plant, "1", "dueq:{q}:messages"])?;
    let said = command(&server)
        .args(["doctor", "q", "--repair"])
        .output()?
        .out();
    assert!(
        said.contains("  and 500 more, 500 repaired\n")
            && said.contains("1500 found, 1500 repaired"),
        "{said}"
    );
    let said = dueq(&server, &["doctor", "q"])?.out();
    assert!(said.ends_with("nothing found, 1 remark\n"), "{said}");
    Ok(())
}
