//! Layout 3: `configure` gives it to a queue, with and without a map. Release 0.1 refuses it.

use anyhow::{Result, ensure};

use crate::frozen;
use crate::model::check_structure;
use crate::queue::{Queue, T0, keys_of, token};
use crate::reply::{Header, Text, words};
use crate::vectors::pushes::debounce::layout_3;
use crate::vectors::{count, expect, verified};

const NEXT: &str = "on_conflict=next";

fn meta(queue: &mut Queue, field: &str) -> Result<Option<String>> {
    Ok(queue.state()?.meta.get(&field.into()).map(Text::text))
}

#[test]
fn configure_gives_a_queue_layout_3() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "a", T0, "payload")?;
    let before = queue.state()?;
    for times in 1..3 {
        let reply = queue.ok("configure", T0, words!["layout", 3])?;
        ensure!(Header::of(&reply)?.epoch.is_none());
        expect(&mut queue, before.clone(), |state| {
            state.meta.insert("layout".into(), "3".into());
            count(state, "seq", times);
        })?;
    }
    check_structure(&queue.state()?, None)?;
    ensure!(verified(&mut queue)?);
    Ok(())
}

#[test]
fn configure_refuses_other_layouts() -> Result<()> {
    for start in [Queue::start()?, layout_3()?] {
        let mut queue = start;
        let before = queue.contents()?;
        for layout in ["1", "2", "4", "0", "", "three", "3.5"] {
            let reply = queue.call("configure", T0, words!["layout", layout])?;
            ensure!(reply.code() == Some("BADARGS"), "{layout:?}: {reply:?}");
        }
        ensure!(queue.contents()? == before);
    }
    Ok(())
}

#[test]
fn scripts_of_release_0_1_refuse_layout_3() -> Result<()> {
    let mut queue = layout_3()?;
    queue.push(T0, "a", T0, "payload")?;
    let before = queue.contents()?;
    for (verb, source) in frozen::scripts()? {
        let call = words!["EVAL", source, 10];
        let argv = words![T0, "", "", "", ""];
        let reply = queue.command([call, keys_of("dueq:{q}"), argv].concat())?;
        ensure!(reply.code() == Some("LAYOUT"), "{verb}: {reply:?}");
    }
    ensure!(queue.contents()? == before);
    Ok(())
}

#[test]
fn remap_keeps_layout_3() -> Result<()> {
    let mut queue = layout_3()?;
    let steps = [
        (words!["close", 0, "7|-|- 17"], Some(7)),
        (words!["close", 7, "8|- 17|- 17"], Some(8)),
        (words!["close", 8, "9|- 17|-"], Some(9)),
        (words!["close", 9, "10|-|-"], None),
        (words!["close", 10, "11|-|- 17"], Some(11)),
    ];
    for (arguments, epoch) in steps {
        let reply = queue.ok("remap", T0, arguments.clone())?;
        ensure!(reply.part(1)?.text()? == "DONE", "{arguments:?}: {reply:?}");
        ensure!(
            Header::of(&reply)?.epoch == epoch,
            "{arguments:?}: {reply:?}"
        );
        ensure!(meta(&mut queue, "layout")?.as_deref() == Some("3"));
        ensure!(meta(&mut queue, "map")?.is_some() == epoch.is_some());
        check_structure(&queue.state()?, None)?;
        ensure!(verified(&mut queue)?);
    }
    Ok(())
}

#[test]
fn a_queue_with_a_map_gets_layout_3_and_keeps_its_epoch() -> Result<()> {
    for tag in ["-", "17"] {
        let mut queue = Queue::start()?;
        queue.enter(tag)?;
        ensure!(
            queue
                .ok("remap", T0, words!["close", 0, "7|-|- 17"])?
                .part(1)?
                .text()?
                == "DONE"
        );
        let reply = queue.ok("configure", T0, words!["layout", 3])?;
        ensure!(Header::of(&reply)?.epoch == Some(7));
        let clock = |epoch: u64| format!("m{epoch} {T0}");
        queue.ok("push", clock(7), words!["", "a", T0, "first", ""])?;
        ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
        let parent = Text([&token('a').0[..], b"a"].concat());
        let calls = [
            ("upsert", words!["", "a", "+5", "second", NEXT]),
            ("ack_push", words![parent, "b", "+5", "child", ""]),
        ];
        for (verb, arguments) in calls {
            let before = queue.contents()?;
            for (now, code) in [
                (T0.to_string(), "REMAPPED"),
                (clock(6), "REMAPPED"),
                (clock(8), "BEHIND"),
            ] {
                let reply = queue.call(verb, now.clone(), arguments.clone())?;
                ensure!(reply.code() == Some(code), "{verb} at {now}: {reply:?}");
            }
            ensure!(queue.contents()? == before, "a refused {verb} left a trace");
            queue.ok(verb, clock(7), arguments)?;
        }
        let state = queue.state()?;
        check_structure(&state, None)?;
        ensure!(state.messages.get(&"a".into()) == Some(&"second".into()));
        ensure!(state.messages.get(&"b".into()) == Some(&"child".into()));
    }
    Ok(())
}
