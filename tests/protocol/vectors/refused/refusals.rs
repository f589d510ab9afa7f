//! Refused calls: each gets an error code before the script writes, and changes nothing.

use anyhow::{Context, Result, ensure};

use crate::queue::{Calls, Queue, T0, attempt, keys_of, token};
use crate::reply::{Reply, Text, words};
use crate::scripts::{SCRIPTS, VERBS};
use crate::state::{lease_name, placeholder};
use crate::vectors::refused::nonsense::nonsense;
use crate::vectors::{declare, plausible, seed, with_every_state};

/// Checks that each call, as a script and as a function, gets this error and changes no byte.
pub(crate) fn refused(
    queue: &mut Queue,
    code: &str,
    calls: Vec<(&str, Vec<Text>, Vec<Text>)>,
) -> Result<()> {
    let before = queue.contents()?;
    for way in [Calls::Fcall, Calls::Evalsha] {
        queue.through(way)?;
        for (verb, keys, argv) in &calls {
            let reply = queue.call_with(verb, keys.clone(), argv.clone())?;
            ensure!(
                reply.code() == Some(code),
                "{way:?} {verb} {argv:?}: {reply:?}, not {code}"
            );
            ensure!(
                queue.contents()? == before,
                "{way:?} {verb} {argv:?} left a trace"
            );
        }
    }
    Ok(())
}

fn argv(verb: &str) -> Vec<Text> {
    [words![T0], plausible(verb)].concat()
}

#[test]
fn keys_other_than_the_ten_of_one_queue_are_refused() -> Result<()> {
    let mut queue = with_every_state()?;
    let good = keys_of("dueq:{q}");
    let changed = |place: usize, key: &str| {
        let mut keys = good.clone();
        keys[place] = key.into();
        keys
    };
    let mut bad = vec![
        Vec::new(),
        good[..9].to_vec(),
        [good.clone(), words!["dueq:{q}:wake"]].concat(),
        changed(9, "dueq:{other}:meta"),
        good.iter().rev().cloned().collect(),
    ];
    bad.extend((0..9).map(|place| changed(place, "dueq:{other}:scheduled")));
    bad.extend((0..9).map(|place| changed(place, &good[(place + 1) % 9].text())));
    let names = [
        "",
        "{",
        "}",
        "a{b",
        "a/b",
        "a/",
        "/1",
        "a/1/2",
        "new\nline",
        &"x".repeat(129),
    ];
    bad.extend(names.map(|name| keys_of(&format!("dueq:{{{name}}}"))));
    bad.extend(["dueq:q", "q", "other:{q}", "dueq:{q}:x", "Dueq:{q}"].map(keys_of));
    let calls = SCRIPTS
        .iter()
        .flat_map(|(verb, _)| bad.iter().map(|keys| (*verb, keys.clone(), argv(verb))))
        .collect();
    refused(&mut queue, "BADKEYS", calls)
}

#[test]
fn valid_queue_names_of_any_length_are_served() -> Result<()> {
    let mut queue = Queue::start()?;
    for name in ["x", "a b:c", "grüße", &"x".repeat(128)] {
        let base = format!("dueq:{{{name}}}");
        queue.command(words!["HSET", format!("{base}:meta"), "test", "1"])?;
        let reply = queue.call_with("push", keys_of(&base), words![T0, "", "a", "+1", "", ""])?;
        ensure!(
            reply.code().is_none() && reply.items()? == ["CREATED"],
            "{name}: {reply:?}"
        );
    }
    Ok(())
}

#[test]
fn a_queue_of_another_layout_is_refused() -> Result<()> {
    let mut queue = with_every_state()?;
    for layout in ["6", "0", "", "one"] {
        queue.command(words!["HSET", "dueq:{q}:meta", "layout", layout])?;
        let calls = SCRIPTS
            .iter()
            .map(|(verb, _)| (*verb, keys_of("dueq:{q}"), argv(verb)))
            .collect();
        refused(&mut queue, "LAYOUT", calls)?;
    }
    Ok(())
}

