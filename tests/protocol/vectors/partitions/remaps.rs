//! Changes of the map that a partition stores.

use anyhow::{Result, ensure};
use dueq::admin::AclRole;

use crate::model::check_structure;
use crate::queue::{Calls, Queue, SECOND, T0, attempt, command, keys_of, partition, token};
use crate::reply::{Header, Reply, Text, words};
use crate::scripts::verb;
use crate::vectors::{expect, with_every_state};

/// The home of an empty queue that has no map.
fn queue() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_attempts", 3])?;
    Ok(queue)
}

fn remap(queue: &mut Queue, now: u64, arguments: Vec<Text>) -> Result<String> {
    queue.ok("remap", now, arguments)?.part(1)?.text()
}

/// Checks that a remap, as a script and as a function, returns this result and changes nothing.
fn unchanged(queue: &mut Queue, now: u64, arguments: Vec<Text>, result: &str) -> Result<()> {
    let before = queue.contents()?;
    for calls in [Calls::Fcall, Calls::Evalsha] {
        queue.through(calls)?;
        let found = remap(queue, now, arguments.clone())?;
        ensure!(found == result, "{arguments:?}: {found}, not {result}");
        ensure!(queue.contents()? == before, "{arguments:?} left a trace");
    }
    Ok(())
}

#[test]
fn a_change_writes_layout_epoch_and_map() -> Result<()> {
    let mut queue = queue()?;
    let before = queue.state()?;
    let reply = queue.ok("remap", T0, words!["change", 0, "7|-|- 17"])?;
    ensure!(*reply.part(1)? == "DONE".into(), "{reply:?}");
    ensure!(Header::of(&reply)?.epoch == Some(7), "{reply:?}");
    expect(&mut queue, before, |state| {
        let fields = [
            ("layout", "2"),
            ("epoch", "7"),
            ("map", "7|-|- 17"),
            ("mapped_ms", "1700000000000"),
            ("seq", "2"),
        ];
        state
            .meta
            .extend(fields.map(|(field, value)| (field.into(), value.into())));
    })
}

#[test]
fn each_form_of_remap_creates_an_absent_partition() -> Result<()> {
    for (tag, arguments) in [
        ("-", words!["change", 0, "7|-|- 17"]),
        ("-", words!["close", 0, "7|- 17|- 17"]),
        ("-", words!["forward", "7|- 17|- 17"]),
        ("17", words!["change", 0, "7|- 17|-"]),
        ("17", words!["close", 0, "7|-|- 17"]),
        ("17", words!["forward", "7|-|- 17"]),
        ("17", words!["forward", "7|- 17|"]),
        ("-", words!["forward", "7|-|-"]),
    ] {
        let mut queue = Queue::start()?;
        queue.enter(tag)?;
        ensure!(remap(&mut queue, T0, arguments.clone())? == "DONE");
        let state = queue.state()?;
        check_structure(&state, None)?;
        let findings = queue.ok("verify", T0, words![""])?;
        ensure!(findings.part(1)?.list()?.is_empty(), "{findings:?}");
        let is_alone = arguments.last() == Some(&"7|-|-".into());
        let layout = if is_alone { "1" } else { "2" };
        ensure!(state.meta.get(&"layout".into()) == Some(&layout.into()));
        ensure!(state.meta.get(&"epoch".into()) == Some(&"7".into()));
        ensure!(state.meta.contains_key(&"map".into()) != is_alone);
    }
    Ok(())
}

#[test]
fn a_repeated_remap_returns_done_and_changes_nothing() -> Result<()> {
    for map in ["7|-|- 17", "7|-|-", "7|- 17|"] {
        for form in ["change", "close"] {
            let mut queue = queue()?;
            let arguments = words![form, 0, map];
            ensure!(remap(&mut queue, T0, arguments.clone())? == "DONE");
            unchanged(&mut queue, T0, arguments, "DONE")?;
            unchanged(&mut queue, T0, words!["forward", map], "DONE")?;
        }
    }
    Ok(())
}

