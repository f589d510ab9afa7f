//! Users with the least rights of their roles.

use anyhow::Result;
use dueq::{Client, Delivery, ErrorKind, Role, acl_rules};
use dueq_testkit::cluster::Cluster;

use crate::support::{HOUR, seen, until};

/// Makes a user on every master; returns the URL with it.
async fn user(cluster: &Cluster, name: &str, rules: &[&str]) -> Result<String> {
    let words = [&["ACL", "SETUSER", name, "reset", "on", ">secret"], rules].concat();
    for master in 0..cluster.masters.len() {
        cluster.command::<()>(master, &words).await?;
    }
    let port = cluster.masters[0].port();
    Ok(format!("redis://{name}:secret@127.0.0.1:{port}/"))
}

#[tokio::test]
async fn each_role_follows_its_queue_through_a_cluster() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let mut clients = Vec::new();
    for (name, role) in [("producer", Role::Producer), ("consumer", Role::Consumer)] {
        let rules = acl_rules("orders", role)?;
        // Without their `reset`, which would remove the password.
        let rules: Vec<&str> = rules.iter().skip(1).map(String::as_str).collect();
        clients.push(Client::connect(&user(&cluster, name, &rules).await?).await?);
    }
    let operator = Client::connect(&cluster.url()).await?;
    operator
        .queue("orders")?
        .push("")
        .id("a")
        .delay(HOUR)
        .await?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().to_string());
        async {}
    };
    let consumed = clients[1].queue("orders")?;
    let worker = clients[1].worker().queue(&consumed, handler).spawn();
    let produced = clients[0].queue("orders")?;
    produced.push("").id("b").await?;
    assert_eq!(handled.next().await?, "b");
    let (slot, owner) = cluster.place("orders").await?;
    cluster.begin_move(slot, owner, 1 - owner).await?;
    cluster.finish_move(slot, owner, 1 - owner).await?;
    produced.push("").id("c").await?;
    assert_eq!(handled.next().await?, "c");
    let health = async || Ok(worker.health());
    let _ = until("no error", health, dueq::Health::is_ready).await?;
    Ok(worker.shutdown().await?)
}

#[tokio::test]
async fn operator_may_look_for_slots_that_are_stuck() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let rules = acl_rules("orders", Role::Operator)?;
    let rules: Vec<&str> = rules.iter().skip(1).map(String::as_str).collect();
    let client = Client::connect(&user(&cluster, "operator", &rules).await?).await?;
    client.queue("orders")?.push("").await?;
    let checkup = client.examine().await?;
    let mut unchecked = checkup.unchecked.iter().map(|it| it.what);
    assert!(
        !unchecked.any(|what| what.contains("CLUSTER NODES")),
        "{:?}",
        checkup.unchecked
    );
    Ok(())
}

#[tokio::test]
async fn without_the_rights_to_a_cluster_the_error_names_them() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let url = user(&cluster, "limited", &["~*", "&*", "+@all", "-cluster"]).await?;
    let error = Client::connect(&url).await.expect_err("it may not ask");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(error.to_string().contains("cluster|info"), "{error}");
    Ok(())
}
