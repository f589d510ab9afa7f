//! Users with the rights of one role: the verbs of the role work, and other verbs, as scripts or
//! functions, change nothing.

use anyhow::{Result, ensure};
use dueq::admin::AclRole;
use redis::Connection;

use crate::model::check_structure;
use crate::queue::{Queue, SECOND, T0, command, keys_of, role_of, token};
use crate::reply::{Reply, Text, words};
use crate::scripts::{self, SCRIPTS, VERBS};
use crate::vectors::{declare, plausible, seed, verified};

const ROLES: [AclRole; 3] = [AclRole::Producer, AclRole::Consumer, AclRole::Operator];

/// A queue in which each verb has work, with the scripts and the Functions library loaded.
fn ready() -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.through(crate::queue::Calls::Fcall)?;
    queue.through(crate::queue::Calls::Evalsha)?;
    fill(&mut queue)?;
    Ok(queue)
}

fn fill(queue: &mut Queue) -> Result<()> {
    queue.empty()?;
    seed(queue)?;
    queue.ok("beat", T0, words!["node", "stay"])?;
    queue.ok("pause", T0, words![])?;
    queue.ok("resume", T0, words![])?;
    queue.push(T0, "due", T0, "payload")?;
    // A lease has expired and `reap_after` has passed, so reap has work.
    queue.command(words![
        "HSET",
        "dueq:{q}:meta",
        "last_beat",
        T0,
        "reap_after",
        0
    ])?;
    queue.push(T0, "late", T0, "payload")?;
    queue.command(words!["ZREM", "dueq:{q}:scheduled", "late"])?;
    queue.command(words!["ZADD", "dueq:{q}:leases", T0, "late"])?;
    queue.command(words![
        "HSET",
        "dueq:{q}:claims",
        "late",
        format!("{}{T0}+", "x".repeat(16))
    ])?;
    Ok(())
}

fn both_ways(verb: &str, base: &str, argv: Vec<Text>) -> Vec<Vec<Text>> {
    let source = scripts::read(verb, scripts::verb(verb).source).expect("a script");
    let sha = redis::Script::new(&source).get_hash().to_owned();
    let mut calls = vec![words!["EVALSHA", sha, 10], words!["EVAL", source, 10]];
    if !scripts::are_replaced() {
        calls.push(words!["FCALL", format!("dueq_{verb}"), 10]);
    }
    let with = |call| [call, keys_of(base), argv.clone()].concat();
    calls.into_iter().map(with).collect()
}

fn denied(reply: &Reply) -> bool {
    let text = format!("{reply:?}");
    [
        "NOPERM",
        "ACL failure in script",
        "can't run this command",
        "can't access at least one of the keys",
    ]
    .iter()
    .any(|why| text.contains(why))
}

/// Whether a role may call a verb. An operator may call every verb.
fn may(role: AclRole, verb: &str) -> bool {
    role == AclRole::Operator || role_of(verb) == role
}

