//! Words the findings about a cluster.

use crate::doctor::checkup::Checkup;
use crate::doctor::server::Clock;
use crate::doctor::shell::redis_cli;
use crate::server::info::Info;

/// The largest difference between the clocks of two masters that is not a finding.
const CLOCKS_US: u128 = 50_000;
/// The longest `cluster-node-timeout` that is not a finding. A failover begins after it.
const NODE_TIMEOUT_MS: u64 = 5_000;
/// How long a client repeats a failed call.
const PATIENCE_MS: u64 = 10_000;
/// The end of a remedy in a cluster: CONFIG SET lasts only until a restart, and any replica may
/// become a master.
const EVERYWHERE: &str = "; on every node, and in its redis.conf";

/// A redis-cli command for the server at this address.
pub(super) fn redis_cli_at(address: &str, command: &str) -> String {
    match address.rsplit_once(':') {
        Some((host, port)) => format!("redis-cli -h {host} -p {port} {command}"),
        None => redis_cli(command),
    }
}

impl Checkup {
    pub(super) fn cluster_setting(&mut self, name: &'static str, value: &str) {
        let (code, consequence, good) = match name {
            "cluster-node-timeout" => {
                let ms: u64 = value.parse().unwrap_or(0);
                let consequence = if ms <= NODE_TIMEOUT_MS {
                    return;
                } else if ms < PATIENCE_MS {
                    "when a master dies, its queues stop for that long and a few seconds more"
                } else {
                    "when a master dies, its queues stop for longer than clients repeat a call \
                     (10 s): pushes fail"
                };
                ("node_timeout", consequence, "2000")
            }
            "cluster-require-full-coverage" if value == "yes" => (
                "full_coverage",
                "when one master is dead without a replica, the queues of all masters stop",
                "no",
            ),
            "cluster-allow-reads-when-down" if value == "no" => (
                "reads_when_down",
                "while the cluster is down, `dueq stats` and `dueq doctor` fail, too",
                "yes",
            ),
            _ => return,
        };
        let remedy = redis_cli(&format!("CONFIG SET {name} {good}")) + EVERYWHERE;
        self.wrong(
            code,
            name,
            format!("{name} is {value}"),
            consequence,
            remedy,
        );
    }

    /// `min_replicas` is the setting `min-replicas-to-write`. After a failover, the new master has
    /// one replica fewer than the old one had.
    pub(super) fn min_replicas_in_cluster(&mut self, info: &Info, min_replicas: u64) {
        let replicas = info.number("connected_slaves").unwrap_or(0);
        let good = info.number("min_slaves_good_slaves").unwrap_or(0);
        let is_met = min_replicas > 0 && good >= min_replicas;
        if !info.is_clustered() || !is_met || replicas > min_replicas {
            return;
        }
        let problem = format!(
            "min-replicas-to-write is {min_replicas}, and the master has {replicas} replicas"
        );
        let consequence = "after a failover the new master has one replica fewer: it refuses every \
                           write with NOREPLICAS until the old master is back";
        let lower = format!("CONFIG SET min-replicas-to-write {}", min_replicas - 1);
        let remedy = format!(
            "add a replica to each master; or {}{EVERYWHERE}",
            redis_cli(&lower)
        );
        self.wrong(
            "min_replicas",
            "min-replicas-to-write",
            problem,
            consequence,
            remedy,
        );
    }

    pub(super) fn clocks(&mut self, clocks: &[Clock]) {
        let by_offset = |clock: &&Clock| clock.offset_us;
        let slowest = clocks.iter().min_by_key(by_offset);
        let (Some(slow), Some(fast)) = (slowest, clocks.iter().max_by_key(by_offset)) else {
            return;
        };
        let apart = (fast.offset_us - slow.offset_us).unsigned_abs();
        self.fact("clocks_apart_us", apart);
        if apart <= CLOCKS_US + slow.error_us + fast.error_us {
            return;
        }
        let problem = format!(
            "the clock of the master at {} is {} ms ahead of that of the master at {}",
            fast.address,
            apart / 1_000,
            slow.address
        );
        let consequence = "messages with the same due time are delivered that far apart, by the \
                           master that holds them; a failover can move the clock of a queue back";
        let remedy = format!(
            "chronyc tracking    # at {} and {}",
            fast.address, slow.address
        );
        self.wrong("clocks", &slow.address, problem, consequence, remedy);
    }

    /// Compares the versions of the Functions library on the masters.
    pub(super) fn libraries(&mut self, libraries: &[(String, Option<u64>)]) {
        let with = libraries.iter().filter(|(_, version)| version.is_some());
        let with = with.count();
        if with == 0 {
            return;
        }
        for (address, version) in libraries {
            if version.is_none() {
                let problem = format!(
                    "the master at {address} has no Functions library, and {with} other masters \
                     have it"
                );
                let consequence = "FCALL fails for the queues and partitions of this master";
                self.wrong(
                    "functions",
                    address,
                    problem,
                    consequence,
                    "dueq functions load",
                );
            }
        }
    }

