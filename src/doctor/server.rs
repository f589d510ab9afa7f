//! Looking at the server.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::doctor::Checkup;
use crate::doctor::shell::redis_cli;
use crate::error::Error;
use crate::functions::Functions;
use crate::protocol::verbs::Verb;
use crate::server::info::Info;

/// How often the clock is asked; the fastest answer counts.
const SAMPLES: usize = 5;
/// A round trip that is worth a word: a delivery costs a few of them.
const SLOW: Duration = Duration::from_millis(100);
/// The least buffer for subscribers: a burst of notices fits in, tens of thousands of them.
const BUFFER_BYTES: u64 = 1024 * 1024;
/// What is set by CONFIG SET is gone after a restart.
const CONF: &str = "; and the same in redis.conf";

/// The server's clock, as the fastest of a few questions told it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerTime {
    /// What it showed, in Unix microseconds.
    pub unix_us: u64,
    /// About when it did: half a round trip after the question.
    pub at: Instant,
    /// How long the answer took.
    pub round_trip: Duration,
}

impl Client {
    /// The server's clock and the round trip to it.
    pub async fn server_time(&self) -> Result<ServerTime, Error> {
        let mut best: Option<ServerTime> = None;
        for _ in 0..SAMPLES {
            let (now_us, sent, round_trip) = self.link().control.time().await?;
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

    /// Looks whether the server is fit to hold queues: its version, eviction policy, persistence, replicas, memory, clients,
    /// buffers, round trip and Functions library. Changes nothing. What its user may not ask for is named as unchecked.
    ///
    /// ```no_run
    /// # async fn example(client: dueq::Client) -> Result<(), dueq::Error> {
    /// for finding in client.examine().await?.findings {
    ///     println!("{}: {}; run: {}", finding.problem, finding.consequence, finding.remedy);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn examine(&self) -> Result<Checkup, Error> {
        let (mut checkup, lane) = (Checkup::default(), &self.link().control);
        let info = lane.info(&[]).await;
        if let Some(info) = checkup.allowed(
            "version, eviction policy, persistence, replicas, memory (INFO)",
            info,
        )? {
            checkup.version(&info);
            checkup.memory(&info);
            let mut least = None;
            // INFO has the field only where replicas must follow.
            if info.field("min_slaves_good_slaves").is_some() {
                let setting = lane.setting("min-replicas-to-write").await;
                least = checkup
                    .allowed("how many replicas must follow (CONFIG GET)", setting)?
                    .flatten();
            }
            checkup.replication(&info, least.and_then(|least| least.parse().ok()));
            let save = lane.setting("save").await;
            let save = checkup.allowed("when snapshots are made (CONFIG GET save)", save)?;
            let mut stops = true;
            if info
                .field("rdb_last_bgsave_status")
                .is_some_and(|status| status != "ok")
            {
                let setting = lane.setting("stop-writes-on-bgsave-error").await;
                let setting =
                    checkup.allowed("what a failed snapshot stops (CONFIG GET)", setting)?;
                stops = setting.flatten().is_none_or(|setting| setting == "yes");
            }
            checkup.persistence(&info, save.flatten().as_deref(), stops);
        }
        let buffers = lane.setting("client-output-buffer-limit").await;
        if let Some(Some(buffers)) = checkup.allowed("subscriber buffers (CONFIG GET)", buffers)? {
            checkup.buffers(&buffers);
        }
        let time = self.server_time().await;
        if let Some(time) = checkup.allowed("round trip (TIME)", time)? {
            checkup.round_trip(time.round_trip);
        }
        let known = lane.known_scripts().await;
        if let Some(known) = checkup.allowed("scripts (SCRIPT EXISTS)", known)? {
            checkup.fact("scripts", format!("{known} of {}", Verb::ALL.len()));
        }
        let functions = self.functions().await;
        if let Some(functions) = checkup.allowed("Functions library (FCALL)", functions)? {
            checkup.functions(functions);
        }
        Ok(checkup)
    }
}

impl Checkup {
    fn version(&mut self, info: &Info) {
        let product = if info.field("valkey_version").is_some() {
            "Valkey"
        } else {
            "Redis"
        };
        let version = info
            .field("valkey_version")
            .or(info.field("redis_version"))
            .unwrap_or("unknown");
        self.fact("version", format!("{product} {version}"));
        if let Some(reason) = crate::server::info::too_old(info) {
            let consequence = "scripts fail: they use commands and flags that it does not have";
            self.wrong(
                "version",
                "version",
                reason,
                consequence,
                "upgrade the server",
            );
        }
    }

