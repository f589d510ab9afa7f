//! A queue whose home is unreachable or came back empty: the other partitions have copies of the
//! map.

use anyhow::{Context, Result};
use dueq::{Client, Queue, QueueLimits};
use dueq_testkit::cluster::Cluster;

use crate::faults::signal;
use crate::support::{HOUR, acking, ids, until};

/// A queue of six partitions on three masters. Its ids are grouped: those on the home's master, and
/// the others.
pub(super) struct Partitioned {
    pub(super) cluster: Cluster,
    /// The index of the home's master.
    pub(super) home: usize,
    pub(super) lost: Vec<String>,
    pub(super) intact: Vec<String>,
    map: String,
}

/// A master with this option keeps serving its slots even if it has not heard of the others for
/// long.
pub(super) const ALONE: [&str; 2] = ["--cluster-node-timeout", "60000"];

impl Partitioned {
    pub(super) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    pub(super) async fn start_with(options: &[&str]) -> Result<Self> {
        let options = [&["--cluster-require-full-coverage", "no"], options].concat();
        let cluster = Cluster::start_with(3, &options).await?;
        let (_, home) = cluster.place("orders").await?;
        let queue = Client::connect(&cluster.url()).await?.queue("orders")?;
        queue.partition_into(6).await?;
        let address = format!("127.0.0.1:{}", cluster.masters[home].port());
        let mut bases = Vec::new();
        for partition in queue.partitions().await? {
            if partition.server == address {
                bases.push(match partition.tag.as_str() {
                    "-" => "dueq:{orders}:".to_owned(),
                    tag => format!("dueq:{{orders/{tag}}}:"),
                });
            }
        }
        let (mut lost, mut intact) = (Vec::new(), Vec::new());
        for id in ids(60) {
            let keys = queue.keys_of(&id).await?;
            let is_lost = bases.iter().any(|base| keys[0].starts_with(base));
            if is_lost { &mut lost } else { &mut intact }.push(id);
        }
        let mut of = Self {
            cluster,
            home,
            lost,
            intact,
            map: String::new(),
        };
        of.map = of.map().await?.context("a map")?;
        of.intact.sort();
        Ok(of)
    }

    /// A client that knows nothing yet. It enters the cluster by a master other than the home's.
    pub(super) async fn fresh(&self) -> Result<Client> {
        let other = (self.home + 1) % 3;
        Ok(Client::connect(&self.cluster.masters[other].url()).await?)
    }

    pub(super) async fn fresh_queue(&self) -> Result<Queue> {
        Ok(self.fresh().await?.queue("orders")?)
    }

    /// The queue of a client that enters the cluster by the home's master.
    async fn queue_by_home(&self) -> Result<Queue> {
        let client = Client::connect(&self.cluster.masters[self.home].url()).await?;
        Ok(client.queue("orders")?)
    }

    /// The two masters that do not have the home.
    fn others(&self) -> [usize; 2] {
        [(self.home + 1) % 3, (self.home + 2) % 3]
    }

    fn signal(&self, name: &str, master: usize) -> Result<()> {
        signal(name, self.cluster.masters[master].pid())
    }

    pub(super) async fn push(&self, ids: &[String]) -> Result<()> {
        let queue = self.fresh_queue().await?;
        for id in ids {
            assert!(queue.push("").id(id).await?.is_created(), "{id}");
        }
        Ok(())
    }

    /// The map that the home stores.
    async fn map(&self) -> Result<Option<String>> {
        let words = ["HGET", "dueq:{orders}:meta", "map"];
        self.cluster.command(self.home, &words).await
    }

