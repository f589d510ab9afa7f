//! Examines the server, or each master of a cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::doctor::checkup::{Checkup, UncheckedPart};
use crate::error::Error;
use crate::protocol::verbs::Verb;
use crate::server::info::Info;
use crate::server::lane::Lane;
use crate::server::link::ServerLink;

/// How often the doctor reads a clock. It uses the reading with the shortest round trip.
const SAMPLES: usize = 5;

/// A reading of the server's clock: the best of a few, which is the one with the shortest round
/// trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTime {
    /// The reading, in Unix microseconds.
    pub unix_us: u64,
    /// The estimated instant of the reading: half a round trip after the request.
    pub at: Instant,
    /// The time from request to reply.
    pub round_trip: Duration,
}

impl ServerTime {
    /// The server's present time, in Unix milliseconds: the reading and the time that has passed
    /// since. It does not follow a change of the server's clock after the reading.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let time = client.server_time().await?;
    /// assert!(time.now_ms() >= time.unix_us / 1_000);
    /// # });
    /// ```
    pub fn now_ms(&self) -> u64 {
        let passed_us = u64::try_from(self.at.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.unix_us.saturating_add(passed_us) / 1_000
    }
}

impl Client {
    /// Reads the server's clock and measures the round trip; in a cluster, for one of the masters.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// let time = client.server_time().await?;
    /// println!("Redis is at {} us, {:?} away", time.unix_us, time.round_trip);
    /// # });
    /// ```
    pub async fn server_time(&self) -> Result<ServerTime, Error> {
        let links = self.servers().links().await?;
        let link = links.first();
        time_of(link.ok_or_else(|| Error::invalid("no server"))?).await
    }

    /// Checks whether the server is fit to hold queues: version, eviction policy, persistence,
    /// replicas, memory, clients, buffers, round trip and Functions library. It changes nothing.
    /// Checks that the user has no right to make are listed as unchecked. In a cluster it checks
    /// each master; one that does not reply within 2 s is the first finding. Each finding names its
    /// master, and the facts are those of the first master. It also compares the masters' clocks
    /// and libraries, and checks the settings and the slots of the cluster.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// for finding in client.examine().await?.findings {
    ///     println!("{}: {}; run: {}", finding.problem, finding.consequence, finding.remedy);
    /// }
    /// # });
    /// ```
    pub async fn examine(&self) -> Result<Checkup, Error> {
        let reached = self.servers().reached_links().await;
        if let ([only], 1) = (&reached.value[..], reached.parts) {
            let mut checkup = examine(only).await?;
            checkup.of_functions(self).await?;
            return Ok(checkup);
        }
        if let ([], Some(first)) = (&reached.value[..], reached.unread.first()) {
            return Err(first.error.clone());
        }
        let mut all = Checkup::default();
        for one in &reached.unread {
            all.wrong(
                "away",
                &one.name,
                format!("{} does not reply: {}", one.name, one.error),
                "its queues and partitions stand still: their messages wait, and pushes to them fail",
                "start it again, or make its replica the master: redis-cli -h HOST -p PORT CLUSTER FAILOVER TAKEOVER",
            );
        }
        all.fact("masters", reached.parts);
        for link in &reached.value {
            all.add(&link.connector().address(), examine(link).await?);
        }
        if reached.unread.is_empty() {
            all.of_functions(self).await?;
            all.masters(&reached.value).await?;
        } else {
            all.unchecked.push(UncheckedPart {
                what: "clocks, Functions libraries and slots",
                why: "a master does not reply".to_owned(),
            });
        }
        Ok(all)
    }
}

impl Checkup {
    async fn of_functions(&mut self, client: &Client) -> Result<(), Error> {
        let functions = client.functions().await;
        if let Some(functions) = self.allowed("Functions library (FCALL)", functions)? {
            self.functions(functions);
        }
        Ok(())
    }

