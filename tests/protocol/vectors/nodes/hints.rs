//! The wake-up list and the notices: when the scripts use them, and that no delivery depends on
//! them.

use anyhow::{Context, Result, ensure};
use dueq::admin::AclRole;
use redis::{Connection, Value};

use crate::queue::{Queue, SECOND, T0, connect, role_of, token};
use crate::reply::{Reply, words};
use crate::scripts::SCRIPTS;
use crate::vectors::{plausible, seed};

/// A connection that receives the notices of a queue.
pub(crate) struct Listener {
    connection: Connection,
}

impl Listener {
    pub(crate) fn start(queue: &Queue) -> Result<Self> {
        let mut connection = connect(&queue.server.url())?;
        connection.send_packed_command(
            &redis::cmd("SSUBSCRIBE")
                .arg("dueq:{q}:notice")
                .get_packed_command(),
        )?;
        connection.recv_response()?;
        Ok(Self { connection })
    }

    /// The notices since the last call. Publishes a mark and reads up to it.
    pub(crate) fn heard(&mut self, queue: &mut Queue) -> Result<Vec<String>> {
        queue.command(words!["SPUBLISH", "dueq:{q}:notice", "mark"])?;
        let mut heard = Vec::new();
        loop {
            let message = match self.connection.recv_response()? {
                Value::Push { data, .. } => Reply::from_server(Ok(Value::Array(data)))?,
                other => Reply::from_server(Ok(other))?,
            };
            let text = message.list()?.last().context("an empty message")?.text()?;
            if text == "mark" {
                return Ok(heard);
            }
            heard.push(text);
        }
    }
}

#[test]
fn a_notice_announces_an_earlier_head_within_2_s() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut listener = Listener::start(&queue)?;
    let mut hears = |queue: &mut Queue, due: u64, heard: &[u64]| -> Result<()> {
        queue.push(T0, &due.to_string(), T0 + due, "")?;
        let expected: Vec<String> = heard.iter().map(|due| (T0 + due).to_string()).collect();
        let found = listener.heard(queue)?;
        ensure!(found == expected, "{due}: {found:?}");
        Ok(())
    };
    hears(&mut queue, 2_001, &[])?;
    hears(&mut queue, 2_000, &[2_000])?;
    hears(&mut queue, 2_500, &[])?;
    hears(&mut queue, 1_000, &[1_000])?;
    hears(&mut queue, 1_000, &[])?;
    hears(&mut queue, 1, &[1])?;
    // For a due message, push adds wake-up tokens and publishes no notice.
    hears(&mut queue, 0, &[])?;
    ensure!(queue.state()?.wake.len() == 2);
    Ok(())
}

/// A delay counts from the next whole millisecond, so within the present one the message is not due
/// yet: a woken node would claim too early.
#[test]
fn a_push_without_delay_wakes_or_announces_the_next_ms() -> Result<()> {
    for (now, notice, tokens) in [("", false, 2), (".001", true, 0), (".999", true, 0)] {
        let mut queue = Queue::start()?;
        let mut listener = Listener::start(&queue)?;
        let now = format!("{T0}{now}");
        ensure!(queue.items("push", now.clone(), words!["", "a", "+0", "", ""])? == ["CREATED"]);
        let expected = if notice {
            vec![(T0 + 1).to_string()]
        } else {
            vec![]
        };
        let heard = listener.heard(&mut queue)?;
        ensure!(heard == expected, "{now}: {heard:?}");
        ensure!(queue.state()?.wake.len() == tokens, "{now}");
        // A message that is due already adds tokens without a notice.
        queue.push(T0, "past", T0 - 5, "")?;
        ensure!(queue.state()?.wake.len() == 2, "{now}");
        ensure!(listener.heard(&mut queue)?.is_empty(), "{now}");
    }
    Ok(())
}

