//! URLs of clusters, and what is refused.

use anyhow::Result;
use dueq::{Client, ErrorKind};
use dueq_testkit::Server;
use dueq_testkit::cluster::Cluster;

#[tokio::test]
async fn some_of_the_nodes_lead_to_all() -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let ports: Vec<_> = cluster.masters.iter().map(Server::port).collect();
    // A port on which nothing listens, and one node.
    let url = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{}", ports[2]);
    let client = Client::connect(&url).await?;
    for number in 0..6 {
        client.queue(&format!("q{number}"))?.push("a").await?;
    }
    for port in ports {
        assert!(client.address().contains(&port.to_string()));
    }
    cluster.masters.truncate(1);
    Ok(())
}

#[tokio::test]
async fn unusable_clusters_are_refused_with_the_reason() -> Result<()> {
    let cluster = Cluster::start(2).await?;
    let port = cluster.masters[0].port();
    let refused = async |url: String| Client::connect(&url).await.expect_err("refused");

    let error = refused(format!("redis://127.0.0.1:{port}/1")).await;
    // Redis refuses the database itself when the connection opens.
    assert!(
        error
            .to_string()
            .contains("SELECT is not allowed in cluster mode"),
        "{error}"
    );
    let error = refused(format!("redis+cluster://127.0.0.1:{port}/1")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("database 1"), "{error}");

    let error = refused("redis+cluster://127.0.0.1:1,127.0.0.1:2".to_owned()).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("127.0.0.1:"), "{error}");

    let alone = Server::start(&[])?;
    let error = refused(format!("redis+cluster://127.0.0.1:{}", alone.port())).await;
    assert!(
        error.to_string().contains("cluster support disabled"),
        "{error}"
    );
    Ok(())
}