#[test]
fn a_malformed_or_forbidden_time_is_refused() -> Result<()> {
    let mut queue = with_every_state()?;
    let keys = || keys_of("dueq:{q}");
    let with =
        |verb: &'static str, now: &str| (verb, keys(), [words![now], plausible(verb)].concat());
    let nonsense = [
        "soon", "-1", "1e12", "0x10", " 1", "1 ", "nan", "inf", "+1", ".5", "1.2.3",
    ];
    let calls = SCRIPTS
        .iter()
        .flat_map(|(verb, _)| nonsense.map(|now| with(verb, now)))
        .collect();
    refused(&mut queue, "BADNOW", calls)?;
    refused(
        &mut queue,
        "BADNOW",
        SCRIPTS
            .iter()
            .map(|(verb, _)| (*verb, keys(), Vec::new()))
            .collect(),
    )?;

    let timed = || {
        let verbs = SCRIPTS.iter();
        verbs.map(|(verb, _)| with(verb, &T0.to_string())).collect()
    };
    queue.command(words!["HDEL", "dueq:{q}:meta", "test"])?;
    refused(&mut queue, "BADNOW", timed())?;
    queue.command(words!["FLUSHALL"])?;
    refused(&mut queue, "BADNOW", timed())
}

#[test]
fn malformed_arguments_are_refused() -> Result<()> {
    let calls = || -> Vec<(&str, Vec<Text>, Vec<Text>)> {
        let of = |verb: &'static str| {
            nonsense(verb)
                .into_iter()
                .map(move |bad| (verb, keys_of("dueq:{q}"), [words![T0], bad].concat()))
        };
        SCRIPTS.iter().flat_map(|(verb, _)| of(verb)).collect()
    };
    let mut queue = Queue::start()?;
    refused(&mut queue, "BADARGS", calls())?;
    seed(&mut queue)?;
    refused(&mut queue, "BADARGS", calls())
}

#[test]
fn a_refused_push_leaves_no_trace() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    for words in [
        words!["", "a", "soon", "", ""],
        words!["", "", "+1", "", "", "b", "+1", "", "nonsense"],
        words![attempt(T0 - 10_000, 1), "a", "+1", "", ""],
        words!["", "a", "+1", "x".repeat(1_048_577), ""],
    ] {
        let replies = queue.items("push", T0, words)?;
        ensure!(
            replies
                .iter()
                .all(|reply| reply.starts_with("INVALID ") || reply == "EXPIRED"),
            "{replies:?}"
        );
        ensure!(queue.contents()? == before, "a trace of {replies:?}");
    }
    Ok(())
}

#[test]
fn calls_on_unknown_ids_and_absent_queues_write_nothing() -> Result<()> {
    let mut queue = Queue::start()?;
    let before = queue.contents()?;
    for verb in VERBS.iter().filter(|verb| !verb.creates()) {
        let verb = verb.name;
        let reply = queue.ok(verb, T0, plausible(verb))?;
        let header = vec![
            (T0 * 1_000).into(),
            "".into(),
            0u64.into(),
            Reply::Int(-1),
            Reply::Int(-1),
            0u64.into(),
        ];
        ensure!(*reply.part(0)? == Reply::List(header), "{verb}: {reply:?}");
        ensure!(
            queue.contents()? == before,
            "{verb} left a trace of an absent queue"
        );
    }

    seed(&mut queue)?;
    let before = queue.contents()?;
    let unknown = token('s');
    for (verb, arguments, answer) in [
        ("ack", words![&unknown, 1, "?"], "GONE"),
        ("release", words!["?", &unknown], "GONE"),
        ("again", words!["?", &unknown, "+1"], "GONE"),
        ("retry", words!["?", &unknown, 1, ""], "GONE"),
        ("bury", words!["?", &unknown, ""], "GONE"),
        ("snooze", words!["?", &unknown, "+1"], "GONE"),
        ("throttle", words!["?", &unknown, 1], "GONE"),
        ("extend", words!["?", &unknown, 1], "GONE"),
        ("cancel", words!["1", "?"], "ABSENT"),
        ("reschedule", words!["?", "+1", ""], "ABSENT"),
        ("run_now", words!["?"], "ABSENT"),
        ("requeue", words!["ids", "?"], "ABSENT"),
        ("reap", words!["ids", "?", lease_name(&unknown)], "GONE"),
    ] {
        ensure!(queue.items(verb, T0, arguments)? == [answer]);
        ensure!(
            queue.contents()? == before,
            "{verb} left a trace of an unknown id"
        );
    }
    Ok(())
}

