//! Which messages a claim grants, and which faulty entries it drops.

use anyhow::{Context, Result, ensure};

use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::expect;

/// A queue with ready messages of these payload sizes. Their ids are 0, 1, 2 and so on.
fn ready(sizes: &[usize]) -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_payload_bytes", 16_777_216u64])?;
    for (place, size) in sizes.iter().enumerate() {
        ensure!(
            queue.push(
                T0,
                &place.to_string(),
                T0 - 1_000 + place as u64,
                &"x".repeat(*size)
            )? == "CREATED"
        );
    }
    queue.ok("promote", T0, words![1_000])?;
    Ok(queue)
}

fn granted(queue: &mut Queue, count: u64) -> Result<usize> {
    let token = queue.new_token();
    Ok(queue
        .ok("claim", T0, words![count, token, SECOND])?
        .deliveries()?
        .len())
}

#[test]
fn a_claim_stops_at_4_mib_but_grants_at_least_one() -> Result<()> {
    const MIB: usize = 1_048_576;
    let mut queue = ready(&[MIB; 6])?;
    ensure!(
        granted(&mut queue, 10)? == 4,
        "the claim must grant exactly 4 MiB"
    );
    ensure!(granted(&mut queue, 10)? == 2);

    let mut queue = ready(&[5 * MIB, 5 * MIB, 1])?;
    ensure!(
        granted(&mut queue, 10)? == 1,
        "a payload beyond the limit must come alone"
    );
    ensure!(granted(&mut queue, 10)? == 1);
    ensure!(granted(&mut queue, 10)? == 1);

    let mut queue = ready(&[4 * MIB - 1, 1, 1])?;
    ensure!(
        granted(&mut queue, 10)? == 2,
        "the claim must fill 4 MiB to the byte"
    );

    // Small payloads come first, so that the script reads many at a time before it meets large
    // ones.
    let sizes: Vec<usize> = [vec![10; 200], vec![MIB; 5], vec![0; 20]].concat();
    let mut queue = ready(&sizes)?;
    ensure!(granted(&mut queue, 1_000)? == 203);
    ensure!(granted(&mut queue, 1_000)? == 22);
    ensure!(queue.state()?.leases.len() == 3 && queue.state()?.claims.len() == 225 + 2 * 2 + 1);
    ensure!(queue.state()?.ready.len() == 1);
    Ok(())
}

#[test]
fn claim_drops_malformed_entries_and_unknown_ids() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "first", T0, "1")?;
    queue.ok("promote", T0, words![1])?;
    let entries = words![
        format!("{T0}:nobody"),
        "nonsense",
        "",
        ":",
        format!("{T0}:")
    ];
    queue.command([words!["RPUSH", "dueq:{q}:ready"], entries].concat())?;
    queue.push(T0, "last", T0 + 1, "2")?;
    queue.ok("promote", T0 + 1, words![10])?;
    ensure!(queue.take(T0 + 1, 100, &token('a'))? == ["first", "last"]);
    let state = queue.state()?;
    ensure!(state.ready.len() == 1 && state.leases.len() == 2 && state.claims.len() == 2 + 2 + 1);
    Ok(())
}

#[test]
fn claim_replies_whole_numbers_after_foreign_writes() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok(
        "push",
        T0,
        words![
            "",
            "a",
            T0,
            "A",
            "max_attempts=7",
            "b",
            T0,
            "B",
            "",
            "c",
            T0,
            "C",
            ""
        ],
    )?;
    queue.command(words![
        "ZADD",
        "dueq:{q}:scheduled",
        "-5",
        "a",
        "-4",
        "b",
        "1.5",
        "c"
    ])?;
    queue.command(words!["DEL", "dueq:{q}:ready"])?;
    let none = queue.ok("claim", T0, words![0, token('s'), SECOND])?;
    ensure!(none.part(1)?.int()? == 0, "{none:?}");
    let reply = queue.ok("claim", T0, words![10, token('t'), SECOND])?;
    let expected = [
        ["a", "b", "c"],
        ["A", "B", "C"],
        ["0 1 max_attempts=7", "0 1 ", "2 1 "],
    ];
    ensure!(reply.part(1)?.int()? == 0, "{reply:?}");
    ensure!(
        reply.list()?[3..6] == expected.map(|list| Reply::List(list.map(Reply::from).into())),
        "{reply:?}"
    );
    Ok(())
}

#[test]
fn a_claim_of_0_messages_only_adds_wake_up_tokens() -> Result<()> {
    let mut queue = ready(&[1])?;
    let wake: Text = queue.key("wake").into();
    queue.command(words!["DEL", &wake])?;
    let before = queue.state()?;
    let reply = queue.ok("claim", T0, words![0, token('a'), SECOND])?;
    ensure!(reply.part(1)?.int()? == 1 && reply.part(2)?.int()? == -1);
    expect(&mut queue, before, |state| state.wake = words!["1", "1"])
}

