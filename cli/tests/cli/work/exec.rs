//! `--exec`: the input of a command, the settlement by its exit code, and the end of its processes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::PushOutcome;
use dueq::{Message, MessageState};

use crate::work::support::{Dueq, command, group_lives, queue, stats, stored, until};

/// Prints its process group and never ends. Its child never ends either, and ignores SIGTERM.
const ENDLESS: &str =
    "(trap '' TERM; while :; do sleep 1; done) & echo $$; while :; do sleep 1; done";

fn exec(url: &str, name: &str, command: &str, more: &[&str]) -> Result<Dueq> {
    Dueq::start(url, &[&["work", name, "--exec", command], more].concat())
}

#[tokio::test]
async fn two_workers_handle_each_message_once_and_never_early() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    // `date` and Redis read the same clock here.
    let script = "echo \"$DUEQ_ID $DUEQ_DUE_MS $(date +%s%3N) $(cat)\"";
    let mut workers =
        [0, 1].map(|_| exec(&server.url(), "orders", script, &["--concurrency", "16"]));
    let messages = (0..500_u64).map(|number| {
        let delay = Duration::from_millis(1_000 + number * 4);
        Message::new(format!("rate {number}"))
            .id(format!("order:{number}"))
            .due(delay)
    });
    for pushed in orders.push_many(messages).await {
        assert_eq!(pushed?, PushOutcome::Created);
    }
    stats(&orders, "500 acks", |stats| stats.acked == 500).await?;

    let (mut seen, mut lateness) = (BTreeMap::new(), Vec::new());
    for (number, worker) in workers.iter_mut().enumerate() {
        let worker = worker
            .as_mut()
            .map_err(|error| anyhow::anyhow!("{error}"))?;
        worker.signal("TERM")?;
        let lines = worker.rest()?;
        assert!(worker.wait()?.success());
        println!("worker {number} ran {}", lines.len());
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, due, now, "rate", payload] = words[..] else {
                anyhow::bail!("{line}")
            };
            let (due, now): (u64, u64) = (due.parse()?, now.parse()?);
            assert!(now >= due, "early: {line}");
            assert_eq!(id, format!("order:{payload}"));
            lateness.push(now - due);
            assert_eq!(seen.insert(id.to_owned(), ()), None, "twice: {id}");
        }
    }
    assert_eq!(seen.len(), 500);
    lateness.sort_unstable();
    // Printed, not asserted: it includes the start of sh and date.
    println!(
        "from due to the command's date: p50 {} ms, max {} ms",
        lateness[250], lateness[499]
    );
    let stats = orders.stats().await?;
    assert_eq!(
        (stats.claimed, stats.retried, stats.crashed, stats.nodes),
        (500, 0, 0, 0)
    );
    Ok(())
}

#[tokio::test]
async fn exit_code_settles_and_stderr_is_stored() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let script =
        "echo \"about $DUEQ_ID\" >&2; echo \"$DUEQ_QUEUE $DUEQ_ID $DUEQ_ATTEMPT\"; exit $(cat)";
    let mut worker = exec(&server.url(), "orders", script, &["--max-attempts", "2"])?;
    for (id, code) in [("done", "0"), ("no hope: é", "65"), ("again", "3")] {
        orders.push_message(Message::new(code).id(id)).await?;
    }
    let dead = stored(&orders, "no hope: é", |stored| {
        stored.state == MessageState::Dead
    })
    .await?;
    assert_eq!(dead.error, "exit status 65: about no hope: é");
    assert_eq!(dead.failures, 0, "a burial is no failure");
    let dead = stored(&orders, "again", |stored| {
        stored.state == MessageState::Dead
    })
    .await?;
    assert_eq!(
        (dead.error.as_str(), dead.failures),
        ("exit status 3: about again", 2),
        "the limit is 2 attempts"
    );
    stats(&orders, "an ack", |stats| stats.acked == 1).await?;
    assert!(orders.get("done").await?.is_none());

    worker.signal("INT")?;
    let mut said = worker.rest()?;
    said.sort();
    assert_eq!(
        said,
        [
            "orders again 1",
            "orders again 2",
            "orders done 1",
            "orders no hope: é 1"
        ]
    );
    assert!(worker.wait()?.success(), "Ctrl-C is a clean stop");
    Ok(())
}

