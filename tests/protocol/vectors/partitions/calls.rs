//! Which calls the partitions of a queue with a map accept, and that a refused call changes
//! nothing.

use anyhow::{Context, Result, ensure};

use crate::queue::{Queue, SECOND, T0, keys_of, partition, token};
use crate::reply::{Header, Reply, Text, words};
use crate::scripts::SCRIPTS;
use crate::vectors::refused::refusals::refused;
use crate::vectors::{plausible, seed};

/// The map of the queue in these tests: a home and one other partition, with epoch 7.
const MAP: &str = "7|- 17|- 17";

/// The verbs whose calls carry the epoch of the caller's map. A requeue does so if it names ids.
const FENCED: [&str; 10] = [
    "ack_push",
    "arrive",
    "cancel",
    "depart",
    "get",
    "push",
    "requeue",
    "reschedule",
    "run_now",
    "upsert",
];

/// A queue with this map and a message in every state, in both of its partitions.
fn partitioned() -> Result<Queue> {
    let mut queue = Queue::start()?;
    seed(&mut queue)?;
    queue.ok("remap", T0, words!["forward", MAP])?;
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", MAP])?;
    for (id, state) in [("d", "dead"), ("l", "leased"), ("r", "ready")] {
        push_at(&mut queue, id)?;
        if state == "ready" {
            queue.ok("promote", T0, words![1])?;
            continue;
        }
        ensure!(queue.take(T0, 1, &token(id.chars().next().context("an id")?))? == [id]);
        if state == "dead" {
            queue.ok("bury", T0, words![id, token('d'), "why"])?;
        }
    }
    queue.ok(
        "push",
        at(7),
        words!["", "s", T0 + 3_600 * SECOND, "scheduled", ""],
    )?;
    queue.enter("-")?;
    Ok(queue)
}

fn push_at(queue: &mut Queue, id: &str) -> Result<()> {
    let replies = queue.items("push", at(7), words!["", id, T0, "payload", ""])?;
    ensure!(replies == ["CREATED"], "{replies:?}");
    Ok(())
}

/// ARGV[1] of a caller whose map has this epoch.
fn at(epoch: u64) -> String {
    format!("m{epoch} {T0}")
}

fn calls(tag: &str, now: &str) -> Vec<(&'static str, Vec<Text>, Vec<Text>)> {
    let keys = keys_of(&partition(tag));
    FENCED
        .map(|verb| (verb, keys.clone(), [words![now], plausible(verb)].concat()))
        .to_vec()
}

#[test]
fn a_call_with_the_epoch_of_the_partition_is_served() -> Result<()> {
    for tag in ["-", "17"] {
        for (verb, keys, argv) in calls(tag, &at(7)) {
            let mut queue = partitioned()?;
            let reply = queue.call_with(verb, keys, argv)?;
            ensure!(reply.code().is_none(), "{tag} {verb}: {reply:?}");
            ensure!(Header::of(&reply)?.epoch == Some(7), "{reply:?}");
        }
    }
    Ok(())
}

#[test]
fn a_call_without_an_epoch_or_with_an_old_one_is_refused() -> Result<()> {
    let mut queue = partitioned()?;
    for tag in ["-", "17"] {
        for now in [T0.to_string(), "".into(), at(6), "m6".into(), at(0)] {
            refused(&mut queue, "REMAPPED", calls(tag, &now))?;
        }
    }
    Ok(())
}

#[test]
fn a_call_with_a_newer_epoch_is_refused() -> Result<()> {
    let mut queue = partitioned()?;
    for tag in ["-", "17"] {
        for now in [at(8), "m8".into(), "m9007199254740991".into()] {
            refused(&mut queue, "BEHIND", calls(tag, &now))?;
        }
    }
    Ok(())
}

#[test]
fn the_error_names_both_epochs_and_the_remedy() -> Result<()> {
    let mut queue = partitioned()?;
    for (epoch, texts) in [
        (6, ["has epoch 7", "has epoch 6", "read the map"]),
        (8, ["an old map", "call remap", "repeat the call"]),
    ] {
        let reply = format!("{:?}", queue.call("get", at(epoch), words!["s"])?);
        ensure!(texts.iter().all(|text| reply.contains(text)), "{reply}");
    }
    Ok(())
}

#[test]
fn a_home_without_a_map_refuses_an_epoch() -> Result<()> {
    let mut queue = Queue::start()?;
    refused(&mut queue, "REMAPPED", calls("-", &at(7)))?;
    seed(&mut queue)?;
    refused(&mut queue, "REMAPPED", calls("-", &at(7)))?;
    refused(&mut queue, "REMAPPED", calls("-", "m7"))
}

/// A queue that is back at one partition keeps the epoch of its last map, but only for `remap`.
#[test]
fn the_epoch_of_a_former_map_does_not_refuse_calls() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.ok("remap", T0, words!["forward", MAP])?;
    queue.ok("remap", T0, words!["close", 7, "8|-|-"])?;
    ensure!(queue.push(T0, "a", T0 + SECOND, "payload")? == "CREATED");
    refused(&mut queue, "REMAPPED", calls("-", &at(8)))
}