    fn memory(&mut self, info: &Info) {
        let policy = info.field("maxmemory_policy").unwrap_or("unknown");
        self.fact("maxmemory_policy", policy);
        if policy.starts_with("allkeys-") {
            let consequence = "with memory full it drops whole queues, while every call succeeds";
            let remedy = redis_cli("CONFIG SET maxmemory-policy noeviction") + CONF;
            self.wrong(
                "eviction",
                "maxmemory-policy",
                format!("maxmemory-policy is {policy}"),
                consequence,
                remedy,
            );
        }
        let (used, most) = (
            info.number("used_memory").unwrap_or(0),
            info.number("maxmemory").unwrap_or(0),
        );
        self.fact("used_memory", used);
        if most > 0 && used > most / 10 * 9 {
            let problem = format!("{used} of maxmemory {most} bytes are in use");
            let consequence = "when it is full pushes are refused with OOM; workers go on draining";
            self.wrong(
                "memory",
                "maxmemory",
                problem,
                consequence,
                redis_cli("CONFIG SET maxmemory BYTES"),
            );
        }
        let (clients, most) = (
            info.number("connected_clients").unwrap_or(0),
            info.number("maxclients").unwrap_or(0),
        );
        self.fact("clients", clients);
        if most > 0 && clients > most / 10 * 9 {
            let problem = format!("{clients} of maxclients {most} are connected");
            let consequence = "when all are in use no worker or producer can connect";
            self.wrong(
                "clients",
                "maxclients",
                problem,
                consequence,
                redis_cli("CONFIG SET maxclients NUMBER"),
            );
        }
    }

    /// `least` is `min-replicas-to-write`.
    fn replication(&mut self, info: &Info, least: Option<u64>) {
        let (role, replicas) = (
            info.field("role").unwrap_or("unknown"),
            info.number("connected_slaves").unwrap_or(0),
        );
        self.fact("role", role);
        if role == "slave" {
            let consequence = "every call that writes is refused with READONLY";
            let remedy = redis_cli("ROLE") + ", then use the URL of the primary";
            self.wrong(
                "replica",
                "role",
                "the server is a replica".to_owned(),
                consequence,
                remedy,
            );
        } else if let (Some(good), Some(least)) = (info.number("min_slaves_good_slaves"), least)
            && good < least
        {
            let problem =
                format!("{good} replicas follow in time, and min-replicas-to-write is {least}");
            let consequence = "every call that writes is refused with NOREPLICAS: nothing is pushed, claimed or delivered until then";
            let remedy = format!(
                "{}, and bring replicas back; or do without them: {}",
                redis_cli("INFO replication"),
                redis_cli("CONFIG SET min-replicas-to-write 0")
            );
            self.wrong(
                "noreplicas",
                "min-replicas-to-write",
                problem,
                consequence,
                remedy,
            );
        } else if replicas > 0 && info.field("min_slaves_good_slaves").is_none() {
            let problem = format!("{replicas} replicas, and min-replicas-to-write is 0");
            let consequence = "cut off from its replicas, it goes on acknowledging pushes, which a failover to one of them loses";
            let remedy = redis_cli("CONFIG SET min-replicas-to-write 1") + CONF;
            self.wrong(
                "replicas",
                "min-replicas-to-write",
                problem,
                consequence,
                remedy,
            );
        }
        self.fact("replicas", replicas);
    }

    /// `stops` says whether the server refuses writes after a failed snapshot.
    fn persistence(&mut self, info: &Info, save: Option<&str>, stops: bool) {
        let appends = info.field("aof_enabled") == Some("1");
        self.fact(
            "persistence",
            match (appends, save) {
                (true, _) => "append-only file",
                (false, Some("")) => "none",
                (false, Some(_)) => "snapshots",
                (false, None) => "no append-only file",
            },
        );
        if !appends {
            let problem = match save {
                Some("") => "neither an append-only file nor snapshots".to_owned(),
                Some(save) => format!("no append-only file, only snapshots ({save})"),
                None => "no append-only file".to_owned(),
            };
            let consequence = "a crash loses all that came after the last snapshot, or everything if there is none";
            let remedy = redis_cli("CONFIG SET appendonly yes") + CONF;
            self.wrong("persistence", "appendonly", problem, consequence, remedy);
        }
        const LOST: &str = "a restart loses what is not on disk";
        const MISCONF: &str = "every call that writes is refused with MISCONF, beats and claims too: nothing is pushed or \
                               delivered; and a restart loses what is not on disk";
        let failed = |field| info.field(field).is_some_and(|status| status != "ok");
        let snapshots = save.is_none_or(|save| !save.is_empty());
        for (field, what, consequence) in [
            (
                "aof_last_write_status",
                "the last write to the append-only file failed",
                if appends { MISCONF } else { LOST },
            ),
            (
                "aof_last_bgrewrite_status",
                "the last rewrite of the append-only file failed",
                "the file grows until the disk is full",
            ),
            (
                "rdb_last_bgsave_status",
                "the last snapshot failed",
                if snapshots && stops { MISCONF } else { LOST },
            ),
        ] {
            if failed(field) {
                let remedy = "df, and the server's log; it goes on by itself once it can write";
                self.wrong("disk", field, what.to_owned(), consequence, remedy);
            }
        }
    }