    async fn empty_home(&self) -> Result<()> {
        self.cluster.command(self.home, &["FLUSHALL"]).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_workers_serve_other_partitions_without_the_home() -> Result<()> {
    let mut of = Partitioned::start().await?;
    of.push(&of.intact).await?;
    of.cluster.masters[of.home].kill()?;
    let (one, mut first) = acking(of.fresh_queue().await?.worker());
    let (two, mut second) = acking(of.fresh_queue().await?.worker());
    let mut handled = Vec::new();
    let all = async || {
        handled.extend(first.rest());
        handled.extend(second.rest());
        handled.sort();
        Ok(handled.clone())
    };
    until("the messages", all, |handled| *handled == of.intact).await?;
    drop((one, two));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_producer_reaches_other_partitions_without_the_home() -> Result<()> {
    let mut of = Partitioned::start().await?;
    of.cluster.masters[of.home].kill()?;
    let queue = of.fresh_queue().await?;
    for id in &of.intact {
        assert!(queue.push("").id(id).delay(HOUR).await?.is_created());
    }
    let fresh = of.fresh_queue().await?;
    assert!(fresh.get(&of.intact[0]).await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_restores_the_map_of_an_emptied_home() -> Result<()> {
    for by_pattern in [false, true] {
        let of = Partitioned::start().await?;
        of.push(&of.intact).await?;
        of.empty_home().await?;
        let client = of.fresh().await?;
        let (sender, mut seen) = crate::support::seen();
        let handler = move |delivery: dueq::Delivery| {
            let _ = sender.send(delivery.id().into_owned());
            std::future::ready(())
        };
        let worker = client.worker();
        let worker = if by_pattern {
            worker.pattern(&client.pattern("ord*")?, handler)
        } else {
            worker.queue(&client.queue("orders")?, handler)
        };
        let worker = worker.spawn()?;
        let mut handled = seen.take(of.intact.len()).await?;
        handled.sort();
        assert_eq!(handled, of.intact);
        let map = async || of.map().await;
        until("the home's map", map, |map| map.as_ref() == Some(&of.map)).await?;
        worker.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_restores_the_map_of_an_emptied_home() -> Result<()> {
    let of = Partitioned::start().await?;
    of.push(&of.intact).await?;
    of.empty_home().await?;
    of.push(&of.lost).await?;
    assert_eq!(of.map().await?.as_ref(), Some(&of.map));
    let queue = of.fresh_queue().await?;
    assert_eq!(queue.stats().await?.pushed, 60);
    for id in of.lost.iter().chain(&of.intact) {
        assert!(queue.get(id).await?.is_some(), "{id}");
    }
    Ok(())
}

/// The push comes from a client in another language that knows no map.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_finds_the_map_after_a_push_without_one() -> Result<()> {
    let of = Partitioned::start().await?;
    of.push(&of.intact).await?;
    of.empty_home().await?;
    let queue = of.fresh_queue().await?;
    of.fresh().await?.load_functions().await?;
    let mut push = vec!["FCALL", "dueq_push", "10"];
    push.extend(queue.keys().iter().map(String::as_str));
    push.extend(["", "", "foreign", "+0", "", ""]);
    of.cluster.command::<redis::Value>(of.home, &push).await?;
    let (worker, mut seen) = acking(queue.worker());
    let mut handled = seen.take(of.intact.len() + 1).await?;
    handled.retain(|id| id != "foreign");
    handled.sort();
    assert_eq!(handled, of.intact);
    worker.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_partitions_whose_home_is_empty() -> Result<()> {
    let of = Partitioned::start().await?;
    of.push(&of.intact).await?;
    of.empty_home().await?;
    assert_eq!(of.fresh().await?.queues().await?, ["orders"]);
    for repair in [false, true] {
        let findings = of.fresh_queue().await?.examine(repair).await?.findings;
        let found = findings.iter().find(|found| found.subject == b"-");
        let found = found.with_context(|| format!("{findings:?}"))?;
        assert_eq!((found.code, found.repaired), ("map", repair));
        let expected = if repair {
            ""
        } else {
            "dueq partitions orders 6"
        };
        assert_eq!(found.remedy, expected);
        let map = if repair { Some(&of.map) } else { None };
        assert_eq!(
            of.map().await?.as_ref(),
            map,
            "an examination writes nothing"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_change_after_the_home_was_emptied() -> Result<()> {
    let of = Partitioned::start().await?;
    of.push(&of.intact).await?;
    of.empty_home().await?;
    of.fresh_queue().await?.partition_into(4).await?;
    let queue = of.fresh_queue().await?;
    assert_eq!(queue.partitions().await?.len(), 4);
    for id in &of.intact {
        assert!(queue.get(id).await?.is_some(), "{id}");
    }
    Ok(())
}

/// Nobody may use an older copy of the map while a master is silent that may have a newer one.
async fn keeps_its_map(has_old_copy: bool) -> Result<()> {
    let of = Partitioned::start_with(&ALONE).await?;
    let (queue, [first, second]) = (of.queue_by_home().await?, of.others());
    for id in &of.intact {
        assert!(queue.push("").id(id).delay(HOUR).await?.is_created());
    }
    if has_old_copy {
        let (epoch, tags) = of.map.split_once('|').context("an epoch")?;
        let older = (epoch.parse::<u64>()? - 1).to_string();
        let map = format!("{older}|{tags}");
        let server = format!("127.0.0.1:{}", of.cluster.masters[first].port());
        let partitions = queue.partitions().await?.into_iter();
        for partition in partitions.filter(|partition| partition.server == server) {
            let meta = format!("dueq:{{orders/{}}}:meta", partition.tag);
            let words = ["HSET", &meta, "epoch", &older, "map", &map];
            of.cluster.command::<()>(first, &words).await?;
        }
    } else {
        of.signal("-STOP", first)?;
    }
    of.signal("-STOP", second)?;
    of.empty_home().await?;
    let stats = queue.stats().await;
    stats.expect_err("a partition does not answer");
    assert_eq!(of.map().await?, None, "the home got an older map");
    of.signal("-CONT", second)?;
    of.signal("-CONT", first)?;
    for id in &of.intact {
        assert!(!queue.push("").id(id).await?.is_created(), "{id} twice");
    }
    assert!(queue.push("").id(&of.lost[0]).await?.is_created());
    assert_eq!(of.map().await?.as_ref(), Some(&of.map));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_keeps_its_map_while_masters_are_silent() -> Result<()> {
    keeps_its_map(false).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_takes_no_older_map_while_a_master_is_silent() -> Result<()> {
    keeps_its_map(true).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_finds_the_map_when_its_copies_are_back() -> Result<()> {
    let mut of = Partitioned::start_with(&ALONE).await?;
    of.push(&of.intact).await?;
    of.empty_home().await?;
    for other in of.others() {
        of.cluster.command::<()>(other, &["SAVE"]).await?;
        of.cluster.masters[other].kill()?;
    }
    let queue = of.queue_by_home().await?;
    let (worker, mut seen) = acking(queue.worker());
    // The client has looked for the map when this call returns.
    assert!(queue.get(&of.intact[0]).await?.is_none());
    for other in of.others() {
        of.cluster.masters[other].restart()?;
    }
    let mut handled = seen.take(of.intact.len()).await?;
    handled.sort();
    assert_eq!(handled, of.intact);
    assert_eq!(of.map().await?.as_ref(), Some(&of.map));
    worker.stop().await
}

/// The first of the other partitions is on a silent master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_home_gets_its_limits_from_a_live_partition() -> Result<()> {
    let of = Partitioned::start_with(&ALONE).await?;
    let queue = of.queue_by_home().await?;
    queue.configure(QueueLimits::new().max_attempts(7)).await?;
    queue.pause().await?;
    let partitions = queue.partitions().await?;
    let (home, others) = partitions.split_first().context("a home")?;
    let first = others.iter().find(|other| other.server != home.server);
    let address = &first.context("a partition elsewhere")?.server;
    let ports = of.others().map(|other| of.cluster.masters[other].port());
    let at = ports.map(|port| *address == format!("127.0.0.1:{port}"));
    of.empty_home().await?;
    of.signal("-STOP", of.others()[usize::from(at[1])])?;
    let queue = of.queue_by_home().await?;
    let look = async || {
        queue.get(&of.lost[0]).await?;
        of.map().await
    };
    until("the home's map", look, |map| map.as_ref() == Some(&of.map)).await?;
    let words = ["HMGET", "dueq:{orders}:meta", "max_attempts", "paused"];
    let limits: Vec<Option<String>> = of.cluster.command(of.home, &words).await?;
    assert_eq!(limits, [Some("7".to_owned()), Some("1".to_owned())]);
    Ok(())
}
