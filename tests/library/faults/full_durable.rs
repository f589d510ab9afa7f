//! A server whose memory is full: for each durability and verb, the reply about the message must be
//! true.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use dueq::outcomes::{
    CancelOutcome, PushOutcome, RequeueOutcome, RescheduleOutcome, RunNowOutcome,
};
use dueq::{
    Applied, Client, Durability, Error, ErrorKind, Message, OnConflict, Queue, StoredMessage,
};
use dueq_testkit::Server;
use redis::Value;

use crate::faults::restarts::signal;
use crate::support::proxy::Proxy;
use crate::support::{HOUR, LIMIT, Setup, push_and_claim, setup_with, until};

const UPSERT: &str = include_str!("../../../lua/dist/upsert.lua");
const PUSH: &str = include_str!("../../../lua/dist/push.lua");
const CANCEL: &str = include_str!("../../../lua/dist/cancel.lua");
const RESCHEDULE: &str = include_str!("../../../lua/dist/reschedule.lua");
const RUN_NOW: &str = include_str!("../../../lua/dist/run_now.lua");
const REQUEUE: &str = include_str!("../../../lua/dist/requeue.lua");

/// Less memory than an empty server uses.
const FULL: [&str; 4] = ["CONFIG", "SET", "maxmemory", "1mb"];
const ROOMY: [&str; 4] = ["CONFIG", "SET", "maxmemory", "0"];

const REPLICATED: Durability = Durability::Replicated {
    replicas: 1,
    timeout: LIMIT,
};
const FSYNCED: Durability = Durability::Fsynced {
    local: true,
    replicas: 1,
    timeout: LIMIT,
};

/// A server with a replica, and the queue reached directly and through a proxy. The server has all
/// scripts.
struct Bench {
    setup: Setup,
    replica: Server,
    proxy: Proxy,
    proxied: Queue,
}

async fn bench() -> Result<Bench> {
    let disks = ["--appendonly", "yes", "--appendfsync", "always"];
    let setup = setup_with(&[&["--repl-diskless-sync-delay", "0"], &disks[..]].concat()).await?;
    let port = setup.server.port().to_string();
    let replica = Server::start(&[&["--replicaof", "127.0.0.1", &port], &disks[..]].concat())?;
    let info = async || Ok(setup.server.command(&["INFO", "replication"])?);
    until("a replica", info, |info| info.contains("state=online")).await?;
    let proxy = Proxy::start(setup.server.port()).await?;
    let proxied = Client::connect(&proxy.url()).await?.queue("orders")?;
    for verb in VERBS {
        verb.prepare(&setup.queue, &format!("{verb:?}")).await?;
        verb.call(&setup.queue, &format!("{verb:?}")).await?;
        let _ = setup.queue.cancel(&format!("{verb:?}")).await?;
    }
    Ok(Bench {
        setup,
        replica,
        proxy,
        proxied,
    })
}

impl Bench {
    /// The durabilities that this server supports.
    async fn durabilities(&self) -> Result<Vec<Durability>> {
        let known = self
            .setup
            .command::<Vec<Value>>(&["COMMAND", "INFO", "WAITAOF"])
            .await?
            != [Value::Nil];
        Ok([Durability::Memory, REPLICATED]
            .into_iter()
            .chain(known.then_some(FSYNCED))
            .collect())
    }
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Push,
    Cancel,
    Reschedule,
    RunNow,
    Requeue,
}

const VERBS: [Verb; 5] = [
    Verb::Push,
    Verb::Cancel,
    Verb::Reschedule,
    Verb::RunNow,
    Verb::Requeue,
];

impl Verb {
    fn script(self) -> &'static str {
        match self {
            Self::Push => PUSH,
            Self::Cancel => CANCEL,
            Self::Reschedule => RESCHEDULE,
            Self::RunNow => RUN_NOW,
            Self::Requeue => REQUEUE,
        }
    }

    /// Creates the message that a call changes.
    async fn prepare(self, queue: &Queue, id: &str) -> Result<()> {
        match self {
            Self::Push => {}
            Self::Requeue => {
                let _ = push_and_claim(queue, Message::new("x").id(id))
                    .await?
                    .bury("why")
                    .await?;
            }
            _ => assert_eq!(queue.push_message(message(id)).await?, PushOutcome::Created),
        }
        Ok(())
    }

    /// Makes the call. A reply that reports no change is a failure.
    async fn call(self, queue: &Queue, id: &str) -> Result<(), Error> {
        match self {
            Self::Push => assert_eq!(queue.push_message(message(id)).await?, PushOutcome::Created),
            Self::Cancel => assert_eq!(queue.cancel(id).await?, CancelOutcome::Cancelled),
            Self::Reschedule => {
                let moved = queue.reschedule(id, 2 * HOUR).await?;
                assert!(matches!(moved, RescheduleOutcome::Moved(_)), "{moved:?}");
            }
            Self::RunNow => assert_eq!(queue.run_now(id).await?, RunNowOutcome::Moved),
            Self::Requeue => assert_eq!(queue.requeue(id).await?, RequeueOutcome::Requeued),
        }
        Ok(())
    }
}

fn message(id: &str) -> Message {
    Message::new("x").id(id).due(HOUR)
}

/// The fields of a message that the call changes.
fn seen(stored: Option<StoredMessage>) -> impl PartialEq + Debug {
    stored.map(|stored| (stored.state, stored.time_ms))
}