#[test]
fn placeholders_timers_and_claim_records_are_not_messages() -> Result<()> {
    let of = |kind: &str| Text([kind.as_bytes(), &token('l').0].concat());
    for id in [
        placeholder(),
        "\u{4}hourly".into(),
        of("\u{1}"),
        of("\u{2}"),
    ] {
        check_no_message(&id).with_context(|| format!("{id:?}"))?;
    }
    Ok(())
}

fn check_no_message(id: &Text) -> Result<()> {
    let mut queue = with_every_state()?;
    declare(&mut queue)?;
    // The field of this record begins like the claim of an id.
    let record = Text([b"\x01", &token('l').0[..]].concat());
    let ids = format!("{}{T0}", token('l').text());
    queue.command(words!["HSET", "dueq:{q}:claims", record, ids])?;
    let before = queue.contents()?;
    for token in [Text::default(), token('l')] {
        for (verb, rest) in [
            ("ack", words![]),
            ("release", words![]),
            ("again", words!["+1"]),
            ("retry", words![1, ""]),
            ("bury", words![""]),
            ("snooze", words!["+1"]),
            ("throttle", words![1]),
            ("extend", words![1]),
        ] {
            let words = if verb == "ack" {
                words![&token, 1, id]
            } else {
                words![id, &token]
            };
            let replies = queue.items(verb, T0, [words, rest].concat())?;
            ensure!(replies == ["GONE"], "{verb}: {replies:?}");
            ensure!(
                queue.contents()? == before,
                "{verb} treated it as a message"
            );
        }
    }
    let delivery = Text([&token('l').0[..], &id.0].concat());
    let ack_push = queue.ok("ack_push", T0, words![delivery, "next", "+5", "", ""])?;
    ensure!(ack_push.part(1)?.text()? == "GONE", "{ack_push:?}");
    let ended = queue.items("reap", T0, words!["ids", id, lease_name(&token('l'))])?;
    ensure!(
        ended == ["GONE"] && queue.contents()? == before,
        "{ended:?}"
    );
    for (verb, words) in [
        ("cancel", words!["1", id]),
        ("reschedule", words![id, "+1", ""]),
        ("run_now", words![id]),
        ("requeue", words!["ids", id]),
    ] {
        ensure!(queue.items(verb, T0, words)? == ["ABSENT"], "{verb}");
        ensure!(
            queue.contents()? == before,
            "{verb} treated it as a message"
        );
    }
    ensure!(queue.ok("get", T0, words![id])?.part(1)?.list()?.is_empty());
    ensure!(
        queue.items(
            "upsert",
            T0,
            words!["", id, "+1", "", "on_conflict=replace"]
        )?[0]
            .starts_with("INVALID")
    );
    Ok(())
}

/// A foreign value in meta must not stop a call halfway.
#[test]
fn foreign_values_in_meta_stop_no_push_or_cancel() -> Result<()> {
    for nonsense in ["abc", "1.5", "1e4", "-5", ""] {
        let mut queue = Queue::start()?;
        queue.push(T0, "a", T0 + 1, "payload")?;
        let fields = ["ended_until", nonsense, "largest_payload_bytes", nonsense].map(Text::from);
        queue.command([words!["HSET", "dueq:{q}:meta"], fields.to_vec()].concat())?;
        let push = words![
            attempt(T0, 1),
            "b",
            T0,
            "x".repeat(9_000),
            "",
            "c",
            T0,
            "",
            "max_attempts=2"
        ];
        ensure!(
            queue.items("push", T0, push)? == ["CREATED", "CREATED"],
            "{nonsense:?}"
        );
        ensure!(
            queue.items("cancel", T0, words!["", "a"])? == ["CANCELLED"],
            "{nonsense:?}"
        );
        ensure!(
            queue.items("run_now", T0 - 1, words!["b"])? == ["MOVED 1699999999999"],
            "{nonsense:?}"
        );
        ensure!(
            queue.push(T0, "a", T0, "again")? == "CREATED",
            "{nonsense:?}"
        );
        ensure!(
            queue
                .ok("claim", T0, words![10, token('a'), 1_000])?
                .deliveries()?
                .len()
                == 3,
            "{nonsense:?}"
        );
    }
    Ok(())
}
