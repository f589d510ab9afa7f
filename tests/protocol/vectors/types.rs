//! A value of a wrong type under a key: the call fails before it writes, or does not need that key.

use anyhow::{Result, ensure};

use super::{plausible, seed};
use crate::queue::{Queue, T0, attempt, token};
use crate::reply::words;
use crate::scripts::{SCRIPTS, VERBS};
use crate::state::KEYS;

#[test]
fn a_wrong_type_under_any_key_leaves_every_key_unchanged() -> Result<()> {
    let mut queue = Queue::start()?;
    let items = (0..5).flat_map(|number| words![format!("new {number}"), "+0", "payload", ""]);
    let several = words![attempt(T0, 1)]
        .into_iter()
        .chain(items)
        .collect::<Vec<_>>();
    let calls = SCRIPTS
        .iter()
        .map(|(verb, _)| (*verb, plausible(verb)))
        .chain([("push", several)]);
    for (verb, call) in calls {
        for key in KEYS {
            queue.empty()?;
            seed(&mut queue)?;
            // Reap needs an expired lease: without one it would read no further.
            let beats =
                ["last_beat", &T0.to_string(), "reap_after", "0"].map(crate::reply::Text::from);
            queue.command([words!["HSET", "dueq:{q}:meta"], beats.to_vec()].concat())?;
            queue.command(words![
                "ZADD",
                "dueq:{q}:leases",
                T0,
                format!("\u{1}{}", token('l').text())
            ])?;
            let key = queue.key(key);
            queue.command(words!["SET", &key, "somebody else's"])?;
            let before = queue.contents()?;

            let reply = queue.call(verb, T0, call.clone())?;
            let after = queue.contents()?;
            let suffix = key.rsplit(':').next().unwrap_or_default();
            if crate::scripts::verb(verb).unneeded.contains(&suffix) {
                ensure!(reply.code().is_none(), "{verb} needs {key}: {reply:?}");
                ensure!(
                    after.get(&(&key).into()) == before.get(&(&key).into()),
                    "{verb} changed {key}"
                );
            } else {
                ensure!(
                    reply.code() == Some("WRONGTYPE"),
                    "{verb} with a wrong type under {key}: {reply:?}"
                );
                ensure!(
                    after == before,
                    "{verb} with a wrong type under {key} failed after a write"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn a_wrong_type_prevents_the_creation_of_a_queue() -> Result<()> {
    let mut queue = Queue::start()?;
    for verb in VERBS.iter().filter(|verb| verb.creates()) {
        let verb = verb.name;
        for key in KEYS {
            queue.empty()?;
            let key = queue.key(key);
            queue.command(words!["SET", &key, "somebody else's"])?;
            let before = queue.contents()?;
            let reply = queue.call(verb, T0, plausible(verb))?;
            ensure!(
                reply.code() == Some("WRONGTYPE"),
                "{verb} with a wrong type under {key}: {reply:?}"
            );
            ensure!(
                queue.contents()? == before,
                "{verb} with a wrong type under {key} failed after a write"
            );
        }
    }
    Ok(())
}

#[test]
fn a_wrong_type_under_the_wake_up_list_stops_no_verb() -> Result<()> {
    let mut queue = Queue::start()?;
    for (verb, _) in SCRIPTS {
        queue.empty()?;
        seed(&mut queue)?;
        let wake = queue.key("wake");
        queue.command(words!["SET", &wake, "somebody else's"])?;
        queue.ok(verb, T0, plausible(verb))?;
        ensure!(queue.command(words!["GET", &wake])? == "somebody else's".into());
    }
    Ok(())
}