    /// `CLASS HARD SOFT SECONDS` for each class of clients.
    fn buffers(&mut self, limits: &str) {
        let words: Vec<&str> = limits.split_whitespace().collect();
        let Some([_, hard, soft, _]) = words.chunks_exact(4).find(|limit| limit[0] == "pubsub")
        else {
            return;
        };
        self.fact("subscriber_buffer", format!("{hard} {soft}"));
        let small = |limit: &str| {
            limit
                .parse()
                .is_ok_and(|bytes: u64| bytes > 0 && bytes < BUFFER_BYTES)
        };
        if small(hard) || small(soft) {
            let problem = format!(
                "client-output-buffer-limit of subscribers is {hard} bytes, {soft} for longer"
            );
            let consequence = "a burst of notices cuts workers off from them, and messages are up to a second late";
            let remedy = redis_cli("CONFIG SET client-output-buffer-limit 'pubsub 32mb 8mb 60'");
            self.wrong(
                "buffers",
                "client-output-buffer-limit",
                problem,
                consequence,
                remedy,
            );
        }
    }

    fn round_trip(&mut self, round_trip: Duration) {
        self.fact("round_trip_us", round_trip.as_micros());
        if round_trip > SLOW {
            let problem = format!("a round trip takes {} ms", round_trip.as_millis());
            let consequence = "a message is late by at least two of them";
            self.wrong(
                "slow",
                "round trip",
                problem,
                consequence,
                "run workers nearer to the server; ".to_owned() + &redis_cli("--latency"),
            );
        }
    }

    fn functions(&mut self, found: Functions) {
        let ours = crate::functions::functions_version();
        let text = match found {
            Functions::Absent => "absent".to_owned(),
            Functions::Older(version) => format!("version {version}, older than {ours}"),
            Functions::Current => format!("version {ours}"),
            Functions::Newer(version) => format!("version {version}, newer than {ours}"),
        };
        if matches!(found, Functions::Older(_)) {
            let consequence = "clients by FCALL work by older rules, and lack newer verbs";
            self.wrong(
                "functions",
                "dueq",
                format!("the Functions library has {text}"),
                consequence,
                "dueq functions load",
            );
        }
        self.fact("functions", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(look: impl FnOnce(&mut Checkup)) -> Vec<&'static str> {
        let mut checkup = Checkup::default();
        look(&mut checkup);
        checkup
            .findings
            .iter()
            .map(|finding| finding.code)
            .collect()
    }

    fn info(text: &str) -> Info {
        Info(text.replace('\n', "\r\n"))
    }

    #[test]
    fn each_fault_of_a_server_has_its_word() {
        assert_eq!(
            codes(|it| it.version(&info("redis_version:6.2.1"))),
            ["version"]
        );
        assert_eq!(
            codes(|it| it.memory(&info("maxmemory_policy:allkeys-lru"))),
            ["eviction"]
        );
        assert_eq!(
            codes(|it| it.memory(&info("used_memory:95\nmaxmemory:100"))),
            ["memory"]
        );
        assert_eq!(
            codes(|it| it.memory(&info("connected_clients:95\nmaxclients:100"))),
            ["clients"]
        );
        assert_eq!(
            codes(|it| it.replication(&info("role:slave"), None)),
            ["replica"]
        );
        assert_eq!(
            codes(|it| it.replication(&info("role:master\nconnected_slaves:1"), Some(0))),
            ["replicas"]
        );
        let sound = info("role:master\nconnected_slaves:1\nmin_slaves_good_slaves:1");
        assert_eq!(codes(|it| it.replication(&sound, Some(1))), [""; 0]);
        assert_eq!(codes(|it| it.replication(&sound, Some(2))), ["noreplicas"]);
        assert_eq!(
            codes(|it| it.persistence(&info("aof_enabled:0"), Some("3600 1"), true)),
            ["persistence"]
        );
        assert_eq!(
            codes(|it| it.persistence(
                &info("aof_enabled:1\naof_last_write_status:err"),
                None,
                true
            )),
            ["disk"]
        );
        assert_eq!(
            codes(|it| it.round_trip(Duration::from_millis(101))),
            ["slow"]
        );
        assert_eq!(codes(|it| it.functions(Functions::Older(0))), ["functions"]);
        let consequence = |text: &str, save: &str, stops: bool| {
            let mut checkup = Checkup::default();
            checkup.persistence(&info(text), Some(save), stops);
            checkup.findings[0].consequence
        };
        let (written, saved) = (
            "aof_enabled:1\naof_last_write_status:err",
            "aof_enabled:1\nrdb_last_bgsave_status:err",
        );
        assert!(consequence(written, "", false).contains("MISCONF"));
        assert!(consequence(saved, "3600 1", true).contains("MISCONF"));
        assert!(!consequence(saved, "3600 1", false).contains("MISCONF"));
        assert!(!consequence(saved, "", true).contains("MISCONF"));
        assert!(
            !consequence("aof_enabled:1\naof_last_bgrewrite_status:err", "", true)
                .contains("MISCONF")
        );
        let limits = "normal 0 0 0 slave 268435456 67108864 60 pubsub ";
        assert_eq!(
            codes(|it| it.buffers(&format!("{limits}1000 0 0"))),
            ["buffers"]
        );
        assert_eq!(
            codes(|it| it.buffers(&format!("{limits}0 1000 60"))),
            ["buffers"]
        );
        assert_eq!(
            codes(|it| it.buffers(&format!("{limits}33554432 8388608 60"))),
            [""; 0]
        );
    }
}
