//! Values that only bound memory, and values in the future that remain after the clock went back.

use anyhow::{Result, ensure};

use crate::queue::{DAY, HOUR, Queue, SECOND, T0, token};
use crate::reply::{Text, words};
use crate::vectors::pushes::debounce::layout_3;
use crate::vectors::pushes::next::NEXT;

const MEBIBYTE: usize = 1_048_576;

/// Scripts read as many payloads at once as fit into 4 MiB in the worst case.
#[test]
fn each_push_raises_the_stored_largest_payload_size() -> Result<()> {
    type Call = fn(String, &str, &Text) -> Vec<Text>;
    let calls: [(&str, Call); 6] = [
        ("push", |text, id, _| {
            words!["", format!("{id}/new"), T0, text, ""]
        }),
        ("push", |text, id, _| {
            words![
                "",
                format!("{id}/new"),
                T0,
                text,
                "",
                format!("{id}/more"),
                T0,
                "",
                ""
            ]
        }),
        ("upsert", |text, _, _| {
            words!["", "waits", T0, text, "on_conflict=replace"]
        }),
        ("upsert", |text, id, _| words!["", id, T0, text, NEXT]),
        ("ack_push", |text, id, token| {
            let delivery = Text([&token.0[..], id.as_bytes()].concat());
            words![delivery, format!("{id}/new"), T0, text, ""]
        }),
        ("schedule", |text, _, _| {
            words!["some", "", "", "s", "every=1000", "", "", "", text]
        }),
    ];
    for (number, (verb, call)) in calls.into_iter().enumerate() {
        let mut queue = layout_3()?;
        queue.push(T0, "waits", T0 + HOUR, "")?;
        for (bytes, largest) in [(5_000, "8192"), (20_000, "32768"), (9_000, "32768")] {
            let (id, token) = (format!("runs/{bytes}"), queue.new_token());
            queue.push(T0 - bytes, &id, T0 - bytes, "")?;
            ensure!(queue.take(T0 - bytes, 1, &token)? == std::slice::from_ref(&id));
            queue.ok(verb, T0, call("x".repeat(bytes as usize), &id, &token))?;
            let read = words!["HGET", "dueq:{q}:meta", "largest_payload_bytes"];
            let found = queue.command(read)?.text()?;
            ensure!(
                found == largest,
                "{verb} ({number}): {found}, not {largest}"
            );
        }
    }
    Ok(())
}

/// HSCAN also returns the payloads of next messages.
#[test]
fn an_audit_beside_long_payloads_examines_few_entries() -> Result<()> {
    let mut queue = layout_3()?;
    for number in 0..40 {
        queue.push(T0, &format!("{number}"), T0, "")?;
    }
    ensure!(queue.take(T0, 40, &token('a'))?.len() == 40);
    for number in 0..40 {
        let next = words!["", number.to_string(), T0, "x".repeat(MEBIBYTE), NEXT];
        ensure!(queue.items("upsert", T0, next)? == ["NEXT"]);
    }
    let looked = queue
        .ok("audit", T0, words!["attrs", 0, 1_000, ""])?
        .part(2)?
        .int()?;
    ensure!(looked < 30, "a step returned {looked} MiB to the script");
    Ok(())
}