    /// Adds a finding for slots that are being moved. `slots` has the form of `CLUSTER NODES`: the
    /// slot `93->-NODE` leaves this master, and `93-<-NODE` arrives.
    pub(super) fn open_slots(&mut self, address: &str, slots: &[String]) {
        for slot in slots {
            let (number, way, node) = match slot.split_once("->-") {
                Some((number, node)) => (number, "to", node),
                None => {
                    let (number, node) = slot.split_once("-<-").unwrap_or((slot, "unknown"));
                    (number, "from", node)
                }
            };
            let problem = format!(
                "slot {number} of the master at {address} is being moved {way} node {node}, for \
                 more than 2 s"
            );
            let consequence = "the queues and partitions in this slot answer nothing until it has \
                               moved";
            let remedy = format!(
                "complete the move; if no tool moves slots any more: redis-cli --cluster fix \
                 {address}"
            );
            self.wrong("open_slot", number, problem, consequence, remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::checkup::Finding;

    fn found(check: impl FnOnce(&mut Checkup)) -> Vec<Finding> {
        let mut checkup = Checkup::default();
        check(&mut checkup);
        checkup.findings
    }

    fn codes(check: impl FnOnce(&mut Checkup)) -> Vec<&'static str> {
        found(check).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn settings_that_hurt_a_failover_are_findings() {
        for (name, value, code) in [
            ("cluster-node-timeout", "5000", None),
            ("cluster-node-timeout", "5001", Some("node_timeout")),
            ("cluster-node-timeout", "15000", Some("node_timeout")),
            ("cluster-require-full-coverage", "no", None),
            (
                "cluster-require-full-coverage",
                "yes",
                Some("full_coverage"),
            ),
            ("cluster-allow-reads-when-down", "yes", None),
            (
                "cluster-allow-reads-when-down",
                "no",
                Some("reads_when_down"),
            ),
        ] {
            let codes = codes(|it| it.cluster_setting(name, value));
            assert_eq!(codes.first().copied(), code, "{name} {value}");
        }
        let longer = found(|it| it.cluster_setting("cluster-node-timeout", "15000"));
        assert!(longer[0].consequence.contains("pushes fail"));
    }

    #[test]
    fn min_replicas_that_stop_writes_after_a_failover_are_a_finding() {
        let of = |replicas: u64, min: u64, enabled: u8| {
            let info = format!(
                "cluster_enabled:{enabled}\r\nconnected_slaves:{replicas}\r\n\
                 min_slaves_good_slaves:{replicas}\r\n"
            );
            codes(|it| it.min_replicas_in_cluster(&Info(info), min))
        };
        assert_eq!(of(1, 1, 1), ["min_replicas"]);
        assert_eq!(of(2, 2, 1), ["min_replicas"]);
        assert_eq!(of(2, 1, 1), [""; 0]);
        assert_eq!(of(1, 1, 0), [""; 0]);
        // NOREPLICAS already today, which is another finding.
        assert_eq!(of(0, 1, 1), [""; 0]);
    }

    #[test]
    fn differing_clocks_of_masters_are_a_finding() {
        let clock = |address: &str, offset_us, error_us| Clock {
            address: address.to_owned(),
            offset_us,
            error_us,
        };
        let clocks = |ahead_us: i128, error_us| {
            let clocks = [
                clock("a:1", 1_000, 0),
                clock("b:2", 1_000 + ahead_us, error_us),
            ];
            found(|it| it.clocks(&clocks))
        };
        assert_eq!(clocks(50_000, 0), []);
        assert_eq!(clocks(80_000, 30_000), []);
        let apart = &clocks(80_000, 1_000)[0];
        assert!(apart.problem.contains("b:2 is 80 ms ahead"), "{apart:?}");
        assert!(apart.remedy.contains("a:1"), "{apart:?}");
        assert_eq!(codes(|it| it.clocks(&[])), [""; 0]);
    }

    #[test]
    fn a_master_without_the_functions_library_is_a_finding() {
        let libraries = |versions: [Option<u64>; 3]| {
            let names = ["a:1", "b:2", "c:3"].map(str::to_owned);
            let libraries: Vec<_> = names.into_iter().zip(versions).collect();
            found(|it| it.libraries(&libraries))
        };
        assert_eq!(libraries([None; 3]), []);
        assert_eq!(libraries([Some(14); 3]), []);
        let lacking = libraries([Some(14), None, Some(14)]);
        assert_eq!(lacking.len(), 1);
        assert!(lacking[0].problem.contains("b:2 has no"), "{lacking:?}");
    }

    #[test]
    fn open_slots_are_named_with_their_direction() {
        let slots = ["93->-abc".to_owned(), "77-<-def".to_owned()];
        let open = found(|it| it.open_slots("a:1", &slots));
        assert!(open[0].problem.contains("slot 93") && open[0].problem.contains("to node abc"));
        assert!(open[1].problem.contains("slot 77") && open[1].problem.contains("from node def"));
    }
}
