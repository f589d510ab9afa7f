//! Users with the rights of release 0.1 call today's scripts. Everything that release 0.1 could do
//! still works. Anything new is refused before the first write.

use anyhow::{Result, ensure};
use dueq::admin::AclRole;
use redis::Connection;

use crate::queue::{HOUR, Queue, SECOND, T0, command, keys_of, role_of, token};
use crate::reply::{Reply, Text, words};
use crate::scripts::{self, SCRIPTS, VERBS};
use crate::vectors::{plausible, seed};

/// Makes a user of this role in the queue `q`, with the rights of release 0.1.
pub(crate) fn user_of_0_1(queue: &mut Queue, role: AclRole) -> Result<Connection> {
    let connection = queue.user(role, "q")?;
    let mut rules: Vec<Text> = Vec::new();
    for rule in dueq::admin::acl_rules("q", role)? {
        let is_new = |place: &str| {
            rule.starts_with("(+zmscore")
                && [":dead", ":recent"].iter().any(|end| place.contains(end))
        };
        let words: Vec<&str> = rule
            .trim_matches(['(', ')'])
            .split(' ')
            .filter(|word| *word != "+hsetnx" && !is_new(word))
            .filter(|word| {
                !(rule.contains(":recent") && role == AclRole::Consumer && *word == "+zadd")
            })
            .collect();
        rules.push(if rule.starts_with('(') {
            format!("({})", words.join(" ")).into()
        } else {
            rule.into()
        });
    }
    let name = format!("{role:?}-q");
    let words = [
        words!["ACL", "SETUSER", name],
        rules,
        words!["on", ">secret"],
    ]
    .concat();
    ensure!(queue.command(words)? == "OK".into());
    Ok(connection)
}

pub(crate) fn call(user: &mut Connection, verb: &str, arguments: Vec<Text>) -> Result<Reply> {
    let found = SCRIPTS.iter().find(|(name, _)| *name == verb);
    let source = scripts::read(verb, found.expect("a script").1)?;
    let words = [
        words!["EVAL", source, 10],
        keys_of("dueq:{q}"),
        words![T0],
        arguments,
    ]
    .concat();
    command(user, &words)
}

pub(crate) fn denied(reply: &Reply) -> bool {
    let text = format!("{reply:?}");
    let why = [
        "NOPERM",
        "ACL failure",
        "can't run this",
        "can't access at least one of the keys",
    ];
    why.iter().any(|why| text.contains(why))
}

fn leased(layout: u64, options: &str) -> Result<Queue> {
    let mut queue = Queue::start()?;
    queue.ok("configure", T0, words!["max_attempts", 20])?;
    if layout == 3 {
        queue.ok("configure", T0, words!["layout", 3])?;
    }
    queue.ok("push", T0, words!["", "a", T0, "payload", options])?;
    ensure!(queue.take(T0, 1, &token('a'))? == ["a"]);
    Ok(queue)
}

/// One call of each settlement of the message `a`.
fn settlements() -> Vec<(&'static str, Vec<Text>)> {
    vec![
        ("ack", words![token('a'), 1, "a"]),
        ("again", words!["a", token('a'), "+5"]),
        ("retry", words!["a", token('a'), 5, "why"]),
        ("release", words!["a", token('a')]),
        ("bury", words!["a", token('a'), "why"]),
        ("snooze", words!["a", token('a'), "+5"]),
        ("throttle", words!["a", token('a'), 5]),
    ]
}

#[test]
fn rights_of_0_1_allow_everything_that_0_1_could_do() -> Result<()> {
    let new = ["ack_push", "refill"];
    for role in [AclRole::Producer, AclRole::Consumer] {
        let verbs = VERBS
            .iter()
            .filter(|verb| verb.role == role && !new.contains(&verb.name));
        for verb in verbs {
            let mut queue = Queue::start()?;
            seed(&mut queue)?;
            let mut user = user_of_0_1(&mut queue, role)?;
            let reply = call(&mut user, verb.name, plausible(verb.name))?;
            ensure!(
                reply.code().is_none(),
                "{role:?} cannot {}: {reply:?}",
                verb.name
            );
        }
    }
    // In a queue with windows, these users may still settle messages without a window.
    for (verb, arguments) in settlements() {
        let mut queue = leased(1, "max_attempts=3")?;
        queue.ok("push", T0, words!["", "w", T0 + HOUR, "", "window=60000"])?;
        let mut user = user_of_0_1(&mut queue, AclRole::Consumer)?;
        let reply = call(&mut user, verb, arguments)?;
        ensure!(reply.code().is_none(), "{verb}: {reply:?}");
    }
    Ok(())
}

