//! The entry of `claims` for a delivery whose message has a window: as written today, by release
//! 0.1 and by earlier scripts.

use anyhow::{Context, Result, ensure};

use crate::frozen;
use crate::model::repairs::PARTS;
use crate::queue::{HOUR, Queue, SECOND, T0, keys_of, token};
use crate::reply::{Text, words};
use crate::state::State;
use crate::vectors::expect;

/// A queue with `a` and `b` under one lease; `a` has a window of an hour.
fn claimed() -> Result<Queue> {
    let mut queue = Queue::start()?;
    let items = words![
        "",
        "a",
        T0,
        "",
        "window=3600000 expires=+7200000 on_expire=drop",
        "b",
        T0,
        "",
        ""
    ];
    queue.ok("push", T0, items)?;
    ensure!(queue.take(T0, 2, &token('t'))? == ["a", "b"]);
    Ok(queue)
}

#[test]
fn audit_of_0_1_accepts_a_delivery_with_a_window() -> Result<()> {
    for extended in [false, true] {
        let mut queue = claimed()?;
        if extended {
            queue.ok("extend", T0, words!["a", token('t'), HOUR])?;
        }
        let script = frozen::scripts()?.remove("audit").context("no audit")?;
        let before = queue.contents()?;
        for (part, repairs) in PARTS.iter().flat_map(|part| [(part, ""), (part, "1")]) {
            let call = words!["EVAL", &script, 10];
            let argv = words![T0 + 2, *part, 0, 1_000, repairs];
            let reply = queue.command([call, keys_of("dueq:{q}"), argv].concat())?;
            ensure!(reply.part(3)?.list()?.is_empty(), "{part}: {reply:?}");
            ensure!(queue.contents()? == before, "{part} changed a key");
        }
        ensure!(queue.items("ack", T0 + 3, words![token('t'), 2, "a", "b"])? == ["OK", "OK"]);
    }
    Ok(())
}

/// Earlier scripts marked a window by a `w` behind the due time.
#[test]
fn every_form_of_a_window_mark_is_read_at_the_end() -> Result<()> {
    let ends: [(&str, Vec<Text>); 4] = [
        ("ack", words![token('t'), 1, "a"]),
        (
            "ack_push",
            words![format!("{}a", token('t').text()), "c", "+5", "", ""],
        ),
        ("retry", words!["a", token('t'), 3 * HOUR, "why"]),
        ("snooze", words!["a", token('t'), format!("+{}", 3 * HOUR)]),
    ];
    for ((verb, argv), plus) in ends.iter().flat_map(|end| [(end, false), (end, true)]) {
        for mark in [None, Some("w")] {
            let mut queue = claimed()?;
            if plus {
                queue.ok("extend", T0, words!["a", token('t'), HOUR])?;
            }
            let value = queue.state()?.claims[&"a".into()].clone();
            ensure!(
                value.text()
                    == format!("{}0{T0}{}", token('t').text(), if plus { "+" } else { "" })
            );
            if let Some(mark) = mark {
                let old = value
                    .text()
                    .replace(&format!("0{T0}"), &format!("{T0}{mark}"));
                queue.command(words!["HSET", "dueq:{q}:claims", "a", old])?;
            }
            let held = queue.ok("held", T0, words![token('t')])?;
            let details = held.part(5)?.part(0)?.text()?;
            ensure!(details.starts_with(&T0.to_string()), "{held:?}");
            queue.ok(verb, T0 + SECOND, argv.clone())?;
            let recent = queue.state()?.recent;
            // 2^22 ms is the next power of two above the rest of the window.
            let ended = State::score(&recent, &"\u{6}Va".into())
                .unwrap_or(0.0)
                .floor();
            ensure!(
                ended == (T0 + SECOND + (1 << 22)) as f64,
                "{verb} {mark:?}: {recent:?}"
            );
        }
    }
    Ok(())
}

/// In `claims`, a due time of 0 has one digit without a window, and two digits with one.
#[test]
fn a_due_time_of_0_is_not_taken_for_a_window_mark() -> Result<()> {
    for (options, names) in [("", 0), ("window=3600000", 1)] {
        let mut queue = Queue::start()?;
        queue.ok("push", T0, words!["", "a", 0, "", options])?;
        ensure!(queue.take(T0, 1, &token('t'))? == ["a"]);
        ensure!(queue.items("ack", T0, words![token('t'), 1, "a"])? == ["OK"]);
        let recent = queue.state()?.recent;
        let ended = recent.iter().filter(|(name, _)| name.0[0] == 6).count();
        ensure!(ended == names, "{options}: {recent:?}");
    }
    Ok(())
}

/// A call of each verb that settles or extends, about one message.
fn calls(id: &str, token: &Text) -> Vec<(&'static str, Vec<Text>)> {
    vec![
        ("ack", words![token, 1, id]),
        ("release", words![id, token]),
        ("again", words![id, token, "+5"]),
        ("retry", words![id, token, 5, "error"]),
        ("bury", words![id, token, "reason"]),
        ("extend", words![id, token, 60 * SECOND]),
    ]
}

#[test]
fn every_byte_of_a_token_is_compared() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    let holder = token('h');
    ensure!(queue.take(T0, 1, &holder)? == ["a"]);
    let before = queue.state()?;
    for place in 0..16 {
        let mut other = holder.clone();
        other.0[place] ^= 1;
        for (verb, argv) in calls("a", &other) {
            ensure!(
                queue.items(verb, T0, argv)? == ["LOST"],
                "{verb}, byte {place}"
            );
        }
    }
    let short = Text(holder.0[..15].to_vec());
    for (verb, argv) in calls("a", &short)
        .into_iter()
        .chain(calls("a", &Text::default()))
    {
        ensure!(
            queue.items(verb, T0, argv)? == ["LOST"],
            "{verb}, a shorter token"
        );
    }
    expect(&mut queue, before, |_| ())
}
