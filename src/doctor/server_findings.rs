//! Words the findings about a server.

use std::time::Duration;

use crate::doctor::checkup::Checkup;
use crate::doctor::shell::redis_cli;
use crate::functions::FunctionsStatus;
use crate::server::info::Info;

/// Longest round trip that is not a finding: a delivery takes several of them.
const SLOW: Duration = Duration::from_millis(100);
/// The smallest output buffer for subscribers that is not a finding: it holds tens of thousands of
/// notices.
const BUFFER_BYTES: u64 = 1024 * 1024;
/// The end of a remedy with CONFIG SET, which lasts only until a restart.
const CONF: &str = "; and the same in redis.conf";

impl Checkup {
    pub(super) fn version(&mut self, info: &Info) {
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
            let consequence = "scripts fail: they use commands and flags that this version lacks";
            self.wrong(
                "version",
                "version",
                reason,
                consequence,
                "upgrade the server",
            );
        }
    }

    pub(super) fn memory(&mut self, info: &Info) {
        let policy = info.field("maxmemory_policy").unwrap_or("unknown");
        self.fact("maxmemory_policy", policy);
        if policy.starts_with("allkeys-") {
            let consequence =
                "when memory is full, the server deletes whole queues without an error";
            let remedy = redis_cli("CONFIG SET maxmemory-policy noeviction") + CONF;
            self.wrong(
                "eviction",
                "maxmemory-policy",
                format!("maxmemory-policy is {policy}"),
                consequence,
                remedy,
            );
        }
        let used = info.number("used_memory").unwrap_or(0);
        let most = info.number("maxmemory").unwrap_or(0);
        self.fact("used_memory", used);
        for name in ["used_memory_dataset", "maxmemory"] {
            if let Some(bytes) = info.number(name) {
                self.fact(name, bytes);
            }
        }
        if let Some(cpu_us) = info.main_thread_cpu_us() {
            self.fact("main_thread_cpu_us", cpu_us);
        }
        if most > 0 && used > most / 10 * 9 {
            let problem = format!("{used} of {most} bytes (maxmemory) are in use");
            let consequence =
                "when memory is full, pushes fail with OOM; workers continue to drain the queues";
            self.wrong(
                "memory",
                "maxmemory",
                problem,
                consequence,
                redis_cli("CONFIG SET maxmemory BYTES"),
            );
        }
        let clients = info.number("connected_clients").unwrap_or(0);
        let most = info.number("maxclients").unwrap_or(0);
        self.fact("clients", clients);
        if most > 0 && clients > most / 10 * 9 {
            let problem = format!("{clients} of {most} clients (maxclients) are connected");
            let consequence = "when the limit is reached, no worker or producer can connect";
            self.wrong(
                "clients",
                "maxclients",
                problem,
                consequence,
                redis_cli("CONFIG SET maxclients NUMBER"),
            );
        }
    }

    /// Judges replication. `min_replicas` is the setting `min-replicas-to-write`.
    pub(super) fn replication(&mut self, info: &Info, min_replicas: Option<u64>) {
        let role = info.field("role").unwrap_or("unknown");
        let replicas = info.number("connected_slaves").unwrap_or(0);
        self.fact("role", role);
        if role == "slave" {
            let consequence = "every call that writes fails with READONLY";
            let remedy = redis_cli("ROLE") + ", then use the URL of the master";
            self.wrong(
                "replica",
                "role",
                "the server is a replica".to_owned(),
                consequence,
                remedy,
            );
        } else if let (Some(good), Some(min_replicas)) =
            (info.number("min_slaves_good_slaves"), min_replicas)
            && good < min_replicas
        {
            let problem = format!(
                "{good} replicas follow in time, but min-replicas-to-write is {min_replicas}"
            );
            let consequence = "every call that writes fails with NOREPLICAS: nothing is pushed, claimed or delivered";
            let remedy = format!(
                "{}, and bring the replicas back; or allow writes without them: {}",
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
        // A cluster with one replica per master is excepted: after a failover, the setting would
        // stop writes.
        } else if replicas > u64::from(info.is_clustered())
            && info.field("min_slaves_good_slaves").is_none()
        {
            let problem =
                format!("the server has {replicas} replicas, but min-replicas-to-write is 0");
            let consequence = "while cut off from its replicas, the server still acknowledges pushes; a failover loses them";
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

    /// Judges persistence. `stops_writes` says whether the server refuses writes after a failed
    /// snapshot.
    pub(super) fn persistence(&mut self, info: &Info, save: Option<&str>, stops_writes: bool) {
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
                Some("") => "the server keeps neither an append-only file nor snapshots".to_owned(),
                Some(save) => {
                    format!("the server keeps no append-only file, only snapshots ({save})")
                }
                None => "the server keeps no append-only file".to_owned(),
            };
            let consequence =
                "a crash loses everything after the last snapshot, or everything if there is none";
            let remedy = redis_cli("CONFIG SET appendonly yes") + CONF;
            self.wrong("persistence", "appendonly", problem, consequence, remedy);
        }
        const LOST: &str = "a restart loses everything that is not on disk";
        const MISCONF: &str = "every call that writes is refused with MISCONF, beats and claims too: nothing is \
                               pushed or delivered; a restart loses everything that is not on disk";
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
                if snapshots && stops_writes {
                    MISCONF
                } else {
                    LOST
                },
            ),
        ] {
            if failed(field) {
                let remedy = "check free space (df) and the server's log; the server recovers once it can write";
                self.wrong("disk", field, what.to_owned(), consequence, remedy);
            }
        }
    }

    /// Judges output buffers. `limits` holds `CLASS HARD SOFT SECONDS` for each class of clients.
    pub(super) fn buffers(&mut self, limits: &str) {
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
                "client-output-buffer-limit of pubsub is {hard} bytes (hard), {soft} bytes (soft)"
            );
            let consequence =
                "a burst of notices disconnects the workers, and messages are up to a second late";
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

    pub(super) fn round_trip(&mut self, round_trip: Duration) {
        self.fact("round_trip_us", round_trip.as_micros());
        if round_trip > SLOW {
            let problem = format!("a round trip takes {} ms", round_trip.as_millis());
            let consequence = "a message is late by at least two round trips";
            self.wrong(
                "slow",
                "round trip",
                problem,
                consequence,
                "run workers closer to the server; ".to_owned() + &redis_cli("--latency"),
            );
        }
    }

    pub(super) fn functions(&mut self, found: FunctionsStatus) {
        let ours = crate::functions::functions_version();
        let text = match found {
            FunctionsStatus::Absent => "absent".to_owned(),
            FunctionsStatus::Older(version) => format!("version {version}, older than {ours}"),
            FunctionsStatus::Current => format!("version {ours}"),
            FunctionsStatus::Newer(version) => format!("version {version}, newer than {ours}"),
        };
        if matches!(found, FunctionsStatus::Older(_)) {
            let consequence = "clients that use FCALL follow older rules and lack newer verbs";
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

    fn codes(check: impl FnOnce(&mut Checkup)) -> Vec<&'static str> {
        let mut checkup = Checkup::default();
        check(&mut checkup);
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
    fn each_server_fault_has_its_code() {
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
        assert_eq!(
            codes(|it| it.functions(FunctionsStatus::Older(0))),
            ["functions"]
        );
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