#[test]
fn each_role_can_call_its_own_verbs_only() -> Result<()> {
    let mut queue = ready()?;
    for role in ROLES {
        let mut user = queue.user(role, "q")?;
        let plain = ("push", words!["", "plain", "+1000", "payload", ""]);
        for (verb, argv) in SCRIPTS
            .iter()
            .map(|(verb, _)| (*verb, plausible(verb)))
            .chain([plain])
        {
            let argv = [words![T0 + SECOND], argv].concat();
            for call in both_ways(verb, "dueq:{q}", argv) {
                fill(&mut queue)?;
                if verb != "remap" {
                    declare(&mut queue)?; // remap refuses queues with schedules
                }
                let before = queue.contents()?;
                let reply = command(&mut user, &call)?;
                let how = call[0].text();
                if may(role, verb) {
                    ensure!(
                        reply.code().is_none(),
                        "{role:?} cannot {how} {verb}: {reply:?}"
                    );
                    // The tests in `repairs` cover an operator's repairs.
                    let reads =
                        scripts::verb(verb).only_reads() || ["audit", "verify"].contains(&verb);
                    ensure!(
                        reads || verb == "resume" || queue.contents()? != before,
                        "{verb} had nothing to do"
                    );
                } else if denied(&reply) {
                    ensure!(
                        queue.contents()? == before,
                        "{role:?}: {how} {verb} was refused, and left a trace"
                    );
                } else {
                    // The role may also read these keys by hand.
                    ensure!(
                        reply.code().is_none() && queue.contents()? == before,
                        "{role:?} did {how} {verb}"
                    );
                    ensure!(
                        scripts::verb(verb).only_reads(),
                        "{role:?} could {how} {verb}: {reply:?}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Redis refuses these verbs to other roles in every state of the queue: absent, empty, paused and
/// full.
#[test]
fn an_operators_verbs_are_refused_to_others_in_any_state() -> Result<()> {
    let mut queue = ready()?;
    for role in [AclRole::Producer, AclRole::Consumer] {
        let mut user = queue.user(role, "q")?;
        let operators = VERBS.iter().filter(|verb| verb.role == AclRole::Operator);
        for verb in operators.map(|verb| verb.name) {
            for state in ["absent", "empty", "paused", "full"] {
                queue.empty()?;
                match state {
                    "empty" => drop(queue.ok("configure", T0, words!["max_attempts", 3])?),
                    "paused" => drop(queue.ok("pause", T0, words![])?),
                    "full" => fill(&mut queue)?,
                    _ => {}
                }
                let before = queue.contents()?;
                for call in both_ways(verb, "dueq:{q}", [words![T0], plausible(verb)].concat()) {
                    let reply = command(&mut user, &call)?;
                    ensure!(denied(&reply), "{role:?} could {verb}, {state}: {reply:?}");
                    ensure!(
                        queue.contents()? == before,
                        "{role:?} left a trace of {verb}, {state}"
                    );
                }
            }
        }
        for words in [
            words!["UNLINK", "dueq:{q}:messages"],
            words!["DEL", "dueq:{q}:meta"],
            words!["FLUSHALL"],
            words!["KEYS", "*"],
            words!["CONFIG", "GET", "*"],
            words!["FUNCTION", "FLUSH"],
            words!["ACL", "LIST"],
        ] {
            ensure!(
                denied(&command(&mut user, &words)?),
                "{role:?} could {words:?}"
            );
        }
        // A consumer's node uses SCAN to find the queues of a pattern. SCAN shows all key names,
        // but no contents.
        let scans = !denied(&command(&mut user, &["SCAN".into(), "0".into()])?);
        ensure!(
            scans == (role == AclRole::Consumer),
            "{role:?} scans: {scans}"
        );
    }
    Ok(())
}

/// Creating a queue needs an operator's rights. The one exception: a push without them is refused
/// but leaves placeholders.
#[test]
fn an_operator_can_complete_a_queue_that_a_push_began() -> Result<()> {
    let mut queue = ready()?;
    for role in [AclRole::Producer, AclRole::Consumer] {
        for call in both_ways("push", "dueq:{q}", [words![T0], plausible("push")].concat()) {
            queue.empty()?;
            let mut user = queue.user(role, "q")?;
            ensure!(denied(&command(&mut user, &call)?));
            let state = queue.state()?;
            let counts = [state.scheduled.len(), state.leases.len(), state.dead.len()];
            ensure!(
                counts.iter().all(|count| *count <= 1) && state.messages.is_empty(),
                "{state:?}"
            );
            ensure!(
                !state.meta.contains_key(&"layout".into()),
                "{role:?} created a queue"
            );
            queue.ok("configure", T0, words!["max_attempts", 3])?;
            ensure!(verified(&mut queue)?);
            check_structure(&queue.state()?, None)?;
        }
    }
    Ok(())
}

/// Commands outside scripts: Redis separates the roles by command and key.
#[test]
fn a_producer_can_change_no_lease_and_use_no_token() -> Result<()> {
    let mut queue = ready()?;
    let mut producer = queue.user(AclRole::Producer, "q")?;
    let before = queue.contents()?;
    for words in [
        words!["HMGET", "dueq:{q}:claims", "l"],
        words!["HGETALL", "dueq:{q}:claims"],
        words!["HSET", "dueq:{q}:claims", "s", "mine"],
        words!["HDEL", "dueq:{q}:claims", "l"],
        words!["ZADD", "dueq:{q}:leases", 1, "s"],
        words!["ZREM", "dueq:{q}:leases", "l"],
        words!["RPUSH", "dueq:{q}:ready", "1:s"],
        words!["LTRIM", "dueq:{q}:ready", 1, 1],
        words!["HDEL", "dueq:{q}:meta", "paused"],
        words!["BLPOP", "dueq:{q}:wake", 1],
        words!["SSUBSCRIBE", "dueq:{q}:notice"],
    ] {
        ensure!(denied(&command(&mut producer, &words)?), "{words:?}");
    }
    // A producer may read when leases end, and so it sees tokens. But no script accepts a token
    // from a producer.
    let claim = command(
        &mut producer,
        &["HGET", "dueq:{q}:claims", "l"].map(Text::from),
    )?;
    ensure!(claim.bytes()?.0.starts_with(&token('l').0), "{claim:?}");
    for verb in [
        "ack", "again", "retry", "release", "bury", "extend", "snooze", "throttle",
    ] {
        for call in both_ways(verb, "dueq:{q}", [words![T0], plausible(verb)].concat()) {
            ensure!(denied(&command(&mut producer, &call)?), "{verb}");
        }
    }
    ensure!(queue.contents()? == before);
    let mut consumer = queue.user(AclRole::Consumer, "q")?;
    for words in [
        words!["HSET", "dueq:{q}:messages", "s", "forged"],
        words!["ZREM", "dueq:{q}:scheduled", "s"],
        words!["ZREM", "dueq:{q}:dead", "d"],
        words!["ZREM", "dueq:{q}:recent", "s"],
        words!["HDEL", "dueq:{q}:meta", "paused"],
    ] {
        ensure!(denied(&command(&mut consumer, &words)?), "{words:?}");
    }
    ensure!(queue.contents()? == before);
    Ok(())
}

#[test]
fn no_role_has_rights_on_another_queue() -> Result<()> {
    let mut queue = ready()?;
    let mut users: Vec<Connection> = ROLES
        .into_iter()
        .map(|role| queue.user(role, "other"))
        .collect::<Result<_>>()?;
    let before = queue.contents()?;
    for user in &mut users {
        for (verb, _) in SCRIPTS {
            for call in both_ways(verb, "dueq:{q}", [words![T0], plausible(verb)].concat()) {
                ensure!(denied(&command(user, &call)?), "{verb}");
            }
        }
        // The script declares no keys and names a key of another queue.
        let code = "return redis.call('HGETALL', 'dueq:{q}:messages')";
        for words in [
            words!["EVAL", code, 0],
            words!["HGETALL", "dueq:{q}:messages"],
            words!["HMGET", "dueq:{q}:messages", "s"],
            words!["SPUBLISH", "dueq:{q}:notice", 1],
            words!["SSUBSCRIBE", "dueq:{q}:notice"],
        ] {
            ensure!(denied(&command(user, &words)?), "{words:?}");
        }
    }
    ensure!(queue.contents()? == before);
    Ok(())
}
