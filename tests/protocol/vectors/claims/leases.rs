//! The common lease of a claim's messages: how messages leave it, when it ends, and that no record
//! of it remains.

use anyhow::{Result, ensure};
use dueq::admin::AclRole;

use crate::model::check_structure;
use crate::queue::{HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::state::{lease_name, lease_of};
use crate::vectors::refused::older_roles::{call, denied};
use crate::vectors::remove;

/// A queue with these ids under one claim with token `a` and a lease of 30 s.
fn claimed(ids: &[&str]) -> Result<Queue> {
    let mut queue = Queue::start()?;
    for id in ids {
        queue.push(T0, id, T0, "")?;
    }
    ensure!(queue.take(T0, 1_000, &token('a'))? == ids);
    Ok(queue)
}

fn sound(queue: &mut Queue) -> Result<()> {
    check_structure(&queue.state()?, None)
}

fn alive(queue: &mut Queue, now: u64) -> Result<()> {
    queue
        .command(words![
            "HSET",
            "dueq:{q}:meta",
            "last_beat",
            now,
            "reap_after",
            0
        ])
        .map(drop)
}

fn reap(queue: &mut Queue, now: u64, limit: u64) -> Result<i64> {
    alive(queue, now)?;
    queue.ok("reap", now, words![limit])?.part(1)?.int()
}

fn claims_and_leases(queue: &mut Queue) -> Result<(usize, usize)> {
    let state = queue.state()?;
    Ok((state.claims.len() - 1, state.leases.len() - 1))
}

#[test]
fn a_reap_of_a_large_claim_is_bounded_and_continues() -> Result<()> {
    let ids: Vec<String> = (0..1_000).map(|id| format!("{id:04}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let mut queue = claimed(&ids)?;
    let now = T0 + 30 * SECOND;
    let acked = words![token('a'), 100]
        .into_iter()
        .chain(ids[..100].iter().map(|id| Text::from(*id)))
        .collect();
    queue.ok("ack", T0, acked)?;
    for left in [600, 300] {
        ensure!(reap(&mut queue, now, 300)? == 300);
        ensure!(claims_and_leases(&mut queue)? == (left + 2, 1));
        sound(&mut queue)?;
    }
    // A handler can still settle a message that the bounded reap has left.
    ensure!(queue.items("ack", now, words![token('a'), 1, "0999"])? == ["OK"]);
    ensure!(reap(&mut queue, now, 300)? == 299 && reap(&mut queue, now, 300)? == 0);
    ensure!(claims_and_leases(&mut queue)? == (0, 0));
    sound(&mut queue)
}

/// A foreign write or a truncated append-only file can leave a wrong count of leased ids.
#[test]
fn a_reap_ends_a_lease_whose_count_is_wrong() -> Result<()> {
    let count = format!("\u{2}{}", token('a').text());
    for (wrong, reaped) in [("9", 2), ("gibberish", 2), ("1", 2)] {
        let mut queue = claimed(&["a", "b"])?;
        queue.command(words!["HSET", "dueq:{q}:claims", &count, wrong])?;
        ensure!(reap(&mut queue, T0 + 30 * SECOND, 10)? == reaped);
        ensure!(claims_and_leases(&mut queue)? == (0, 0), "counted {wrong}");
    }
    let mut queue = claimed(&["a", "b"])?;
    queue.command(words!["HSET", "dueq:{q}:claims", &count, "9"])?;
    ensure!(queue.items("ack", T0, words![token('a'), 2, "a", "b"])? == ["OK", "OK"]);
    ensure!(
        claims_and_leases(&mut queue)? == (2, 1),
        "the wrong count must keep the record after the last ack"
    );
    ensure!(reap(&mut queue, T0 + 30 * SECOND, 10)? == 0);
    ensure!(
        claims_and_leases(&mut queue)? == (0, 0),
        "the reap must remove the record when the lease runs out"
    );
    let mut queue = claimed(&["a", "b"])?;
    queue.command(words!["HDEL", "dueq:{q}:claims", &count])?;
    ensure!(queue.items("ack", T0, words![token('a'), 1, "a"])? == ["OK"]);
    ensure!(reap(&mut queue, T0 + 30 * SECOND, 10)? == 1);
    ensure!(claims_and_leases(&mut queue)? == (0, 0));
    Ok(())
}

#[test]
fn equal_details_are_in_the_reply_once() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok(
        "push",
        T0,
        words!["", "a", T0, "", "", "b", T0, "", "", "c", T0 + 1, "", ""],
    )?;
    let reply = queue.ok("claim", T0 + 1, words![2, token('a'), SECOND])?;
    ensure!(
        reply.part(5)?.list()?.len() == 1 && reply.part(3)?.list()?.len() == 2,
        "{reply:?}"
    );
    queue.ok("release", T0 + 1, words!["a", token('a')])?;
    let reply = queue.ok("claim", T0 + 1, words![2, token('b'), SECOND])?;
    ensure!(reply.part(5)?.list()?.len() == 2, "{reply:?}");
    let reply = queue.ok("claim", T0 + 1, words![2, token('c'), SECOND])?;
    ensure!(
        reply.list()?[3..]
            .iter()
            .all(|list| list.list().is_ok_and(<[_]>::is_empty)),
        "{reply:?}"
    );
    Ok(())
}

/// A queue as an older release left it: each id has a lease of its own, and its claim has no mark.
#[test]
fn leases_of_an_older_release_expire_and_are_repaired() -> Result<()> {
    for repair in [false, true] {
        let mut queue = claimed(&["a"])?;
        let now = T0 + 30 * SECOND;
        for kind in ["\u{1}", "\u{2}"] {
            queue.command(words![
                "HDEL",
                "dueq:{q}:claims",
                format!("{kind}{}", token('a').text())
            ])?;
        }
        queue.command(words![
            "ZREM",
            "dueq:{q}:leases",
            format!("\u{1}{}", token('a').text())
        ])?;
        queue.command(words!["ZADD", "dueq:{q}:leases", now, "a"])?;
        if repair {
            queue.ok("audit", T0, words!["leases", 0, 10, "1"])?;
            sound(&mut queue)?;
        }
        ensure!(reap(&mut queue, now, 10)? == 1);
        ensure!(claims_and_leases(&mut queue)? == (0, 0));
        let mut before = queue.state()?;
        remove(&mut before.scheduled, "a");
        ensure!(before.scheduled.len() == 1, "a must be scheduled");
    }
    Ok(())
}

#[test]
fn peek_ends_a_page_early_where_claims_hold_few_ids() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut left = Vec::new();
    for claim in 'a'..='c' {
        let ids: Vec<String> = (0..1_000)
            .map(|number| format!("{claim}{number}"))
            .collect();
        let pushes = ids.iter().flat_map(|id| words![id.as_str(), T0, "", ""]);
        queue.ok("push", T0, words![""].into_iter().chain(pushes).collect())?;
        ensure!(queue.take(T0, 1_000, &token(claim))?.len() == 1_000);
        let (last, acked) = ids.split_last().expect("a thousand");
        queue.ok(
            "ack",
            T0,
            words![token(claim), 999]
                .into_iter()
                .chain(acked.iter().map(|id| id.as_str().into()))
                .collect(),
        )?;
        left.push(last.clone());
    }
    let mut page = |cursor: &str| {
        let reply = queue.ok("peek", T0, words!["leased", cursor, 1_000])?;
        let ids = reply
            .part(2)?
            .list()?
            .iter()
            .map(|item| item.part(0)?.text())
            .collect::<Result<Vec<_>>>()?;
        anyhow::Ok((ids, reply.part(1)?.text()?))
    };
    let (mut found, mut cursor) = (Vec::new(), String::new());
    while found.is_empty() || !cursor.is_empty() {
        let (ids, next) = page(&cursor)?;
        ensure!(ids.len() <= 1, "{ids:?}");
        found.extend(ids);
        cursor = next;
    }
    ensure!(found == left, "{found:?}");
    Ok(())
}

/// If one of a claim's thousand ids is still leased, a reap reads all of them.
#[test]
fn a_reap_examines_at_most_2_000_ids() -> Result<()> {
    const SIZE: usize = 1_000;
    let mut queue = Queue::start()?;
    for claim in 0..3 {
        let ids: Vec<String> = (0..SIZE).map(|place| format!("{claim}-{place}")).collect();
        let items = ids.iter().flat_map(|id| words![id, T0, "", ""]);
        queue.ok("push", T0, words![""].into_iter().chain(items).collect())?;
        let token = queue.new_token();
        queue.ok("claim", T0, words![SIZE as u64, &token, SECOND])?;
        let acks = words![&token, SIZE as u64 - 1]
            .into_iter()
            .chain(ids[1..].iter().map(Text::from))
            .collect();
        ensure!(
            queue
                .items("ack", T0, acks)?
                .iter()
                .all(|reply| reply == "OK")
        );
    }
    alive(&mut queue, T0 + SECOND)?;
    for _ in 0..3 {
        let reaped = reap(&mut queue, T0 + SECOND, 1_000)?;
        ensure!(reaped == 1, "a reap must stop after a claim of 1,000 ids");
    }
    ensure!(reap(&mut queue, T0 + SECOND, 1_000)? == 0);
    Ok(())
}

/// A queue whose messages `a`, `b` and `c` are leased for hours by one claim with the token `a`.
fn leased() -> Result<Queue> {
    let mut queue = Queue::start()?;
    for id in ["a", "b", "c"] {
        queue.push(T0, id, T0, "payload")?;
    }
    ensure!(
        queue
            .ok("claim", T0, words![3, token('a'), 6 * HOUR])?
            .deliveries()?
            .len()
            == 3
    );
    Ok(queue)
}

#[test]
fn get_and_peek_name_the_lease_and_the_node_but_no_token() -> Result<()> {
    let mut queue = Queue::start()?;
    let tokens = ["@node0A1-random-!", "@node-0A random!", "0123456789abcdef"];
    for (at, text) in tokens.iter().enumerate() {
        let (id, text) = (format!("m{at}"), Text(text.as_bytes()[..16].to_vec()));
        queue.push(T0, &id, T0, "payload")?;
        ensure!(queue.take(T0, 1, &text)?.len() == 1);
        let expected = lease_of(&text);
        ensure!(expected.ends_with(" node0A1") == (at == 0), "{expected}");
        let shown = format!("{:?}", queue.ok("get", T0, words![&id])?);
        let listed = format!("{:?}", queue.ok("peek", T0, words!["leased", "", 10])?);
        for reply in [shown, listed] {
            ensure!(reply.contains(&expected), "{expected}: {reply}");
            ensure!(!reply.contains(&text.text()), "{reply}");
        }
    }
    Ok(())
}

#[test]
fn get_and_peek_say_when_a_delivery_began() -> Result<()> {
    let mut queue = Queue::start()?;
    for id in ["a", "b"] {
        queue.push(T0, id, T0, "payload")?;
    }
    let (began, now) = (T0 + 5, T0 + 10 * SECOND);
    ensure!(queue.take(began, 2, &token('a'))? == ["a", "b"]);
    for extends in [false, true, true] {
        if extends {
            queue.items("extend", now, words!["a", token('a'), HOUR])?;
        }
        for id in ["a", "b"] {
            let shown = format!("{:?}", queue.ok("get", now, words![id])?);
            ensure!(
                shown.contains(&format!("\"since\", {began}")),
                "{id}: {shown}"
            );
        }
        let listed = queue.ok("peek", now, words!["leased", "", 10])?;
        for item in listed.part(2)?.list()? {
            ensure!(item.part(6)?.int()? == began as i64, "{item:?}");
        }
    }
    // A later delivery of the id has its own start.
    ensure!(queue.items("release", now, words!["a", token('a')])? == ["OK"]);
    ensure!(queue.take(now, 1, &token('c'))? == ["a"]);
    let shown = format!("{:?}", queue.ok("get", now, words!["a"])?);
    ensure!(shown.contains(&format!("\"since\", {now}")), "{shown}");
    sound(&mut queue)
}

#[test]
fn only_an_operator_may_end_leases_by_name() -> Result<()> {
    let mut queue = leased()?;
    let words = words!["ids", "a", lease_name(&token('a'))];
    for (role, may) in [
        (AclRole::Producer, false),
        (AclRole::Consumer, false),
        (AclRole::Operator, true),
    ] {
        let mut user = queue.user(role, "q")?;
        let before = queue.contents()?;
        let reply = call(&mut user, "reap", words.clone())?;
        ensure!(denied(&reply) != may, "{role:?}: {reply:?}");
        ensure!((queue.contents()? == before) != may, "{role:?}");
    }
    Ok(())
}
