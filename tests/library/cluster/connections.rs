//! How many connections the servers of a cluster get, and how often they are asked for its slots.

use anyhow::Result;
use dueq::{Client, Delivery, ErrorKind};
use dueq_testkit::Server;
use dueq_testkit::cluster::Cluster;

use crate::support::{HOUR, acking, until, within};

/// More queues than one blocking pop may cover on a single server.
const QUEUES: usize = 80;

async fn ack(_: Delivery) {}

/// How many connections to the masters have sent a blocking pop as their last command.
async fn pops(cluster: &Cluster) -> Result<usize> {
    let mut pops = 0;
    for master in 0..cluster.masters.len() {
        let clients: String = cluster.command(master, &["CLIENT", "LIST"]).await?;
        pops += clients.matches("cmd=blpop").count();
    }
    Ok(pops)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_queues_of_a_pattern_have_no_pop_connections() -> Result<()> {
    let cluster = Cluster::start(3).await?;
    let client = Client::connect(&cluster.url()).await?;
    for number in 0..QUEUES {
        let queue = client.queue(&format!("mail-{number}"))?;
        queue.push("").delay(HOUR).await?;
    }
    let mails = client.pattern("mail-*")?;
    let worker = client.worker().pattern(&mails, ack).spawn()?;
    let parked = |health: &dueq::WorkerHealth| {
        let parked = health.queues().filter(|(_, queue)| queue.is_parked());
        parked.count() == QUEUES
    };
    let _ = until("parked queues", async || Ok(worker.health()), parked).await?;
    until("no pops", async || pops(&cluster).await, |pops| *pops == 0).await?;
    within("the shutdown", worker.shutdown()).await??;
    Ok(())
}

/// How often these servers were asked for the slots of the cluster.
async fn questions(ports: &[u16]) -> Result<u64> {
    let mut asked = 0;
    for port in ports {
        let words = ["INFO", "commandstats"];
        let stats: String = dueq_testkit::cluster::command(*port, &words).await?;
        let calls = stats.split("cmdstat_cluster|slots:calls=").nth(1);
        let calls = calls.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        asked += calls.unwrap_or(0);
    }
    Ok(asked)
}

/// How often these servers are asked for the slots within 6 s. A client asks every 5 s.
async fn questions_in_6_s(ports: &[u16]) -> Result<u64> {
    let before = questions(ports).await?;
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    Ok(questions(ports).await? - before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_ask_for_slots_as_rarely_after_a_failover() -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let (_, master) = cluster.place("orders").await?;
    cluster.add_replica(master).await?;
    let survivors: Vec<u16> = (0..cluster.masters.len())
        .filter(|index| *index != master)
        .map(|index| cluster.masters[index].port())
        .collect();
    let other = &cluster.masters[(master + 1) % 3];
    let queue = Client::connect(&other.url()).await?.queue("orders")?;
    let (worker, mut handled) = acking(queue.worker());
    queue.push("").id("before").await?;
    assert_eq!(handled.next().await?, "before");
    let before = questions_in_6_s(&survivors).await?.max(1);
    cluster.masters[master].kill()?;
    let push = async || Ok(queue.push("").id("after").await.is_ok());
    until("a push", push, |pushed| *pushed).await?;
    assert_eq!(handled.next().await?, "after");
    let asked = async || questions_in_6_s(&survivors).await;
    until("as few questions", asked, |asked| *asked <= 3 * before).await?;
    worker.stop().await
}

#[tokio::test]
async fn one_reachable_server_in_the_url_leads_to_all_masters() -> Result<()> {
    let mut cluster = Cluster::start(3).await?;
    let ports: Vec<_> = cluster.masters.iter().map(Server::port).collect();
    // Nothing listens on the first port; the second is that of a server in the cluster.
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
