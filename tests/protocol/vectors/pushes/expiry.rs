//! Messages with an expiry.

use anyhow::{Result, ensure};

use crate::queue::{Queue, SECOND, T0, attempt, token};
use crate::reply::{Reply, Text, words};

fn push(queue: &mut Queue, now: u64, id: &str, due: u64, options: &str) -> Result<String> {
    let replies = queue.items("push", now, words!["", id, due, "", options])?;
    Ok(replies[0].clone())
}

fn claimed(queue: &mut Queue, now: u64, count: u64, token: &Text) -> Result<Vec<String>> {
    queue
        .ok("claim", now, words![count, token, SECOND])?
        .granted()
}

/// The value of a field in the reply to `get`; empty if the message is absent.
fn shown(queue: &mut Queue, now: u64, id: &str, name: &str) -> Result<String> {
    let reply = queue.ok("get", now, words![id])?;
    let pairs = reply.part(1)?.list()?;
    let at = pairs.iter().position(|item| *item == Reply::from(name));
    at.map_or(Ok(String::new()), |at| pairs[at + 1].text())
}

fn counter(queue: &mut Queue, name: &str) -> Result<String> {
    let meta = queue.state()?.meta;
    Ok(meta
        .get(&Text::from(name))
        .map(Text::text)
        .unwrap_or_default())
}

#[test]
fn a_retry_beyond_the_expiry_makes_the_message_dead() -> Result<()> {
    let cases = [
        ("expires=+100", 100, "SCHEDULED", "scheduled"),
        ("expires=+100", 101, "DEAD", "dead"),
        ("expires=+100 on_expire=drop", 101, "DROPPED", ""),
    ];
    for (options, after, reply, state) in cases {
        let mut queue = Queue::start()?;
        push(&mut queue, T0, "a", T0, options)?;
        claimed(&mut queue, T0, 1, &token('a'))?;
        let retry = words!["a", token('a'), after, "the receiver is down"];
        let found = queue.items("retry", T0, retry)?;
        ensure!(found[0].starts_with(reply), "{found:?}");
        ensure!(shown(&mut queue, T0, "a", "state")? == state);
        if reply == "DEAD" {
            let error = shown(&mut queue, T0, "a", "error")?;
            ensure!(error == "expires before it is due again: the receiver is down");
        }
        let expired = if reply == "SCHEDULED" { "" } else { "1" };
        ensure!(counter(&mut queue, "expired")? == expired);
        let again = queue.items("retry", T0, words!["a", token('a'), 1, ""])?;
        ensure!(again == [if reply == "DROPPED" { "GONE" } else { "LOST" }]);
    }
    Ok(())
}

#[test]
fn a_thousand_expired_messages_cost_few_extra_claims() -> Result<()> {
    for (promoted, count) in [(false, 1), (true, 1), (false, 500), (true, 500)] {
        let mut queue = Queue::start()?;
        let items = |from: u64| {
            (from..from + 500)
                .flat_map(|number| words![format!("old {number}"), T0, "", "expires=+1"])
        };
        for from in [0, 500] {
            let words = [words![""], items(from).collect()].concat();
            queue.ok("push", T0, words)?;
        }
        push(&mut queue, T0, "live", T0 + 1, "")?;
        if promoted {
            queue.ok("promote", T0 + 1, words![1_000])?;
        }
        let mut calls = 0;
        loop {
            calls += 1;
            let token = queue.new_token();
            let ids = claimed(&mut queue, T0 + 5, count, &token)?;
            ensure!(ids.is_empty() || ids == ["live"], "{ids:?}");
            if !ids.is_empty() {
                break;
            }
            let ended = counter(&mut queue, "expired")?;
            ensure!(ended == (250 * calls).to_string(), "{calls}: {ended}");
            ensure!(queue.state()?.wake.len() == 2, "no node would claim again");
        }
        ensure!(calls <= 5, "{calls} calls");
        ensure!(counter(&mut queue, "expired")? == "1000");
    }
    Ok(())
}

/// A claim reads more candidates than it may grant only if one of them may have expired.
#[test]
fn a_claim_with_live_messages_grants_no_more_than_asked() -> Result<()> {
    let mut queue = Queue::start()?;
    push(&mut queue, T0, "old", T0, "expires=+9")?;
    ensure!(claimed(&mut queue, T0, 1, &token('a'))? == ["old"]);
    queue.ok("ack", T0, words![token('a'), 1, "old"])?;
    for id in ["a", "b", "c"] {
        queue.push(T0, id, T0, "")?;
    }
    ensure!(claimed(&mut queue, T0, 1, &token('b'))? == ["a"]);
    Ok(())
}

/// A repetition comes later than its first try, so the expiry may have passed meanwhile.
#[test]
fn a_repeated_push_is_not_refused_for_its_expiry() -> Result<()> {
    let options = format!("expires={}", T0 + 1_000);
    let call = words![attempt(T0, 1), "a", "+900", "", options];
    let mut queue = Queue::start()?;
    ensure!(queue.items("push", T0, call.clone())? == ["CREATED"]);
    ensure!(queue.items("push", T0 + 200, call.clone())? == ["EXISTS scheduled"]);
    ensure!(queue.items("push", T0 + 2_000, call.clone())? == ["EXISTS scheduled"]);
    queue.ok("cancel", T0 + 2_000, words!["", "a"])?;
    let replies = queue.items("push", T0 + 2_000, call)?;
    ensure!(replies == ["FINISHED"], "{replies:?}");
    Ok(())
}

#[test]
fn invalid_expiry_and_cost_options_are_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    let past = format!("expires={T0}");
    let before_due = format!("expires={}", T0 + 99);
    let refused = [
        "expires=",
        "expires=+0",
        "expires=0",
        "expires=-5",
        "expires=1.5",
        "expires=soon",
        "expires=+3155760000001",
        "on_expire=drop",
        "on_expire=never",
        "cost=0",
        "cost=1000001",
        "cost=",
        "cost=x",
        "expires_by=5",
        "snoozes=1",
        &past,
        &before_due,
    ];
    let before = queue.contents()?;
    for options in refused {
        let reply = push(&mut queue, T0, "a", T0 + 100, options)?;
        ensure!(reply.starts_with("INVALID "), "{options}: {reply}");
        ensure!(queue.contents()? == before, "{options} left a trace");
    }
    let all = format!(
        "cost=1000000 on_expire=dead expires={} max_attempts=2",
        T0 + 100
    );
    ensure!(push(&mut queue, T0, "a", T0 + 100, &all)? == "CREATED");
    let stored = format!(
        "max_attempts=2 expires={} on_expire=dead cost=1000000",
        T0 + 100
    );
    ensure!(shown(&mut queue, T0, "a", "options")? == stored);
    Ok(())
}

#[test]
fn a_wrong_type_stops_a_claim_before_it_expires_messages() -> Result<()> {
    for key in ["dead", "messages"] {
        let mut queue = Queue::start()?;
        push(&mut queue, T0, "a", T0, "expires=+1")?;
        queue.ok("promote", T0, words![1])?;
        queue.command(words!["SET", queue.key(key), "somebody else's"])?;
        let before = queue.contents()?;
        let reply = queue.call("claim", T0 + 9, words![1, token('a'), SECOND])?;
        ensure!(reply.code() == Some("WRONGTYPE"), "{key}: {reply:?}");
        ensure!(queue.contents()? == before, "{key}: a trace");
    }
    Ok(())
}