#[tokio::test]
async fn calls_on_a_full_server_report_what_they_changed() -> Result<()> {
    let bench = bench().await?;
    let direct = &bench.setup.queue;
    for durability in bench.durabilities().await? {
        let queue = direct.clone().durability(durability);
        for verb in VERBS {
            let what = format!("{verb:?} {durability:?}");
            verb.prepare(direct, &what).await?;
            bench.setup.server.command(&FULL)?;
            let before = seen(direct.get(&what).await?);
            let result = verb.call(&queue, &what).await;
            let changed = seen(direct.get(&what).await?) != before;
            let _ = direct.cancel(&what).await?;
            bench.setup.server.command(&ROOMY)?;
            match result {
                Ok(()) => assert!(changed, "{what}: it was not done"),
                Err(error) => {
                    assert!(!changed, "{what} was applied, but failed with {error:?}");
                    assert_eq!(
                        (error.kind(), error.was_applied()),
                        (ErrorKind::Full, Applied::No),
                        "{what}: {error}"
                    );
                    assert!(
                        !matches!(verb, Verb::Cancel),
                        "{what} needs no memory: {error}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// The call itself uses the last free memory.
#[tokio::test]
async fn a_call_that_fills_the_server_is_confirmed() -> Result<()> {
    let bench = bench().await?;
    let direct = &bench.setup.queue;
    for durability in bench.durabilities().await? {
        let queue = bench.proxied.clone().durability(durability);
        for verb in VERBS {
            let what = format!("{verb:?} {durability:?}");
            verb.prepare(direct, &what).await?;
            let before = seen(direct.get(&what).await?);
            bench.proxy.after_call_of(verb.script(), &FULL);
            let result = verb.call(&queue, &what).await;
            assert!(result.is_ok(), "{what}: {result:?}");
            assert_ne!(seen(direct.get(&what).await?), before, "{what}");
            let _ = direct.cancel(&what).await?;
            bench.setup.server.command(&ROOMY)?;
        }
    }
    Ok(())
}

/// After the change and before the wait, the connection breaks or the user loses a right.
#[tokio::test]
async fn a_change_whose_wait_fails_is_unconfirmed() -> Result<()> {
    const KILL: [&str; 4] = ["CLIENT", "KILL", "TYPE", "normal"];
    let bench = bench().await?;
    let direct = &bench.setup.queue;
    let queue = bench.proxied.clone().durability(REPLICATED);
    for id in ["run", "moved", "replaced", "cancelled", "denied"] {
        direct.push_message(message(id)).await?;
    }
    bench.setup.server.command(&["SCRIPT", "LOAD", UPSERT])?;
    bench.proxy.after_call_of(RUN_NOW, &KILL);
    expect_unconfirmed(queue.run_now("run").await, "run")?;
    bench.proxy.after_call_of(RESCHEDULE, &KILL);
    expect_unconfirmed(queue.reschedule("moved", 2 * HOUR).await, "moved")?;
    bench.proxy.after_call_of(UPSERT, &KILL);
    let replaced = queue
        .push_message(message("replaced").on_conflict(OnConflict::Replace))
        .await;
    expect_unconfirmed(replaced, "replaced")?;
    // The client repeats an idempotent call and then waits for it.
    bench.proxy.after_call_of(CANCEL, &KILL);
    assert_eq!(queue.cancel("cancelled").await?, CancelOutcome::Cancelled);
    // A repetition would fail with the same error.
    bench
        .proxy
        .after_call_of(CANCEL, &["ACL", "SETUSER", "default", "-wait"]);
    let text = expect_unconfirmed(queue.cancel("denied").await, "denied")?;
    assert!(text.contains("NOPERM") && text.contains("wait"), "{text}");
    assert_eq!(direct.get("denied").await?, None);
    Ok(())
}

fn expect_unconfirmed<T: Debug>(result: Result<T, Error>, id: &str) -> Result<String> {
    let error = result.err().context("it was confirmed")?;
    assert_eq!(
        (error.kind(), error.was_applied()),
        (ErrorKind::Unconfirmed, Applied::Yes),
        "{error}"
    );
    assert_eq!(error.message_id(), Some(id.as_bytes()));
    Ok(error.to_string())
}

/// The repetition writes nothing, yet WAIT must cover the first call, which used another
/// connection.
#[tokio::test]
async fn a_repetition_on_a_full_server_waits_for_replicas_too() -> Result<()> {
    let bench = bench().await?;
    let direct = &bench.setup.queue;
    direct.push_message(message("id")).await?;
    signal("-STOP", bench.replica.pid())?;
    bench.setup.server.command(&FULL)?;
    assert_eq!(direct.cancel("id").await?, CancelOutcome::Cancelled);
    let short = Durability::Replicated {
        replicas: 1,
        timeout: Duration::from_millis(50),
    };
    expect_unconfirmed(
        bench.proxied.clone().durability(short).cancel("id").await,
        "id",
    )?;
    signal("-CONT", bench.replica.pid())?;
    assert_eq!(
        bench
            .proxied
            .clone()
            .durability(REPLICATED)
            .cancel("id")
            .await?,
        CancelOutcome::Cancelled
    );
    Ok(())
}

/// The wait does not recreate a queue that was deleted before it.
#[tokio::test]
async fn wait_for_replicas_does_not_recreate_a_deleted_queue() -> Result<()> {
    let bench = bench().await?;
    bench.setup.queue.push_message(message("id")).await?;
    let queue = bench.proxied.clone().durability(REPLICATED);
    bench.proxy.after_call_of(CANCEL, &["FLUSHALL"]);
    let _ = queue.cancel("id").await?;
    assert_eq!(bench.setup.server.command(&["DBSIZE"])?.trim(), ":0");
    Ok(())
}
