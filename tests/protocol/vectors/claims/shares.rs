//! The duration of leases that an audit accepts, and of those that it sets.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};

use crate::queue::{DAY, HOUR, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::state::State;

/// Audits a part with repair. Returns the findings.
fn audit(queue: &mut Queue, now: u64, part: &str) -> Result<Vec<Reply>> {
    Ok(queue
        .ok("audit", now, words![part, 0, 100, "1"])?
        .part(3)?
        .list()?
        .to_vec())
}

/// The member of `leases` for all ids of a claim.
fn lease_of(token: &Text) -> Text {
    Text([b"\x01", &token.0[..]].concat())
}

#[test]
fn an_audit_accepts_leases_of_up_to_a_day() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, letter, lease) in [
        ("minute", 'm', 60 * SECOND + 1),
        ("order-42", 'h', HOUR + 1),
        ("day", 'd', DAY),
    ] {
        queue.push(T0, id, T0, "payload")?;
        queue.ok("claim", T0, words![1, token(letter), lease])?;
    }
    queue.ok("extend", T0, words!["minute", token('m'), DAY])?;
    // The audit searches the claim's list for the id that it looks at first. Nearly every id is in
    // the middle of the list, and as a pattern it matches nothing.
    let middle: Vec<String> = (0..98).map(|number| format!("a-b{number:02}%")).collect();
    queue.push(T0, "first", T0 - 3, "payload")?;
    for id in &middle {
        queue.push(T0, id, T0 - 2, "payload")?;
    }
    queue.push(T0, "last", T0 - 1, "payload")?;
    ensure!(queue.take(T0, 100, &token('p'))?.len() == 100);
    let before = queue.contents()?;
    for part in ["leases", "claims", "messages"] {
        let found = audit(&mut queue, T0, part)?;
        ensure!(found.is_empty(), "{part}: {found:?}");
    }
    ensure!(
        queue.contents()? == before,
        "the audit changed a sound lease"
    );
    Ok(())
}

#[test]
fn an_audit_shortens_a_lease_beyond_a_day_to_a_minute() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    queue.ok("claim", T0 + 1, words![1, token('a'), DAY])?;
    ensure!(
        audit(&mut queue, T0, "leases")?.len() == 1,
        "an audit must find a lease 1 ms beyond a day"
    );
    ensure!(
        State::score(&queue.state()?.leases, &lease_of(&token('a')))
            == Some((T0 + 60 * SECOND) as f64)
    );
    Ok(())
}

#[test]
fn a_repaired_lease_gives_its_handler_a_minute() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, letter) in [("a", 'a'), ("b", 'b')] {
        queue.push(T0, id, T0, "payload")?;
        queue.ok("claim", T0, words![1, token(letter), 30 * SECOND])?;
    }
    // Claim `a` loses its lease and its record, claim `b` only its lease.
    let (leases, claims) = (queue.key("leases"), queue.key("claims"));
    queue.command(words![
        "ZREM",
        leases,
        lease_of(&token('a')),
        lease_of(&token('b'))
    ])?;
    let count = Text([b"\x02", &token('a').0[..]].concat());
    queue.command(words!["HDEL", claims, lease_of(&token('a')), count])?;
    ensure!(audit(&mut queue, T0, "claims")?.len() == 2);
    let leases = queue.state()?.leases;
    let minute = Some((T0 + 60 * SECOND) as f64);
    ensure!(State::score(&leases, &"a".into()) == minute, "{leases:?}");
    ensure!(
        State::score(&leases, &lease_of(&token('b'))) == minute,
        "{leases:?}"
    );
    for (id, letter) in [("a", 'a'), ("b", 'b')] {
        ensure!(
            queue.items("ack", T0 + 59 * SECOND, words![token(letter), 1, id])? == ["OK"],
            "{id}"
        );
    }
    Ok(())
}

const MEGABYTE: usize = 1_000_000;