#[test]
fn a_moved_head_is_published_and_resume_always_publishes() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut listener = Listener::start(&queue)?;
    queue.push(T0, "a", T0 + 10 * SECOND, "")?;
    queue.ok("reschedule", T0, words!["a", T0 + 500, ""])?;
    ensure!(listener.heard(&mut queue)? == [(T0 + 500).to_string()]);
    queue.ok("pause", T0, words![])?;
    queue.ok("reschedule", T0, words!["a", T0 + 400, ""])?;
    ensure!(
        listener.heard(&mut queue)?.is_empty(),
        "a paused queue published a notice"
    );
    queue.ok("resume", T0, words![])?;
    ensure!(listener.heard(&mut queue)? == [(T0 + 400).to_string()]);
    ensure!(queue.take(T0 + 400, 1, &token('a'))? == ["a"]);
    ensure!(
        listener.heard(&mut queue)? == [""],
        "promote must announce that no head is left"
    );
    queue.ok("retry", T0 + 400, words!["a", token('a'), 100, ""])?;
    ensure!(listener.heard(&mut queue)? == [(T0 + 500).to_string()]);
    Ok(())
}

#[test]
fn promote_publishes_the_new_head_unless_it_is_due_soon() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut listener = Listener::start(&queue)?;
    for due in [100, 101, 126, 152] {
        queue.push(T0, &due.to_string(), T0 + due, "")?;
    }
    listener.heard(&mut queue)?;
    queue.ok("promote", T0 + 99, words![10])?;
    ensure!(
        listener.heard(&mut queue)?.is_empty(),
        "promote moved no message and published a notice"
    );
    queue.ok("promote", T0 + 101, words![1])?;
    ensure!(
        listener.heard(&mut queue)?.is_empty(),
        "a head that is still due needs no notice"
    );
    queue.ok("promote", T0 + 101, words![10])?;
    ensure!(
        listener.heard(&mut queue)?.is_empty(),
        "a head 25 ms ahead needs no notice"
    );
    queue.ok("promote", T0 + 126, words![10])?;
    ensure!(
        listener.heard(&mut queue)? == [(T0 + 152).to_string()],
        "a head 26 ms ahead needs a notice"
    );
    queue.ok("promote", T0 + 152, words![10])?;
    ensure!(
        listener.heard(&mut queue)? == [""],
        "a notice must announce that no head is left"
    );
    Ok(())
}

#[test]
fn claim_of_due_messages_publishes_the_new_head() -> Result<()> {
    let mut queue = Queue::start()?;
    let mut listener = Listener::start(&queue)?;
    for due in [100, 101, 126, 152] {
        queue.push(T0, &due.to_string(), T0 + due, "")?;
    }
    listener.heard(&mut queue)?;
    let mut claim = |at: u64| -> Result<Vec<String>> {
        let token = queue.new_token();
        queue.ok("claim", T0 + at, words![1, token, SECOND])?;
        listener.heard(&mut queue)
    };
    ensure!(
        claim(99)?.is_empty(),
        "the claim took no message and published a notice"
    );
    ensure!(
        claim(101)?.is_empty(),
        "a head that is still due needs no notice"
    );
    ensure!(claim(101)?.is_empty(), "a head 25 ms ahead needs no notice");
    ensure!(
        claim(126)? == [(T0 + 152).to_string()],
        "a head 26 ms ahead needs a notice"
    );
    ensure!(
        claim(152)? == [""],
        "a notice must announce that no head is left"
    );
    Ok(())
}

#[test]
fn remaining_work_adds_at_most_two_wake_up_tokens() -> Result<()> {
    let mut queue = Queue::start()?;
    for (verb, _) in SCRIPTS {
        for tokens in 0..3 {
            queue.empty()?;
            seed(&mut queue)?;
            queue.push(T0, "due", T0, "")?;
            queue.command(words!["DEL", "dueq:{q}:wake"])?;
            for _ in 0..tokens {
                queue.command(words!["RPUSH", "dueq:{q}:wake", "1"])?;
            }
            // Reads, a new map, and calls on a paused or closed queue add no tokens. Every other
            // call leaves due work.
            let silent = crate::scripts::verb(verb).only_reads();
            let silent = silent || ["pause", "remap", "throttle"].contains(verb);
            let mut arguments = plausible(verb);
            if *verb == "claim" || *verb == "promote" {
                arguments[0] = "1".into();
            }
            if *verb == "purge" {
                arguments[0] = "dead".into();
            }
            queue.ok(verb, T0, arguments)?;
            let expected = if silent { tokens } else { 2 };
            ensure!(
                queue.state()?.wake.len() == expected,
                "{verb} with {tokens}: {:?}",
                queue.state()?.wake
            );
        }
    }
    Ok(())
}

