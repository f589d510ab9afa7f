//! Faults in attributes, times, placeholders and meta: `verify` and `audit` repair them too.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Reply, words};
use crate::state::{KEYS, placeholder};
use crate::vectors::reads::repairs::{KEPT, check_repair, findings};
use crate::vectors::{drain, with_every_state};

#[test]
fn attributes_without_payload_or_meaning_are_removed() -> Result<()> {
    let attrs = "dueq:{q}:attrs";
    check_repair(
        &[words!["HSET", attrs, "nobody", "1 0 - \n"]],
        &[["attrs", "nobody", "absent"]],
        &KEPT,
    )?;
    check_repair(
        &[words!["HSET", attrs, "s", "gibberish"]],
        &[["attrs", "s", ""]],
        &KEPT,
    )?;
    Ok(())
}

#[test]
fn a_malformed_ready_entry_is_removed() -> Result<()> {
    let mut queue = check_repair(
        &[words!["RPUSH", "dueq:{q}:ready", "gibberish"]],
        &[["entry", "gibberish", ""]],
        &KEPT,
    )?;
    ensure!(drain(&mut queue, T0)? == ["r"]);
    Ok(())
}

#[test]
fn an_invalid_due_time_becomes_one_that_is_not_early() -> Result<()> {
    let (scheduled, dead) = ("dueq:{q}:scheduled", "dueq:{q}:dead");
    check_repair(
        &[words!["ZADD", scheduled, "-5", "s"]],
        &[["score", "s", "scheduled -5"]],
        &KEPT,
    )?;
    check_repair(
        &[words!["ZADD", scheduled, "1700000000000.25", "s"]],
        &[["score", "s", "scheduled 1700000000000.25"]],
        &KEPT,
    )?;
    check_repair(
        &[words!["ZADD", scheduled, "+inf", "s"]],
        &[["score", "s", "scheduled inf"]],
        &[("s", "dead")],
    )?;
    check_repair(
        &[words!["ZADD", dead, "+inf", "d"]],
        &[["score", "d", "dead inf"]],
        &KEPT,
    )?;
    Ok(())
}

#[test]
fn a_lost_placeholder_is_restored() -> Result<()> {
    for key in KEYS {
        let name = format!("dueq:{{q}}:{key}");
        let (plant, finds) = match key {
            "ready" => (words!["LPOP", &name], name.clone()),
            "claims" | "messages" | "attrs" | "meta" => {
                (words!["HDEL", &name, placeholder()], name.clone())
            }
            _ => (words!["ZREM", &name, placeholder()], name.clone()),
        };
        check_repair(&[plant], &[["placeholder", &finds, ""]], &KEPT)?;
    }
    check_repair(
        &[words!["ZADD", "dueq:{q}:dead", 5, placeholder()]],
        &[["placeholder", "dueq:{q}:dead", ""]],
        &KEPT,
    )?;
    // The whole key is lost, so the payload of its message is in no state.
    check_repair(
        &[words!["DEL", "dueq:{q}:scheduled"]],
        &[
            ["placeholder", "dueq:{q}:scheduled", ""],
            ["unplaced", "s", ""],
        ],
        &[("s", "dead")],
    )?;
    Ok(())
}

#[test]
fn a_lost_layout_or_incarnation_is_restored() -> Result<()> {
    check_repair(
        &[words!["HDEL", "dueq:{q}:meta", "layout"]],
        &[["meta", "layout", ""]],
        &KEPT,
    )?;
    check_repair(
        &[words!["HDEL", "dueq:{q}:meta", "incarnation"]],
        &[["meta", "incarnation", ""]],
        &KEPT,
    )?;
    Ok(())
}

#[test]
fn malformed_numbers_in_meta_are_repaired() -> Result<()> {
    let meta = "dueq:{q}:meta";
    for field in [
        "max_attempts",
        "max_crashes",
        "max_messages",
        "dead_keep",
        "reap_after",
        "last_beat",
        "leader_until",
        "max_leased",
        "max_throttle_ms",
        "max_remembered",
        "windows_until",
        "pushed",
        "died",
        "expired",
        "seq",
    ] {
        let mut queue = check_repair(
            &[words!["HSET", meta, field, "gibberish"]],
            &[["meta", field, "gibberish"]],
            &KEPT,
        )?;
        let far = (T0 + 9 * SECOND).to_string();
        for (verb, argv) in [
            ("push", words!["", "new", far, "", ""]),
            ("beat", words!["node", "stay"]),
            ("reap", words![10]),
        ] {
            queue.ok(verb, T0, argv)?;
        }
    }
    Ok(())
}

/// Values that no script writes. HINCRBY refuses them now, or after some increments; some consist
/// of digits only.
const NO_COUNTS: [&str; 7] = [
    "0x10",
    "007",
    " 7",
    "-7",
    "",
    "9223372036854775807",
    "99999999999999999999",
];

#[test]
fn an_unusable_counter_leaves_no_repair_half_done() -> Result<()> {
    for field in ["seq", "died"] {
        for value in NO_COUNTS {
            let mut queue = with_every_state()?;
            queue.command(words!["HSET", "dueq:{q}:meta", field, value])?;
            queue.command(words!["ZREM", "dueq:{q}:scheduled", "s"])?;
            let before = queue.contents()?;
            let reply = queue.ok("audit", T0, words!["messages", "0", 100, "1"])?;
            ensure!(
                reply.part(3)?.list()?[0].part(3)?.int()? == 0,
                "{field} {value:?}: {reply:?}"
            );
            ensure!(
                queue.contents()? == before,
                "{field} {value:?}: the audit changed a key"
            );
        }
    }
    Ok(())
}