#[test]
fn a_change_with_an_unexpected_epoch_is_refused() -> Result<()> {
    let mut queue = queue()?;
    for form in ["change", "close"] {
        unchanged(&mut queue, T0, words![form, 6, "7|-|- 17"], "EPOCH 0")?;
    }
    ensure!(remap(&mut queue, T0, words!["change", 0, "7|-|- 17"])? == "DONE");
    for form in ["change", "close"] {
        for expected in [0, 6, 8] {
            unchanged(
                &mut queue,
                T0,
                words![form, expected, "9|- 17|- 17"],
                "EPOCH 7",
            )?;
        }
        // The same epoch with another map is not a repetition.
        unchanged(&mut queue, T0, words![form, 0, "7|-|- 18"], "EPOCH 7")?;
    }
    // A queue without a map keeps the epoch of its last map.
    ensure!(remap(&mut queue, T0, words!["close", 7, "9|-|-"])? == "DONE");
    unchanged(&mut queue, T0, words!["change", 0, "10|-|- 17"], "EPOCH 9")?;
    ensure!(remap(&mut queue, T0, words!["change", 9, "10|-|- 17"])? == "DONE");
    Ok(())
}

#[test]
fn a_message_in_any_state_refuses_a_change() -> Result<()> {
    let mut queue = with_every_state()?;
    unchanged(
        &mut queue,
        T0 + 60 * SECOND,
        words!["change", 0, "7|-|- 17"],
        "HAS 4",
    )?;
    for state in ["scheduled", "ready", "leased", "dead"] {
        let mut queue = Queue::start()?;
        queue.push(T0, "a", T0, "payload")?;
        if state != "scheduled" {
            queue.ok("promote", T0, words![1])?;
        }
        if ["leased", "dead"].contains(&state) {
            queue.ok("claim", T0, words![1, token('a'), 30 * SECOND])?;
        }
        if state == "dead" {
            queue.ok("bury", T0, words!["a", token('a'), "why"])?;
        }
        unchanged(&mut queue, T0, words!["change", 0, "7|-|- 17"], "HAS 1")?;
    }
    Ok(())
}

/// Otherwise a push that is repeated after the change could store its message a second time.
#[test]
fn a_change_is_refused_while_the_partition_remembers_calls() -> Result<()> {
    let change = || words!["change", 0, "7|-|- 17"];
    let mut queue = queue()?;
    queue.items("push", T0, words![attempt(T0, 1), "a", T0, "payload", ""])?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    queue.items("ack", T0, words![token('a'), 1, "a"])?;
    unchanged(&mut queue, T0, change(), "REMEMBERS 10000")?;
    unchanged(&mut queue, T0 + 9_999, change(), "REMEMBERS 1")?;
    ensure!(remap(&mut queue, T0 + 10_000, change())? == "DONE");

    let mut queue = self::queue()?;
    queue.push(T0, "a", T0 + 60 * SECOND, "payload")?;
    queue.items("cancel", T0, words!["", "a"])?;
    unchanged(&mut queue, T0, change(), "REMEMBERS 12001")?;
    unchanged(&mut queue, T0 + 12_000, change(), "REMEMBERS 1")?;
    ensure!(remap(&mut queue, T0 + 12_001, change())? == "DONE");
    Ok(())
}

/// An entry that ends too far ahead was stored before the clock went back, and does not count.
#[test]
fn a_memory_entry_beyond_12_s_refuses_no_change() -> Result<()> {
    let mut queue = queue()?;
    queue.command(words!["ZADD", "dueq:{q}:recent", T0 + 12_002, "far"])?;
    ensure!(remap(&mut queue, T0, words!["change", 0, "7|-|- 17"])? == "DONE");
    Ok(())
}