#[test]
fn missing_rights_of_0_1_are_refused_before_any_write() -> Result<()> {
    let parent = Text([&token('a').0[..], b"a"].concat());
    let ack_push = ("ack_push", words![parent, "b", "+5", "child", ""]);
    let (windowed, ack) = ("window=60000", settlements().remove(0));
    let mut cases = vec![
        (1, "", ack_push.clone()),
        (3, "", ack_push),
        (1, windowed, ack),
    ];
    cases.extend(
        settlements()
            .into_iter()
            .map(|settlement| (3, "", settlement)),
    );
    for (layout, options, (verb, arguments)) in cases {
        let mut queue = leased(layout, options)?;
        if layout == 3 {
            let next = words!["", "a", "+5", "second", "on_conflict=next"];
            ensure!(queue.items("upsert", T0, next)? == ["NEXT"]);
        }
        let mut user = user_of_0_1(&mut queue, AclRole::Consumer)?;
        let before = queue.contents()?;
        let reply = call(&mut user, verb, arguments.clone())?;
        ensure!(denied(&reply), "layout {layout}, {verb}: {reply:?}");
        ensure!(
            queue.contents()? == before,
            "{verb} was refused, and left a trace"
        );
        // The call works with today's rights.
        let mut user = queue.user(AclRole::Consumer, "q")?;
        let reply = call(&mut user, verb, arguments)?;
        ensure!(reply.code().is_none(), "layout {layout}, {verb}: {reply:?}");
    }
    Ok(())
}

/// In a queue with schedules, a claim needs the rights to make ticks.
#[test]
fn a_claim_without_the_right_to_make_ticks_is_refused() -> Result<()> {
    let mut queue = crate::vectors::schedules::declared::with("every=1000 overlap=skip")?;
    let claim = words![10, token('x'), 30 * SECOND];
    queue.push(T0, "due", T0, "payload")?;
    let mut user = user_of_0_1(&mut queue, AclRole::Consumer)?;
    let before = queue.contents()?;
    ensure!(denied(&call(&mut user, "claim", claim.clone())?));
    ensure!(queue.contents()? == before);
    let mut user = queue.user(AclRole::Consumer, "q")?;
    ensure!(call(&mut user, "claim", claim)?.deliveries()?.len() == 1);
    Ok(())
}

#[test]
fn a_reap_without_the_right_to_start_a_next_message_is_refused() -> Result<()> {
    let mut queue = leased(3, "")?;
    let next = words!["", "a", "+5", "second", "on_conflict=next"];
    ensure!(queue.items("upsert", T0, next)? == ["NEXT"]);
    let late = T0 - 40 * SECOND;
    queue.command(words![
        "ZADD",
        "dueq:{q}:leases",
        late,
        Text([b"\x01", &token('a').0[..]].concat())
    ])?;
    let meta = words!["HSET", "dueq:{q}:meta", "last_beat", T0, "reap_after", 0];
    queue.command(meta)?;
    let mut user = user_of_0_1(&mut queue, AclRole::Consumer)?;
    let before = queue.contents()?;
    ensure!(denied(&call(&mut user, "reap", words![10])?));
    ensure!(queue.contents()? == before);
    let mut user = queue.user(AclRole::Consumer, "q")?;
    ensure!(call(&mut user, "reap", words![10])?.part(1)?.int()? == 1);
    Ok(())
}

#[test]
fn todays_roles_may_push_and_settle_with_new_options() -> Result<()> {
    let mut queue = leased(3, "window=60000")?;
    let mut producer = queue.user(AclRole::Producer, "q")?;
    let mut consumer = queue.user(AclRole::Consumer, "q")?;
    for (id, options, result) in [
        ("a", "on_conflict=next max_wait=9000", "NEXT"),
        ("b", "on_conflict=replace window=60000", "CREATED"),
        ("b", "on_conflict=reschedule max_wait=9000", "MOVED"),
        ("c", "on_conflict=next revive reuse", "CREATED"),
    ] {
        let reply = call(&mut producer, "upsert", words!["", id, "+5", "", options])?;
        ensure!(reply.part(1)?.list()?[0].text()? == result, "{reply:?}");
    }
    ensure!(
        call(&mut producer, "cancel", words!["", "a", "b"])?
            .code()
            .is_none()
    );
    let reply = call(&mut producer, "get", words!["b"])?;
    ensure!(reply.part(2)?.text()? == "cancelled", "{reply:?}");
    let parent = Text([&token('a').0[..], b"a"].concat());
    let children = words![
        parent,
        "d",
        "+5",
        "",
        "window=9000 expires=+60000",
        "e",
        "+5",
        "",
        ""
    ];
    let reply = call(&mut consumer, "ack_push", children)?;
    ensure!(reply.part(1)?.text()? == "OK", "{reply:?}");
    let reply = call(&mut producer, "get", words!["a"])?;
    ensure!(reply.part(2)?.text()? == "finished", "{reply:?}");
    ensure!(role_of("ack_push") == AclRole::Consumer);
    Ok(())
}
