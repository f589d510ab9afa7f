//! Reads and removals of a part: the newest messages first, from a time on, up to a time, or the
//! first bytes of a payload.

use anyhow::{Result, bail, ensure};

use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Reply, Text, words};
use crate::vectors::{declare, ids, with_every_state};

/// Messages whose due times are T0, T0 + 1, and so on, two messages each, all in this state. If
/// they are leased, two claims hold three messages each, and the last message has a lease of its
/// own.
fn seven_in(state: &str) -> Result<Queue> {
    let mut queue = Queue::start()?;
    let dead = state == "dead";
    for place in 0..7 {
        let now = if dead { T0 + place / 2 } else { T0 };
        queue.push(now, &format!("{place}:"), T0 + place / 2, "")?;
        if dead {
            let taken = queue.take(now, 1, &token('d'))?;
            queue.ok("bury", now, words![&taken[0], token('d'), "why"])?;
        }
    }
    match state {
        "ready" => drop(queue.ok("promote", T0 + 9, words![10])?),
        "leased" => {
            for (n, letter) in [(3, 'a'), (3, 'b'), (1, 'c')] {
                queue.ok("claim", T0 + 9, words![n, token(letter), n * 1_000])?;
            }
            let lease = words!["6:", token('c'), 9 * SECOND];
            queue.ok("extend", T0 + 9, lease)?;
        }
        _ => {}
    }
    Ok(queue)
}

/// The positions of the messages on all pages from this cursor on, and the position at which the
/// first page begins.
fn pages(queue: &mut Queue, state: &str, from: &str, limit: u64, order: &str) -> Result<String> {
    let (mut found, mut cursor) = (String::new(), Text::from(from));
    for _ in 0..20 {
        let page = queue.ok("peek", T0 + 9, words![state, &cursor, limit, order])?;
        ensure!(page.list()?.len() == if state == "ready" { 4 } else { 3 });
        let items = page.part(2)?.list()?;
        ensure!(items.len() <= limit as usize);
        for item in items {
            found.push_str(item.part(0)?.text()?.trim_end_matches(':'));
        }
        cursor = page.part(1)?.bytes()?.clone();
        if cursor.0.is_empty() {
            return Ok(found);
        }
    }
    bail!("{state}: the pages do not end")
}

#[test]
fn pages_of_newest_first_reverse_the_order_in_every_state() -> Result<()> {
    for state in ["scheduled", "ready", "leased", "dead"] {
        let mut queue = seven_in(state)?;
        let first = pages(&mut queue, state, "", 10, "")?;
        let mut sorted = "0123456".to_owned();
        if state == "leased" {
            // The lease of the last message ends later than that of the first claim.
            sorted = pages(&mut queue, state, "", 10, "")?;
            ensure!(sorted.len() == 7 && sorted.ends_with('6'), "{sorted}");
        }
        ensure!(first == sorted, "{state}: {first}");
        let reverse: String = sorted.chars().rev().collect();
        for limit in [1, 2, 3, 6, 7, 8, 1_000] {
            let found = pages(&mut queue, state, "", limit, "newest")?;
            ensure!(found == reverse, "{state} by {limit}: {found}");
            ensure!(pages(&mut queue, state, "", limit, "")? == sorted);
        }
    }
    Ok(())
}

#[test]
fn a_page_begins_at_a_given_time_in_both_orders() -> Result<()> {
    for state in ["scheduled", "ready", "dead"] {
        let mut queue = seven_in(state)?;
        for limit in [1, 2, 10] {
            let mut from =
                |at: u64, order: &str| pages(&mut queue, state, &format!("{at}:"), limit, order);
            ensure!(from(T0 + 1, "")? == "23456" && from(T0 + 1, "newest")? == "3210");
            ensure!(from(T0 - 1, "")? == "0123456" && from(T0 - 1, "newest")?.is_empty());
            ensure!(from(T0 + 3, "")? == "6" && from(T0 + 3, "newest")? == "6543210");
            ensure!(from(T0 + 4, "")?.is_empty() && from(T0 + 4, "newest")? == "6543210");
        }
    }
    let mut queue = seven_in("leased")?;
    let mut from = |at: u64, order: &str| pages(&mut queue, "leased", &format!("{at}:"), 2, order);
    ensure!(from(T0 + 3_010, "")? == "6" && from(T0 + 3_009, "newest")? == "543210");
    ensure!(from(T0 + 3_009, "")? == "0123456" && from(T0 + 3_008, "newest")?.is_empty());
    Ok(())
}

#[test]
fn pages_of_newest_first_continue_after_a_removed_message() -> Result<()> {
    for state in ["scheduled", "dead"] {
        let mut queue = seven_in(state)?;
        let page = queue.ok("peek", T0 + 9, words![state, "", 2, "newest"])?;
        let cursor = page.part(1)?.text()?;
        ensure!(cursor.ends_with(":5:"), "{cursor}");
        queue.ok("cancel", T0 + 9, words!["1", "5:", "0:"])?;
        let rest = pages(&mut queue, state, &cursor, 2, "newest")?;
        ensure!(rest == "4321", "{state}: {rest}");
    }
    Ok(())
}

/// A timer without a next fire has the due time 2200-01-01, behind every message.
#[test]
fn pages_of_newest_first_skip_idle_timers() -> Result<()> {
    let mut queue = seven_in("scheduled")?;
    declare(&mut queue)?;
    queue.ok("amend", T0, words!["pause", "hourly"])?;
    queue.ok("amend", T0, words!["pause", "nightly"])?;
    let page = queue.ok("peek", T0, words!["scheduled", "", 2, "newest"])?;
    ensure!(page.part(2)?.list()?.len() == 2, "{page:?}");
    Ok(())
}