/// How messages with a window ended is stored for up to twice the window, but only `get` reads it.
#[test]
fn remembered_outcomes_refuse_no_change() -> Result<()> {
    let change = || words!["change", 0, "7|-|- 17"];
    let outcome = |number: u64| [(T0 + 20 + number).into(), format!("\u{6}V{number}").into()];
    let mut queue = queue()?;
    let names = |some: u64| (0..some).flat_map(outcome).collect::<Vec<Text>>();
    queue.command([words!["ZADD", "dueq:{q}:recent"], names(1_500)].concat())?;
    queue.command(words!["ZADD", "dueq:{q}:recent", T0 + 500, "cancelled"])?;
    unchanged(&mut queue, T0, change(), "REMEMBERS 500")?;
    ensure!(remap(&mut queue, T0 + 500, change())? == "DONE");
    // With more than 10,000 names the script does not examine the others, and assumes that they are
    // calls.
    let mut queue = self::queue()?;
    for some in names(10_001).chunks(2_000) {
        queue.command([words!["ZADD", "dueq:{q}:recent"], some.to_vec()].concat())?;
    }
    unchanged(&mut queue, T0, change(), "REMEMBERS 21")?;
    ensure!(remap(&mut queue, T0 + 21, change())? == "DONE");
    Ok(())
}

/// A window that ends beyond 30 days was stored before the clock went back.
#[test]
fn a_window_too_far_ahead_refuses_no_change() -> Result<()> {
    let (change, day) = (|| words!["change", 0, "7|-|- 17"], 86_400 * SECOND);
    for (set_back, result) in [(1, "REMEMBERS"), (365, "DONE")] {
        let mut queue = queue()?;
        let now = T0 + set_back * day;
        queue.ok("push", now, words!["", "a", now, "", "window=86400000"])?;
        ensure!(queue.take(now, 1, &token('a'))? == ["a"]);
        queue.ok("ack", now, words![token('a'), 1, "a"])?;
        let found = remap(&mut queue, T0, change())?;
        ensure!(found.starts_with(result), "{set_back} days: {found}");
    }
    Ok(())
}

#[test]
fn a_close_is_allowed_on_a_partition_with_messages() -> Result<()> {
    let mut queue = with_every_state()?;
    let before = queue.state()?;
    ensure!(remap(&mut queue, T0, words!["close", 0, "7|-|"])? == "DONE");
    expect(&mut queue, before, |state| {
        crate::vectors::count(state, "seq", 1);
        let fields = [
            ("layout", "2"),
            ("epoch", "7"),
            ("map", "7|-|"),
            ("mapped_ms", "1700000000000"),
        ];
        state
            .meta
            .extend(fields.map(|(field, value)| (field.into(), value.into())));
    })
}

#[test]
fn a_forward_is_accepted_with_a_newer_map_only() -> Result<()> {
    let mut queue = with_every_state()?;
    ensure!(remap(&mut queue, T0, words!["forward", "7|-|- 17"])? == "DONE");
    let map = |queue: &mut Queue| {
        queue
            .command(words!["HGET", "dueq:{q}:meta", "map"])?
            .text()
    };
    ensure!(map(&mut queue)? == "7|-|- 17");
    for older in ["6|- 17|- 17", "7|- 17|- 17", "7|-|-", "1|-|-"] {
        unchanged(&mut queue, T0, words!["forward", older], "DONE")?;
    }
    ensure!(remap(&mut queue, T0, words!["forward", "8|- 17|- 17"])? == "DONE");
    ensure!(map(&mut queue)? == "8|- 17|- 17");
    Ok(())
}

#[test]
fn a_map_of_one_partition_becomes_layout_1_without_a_map() -> Result<()> {
    for arguments in [
        words!["change", 7, "8|-|-"],
        words!["close", 7, "8|-|-"],
        words!["forward", "8|-|-"],
    ] {
        let mut queue = queue()?;
        ensure!(remap(&mut queue, T0, words!["change", 0, "7|- 17|-"])? == "DONE");
        let reply = queue.ok("remap", T0, arguments)?;
        ensure!(Header::of(&reply)?.epoch.is_none(), "{reply:?}");
        let meta = queue.state()?.meta;
        ensure!(meta.get(&"layout".into()) == Some(&"1".into()));
        ensure!(meta.get(&"epoch".into()) == Some(&"8".into()));
        ensure!(!meta.contains_key(&"map".into()));
    }
    Ok(())
}

