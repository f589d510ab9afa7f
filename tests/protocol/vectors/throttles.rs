//! Throttle: the receiver wants a break, and the queue closes for it.

use anyhow::{Result, ensure};

use super::expect;
use super::hints::Listener;
use crate::queue::{Queue, SECOND, T0, token};
use crate::reply::{Header, Text, words};

/// A queue with 64 leased messages (token `a`) and a later one that is due.
fn busy() -> Result<Queue> {
    let mut queue = Queue::start()?;
    for number in 0..64 {
        queue.push(T0, &format!("{number:02}"), T0 - 100 + number, "")?;
    }
    queue.ok("claim", T0, words![64, token('a'), 60 * SECOND])?;
    queue.push(T0, "later", T0, "")?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    Ok(queue)
}

fn claimed(queue: &mut Queue, now: u64, count: u64) -> Result<Vec<String>> {
    let token = queue.new_token();
    let reply = queue.ok("claim", now, words![count, token, SECOND])?;
    reply
        .deliveries()?
        .iter()
        .map(|[id, ..]| id.text())
        .collect()
}

#[test]
fn many_throttles_are_one_closure_until_the_latest_time() -> Result<()> {
    let mut queue = busy()?;
    let mut listener = Listener::start(&queue)?;
    let items = (0..64).flat_map(|number| {
        let wait = if number == 9 { 1_500 } else { 1_000 };
        words![format!("{number:02}"), token('a'), wait]
    });
    let replies = queue.items("throttle", T0, items.collect())?;
    let opens = T0 + 1_500;
    ensure!(replies == vec![format!("OK {opens}"); 64], "{replies:?}");
    ensure!(listener.heard(&mut queue)? == [opens.to_string()]);
    ensure!(claimed(&mut queue, opens - 1, 99)?.is_empty());
    let ids = claimed(&mut queue, opens, 99)?;
    let first: Vec<_> = (0..64).map(|number| format!("{number:02}")).collect();
    ensure!(ids[..64] == first && ids[64] == "later", "{ids:?}");
    let meta = queue.state()?.meta;
    ensure!(meta.get(&"throttled".into()) == Some(&64.into()));
    ensure!(queue.state()?.attrs.len() == 1, "a throttle is no failure");
    Ok(())
}

/// Claims take ready messages first, so these are scheduled again.
#[test]
fn returned_messages_are_before_ready_ones() -> Result<()> {
    let mut queue = busy()?;
    queue.push(T0, "ready, too", T0 - 1, "")?;
    queue.ok("promote", T0, words![10])?;
    ensure!(queue.state()?.ready.len() == 3);
    queue.ok("throttle", T0, words!["00", token('a'), 500])?;
    ensure!(queue.state()?.ready.len() == 1);
    let ids = claimed(&mut queue, T0 + 500, 9)?;
    ensure!(ids == ["00", "ready, too", "later"], "{ids:?}");
    Ok(())
}

#[test]
fn close_closes_without_a_delivery() -> Result<()> {
    let mut queue = Queue::start()?;
    let absent = queue.ok("throttle", T0, words!["close", 500])?;
    ensure!(absent.part(1)?.text()? == "OK 0");
    ensure!(queue.state()?.meta.len() == 1, "it created a queue");

    let mut queue = busy()?;
    let before = queue.state()?;
    let reply = queue.ok("throttle", T0, words!["close", 500])?;
    let opens = T0 + 500;
    ensure!(reply.part(1)?.text()? == format!("OK {opens}"));
    ensure!(Header::of(&reply)?.head == opens as i64);
    expect(&mut queue, before, |state| {
        for field in ["closed_until", "break_until"] {
            state.meta.insert(field.into(), Text::from(opens));
        }
        super::count(state, "seq", 1);
    })?;
    ensure!(claimed(&mut queue, opens, 9)? == ["later"]);
    Ok(())
}