    /// Adds the checkup of the master at this address.
    fn add(&mut self, address: &str, of_master: Self) {
        for mut finding in of_master.findings {
            finding.problem = format!("redis at {address}: {}", finding.problem);
            self.found(finding);
        }
        for mut remark in of_master.remarks {
            remark.problem = format!("redis at {address}: {}", remark.problem);
            self.remarks.push(remark);
        }
        for unchecked in of_master.unchecked {
            if !self.unchecked.contains(&unchecked) {
                self.unchecked.push(unchecked);
            }
        }
        if self.facts.len() <= 1 {
            self.facts.extend(of_master.facts);
        }
    }
}

/// Reads a server's clock a few times. Returns the reading with the shortest round trip.
pub(super) async fn time_of(link: &ServerLink) -> Result<ServerTime, Error> {
    let mut best: Option<ServerTime> = None;
    for _ in 0..SAMPLES {
        let (now_us, sent, round_trip) = link.control.time().await?;
        let time = ServerTime {
            unix_us: now_us.unsigned_abs(),
            at: sent + round_trip / 2,
            round_trip,
        };
        best = best
            .filter(|best| best.round_trip <= round_trip)
            .or(Some(time));
    }
    best.ok_or_else(|| Error::invalid("no sample of the clock"))
}

/// Checks one server, except its Functions library.
async fn examine(link: &ServerLink) -> Result<Checkup, Error> {
    let mut checkup = Checkup::default();
    let lane = &link.control;
    let info = lane.info(&[]).await;
    if let Some(info) = checkup.allowed(
        "version, eviction policy, persistence, replicas, memory (INFO)",
        info,
    )? {
        checkup.version(&info);
        checkup.memory(&info);
        let mut min_replicas = None;
        // INFO has this field only if min-replicas-to-write is above 0.
        if info.field("min_slaves_good_slaves").is_some() {
            let setting = lane.setting("min-replicas-to-write").await;
            min_replicas = checkup
                .allowed("how many replicas must follow (CONFIG GET)", setting)?
                .flatten();
        }
        let min_replicas = min_replicas.and_then(|number| number.parse().ok());
        checkup.replication(&info, min_replicas);
        checkup.min_replicas_in_cluster(&info, min_replicas.unwrap_or(0));
        checkup.cluster_settings(lane, &info).await?;
        let save = lane.setting("save").await;
        let save = checkup.allowed("when snapshots are made (CONFIG GET save)", save)?;
        let mut stops_writes = true;
        if info
            .field("rdb_last_bgsave_status")
            .is_some_and(|status| status != "ok")
        {
            let setting = lane.setting("stop-writes-on-bgsave-error").await;
            let setting = checkup.allowed("what a failed snapshot stops (CONFIG GET)", setting)?;
            stops_writes = setting.flatten().is_none_or(|setting| setting == "yes");
        }
        checkup.persistence(&info, save.flatten().as_deref(), stops_writes);
    }
    let buffers = lane.setting("client-output-buffer-limit").await;
    if let Some(Some(buffers)) = checkup.allowed("subscriber buffers (CONFIG GET)", buffers)? {
        checkup.buffers(&buffers);
    }
    let time = time_of(link).await;
    if let Some(time) = checkup.allowed("round trip (TIME)", time)? {
        checkup.round_trip(time.round_trip);
    }
    let known = lane.known_scripts().await;
    if let Some(known) = checkup.allowed("scripts (SCRIPT EXISTS)", known)? {
        checkup.fact("scripts", format!("{known} of {}", Verb::ALL.len()));
    }
    Ok(checkup)
}

/// A slot that stays open for longer than this may be left half moved: a normal move takes less
/// time.
const OPEN_SLOT: Duration = Duration::from_secs(2);

/// One master's clock, as the doctor read it.
pub(super) struct Clock {
    pub(super) address: String,
    /// The master's clock less that of this machine, which has an arbitrary origin, in
    /// microseconds.
    pub(super) offset_us: i128,
    /// The largest possible error of `offset_us`.
    pub(super) error_us: u128,
}

impl Checkup {
    /// Checks the settings of a cluster that decide how a failover goes.
    pub(super) async fn cluster_settings(&mut self, lane: &Lane, info: &Info) -> Result<(), Error> {
        if !info.is_clustered() {
            return Ok(());
        }
        for name in [
            "cluster-node-timeout",
            "cluster-require-full-coverage",
            "cluster-allow-reads-when-down",
        ] {
            let setting = lane.setting(name).await;
            if let Some(Some(value)) =
                self.allowed("settings of the cluster (CONFIG GET)", setting)?
            {
                self.cluster_setting(name, &value);
            }
        }
        Ok(())
    }

    /// Checks that compare all masters of a cluster.
    pub(super) async fn masters(&mut self, links: &[Arc<ServerLink>]) -> Result<(), Error> {
        let origin = Instant::now();
        let (mut clocks, mut libraries) = (Vec::new(), Vec::new());
        for link in links {
            let address = link.connector().address();
            if let Some(time) = self.allowed("clocks (TIME)", time_of(link).await)? {
                let since = time.at.saturating_duration_since(origin).as_micros();
                clocks.push(Clock {
                    address: address.clone(),
                    offset_us: i128::from(time.unix_us) - since as i128,
                    error_us: time.round_trip.as_micros() / 2,
                });
            }
            let version = link.control.functions_version().await;
            if let Some(version) = self.allowed("Functions library (FCALL)", version)? {
                libraries.push((address, version));
            }
        }
        self.clocks(&clocks);
        self.libraries(&libraries);
        self.slots(links).await
    }

    /// Finds slots that are still being moved key by key after a pause.
    async fn slots(&mut self, links: &[Arc<ServerLink>]) -> Result<(), Error> {
        let mut open = Vec::new();
        for link in links {
            let slots = link.control.open_slots().await;
            let slots = self.allowed("slots that move (CLUSTER NODES)", slots)?;
            open.extend(
                slots
                    .filter(|slots| !slots.is_empty())
                    .map(|slots| (link, slots)),
            );
        }
        if open.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(OPEN_SLOT).await;
        for (link, mut slots) in open {
            let now = link.control.open_slots().await?;
            slots.retain(|slot| now.contains(slot));
            self.open_slots(&link.connector().address(), &slots);
        }
        Ok(())
    }
}