#[test]
fn a_map_without_the_partitions_own_tag_is_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    let before = queue.contents()?;
    for map in ["7|-|-", "7|- 18|- 18", "7|- 1 7|- 170", "7|- 18|"] {
        let reply = queue.call("remap", T0, words!["forward", map])?;
        ensure!(reply.code() == Some("BADARGS"), "{map}: {reply:?}");
        ensure!(
            format!("{reply:?}").contains("tag of this partition"),
            "{reply:?}"
        );
        ensure!(queue.contents()? == before, "{map}");
    }
    Ok(())
}

#[test]
fn a_map_of_256_partitions_is_stored() -> Result<()> {
    let tags: Vec<_> = (0..255)
        .map(|tag| (999_999_999 - tag).to_string())
        .collect();
    let tags = format!("- {}", tags.join(" "));
    let map = format!("9007199254740991|{tags}|{tags}");
    let mut queue = queue()?;
    let reply = queue.ok("remap", T0, words!["forward", &map])?;
    ensure!(Header::of(&reply)?.epoch == Some(9_007_199_254_740_991));
    ensure!(queue.state()?.meta.get(&"map".into()) == Some(&map.into()));
    Ok(())
}

/// Every role may do this for an existing partition, because any client does so after the error
/// BEHIND.
#[test]
fn every_role_may_bring_an_existing_partition_forward() -> Result<()> {
    for role in [AclRole::Producer, AclRole::Consumer, AclRole::Operator] {
        for tag in ["-", "17"] {
            let mut queue = Queue::start()?;
            queue.enter(tag)?;
            let mut user = queue.user(role, "q")?;
            let script = crate::scripts::read("remap", verb("remap").source)?;
            let mut forward = |map: &str| {
                let call = words!["EVAL", &script, 10];
                let argv = words![T0, "forward", map];
                command(&mut user, &[call, keys_of(&partition(tag)), argv].concat())
            };
            let before = queue.contents()?;
            let created = forward("7|- 17|- 17")?;
            if role != AclRole::Operator {
                ensure!(
                    created.code().is_some() && queue.contents()? == before,
                    "{role:?} {tag}: {:?}",
                    created.code()
                );
                queue.ok("remap", T0, words!["forward", "7|- 17|- 17"])?;
            }
            let reply = forward("8|- 17|- 17")?;
            ensure!(
                *reply.part(1)? == "DONE".into(),
                "{role:?} {tag}: {reply:?}"
            );
            ensure!(queue.state()?.meta.get(&"epoch".into()) == Some(&"8".into()));
            if role != AclRole::Operator && tag == "-" {
                let before = queue.contents()?;
                let reply = forward("9|-|-")?;
                ensure!(matches!(reply, Reply::Error(_)), "{reply:?}");
                ensure!(queue.contents()? == before, "{role:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_remove_deletes_an_empty_partition_with_this_epoch() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    // A partition that does not exist counts as removed.
    unchanged(&mut queue, T0, words!["remove", 7], "DONE")?;
    ensure!(remap(&mut queue, T0, words!["forward", "7|- 17|-"])? == "DONE");
    for other in [0, 6, 8] {
        unchanged(&mut queue, T0, words!["remove", other], "EPOCH 7")?;
    }
    ensure!(remap(&mut queue, T0, words!["remove", 7])? == "DONE");
    let left = queue.command(words!["KEYS", "dueq:{q/17}:*"])?;
    ensure!(left.list()?.is_empty(), "{left:?}");
    Ok(())
}

#[test]
fn a_partition_with_a_message_is_not_removed() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    ensure!(remap(&mut queue, T0, words!["forward", "7|- 17|- 17"])? == "DONE");
    let push = words!["", "a", T0 + 60 * SECOND, "payload", ""];
    ensure!(queue.items("push", format!("m7 {T0}"), push)? == ["CREATED"]);
    unchanged(&mut queue, T0, words!["remove", 7], "HAS 1")
}

#[test]
fn the_home_is_never_removed() -> Result<()> {
    let mut queue = queue()?;
    ensure!(remap(&mut queue, T0, words!["change", 0, "7|-|- 17"])? == "DONE");
    let refusal = queue.call("remap", T0, words!["remove", 7])?;
    ensure!(refusal.code() == Some("BADARGS"), "{refusal:?}");
    Ok(())
}