#[tokio::test]
async fn command_gets_only_the_trace_of_its_message() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let args = [
        "work",
        "orders",
        "--concurrency",
        "1",
        "--exec",
        "echo \"$DUEQ_ID ${TRACEPARENT-none} ${TRACESTATE-none}\"",
    ];
    let mut of_ours = command(&server.url(), &args);
    of_ours
        .env(
            "TRACEPARENT",
            "00-11111111111111111111111111111111-2222222222222222-01",
        )
        .env("TRACESTATE", "ours=1");
    let mut worker = Dueq::run(&mut of_ours)?;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    orders.push_message(Message::new("").id("plain")).await?;
    orders
        .push_message(Message::new("").id("traced").trace_parent(parent))
        .await?;
    stats(&orders, "2 acks", |stats| stats.acked == 2).await?;
    worker.signal("TERM")?;
    let mut said = worker.rest()?;
    said.sort();
    assert_eq!(
        said,
        [
            "plain none none".to_owned(),
            format!("traced {parent} none")
        ]
    );
    Ok(())
}

#[tokio::test]
async fn payload_keeps_every_byte_and_may_stay_unread() -> Result<()> {
    let (server, bytes) = queue("bytes").await?;
    let payload: Vec<u8> = (0..1024 * 1024_u32)
        .map(|number| (number % 256) as u8)
        .collect();
    bytes
        .push_message(Message::new(payload.clone()).id("read"))
        .await?;
    bytes
        .push_message(Message::new(payload.clone()).id("unread"))
        .await?;
    bytes.push_message(Message::new("").id("empty")).await?;
    let script = "[ $DUEQ_ID = unread ] || echo \"$DUEQ_ID $(cksum)\"";
    let mut worker = exec(&server.url(), "bytes", script, &["--concurrency", "1"])?;
    stats(&bytes, "3 acks", |stats| stats.acked == 3).await?;
    worker.signal("TERM")?;
    let mut said = worker.rest()?;
    said.sort();
    // The output of cksum for an empty payload, and for this one.
    assert_eq!(said.len(), 2);
    assert_eq!(said[0], "empty 4294967295 0");
    assert!(
        said[1].starts_with("read ") && said[1].ends_with(" 1048576"),
        "{}",
        said[1]
    );
    Ok(())
}

#[tokio::test]
async fn timeout_kills_the_process_group_and_retries() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut worker = exec(&server.url(), "orders", ENDLESS, &["--timeout", "100ms"])?;
    orders
        .push_message(Message::new("").id("slow").max_attempts(1))
        .await?;
    let group = worker.says()?;
    let dead = stored(&orders, "slow", |stored| stored.state == MessageState::Dead).await?;
    assert!(dead.error.contains("longer than 100ms"), "{}", dead.error);
    assert!(
        !group_lives(&group)?,
        "killed before the failure was reported"
    );
    Ok(())
}

#[tokio::test]
async fn background_processes_end_with_their_command() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut worker = exec(&server.url(), "orders", "sleep 1000 & echo $$", &[])?;
    orders.push_message(Message::new("").id("forks")).await?;
    let group = worker.says()?;
    stats(&orders, "an ack", |stats| stats.acked == 1).await?;
    assert!(!group_lives(&group)?);
    Ok(())
}

#[tokio::test]
async fn lost_lease_kills_the_process_group() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut worker = exec(&server.url(), "orders", ENDLESS, &["--lease", "500ms"])?;
    orders.push_message(Message::new("").id("lost")).await?;
    let group = worker.says()?;
    assert!(group_lives(&group)?);
    // Deleting the queue ends the lease; the next extension reports that.
    assert!(orders.delete().await?);
    until("the end of the group", async || {
        Ok((!group_lives(&group)?).then_some(()))
    })
    .await?;
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}

