//! dues: how many scheduled messages are due when.

use anyhow::{Result, ensure};

use super::{declare, with_every_state};
use crate::queue::{HOUR, Queue, SECOND, T0};
use crate::reply::{Reply, Text, words};

/// The counts, and the due time of the last scheduled message.
fn dues(queue: &mut Queue, now: u64, times: Vec<Text>) -> Result<(Vec<i64>, i64)> {
    let reply = queue.ok("dues", now, times)?;
    let counts = reply.part(1)?.list()?.iter().map(Reply::int);
    Ok((counts.collect::<Result<_>>()?, reply.part(2)?.int()?))
}

#[test]
fn dues_counts_each_message_between_two_times_once() -> Result<()> {
    let mut queue = Queue::start()?;
    for (place, due) in [0, 10, 10, 19, 20, 30].into_iter().enumerate() {
        queue.push(T0, &place.to_string(), T0 + due, "")?;
    }
    let last = (T0 + 30) as i64;
    ensure!(dues(&mut queue, T0, words![])? == (vec![6], last));
    ensure!(dues(&mut queue, T0, words![T0 + 10])? == (vec![1, 5], last));
    let edges = words![T0, T0 + 10, T0 + 20, T0 + 30, T0 + 31];
    ensure!(dues(&mut queue, T0, edges)? == (vec![0, 1, 3, 1, 1, 0], last));
    ensure!(dues(&mut queue, T0, words![0, 1])? == (vec![0, 0, 6], last));
    Ok(())
}

#[test]
fn dues_takes_sixty_times_and_counts_only_what_is_scheduled() -> Result<()> {
    let mut queue = with_every_state()?;
    let times: Vec<Text> = (0..60).map(|i| (T0 + i * 60 * SECOND).into()).collect();
    let (counts, last) = dues(&mut queue, T0, times)?;
    ensure!(counts.len() == 61 && counts.iter().sum::<i64>() == 1);
    ensure!(counts[60] == 1 && last == (T0 + HOUR) as i64, "{counts:?}");
    queue.empty()?;
    ensure!(dues(&mut queue, T0, words![T0])? == (vec![0, 0], -1));
    Ok(())
}

/// A timer that waits for nothing stands at 2200-01-01.
#[test]
fn dues_counts_a_timer_at_its_fire_and_none_that_waits() -> Result<()> {
    let mut queue = Queue::start()?;
    declare(&mut queue)?;
    let after = 2 * HOUR;
    ensure!(dues(&mut queue, T0, words![T0 + after])?.0 == [2, 0]);
    queue.ok("amend", T0, words!["pause", "hourly"])?;
    queue.ok("amend", T0, words!["pause", "nightly"])?;
    ensure!(dues(&mut queue, T0, words![T0 + after])? == (vec![0, 0], -1));
    queue.push(T0, "a", T0 + 5, "")?;
    ensure!(dues(&mut queue, T0, words![T0 + 5])? == (vec![0, 1], (T0 + 5) as i64));
    Ok(())
}
