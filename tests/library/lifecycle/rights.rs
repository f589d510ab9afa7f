//! Producers and consumers with the least rights of their roles.

use anyhow::Result;
use dueq::admin::{AclRole, acl_rules};
use dueq::inspect::EndKind;
use dueq::outcomes::{AckPushOutcome, DeleteOutcome, PushOutcome, SettleOutcome, WaitOutcome};
use dueq::{
    Applied, Client, Delivery, ErrorKind, Message, MessageState, OnConflict, Queue, QueueLimits,
};

use crate::support::{HOUR, Running, Setup, push_and_claim, setup, within};

/// The queue, on a connection of a user with the rights of this role.
pub(crate) async fn queue_of(setup: &Setup, name: &str, role: AclRole) -> Result<Queue> {
    Ok(client_of(setup, name, role).await?.queue("orders")?)
}

async fn client_of(setup: &Setup, name: &str, role: AclRole) -> Result<Client> {
    let rules = acl_rules("orders", role)?;
    let mut words = vec!["ACL", "SETUSER", name];
    words.extend(rules.iter().map(String::as_str));
    words.extend(["on", ">secret"]);
    setup.command::<()>(&words).await?;
    let url = format!("redis://{name}:secret@127.0.0.1:{}/", setup.server.port());
    Ok(Client::connect(&url).await?)
}

#[tokio::test]
async fn rights_to_get_suffice_to_look_for_an_id_in_many_queues() -> Result<()> {
    let setup = setup().await?;
    setup.queue.push("").id("a").delay(HOUR).await?;
    let producer = client_of(&setup, "producer", AclRole::Producer).await?;
    assert_eq!(producer.may_hold("a", vec!["orders"]).await, ["orders"]);
    assert!(producer.may_hold("b", vec!["orders"]).await.is_empty());
    // Without the rights the queue remains, and `get` says why.
    assert_eq!(
        producer.may_hold("b", vec!["others"]).await,
        ["others"],
        "not readable"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn least_rights_suffice_for_windows_next_and_follow_ups() -> Result<()> {
    let setup = setup().await?;
    setup.queue.configure(QueueLimits::new().layout3()).await?;
    let producer = queue_of(&setup, "producer", AclRole::Producer).await?;
    let consumer = queue_of(&setup, "consumer", AclRole::Consumer).await?;
    let next = || {
        let message = Message::new("").id("a").window(HOUR);
        message.on_conflict(OnConflict::Next).revive()
    };
    assert!(producer.push_message(next()).await?.is_created());
    let delivery = consumer.claim(1, HOUR).await?.remove(0);
    assert_eq!(
        producer.push_message(next()).await?.outcome(),
        PushOutcome::Next
    );
    let follow_up = Message::new("").due(HOUR).window(HOUR);
    let AckPushOutcome::Done(receipts) = delivery.ack_push([follow_up]).await? else {
        anyhow::bail!("not acked");
    };
    assert!(receipts[0].is_created());
    let handler = |_: Delivery| async {};
    let worker = Running::start(consumer.worker(), handler);
    let waited = within("the second run", producer.wait("a", HOUR)).await??;
    let WaitOutcome::Ended(outcome) = waited else {
        anyhow::bail!("{waited:?}");
    };
    assert_eq!(outcome.kind, EndKind::Finished);
    worker.stop().await?;
    let delivery = push_and_claim(&setup.queue, Message::new("").id("b")).await?;
    assert_eq!(delivery.bury("broken").await?, SettleOutcome::Done);
    let revived = Message::new("").id("b").on_conflict(OnConflict::Replace);
    let revived = producer.push_message(revived.revive()).await?;
    assert_eq!(revived.outcome(), PushOutcome::Moved);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_an_operators_rights_suffice_for_steps_and_deletion() -> Result<()> {
    for partitions in [1, 3] {
        let setup = setup().await?;
        setup.queue.partition_into(partitions).await?;
        setup.queue.push("").id("a").delay(HOUR).await?;
        let found = setup.queue.incarnation().await?.expect("it exists");
        for (name, role) in [
            ("producer", AclRole::Producer),
            ("consumer", AclRole::Consumer),
        ] {
            let queue = queue_of(&setup, name, role).await?;
            assert_eq!(queue.incarnation().await?.as_ref(), Some(&found));
            assert!(queue.requeue_steps(u64::MAX).step(1).await.is_err());
            let mut purge = queue.purge_steps(MessageState::Scheduled, u64::MAX)?;
            assert!(purge.step(1).await.is_err());
            assert!(queue.audit_steps(true).step(1).await.is_err());
            let denied = queue.delete_incarnation(&found).await;
            let denied = denied.expect_err("an operator's right");
            assert_eq!(denied.was_applied(), Applied::No, "{denied}");
            assert_eq!(setup.queue.stats().await?.scheduled, 1);
        }
        let queue = queue_of(&setup, "operator", AclRole::Operator).await?;
        let mut audit = queue.audit_steps(true);
        while !audit.step(250).await?.is_end {}
        queue.requeue_steps(u64::MAX).step(10).await?;
        queue
            .purge_steps(MessageState::Dead, u64::MAX)?
            .step(10)
            .await?;
        assert_eq!(
            queue.delete_incarnation(&found).await?,
            DeleteOutcome::Deleted
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_with_a_producers_rights_ends_with_denied() -> Result<()> {
    let setup = setup().await?;
    setup
        .queue
        .configure(QueueLimits::new().max_crashes(5))
        .await?;
    let producer = queue_of(&setup, "producer", AclRole::Producer).await?;
    let endless = std::future::pending::<()>();
    let worker = producer.worker().run(|_: Delivery| async {}, endless);
    let error = within("the refusal", worker).await?.expect_err("no right");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("dueq acl"), "{error}");
    Ok(())
}

#[tokio::test]
async fn commands_and_keys_refused_within_a_script_are_denied() -> Result<()> {
    let setup = setup().await?;
    let no_command = ["+@all", "-hset", "~*"];
    let no_key = ["+@all", "~x", "(+evalsha +eval ~*)"];
    for (name, rules) in [("no_command", no_command), ("no_key", no_key)] {
        let user = [&["ACL", "SETUSER", name, "on", ">secret"], &rules[..]].concat();
        setup.command::<()>(&user).await?;
        let url = format!("redis://{name}:secret@127.0.0.1:{}/", setup.server.port());
        let queue = Client::connect(&url).await?.queue("orders")?;
        let error = queue.push("").await.expect_err("no right");
        let told = (error.kind(), error.was_applied());
        assert_eq!(told, (ErrorKind::Denied, Applied::Unknown), "{error}");
        assert!(error.to_string().contains(" script: "), "{error}");
    }
    Ok(())
}