#[test]
fn only_remap_creates_a_partition_other_than_the_home() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    for now in [T0.to_string(), at(7), "m7".into()] {
        refused(&mut queue, "BEHIND", calls("17", &now))?;
    }
    let creating = ["pause", "configure", "schedule"].map(|verb| {
        let argv = [words![T0], plausible(verb)].concat();
        (verb, keys_of(&partition("17")), argv)
    });
    refused(&mut queue, "BEHIND", creating.to_vec())?;
    // All other verbs answer as they do for a queue that does not exist.
    let before = queue.contents()?;
    for (verb, _) in SCRIPTS {
        let refuses =
            FENCED.contains(verb) || ["pause", "configure", "remap", "schedule"].contains(verb);
        if !refuses {
            let reply = queue.ok(verb, T0, plausible(verb))?;
            ensure!(Header::of(&reply)?.incarnation.is_empty(), "{reply:?}");
        }
    }
    ensure!(queue.contents()? == before);
    Ok(())
}

/// The partition was created by a release that knows no maps.
#[test]
fn a_partition_of_layout_1_refuses_calls_as_behind() -> Result<()> {
    let mut queue = partitioned()?;
    queue.command(words!["HSET", "dueq:{q/17}:meta", "layout", 1])?;
    for now in [T0.to_string(), at(7)] {
        refused(&mut queue, "BEHIND", calls("17", &now))?;
    }
    queue.enter("17")?;
    queue.ok("remap", T0, words!["forward", "8|- 17|- 17"])?;
    let reply = queue.call("get", at(8), words!["s"])?;
    ensure!(reply.part(1)?.list()?.len() == 14, "{reply:?}");
    Ok(())
}

/// A message stays in its partition, so its consumers need no map.
#[test]
fn calls_of_consumers_and_on_whole_queues_carry_no_epoch() -> Result<()> {
    for tag in ["-", "17"] {
        for (verb, _) in SCRIPTS.iter().filter(|(verb, _)| !FENCED.contains(verb)) {
            let mut queue = partitioned()?;
            queue.enter(tag)?;
            if *verb != "remap" {
                let reply = queue.ok(verb, T0, plausible(verb))?;
                ensure!(Header::of(&reply)?.epoch == Some(7), "{verb}: {reply:?}");
            }
            let before = queue.contents()?;
            let argv = [words![at(7)], plausible(verb)].concat();
            let reply = queue.call_with(verb, keys_of(&partition(tag)), argv)?;
            ensure!(reply.code() == Some("BADNOW"), "{verb}: {reply:?}");
            ensure!(queue.contents()? == before, "{verb}");
        }
        let mut queue = partitioned()?;
        queue.enter(tag)?;
        let reply = queue.ok("requeue", T0, words!["oldest", 10, ""])?;
        ensure!(*reply.part(1)? == Reply::Int(1), "{reply:?}");
        let reply = queue.call("requeue", at(7), words!["oldest", 10, ""])?;
        ensure!(reply.code() == Some("BADNOW"), "{reply:?}");
    }
    Ok(())
}

#[test]
fn a_malformed_epoch_or_clock_is_refused() -> Result<()> {
    let mut queue = Queue::start()?;
    let bad = ["m", "mx", "m ", "m-7", "M7", " m7", "7m"].map(|now| (now, "BADNOW"));
    for (now, code) in bad {
        refused(&mut queue, code, calls("-", now))?;
    }
    let mut queue = partitioned()?;
    for now in ["m7 ", "m7x", "m7  1", "m7 soon", "m7 -1", "m7 m7"] {
        refused(&mut queue, "BADNOW", calls("-", now))?;
    }
    // Without the field `test`, only the server's own clock is accepted.
    queue.command(words!["HDEL", "dueq:{q}:meta", "test"])?;
    refused(&mut queue, "BADNOW", calls("-", &at(7)))?;
    let reply = queue.call("get", "m7", words!["s"])?;
    ensure!(
        Header::of(&reply)?.now_us > 1_700_000_000_000_000,
        "{reply:?}"
    );
    Ok(())
}

#[test]
fn an_unreadable_epoch_is_found_and_a_forward_repairs_it() -> Result<()> {
    for nonsense in ["", "x", "-7", "1e9"] {
        let mut queue = partitioned()?;
        queue.command(words!["HSET", "dueq:{q}:meta", "epoch", nonsense])?;
        let findings = queue.ok("verify", T0, words!["1"])?;
        ensure!(
            format!("{findings:?}").contains(r#""meta", "epoch""#),
            "{nonsense:?}: {findings:?}"
        );
        refused(&mut queue, "BEHIND", calls("-", &at(7)))?;
        queue.ok("remap", T0, words!["forward", MAP])?;
        queue.ok("get", at(7), words!["s"])?;
    }
    Ok(())
}

#[test]
fn verify_creates_no_partition_other_than_the_home() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.enter("17")?;
    queue.command(words!["ZADD", "dueq:{q/17}:scheduled", T0, "a"])?;
    let before = queue.contents()?;
    let findings = queue.ok("verify", T0, words!["1"])?;
    let expected = Reply::List(vec![
        "meta".into(),
        "layout".into(),
        "".into(),
        Reply::Int(0),
    ]);
    ensure!(
        *findings.part(1)? == Reply::List(vec![expected]),
        "{findings:?}"
    );
    ensure!(queue.contents()? == before);
    Ok(())
}
