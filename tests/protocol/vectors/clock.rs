//! The server's clock goes back: no message is early, and no message waits for its former due time.

use anyhow::{Result, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::words;
use crate::state::State;

#[test]
fn a_release_after_the_clock_went_back_is_due_now() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0 + 10 * SECOND, "payload")?;
    queue.push(T0, "b", T0 + SECOND, "payload")?;
    ensure!(queue.take(T0 + 10 * SECOND, 2, &token('t'))?.len() == 2);
    queue.ok(
        "release",
        T0 + 2 * SECOND,
        words!["a", token('t'), "b", token('t')],
    )?;
    let scheduled = queue.state()?.scheduled;
    ensure!(
        State::score(&scheduled, &"a".into()) == Some((T0 + 2 * SECOND) as f64),
        "a must be due now: its due time is in the future"
    );
    ensure!(
        State::score(&scheduled, &"b".into()) == Some((T0 + SECOND) as f64),
        "b must keep its due time: it is past"
    );
    Ok(())
}

/// The clock went back by more than a day, so an audit shortened the lease. The lease ends long
/// before the due time.
#[test]
fn a_reap_after_the_clock_went_back_is_due_now() -> Result<()> {
    let (mut queue, later) = (Queue::start()?, T0 + 25 * HOUR);
    queue.push(T0, "a", later, "payload")?;
    ensure!(queue.take(later, 1, &token('t'))? == ["a"]);
    ensure!(
        queue
            .ok("audit", T0, words!["leases", 0, 100, "1"])?
            .part(3)?
            .list()?
            .len()
            == 1
    );
    let now = T0 + 60 * SECOND;
    for second in 0..=60 {
        queue.ok("beat", T0 + second * SECOND, words!["node", "stay"])?;
    }
    ensure!(queue.ok("reap", now, words![10])?.part(1)?.int()? == 1);
    ensure!(State::score(&queue.state()?.scheduled, &"a".into()) == Some(now as f64));
    Ok(())
}

/// Two of the ready messages are not due when the claim comes, and two due ones follow them.
#[test]
fn a_claim_after_the_clock_went_back_takes_only_the_due() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, due) in [("a", 0), ("b", 50), ("f", 300), ("g", 300)] {
        queue.push(T0, id, T0 + due, &format!("payload of {id}"))?;
    }
    queue.ok("promote", T0 + 300, words![10])?;
    for (id, due) in [("c", 60), ("d", 70)] {
        queue.push(T0 + 100, id, T0 + due, &format!("payload of {id}"))?;
    }
    queue.ok("promote", T0 + 100, words![10])?;
    let claim = queue.ok("claim", T0 + 100, words![10, token('t'), 30 * SECOND])?;
    let mut granted = Vec::new();
    for [id, payload, due, ..] in claim.deliveries()? {
        granted.push((id.text()?, payload.text()?, due.int()? as u64 - T0));
    }
    let expected = [("a", 0), ("b", 50), ("c", 60), ("d", 70)];
    let expected = expected.map(|(id, due)| (id.to_owned(), format!("payload of {id}"), due));
    ensure!(granted == expected, "{granted:?}");
    let scheduled = queue.state()?.scheduled;
    for id in ["f", "g"] {
        ensure!(
            State::score(&scheduled, &id.into()) == Some((T0 + 300) as f64),
            "{id}: {scheduled:?}"
        );
    }
    Ok(())
}