#[test]
fn a_page_of_ready_messages_returns_where_it_begins() -> Result<()> {
    let mut queue = seven_in("ready")?;
    let mut begins = |cursor: &str, order: &str| -> Result<(i64, String)> {
        let page = queue.ok("peek", T0 + 9, words!["ready", cursor, 2, order])?;
        Ok((page.part(3)?.int()?, page.part(1)?.text()?))
    };
    ensure!(begins("", "")? == (1, "3:".into()));
    ensure!(begins("3:", "")? == (3, "5:".into()));
    ensure!(begins("", "newest")? == (7, "5:".into()));
    ensure!(begins(&format!("{}:", T0 + 2), "")? == (5, "7:".into()));
    ensure!(begins(&format!("{}:", T0 + 2), "newest")? == (6, "4:".into()));
    ensure!(begins("1:", "newest")? == (1, String::new()));
    ensure!(begins("0:", "newest")? == (0, String::new()));
    Ok(())
}

#[test]
fn purge_removes_messages_at_or_before_a_time() -> Result<()> {
    for state in ["scheduled", "ready", "dead"] {
        let mut queue = seven_in(state)?;
        let mut purge = |limit: u64, before: &str| -> Result<(i64, i64)> {
            let reply = queue.ok("purge", T0 + 9, words![state, limit, before])?;
            Ok((reply.part(1)?.int()?, reply.part(2)?.int()?))
        };
        let at = |ms: u64| (T0 + ms).to_string();
        ensure!(purge(10, &(T0 - 1).to_string())? == (0, 0), "{state}");
        ensure!(purge(3, &at(1))? == (3, 1), "{state}");
        ensure!(purge(3, &at(1))? == (1, 0), "{state}");
        ensure!(purge(3, &at(1))? == (0, 0), "{state}");
        ensure!(pages(&mut queue, state, "", 10, "")? == "456", "{state}");
        let left = queue.ok("purge", T0 + 9, words![state, 1, ""])?;
        ensure!(left.part(2)?.int()? == 2, "{state}: {left:?}");
        let stored = queue.state()?;
        ensure!(stored.messages.len() == 3, "{state}: {stored:?}");
    }
    Ok(())
}

/// The ready list has the order of promotion, not the order of due times.
#[test]
fn purge_of_ready_messages_searches_the_whole_list() -> Result<()> {
    let mut queue = Queue::start()?;
    for (id, due) in [("late", 50), ("early", 10), ("later", 60), ("same", 10)] {
        queue.push(T0 + 60, id, T0 + due, "")?;
        queue.ok("promote", T0 + 60, words![1])?;
    }
    let purged = queue.ok("purge", T0 + 60, words!["ready", 10, T0 + 10])?;
    ensure!((purged.part(1)?.int()?, purged.part(2)?.int()?) == (2, 0));
    let rest = queue.take(T0 + 60, 10, &token('t'))?;
    ensure!(rest == ["late", "later"], "{rest:?}");
    Ok(())
}

#[test]
fn purge_up_to_a_time_neither_removes_nor_counts_timers() -> Result<()> {
    let mut queue = Queue::start()?;
    declare(&mut queue)?;
    for (id, due) in [("a", 5), ("a2", 6), ("b", HOUR), ("c", 2 * HOUR)] {
        queue.push(T0, id, T0 + due, "")?;
    }
    // The timers are due later, so they must not count as earlier entries.
    let purged = queue.ok("purge", T0, words!["scheduled", 1, T0 + 10])?;
    ensure!(
        (purged.part(1)?.int()?, purged.part(2)?.int()?) == (1, 1),
        "{purged:?}"
    );
    let purged = queue.ok("purge", T0, words!["scheduled", 1, T0 + HOUR + 1])?;
    ensure!(
        (purged.part(1)?.int()?, purged.part(2)?.int()?) == (1, 1),
        "{purged:?}"
    );
    let purged = queue.ok("purge", T0, words!["scheduled", 9, T0 + HOUR + 1])?;
    ensure!(
        (purged.part(1)?.int()?, purged.part(2)?.int()?) == (1, 0),
        "{purged:?}"
    );
    let state = queue.state()?;
    ensure!(ids(&state.scheduled).len() == 3, "{state:?}");
    Ok(())
}

#[test]
fn get_returns_at_most_the_requested_bytes_of_a_payload() -> Result<()> {
    let mut queue = with_every_state()?;
    for (id, payload) in [
        ("s", "scheduled"),
        ("r", "ready"),
        ("l", "leased"),
        ("d", "dead"),
    ] {
        for most in [0, 1, payload.len() - 1, payload.len(), 99_999_999] {
            let reply = queue.ok("get", T0, words![id, most as u64])?;
            let found = reply.part(1)?.list()?;
            let end = found.len() - if id == "l" { 6 } else { 0 }; // without the lease
            let cut = &payload[..most.min(payload.len())];
            let tail: [Reply; 4] = [
                "payload".into(),
                cut.into(),
                "payload_bytes".into(),
                payload.len().into(),
            ];
            ensure!(found[..end].ends_with(&tail), "{found:?}");
        }
    }
    ensure!(*queue.ok("get", T0, words!["?", 5])?.part(1)? == Reply::List(Vec::new()));
    Ok(())
}