#[tokio::test]
async fn sigterm_stops_claims_and_lets_commands_finish() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let folder = crate::work::support::Folder::new("drain")?;
    let gate = folder.path().join("gate");
    anyhow::ensure!(
        std::process::Command::new("mkfifo")
            .arg(&gate)
            .status()?
            .success()
    );
    let script = format!("echo started; cat < {} > /dev/null", gate.display());
    let mut worker = exec(&server.url(), "orders", &script, &["--concurrency", "1"])?;
    orders.push_message(Message::new("").id("first")).await?;
    assert_eq!(worker.says()?, "started");
    worker.signal("TERM")?;
    // The node leaves the queue before its handlers finish, so another worker gets messages that
    // are pushed now.
    orders.push_message(Message::new("").id("second")).await?;
    tokio::task::spawn_blocking(move || std::fs::write(gate, "")).await??;
    assert!(worker.wait()?.success());
    let stats = orders.stats().await?;
    assert_eq!(
        (
            stats.acked,
            stats.claimed - stats.released,
            stats.leased,
            stats.nodes
        ),
        (1, 1, 0, 0)
    );
    Ok(())
}

#[tokio::test]
async fn end_of_grace_kills_and_releases_without_an_attempt() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    for second in [&["--grace", "0s"][..], &[]] {
        let mut worker = exec(&server.url(), "orders", ENDLESS, second)?;
        orders.push_message(Message::new("").id("endless")).await?;
        let group = worker.says()?;
        worker.signal("TERM")?;
        if second.is_empty() {
            // The second signal ends the grace period, but only if the first one was handled
            // already.
            until("an end", async || {
                worker.signal("TERM").ok();
                Ok((!group_lives(&group)?).then_some(()))
            })
            .await?;
        }
        assert!(worker.wait()?.success());
        assert!(
            !group_lives(&group)?,
            "nothing is left when the worker is gone"
        );
        let stored = orders.get("endless").await?.context("it is given back")?;
        assert_eq!((stored.failures, stored.crashes), (0, 0));
        assert_ne!(stored.state, MessageState::Leased);
    }
    Ok(())
}

#[tokio::test]
async fn kill_9_ends_commands_and_another_worker_takes_over() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let mut killed = exec(&server.url(), "orders", ENDLESS, &["--lease", "1s"])?;
    orders.push_message(Message::new("").id("survivor")).await?;
    let group = killed.says()?;
    killed.signal("KILL")?;
    killed.wait()?;
    let mut other = exec(&server.url(), "orders", "echo $DUEQ_ID $DUEQ_ATTEMPT", &[])?;
    assert_eq!(other.says()?, "survivor 2");
    until("the end of the orphans", async || {
        Ok((!group_lives(&group)?).then_some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn exactly_one_handler_option_is_required() -> Result<()> {
    let (server, _) = queue("orders").await?;
    for args in [
        &["work", "orders"][..],
        &["work", "orders", "--print", "--exec", "true"],
    ] {
        assert_eq!(
            command(&server.url(), args).output()?.status.code(),
            Some(2),
            "{args:?}"
        );
    }
    let refused = command(
        &server.url(),
        &["work", "orders", "--exec", "true", "--max-attempts", "0"],
    )
    .output()?;
    assert_eq!(refused.status.code(), Some(2));
    Ok(())
}

#[tokio::test]
async fn command_pushes_follow_ups_by_descriptor_3() -> Result<()> {
    let (server, orders) = queue("orders").await?;
    let script = r#"case "$(cat)" in
        start) echo '{"payload": "second", "delay": "1h"}' >&3; echo >&3
               echo '{"payload": "third", "id": "third", "delay": "1h", "max_attempts": 2}' >&3;;
        fails) echo '{"payload": "never", "id": "never"}' >&3; exit 3;;
        wrong) echo '{"payload": "never", "id": "never"}' >&3; echo '{"payload": 1, "dealy": 2}' >&3;;
    esac"#;
    let more = ["--retry-min", "1h", "--retry-max", "1h"];
    let mut worker = exec(&server.url(), "orders", script, &more)?;
    orders.push("start").id("order:42").await?;
    stats(&orders, "the ack", |stats| stats.acked == 1).await?;
    let second = stored(&orders, "{order:42}/1", |_| true).await?;
    assert_eq!(second.payload, b"second");
    assert_eq!(
        stored(&orders, "third", |_| true).await?.max_attempts,
        Some(2)
    );
    for (payload, error) in [("fails", "exit status 3"), ("wrong", "line 2")] {
        orders.push(payload).id(payload).await?;
        let failed = stored(&orders, payload, |stored| stored.failures == 1).await?;
        assert!(failed.error.contains(error), "{}", failed.error);
    }
    assert_eq!(orders.get("never").await?, None);
    worker.signal("TERM")?;
    assert!(worker.wait()?.success());
    Ok(())
}