#[test]
fn remembering_an_end_trims_two_expired_names() -> Result<()> {
    type End = fn(&mut Queue, u64) -> Result<()>;
    let ends: [(&str, End); 4] = [
        ("ack", |queue, now| {
            queue.ok("claim", now, words![1, token('a'), HOUR])?;
            queue.ok("ack", now, words![token('a'), 1, "a"]).map(drop)
        }),
        ("ack_push", |queue, now| {
            queue.ok("claim", now, words![1, token('a'), HOUR])?;
            let delivery = Text([&token('a').0[..], b"a"].concat());
            queue
                .ok("ack_push", now, words![delivery, "b", T0 + DAY, "", ""])
                .map(drop)
        }),
        ("retry", |queue, now| {
            queue.ok("claim", now, words![1, token('a'), HOUR])?;
            queue
                .ok("retry", now, words!["a", token('a'), HOUR, ""])
                .map(drop)
        }),
        ("claim", |queue, now| {
            let late = now + HOUR;
            queue
                .ok("claim", late, words![1, token('a'), HOUR])
                .map(drop)
        }),
    ];
    for (verb, end) in ends {
        let mut queue = Queue::start()?;
        queue.push(T0, "far", T0 + DAY, "")?;
        let options = "window=86400000 expires=+60000 on_expire=drop";
        queue.ok("push", T0, words!["", "a", T0, "", options])?;
        for number in 0..9 {
            queue.command(words![
                "ZADD",
                "dueq:{q}:recent",
                T0 - number,
                number.to_string()
            ])?;
        }
        let before = queue.state()?.recent.len();
        end(&mut queue, T0 + SECOND)?;
        let after = queue.state()?.recent;
        ensure!(
            after.iter().any(|(name, _)| name.0[0] == 6),
            "{verb}: {after:?}"
        );
        ensure!(
            after.len() == before + 1 - 2,
            "{verb}: {before} became {}",
            after.len()
        );
    }
    Ok(())
}

#[test]
fn get_does_not_return_an_end_in_the_future() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("push", T0, words!["", "a", T0, "", "window=86400000"])?;
    ensure!(queue.take(T0 + HOUR, 1, &token('a'))? == ["a"]);
    queue.ok("ack", T0 + HOUR, words![token('a'), 1, "a"])?;
    for (now, parts) in [(T0 + HOUR - 1, 2), (T0 + HOUR, 5)] {
        let told = queue.ok("get", now, words!["a"])?;
        ensure!(told.list()?.len() == parts, "{told:?}");
    }
    Ok(())
}

/// No window can last longer than 30 days, so this one was stored before the clock went back.
#[test]
fn a_window_too_far_ahead_remembers_no_end() -> Result<()> {
    for (set_back, names) in [(29, 1), (31, 0)] {
        let mut queue = Queue::start()?;
        let later = T0 + set_back * DAY;
        queue.ok("push", later, words!["", "a", T0, "", "window=86400"])?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        queue.ok("ack", T0, words![token('a'), 1, "a"])?;
        let recent = queue.state()?.recent;
        let ended = recent.iter().filter(|(name, _)| name.0[0] == 6).count();
        ensure!(ended == names, "{set_back} days: {recent:?}");
    }
    Ok(())
}

/// A node asks with the number of the roster that it knows. If a number were used twice, the node
/// would keep an outdated roster.
#[test]
fn roster_numbers_never_repeat_after_the_clock_went_back() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    let mut numbers = Vec::new();
    for (now, node) in [
        (T0, "a"),
        (T0 + 1, "b"),
        (T0 - 5, "c"),
        (T0 - 5, "d"),
        (T0 + 1, "e"),
    ] {
        let reply = queue.ok("beat", now, words![node, "watch", 0, ""])?;
        numbers.push(reply.part(1)?.int()?);
    }
    ensure!(numbers.windows(2).all(|two| two[0] < two[1]), "{numbers:?}");
    Ok(())
}

/// A leader whose term is too far in the future does not count, even for a node that is not the
/// first of the partition.
#[test]
fn a_second_node_leads_at_once_after_the_clock_went_back() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
    queue.ok("beat", T0 + HOUR, words!["a", "first"])?;
    let reply = queue.ok("beat", T0, words!["b", "second"])?;
    ensure!(reply.part(1)?.int()? == 1, "{reply:?}");
    Ok(())
}

/// Only reports write records, and theirs are shorter.
#[test]
fn history_returns_no_record_beyond_4_kib() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "")?;
    let minute = T0 / 60_000 - 1;
    let field = format!("m{}", minute % 60);
    for (bytes, records) in [(4_000, 2), (4_100, 1)] {
        let record = format!("{}|{}", minute * 60_000, "1".repeat(bytes));
        queue.command(words!["HSET", "dueq:{q}:meta", &field, record])?;
        let shown = queue.ok("history", T0, words!["minutes"])?;
        ensure!(
            shown.part(1)?.list()?.len() == records,
            "{bytes}: {shown:?}"
        );
    }
    Ok(())
}
