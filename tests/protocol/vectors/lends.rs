//! The duration of leases that an audit accepts, and of those that it sets.

use anyhow::{Result, ensure};

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
fn an_audit_leaves_leases_of_up_to_a_day_alone() -> Result<()> {
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
    let before = queue.contents()?;
    for part in ["leases", "claims"] {
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
fn an_audit_ends_a_lease_beyond_a_day_in_a_minute() -> Result<()> {
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
fn a_handler_keeps_a_lost_lease_for_a_minute() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, letter) in [("a", 'a'), ("b", 'b')] {
        queue.push(T0, id, T0, "payload")?;
        queue.ok("claim", T0, words![1, token(letter), 30 * SECOND])?;
    }
    // Claim a loses its lease and its record, claim b only its lease.
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