/// The payloads are so long that a claim reads four at a time. One id among them has no payload.
#[test]
fn a_missing_payload_between_two_reads_shifts_no_other() -> Result<()> {
    for payload_is_gone in [false, true] {
        let mut queue = Queue::start()?;
        let long = |name: &str| name.repeat(MEGABYTE / name.len());
        for id in ["e0", "e1", "e2"] {
            queue.push(T0, id, T0, &long(id))?;
        }
        queue.push(
            T0,
            "hole",
            if payload_is_gone { T0 } else { T0 + 2_000 },
            "hole",
        )?;
        for number in 0..8 {
            queue.push(
                T0,
                &format!("m{number}"),
                if payload_is_gone { T0 } else { T0 + 1 },
                &format!("m{number}"),
            )?;
        }
        // The id without a payload is promoted with the others.
        queue.ok("promote", T0 + 2_000, words![100])?;
        if payload_is_gone {
            queue.command(words!["HDEL", "dueq:{q}:messages", "hole"])?;
        }
        let claim = queue.ok("claim", T0 + 1_000, words![100, token('a'), 30_000])?;
        let mut granted = BTreeSet::new();
        for [id, payload, ..] in &claim.deliveries()? {
            let (id, payload) = (id.text()?, payload.text()?);
            ensure!(
                payload.starts_with(&id),
                "{id} has another payload: {}",
                &payload[..4]
            );
            granted.insert(Text::from(id));
        }
        let state = queue.state()?;
        let leased: BTreeSet<Text> = state
            .claims
            .keys()
            .filter(|id| id.0.first().is_some_and(|byte| *byte > 31))
            .cloned()
            .collect();
        ensure!(
            granted == leased && granted.len() == 11,
            "granted {granted:?}, leased {leased:?}"
        );
    }
    Ok(())
}

/// Ready and due messages count together, up to the ready limit.
#[test]
fn a_share_counts_due_messages_up_to_the_ready_limit() -> Result<()> {
    for ready in [0, 600] {
        let mut queue = Queue::start()?;
        for part in 0..3 {
            let item = |place: u64| words![format!("{part}-{place}"), T0, "", ""];
            queue.ok(
                "push",
                T0,
                [words![""], (0..900).flat_map(item).collect()].concat(),
            )?;
        }
        if ready > 0 {
            queue.ok("promote", T0, words![ready])?;
        }
        for node in ["a", "b", "c", "d"] {
            queue.ok("beat", T0, words![node, "stay"])?;
        }
        let granted = queue
            .ok("claim", T0, words![1_000, token('t'), 30_000])?
            .deliveries()?
            .len();
        ensure!(
            granted == 250,
            "{ready} ready: one of four nodes got {granted} of 1,000"
        );
    }
    Ok(())
}

fn crash(queue: &mut Queue, now: u64, ids: u64, letter: char) -> Result<()> {
    queue.ok("beat", now, words!["node", "stay"])?;
    let claim = queue.ok("claim", now, words![ids, token(letter), 1_000])?;
    ensure!(claim.deliveries()?.len() as u64 == ids, "{claim:?}");
    queue.ok("beat", now + 1_000, words!["node", "stay"])?;
    let reaped = queue
        .ok("reap", now + 1_000, words![1_000])?
        .part(1)?
        .int()?;
    ensure!(reaped as u64 == ids, "{reaped} of {ids}");
    Ok(())
}

/// The jitter separates a message that crashes its node from the others of its claim.
#[test]
fn messages_that_crash_together_have_different_back_offs() -> Result<()> {
    let mut queue = Queue::start()?;
    for number in 0..20 {
        queue.push(T0, &number.to_string(), T0, "")?;
    }
    crash(&mut queue, T0, 20, 'a')?;
    crash(&mut queue, T0 + 2_000, 20, 'b')?;
    let scheduled = queue.state()?.scheduled;
    let waits: BTreeSet<u64> = scheduled
        .iter()
        .filter(|(_, due)| due.is_finite())
        .map(|(_, due)| *due as u64 - (T0 + 3_000))
        .collect();
    let (first, last) = (
        waits.first().context("no wait")?,
        waits.last().context("no wait")?,
    );
    ensure!(*first >= 1_000 && *last <= 3_000, "{waits:?}");
    ensure!(waits.len() >= 10 && last - first > 500, "{waits:?}");
    Ok(())
}

#[test]
fn the_back_off_after_a_crash_doubles_up_to_crash_21() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_crashes", 100])?;
    queue.push(T0, "a", T0, "")?;
    for number in 1..=24u32 {
        let now = T0 + u64::from(number) * 2 * SECOND;
        queue.ok("beat", now, words!["node", "stay"])?;
        queue.ok("run_now", now, words!["a"])?;
        crash(&mut queue, now, 1, 'a')?;
        let due = State::score(&queue.state()?.scheduled, &"a".into()).context("scheduled")? as u64;
        let wait = due.saturating_sub(now + 1_000) as f64;
        let factor = wait / (1_000.0 * f64::from(number.min(21) - 1).exp2());
        ensure!(
            number == 1 && wait == 0.0 || (0.5..=1.5).contains(&factor),
            "crash {number}: {wait} ms"
        );
    }
    Ok(())
}
