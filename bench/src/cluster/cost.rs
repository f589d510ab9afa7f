//! The CPU time of a message on the masters of a cluster, compared with one server that has a
//! replica.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq::outcomes::SettleOutcome;
use dueq::{Message, Queue};
use dueq_testkit::Server;
use serde_json::json;
use tokio::task::JoinSet;

use super::{partitioned, replicated};
use crate::curves::{Output, median};
use dueq_testkit::process::cpu_us;

const LEASE: Duration = Duration::from_secs(60);
/// How long the servers of a round are watched while nothing calls them.
const IDLE: Duration = Duration::from_secs(2);

/// Measures the processor time of masters for one message from its push to its ack, with calls of
/// many messages: a queue of partitions on a cluster beside a queue on one server with a replica.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many masters, each with a replica
    #[arg(long, default_value_t = 3)]
    masters: usize,
    /// How many partitions
    #[arg(long, default_value_t = 12)]
    partitions: usize,
    /// How many messages a call has
    #[arg(long, default_value_t = 64)]
    per_call: usize,
    /// How many calls of each kind a round makes at each partition
    #[arg(long, default_value_t = 40)]
    calls: usize,
    /// How many rounds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

/// The servers of one side, with a queue.
struct Contestant {
    name: &'static str,
    queue: Queue,
    /// For each partition, a part of an id that leads to it.
    parts: Vec<String>,
    masters: Vec<u32>,
    /// For each round, in microseconds: the CPU time of a message, and that of a second without
    /// calls.
    life_us: Vec<f64>,
    idle_us: Vec<f64>,
}

// One thread: so all acks of a batch are waiting before the first is sent, and share one call.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let single = Server::start(&[])?;
    let replica = Server::start(&["--replicaof", "127.0.0.1", &single.port().to_string()])?;
    dueq_testkit::cluster::follows(replica.port()).await?;
    let cluster = replicated(arguments.masters).await?;
    let masters = cluster.masters[..arguments.masters].iter();
    let mut contestants = [
        Contestant::new("one server", &single.url(), 1, vec![single.pid()]).await?,
        Contestant::new(
            "cluster",
            &cluster.url(),
            arguments.partitions,
            masters.map(Server::pid).collect(),
        )
        .await?,
    ];
    let mut ratios = Vec::new();
    // The first round is not counted: it makes connections and loads the scripts.
    for round in 0..=arguments.rounds {
        for contestant in &mut contestants {
            let (life_us, idle_us) = contestant
                .round(
                    round,
                    (arguments.calls, arguments.partitions),
                    arguments.per_call,
                )
                .await?;
            if round > 0 {
                contestant.life_us.push(life_us);
                contestant.idle_us.push(idle_us);
            }
        }
        if let [Some(one), Some(many)] = contestants.each_ref().map(|it| it.life_us.last()) {
            ratios.push(many / one);
        }
    }
    let of = |it: &mut Contestant| {
        json!({
            "servers": it.name,
            "masters": it.masters.len(),
            "partitions": it.parts.len(),
            "life_us": median(&mut it.life_us),
            "idle_us_per_s": median(&mut it.idle_us),
        })
    };
    let result = json!({
        "curve": "cluster cost",
        "per_call": arguments.per_call,
        "lives_a_round": arguments.partitions * arguments.calls * arguments.per_call,
        "points": contestants.each_mut().map(of),
        "ratio": median(&mut ratios),
        "ratios": ratios,
    });
    arguments.output.write(&result)
}

impl Contestant {
    async fn new(name: &'static str, url: &str, count: usize, masters: Vec<u32>) -> Result<Self> {
        let (queue, parts) = partitioned(url, count).await?;
        Ok(Self {
            name,
            queue,
            parts: parts.into_values().collect(),
            masters,
            life_us: Vec::new(),
            idle_us: Vec::new(),
        })
    }

    fn cpu_us(&self) -> Result<f64> {
        self.masters.iter().map(|pid| cpu_us(*pid)).sum()
    }

    /// Measures the CPU time of a message, and that of a second without calls.
    async fn round(
        &self,
        round: usize,
        (sets, set_calls): (usize, usize),
        per_call: usize,
    ) -> Result<(f64, f64)> {
        let (before, begun) = (self.cpu_us()?, Instant::now());
        tokio::time::sleep(IDLE).await;
        let idle_us = (self.cpu_us()? - before) / begun.elapsed().as_secs_f64();
        let before = self.cpu_us()?;
        for set in 0..sets {
            for (place, part) in (0..set_calls).zip(self.parts.iter().cycle()) {
                let name = format!("{round}-{set}-{place}");
                self.push(&name, part, per_call).await?;
            }
            // A pushed message is due at the end of the current millisecond.
            tokio::time::sleep(Duration::from_millis(2)).await;
            for _ in 0..set_calls {
                self.claim_and_ack(per_call).await?;
            }
        }
        let life_us = (self.cpu_us()? - before) / (sets * set_calls * per_call) as f64;
        Ok((life_us, idle_us))
    }

    async fn push(&self, name: &str, part: &str, per_call: usize) -> Result<()> {
        let message = |n| Message::new(vec![b'x'; 100]).id(format!("{name}-{n}{{{part}}}"));
        for receipt in self.queue.push_many((0..per_call).map(message)).await {
            receipt?;
        }
        Ok(())
    }

    /// Claims and acks. Each claim begins at another partition, which has all messages that it asks
    /// for.
    async fn claim_and_ack(&self, per_call: usize) -> Result<()> {
        let claimed = self.queue.claim(per_call, LEASE).await?;
        ensure!(
            claimed.len() == per_call,
            "a claim of {per_call} on {} returned {}",
            self.name,
            claimed.len()
        );
        let mut acks: JoinSet<_> = claimed
            .into_iter()
            .map(|delivery| async move { delivery.ack().await })
            .collect();
        while let Some(acked) = acks.join_next().await {
            let _: SettleOutcome = acked??;
        }
        Ok(())
    }
}