#[test]
fn an_unusable_counter_is_found_and_reset() -> Result<()> {
    for field in ["seq", "died", "pushed"] {
        for value in NO_COUNTS {
            let plant = words!["HSET", "dueq:{q}:meta", field, value];
            let mut queue = check_repair(&[plant], &[["meta", field, value]], &KEPT)?;
            queue.ok("push", T0, words!["", "new", T0 + 9 * SECOND, "", ""])?;
            queue.ok("bury", T0, words!["l", token('l'), ""])?;
        }
        check_repair(
            &[words!["HSET", "dueq:{q}:meta", field, "9999999999999999"]],
            &[],
            &KEPT,
        )?;
    }
    // A configured limit is not a counter: no script adds to it, so any number is valid.
    check_repair(
        &[words!["HSET", "dueq:{q}:meta", "max_attempts", "007"]],
        &[],
        &KEPT,
    )?;
    Ok(())
}

#[test]
fn verify_without_a_test_clock_reports_a_test_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("push", "", words!["", "a", "+3600000", "", ""])?;
    let verify = |queue: &mut Queue, now: &str, repair: &str| -> Result<Vec<Reply>> {
        Ok(queue
            .ok("verify", now, words![repair])?
            .part(1)?
            .list()?
            .to_vec())
    };
    ensure!(
        verify(&mut queue, &T0.to_string(), "1")?.is_empty(),
        "a call with a time of its own must not report the field"
    );
    for (repair, repaired) in [("", 0), ("1", 1)] {
        let found = verify(&mut queue, "", repair)?;
        ensure!(
            found.len() == 1 && found[0].part(1)?.text()? == "test",
            "{found:?}"
        );
        ensure!(found[0].part(3)?.int()? == repaired, "{found:?}");
    }
    ensure!(verify(&mut queue, "", "")?.is_empty());
    ensure!(queue.call("stats", T0, words![])?.code() == Some("BADNOW"));
    Ok(())
}

#[test]
fn a_listpack_is_found_and_converted() -> Result<()> {
    let mut queue = Queue::start_with(&[
        "--zset-max-listpack-value",
        "4096",
        "--hash-max-listpack-value",
        "4096",
    ])?;
    queue.push(T0, "a", T0 + 5, "payload")?;
    let seen = findings(&mut queue, T0, false)?;
    ensure!(
        seen.len() == 9 && seen.iter().all(|one| one[0] == "listpack"),
        "{seen:?}"
    );
    let before = queue.state()?;
    ensure!(findings(&mut queue, T0, true)?.len() == 9);
    ensure!(findings(&mut queue, T0, false)?.is_empty());
    let mut after = queue.state()?;
    after
        .meta
        .insert("seq".into(), before.meta[&"seq".into()].clone());
    ensure!(after == before, "the repair must change encodings only");
    Ok(())
}

#[test]
fn verify_adds_wake_up_tokens_for_work_if_no_node_beats() -> Result<()> {
    let wake = "dueq:{q}:wake";
    let mut queue = with_every_state()?;
    queue.command(words!["DEL", wake])?;
    ensure!(
        findings(&mut queue, T0, false)?.is_empty(),
        "no fault yet: a node may just have taken the tokens"
    );
    let late = T0 + 10 * SECOND;
    let finds = [["silent", wake, "10000"].map(str::to_owned)];
    ensure!(findings(&mut queue, late, false)? == finds);
    ensure!(
        queue.state()?.wake.is_empty(),
        "the check must add no tokens"
    );
    ensure!(findings(&mut queue, late, true)? == finds);
    ensure!(queue.state()?.wake.len() == 2 && findings(&mut queue, late, false)?.is_empty());

    queue.command(words!["DEL", wake])?;
    queue.ok("beat", late, words!["node", "stay"])?;
    queue.command(words!["DEL", wake])?;
    ensure!(
        findings(&mut queue, late, false)?.is_empty(),
        "no fault: the next beat adds tokens"
    );
    queue.command(words!["SET", wake, "somebody else's"])?;
    ensure!(findings(&mut queue, late, true)? == [["wake", wake, ""].map(str::to_owned)]);
    ensure!(queue.command(words!["GET", wake])? == "somebody else's".into());
    Ok(())
}

#[test]
fn audit_reads_large_payloads_a_few_at_a_time() -> Result<()> {
    let mut queue = Queue::start()?;
    for id in 0..40 {
        queue.push(T0, &id.to_string(), T0 + 5, &"x".repeat(1_000_000))?;
    }
    let (mut cursor, mut looked, mut steps) = ("0".to_owned(), 0, 0);
    loop {
        let reply = queue.ok("audit", T0, words!["messages", cursor, 1_000, ""])?;
        (cursor, looked, steps) = (
            reply.part(1)?.text()?,
            looked + reply.part(2)?.int()?,
            steps + 1,
        );
        if cursor == "0" {
            break;
        }
    }
    println!("{looked} payloads of 1 MB in {steps} steps");
    ensure!(looked == 40, "{looked}");
    Ok(())
}
