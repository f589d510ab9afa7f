//! Passwords that change while connections are cut.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use dueq::{Client, ClientOptions, Delivery};
use dueq_testkit::cluster::Cluster;
use dueq_testkit::{Failover, Server};

use crate::support::seen;

/// A producer and a worker go on while the password of their user on all these servers changes.
async fn go_on(url: &str, servers: &[Server]) -> Result<()> {
    let all = |words: &[&str]| {
        servers.iter().try_for_each(|server| {
            let reply = server.command(words)?;
            ensure!(!reply.starts_with('-'), "{words:?}: {reply}");
            anyhow::Ok(())
        })
    };
    all(&["ACL", "SETUSER", "me", "on", ">0", "~*", "&*", "+@all"])?;
    let password = Arc::new(Mutex::new("0".to_owned()));
    let options = ClientOptions::new().password_from({
        let password = Arc::clone(&password);
        move || {
            Ok(password
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone())
        }
    });
    let client = Client::connect_with(&url.replace("://", "://me@"), &options).await?;
    let queue = client.queue("orders")?;
    let (sender, mut handled) = seen();
    let handler = move |delivery: Delivery| {
        let _ = sender.send(delivery.id().to_string());
        async {}
    };
    let worker = client.worker().queue(&queue, handler).spawn();
    for renewal in 1..4 {
        queue.push("").id(format!("{renewal}")).await?;
        while handled.next().await? != renewal.to_string() {}
        let (old, new) = (format!("<{}", renewal - 1), format!(">{renewal}"));
        all(&["ACL", "SETUSER", "me", &new])?;
        *password.lock().unwrap_or_else(PoisonError::into_inner) = renewal.to_string();
        all(&["ACL", "SETUSER", "me", &old])?;
        all(&["CLIENT", "KILL", "USER", "me"])?;
    }
    Ok(worker.shutdown().await?)
}

#[tokio::test]
async fn cluster_connections_take_a_renewed_password() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    go_on(&cluster.url(), &cluster.masters).await
}

#[tokio::test]
async fn sentinel_connections_take_a_renewed_password() -> Result<()> {
    let failover = Failover::start(1, &[])?;
    go_on(&failover.url(), &failover.servers).await
}

#[tokio::test]
async fn password_of_url_and_options_are_not_both_taken() -> Result<()> {
    let options = ClientOptions::new().password_from(|| Err("the vault is sealed".to_owned()));
    for (url, why) in [
        (
            "redis://me:secret@127.0.0.1:1/",
            "leave out that of the URL",
        ),
        ("redis://me@127.0.0.1:1/", "the vault is sealed"),
    ] {
        let error = Client::connect_with(url, &options).await.expect_err(why);
        ensure!(error.to_string().contains(why), "{error}");
        ensure!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    Ok(())
}