#[test]
fn pushes_wake_nodes_only_for_messages_ready_now() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.push(T0, "moved", T0, "")?;
    queue.ok("promote", T0, words![1])?;
    queue.command(words!["DEL", "dueq:{q}:wake"])?;
    queue.ok(
        "upsert",
        T0,
        words!["", "moved", "+5000", "", "on_conflict=reschedule"],
    )?;
    ensure!(
        queue.state()?.wake.is_empty(),
        "no work is left and the list has tokens"
    );

    // The ready list has a foreign entry when the push creates the queue.
    queue.empty()?;
    queue.command(words!["RPUSH", "dueq:{q}:ready", "5:stranger"])?;
    queue.ok("push", T0, words!["", "new", "+5000", "", ""])?;
    ensure!(
        queue.state()?.wake.len() == 2,
        "push must add tokens for the foreign entry"
    );
    Ok(())
}

#[test]
fn scripts_work_for_a_user_without_channel_rights() -> Result<()> {
    let mut queue = Queue::start()?;
    queue.command(words![
        "ACL",
        "SETUSER",
        "limited",
        "on",
        "nopass",
        "~dueq:*",
        "+@all",
        "resetchannels"
    ])?;
    let url = queue
        .server
        .url()
        .replace("redis://", "redis://limited:any@");
    let mut limited = connect(&url)?;
    let words = words!["SPUBLISH", "dueq:{q}:notice", "1"];
    let published = crate::queue::command(&mut limited, &words)?;
    ensure!(published.code() == Some("NOPERM"), "{published:?}");
    std::mem::swap(&mut queue.connection, &mut limited);
    queue.push(T0, "a", T0 + 1_000, "")?;
    queue.ok("reschedule", T0, words!["a", T0 + 500, ""])?;
    ensure!(queue.take(T0 + 500, 1, &token('a'))? == ["a"]);
    ensure!(queue.items("ack", T0 + 500, words![token('a'), 1, "a"])? == ["OK"]);
    ensure!(queue.state()?.meta.get(&"seq".into()) == Some(&"5".into()));
    Ok(())
}

#[test]
fn the_documented_rights_suffice_for_each_verb() -> Result<()> {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(include_str!("../../../../docs/protocol/operations.md"));
    for (role, name) in [
        (AclRole::Producer, "producer"),
        (AclRole::Consumer, "consumer"),
        (AclRole::Operator, "operator"),
    ] {
        let rules = dueq::admin::acl_rules("orders", role)?.join(" ");
        let line = format!("ACL SETUSER orders-{name} {rules} on >PASSWORD");
        ensure!(
            page.contains(&words(&line)),
            "docs/protocol/operations.md does not have: {line}"
        );
    }
    let mut queue = Queue::start()?;
    for (verb, _) in SCRIPTS {
        queue.empty()?;
        seed(&mut queue)?;
        queue.command(words!["DEL", "dueq:{q}:wake"])?;
        let mut limited = queue.user(role_of(verb), "q")?;
        queue.command(words!["ACL", "LOG", "RESET"])?;
        std::mem::swap(&mut queue.connection, &mut limited);
        queue.ok(verb, T0, plausible(verb))?;
        std::mem::swap(&mut queue.connection, &mut limited);
        // The ACL log also shows protected calls (wake-up list, notice) that were denied, which
        // replies do not show.
        let denied = queue.command(words!["ACL", "LOG"])?;
        ensure!(denied.list()?.is_empty(), "{verb}: {denied:?}");
    }
    Ok(())
}