#[test]
fn claims_share_and_limit_due_messages_like_ready_ones() -> Result<()> {
    let claim = |queue: &mut Queue, count: u64| -> Result<usize> {
        let token = queue.new_token();
        Ok(queue
            .ok("claim", T0 + SECOND, words![count, token, SECOND])?
            .deliveries()?
            .len())
    };
    for promoted in [0, 10, 100] {
        let mut queue = Queue::start()?;
        for id in 0..100 {
            queue.push(T0, &id.to_string(), T0 + id % 7, "")?;
        }
        if promoted > 0 {
            queue.ok("promote", T0 + SECOND, words![promoted])?;
        }
        for node in ["a", "b", "c", "d"] {
            queue.ok("beat", T0 + SECOND, words![node, "stay"])?;
        }
        ensure!(
            claim(&mut queue, 1_000)? == 25,
            "the share must be a quarter"
        );
        ensure!(
            claim(&mut queue, 10)? == 10,
            "the claim must grant the count asked for"
        );
        ensure!(
            claim(&mut queue, 1_000)? == 16,
            "the share must be a quarter of 65, rounded down"
        );
    }

    const MIB: usize = 1_048_576;
    let mut queue = Queue::start()?;
    for id in 0..9 {
        queue.push(T0, &id.to_string(), T0 + id, &"x".repeat(MIB))?;
    }
    queue.ok("promote", T0 + SECOND, words![2])?;
    ensure!(
        claim(&mut queue, 100)? == 4 && queue.state()?.scheduled.len() == 6,
        "two of the four granted messages must be ready ones"
    );
    ensure!(claim(&mut queue, 100)? == 4);
    ensure!(claim(&mut queue, 100)? == 1);
    ensure!(claim(&mut queue, 100)? == 0);
    Ok(())
}

#[test]
fn a_claim_skips_ids_that_have_no_payload() -> Result<()> {
    let mut queue = Queue::start()?;
    for id in ["a", "b", "c", "d", "e", "f"] {
        queue.push(T0, id, T0, &format!("payload of {id}"))?;
    }
    for gone in ["c", "e"] {
        let key = queue.key("messages");
        queue.command(words!["HDEL", key, gone])?;
    }
    let claim = queue.ok("claim", T0, words![10, token('a'), SECOND])?;
    for ([id, payload, ..], expected) in claim.deliveries()?.iter().zip(["a", "b", "d", "f"]) {
        ensure!(
            id.text()? == expected && payload.text()? == format!("payload of {expected}"),
            "{expected}"
        );
    }
    ensure!(claim.deliveries()?.len() == 4);
    // No further id is leased.
    ensure!(queue.items("ack", T0, words![token('a'), 4, "a", "b", "d", "f"])? == ["OK"; 4]);
    let state = queue.state()?;
    ensure!(
        (state.claims.len(), state.leases.len(), state.messages.len()) == (1, 1, 1),
        "{:?}",
        state.claims
    );
    Ok(())
}

/// Each claim of ten stops at 4 MiB, and the next one continues. This holds on every path of the
/// script.
#[test]
fn claims_at_4_mib_hand_out_every_message_once() -> Result<()> {
    for (options, promoted) in [
        ("", true),
        ("", false),
        ("max_attempts=3", true),
        ("max_attempts=3", false),
    ] {
        let mut queue = Queue::start()?;
        for place in 0..10u64 {
            let (id, size) = (
                place.to_string(),
                if place % 3 == 0 { 10 } else { 1_048_576 },
            );
            queue.ok(
                "push",
                T0,
                words![
                    "",
                    &id,
                    T0 + place,
                    "x".repeat(size),
                    if place == 0 { options } else { "" }
                ],
            )?;
        }
        let (now, mut all) = (T0 + 10, Vec::new());
        if promoted {
            queue.ok("promote", now, words![10])?;
        }
        for _ in 0..3 {
            let token = queue.new_token();
            let claim = queue.ok("claim", now, words![10, token, 30 * SECOND])?;
            for [id, payload, ..] in claim.deliveries()? {
                let size = payload.bytes()?.0.len();
                let id = id.text()?;
                ensure!(
                    size == if id.parse::<u64>()? % 3 == 0 {
                        10
                    } else {
                        1_048_576
                    },
                    "{id} has {size} bytes"
                );
                all.push(id);
            }
        }
        ensure!(
            all == (0..10).map(|place| place.to_string()).collect::<Vec<_>>(),
            "{options:?} {promoted}: {all:?}"
        );
    }
    Ok(())
}

/// The server's peak memory, in bytes.
fn peak(queue: &mut Queue) -> Result<u64> {
    let info = queue.command(words!["INFO", "memory"])?.text()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory_peak:"));
    Ok(line.context("INFO has no peak")?.trim().parse()?)
}

/// Measures the peak memory of the server, with payloads of 1 MiB behind a few short ones.
#[test]
fn a_claim_reads_hardly_more_than_it_grants() -> Result<()> {
    const MIB: u64 = 1_048_576;
    let mut queue = Queue::start()?;
    for place in 0..64 {
        let payload = "x".repeat(if place < 4 { 10 } else { MIB as usize });
        queue.push(T0, &format!("{place:02}"), T0, &payload)?;
    }
    let before = peak(&mut queue)?;
    ensure!(
        queue
            .ok("claim", T0, words![64, token('t'), 30 * SECOND])?
            .deliveries()?
            .len()
            >= 6
    );
    let more = peak(&mut queue)? - before;
    ensure!(
        more < 24 * MIB,
        "the peak grew by {more} bytes for 4 MiB granted"
    );
    Ok(())
}
