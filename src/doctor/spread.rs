//! Examines how the partitions of a queue are spread over the masters.

use std::collections::BTreeMap;

use crate::doctor::checkup::Checkup;
use crate::doctor::cluster_findings::redis_cli_at;
use crate::doctor::shell::dueq;
use crate::error::Error;
use crate::router::{Partitions, Router};
use crate::server::info::Info;

/// The most moves of slots that a finding proposes.
const MAX_MOVES: usize = 8;

/// A partition, its slot and the master that serves it.
struct Served {
    index: usize,
    slot: u16,
    /// The address of the partition's master.
    master: String,
}

/// A slot that should move to another master.
#[derive(Debug, PartialEq, Eq)]
struct Move {
    slot: u16,
    from: String,
    to: String,
}

/// The command by which a server moves slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mover {
    /// CLUSTER MIGRATION IMPORT, from Redis 8.4 on.
    Import,
    /// CLUSTER MIGRATESLOTS, from Valkey 9 on.
    MigrateSlots,
    KeyByKey,
}

impl Checkup {
    /// Checks that each master of a cluster serves its share of the partitions.
    pub(super) async fn spread(
        &mut self,
        router: &Router,
        partitions: &Partitions,
    ) -> Result<(), Error> {
        let list = partitions.near_list();
        if list.len() < 2 || !list[0].route().is_one_of_many() {
            return Ok(());
        }
        let links = partitions.stores().near.links().await?;
        let masters: Vec<_> = links
            .iter()
            .map(|link| link.connector().address())
            .collect();
        let mut served = Vec::new();
        for partition in list {
            let link = partition.route().link().await?;
            served.push(Served {
                index: partition.index(),
                slot: partition.route().slot(),
                master: link.connector().address(),
            });
        }
        let moves = moves(&served, &masters);
        if moves.is_empty() {
            return Ok(());
        }
        let info = links[0].control.info(&["server"]).await;
        let info = self.allowed("the server's version (INFO)", info)?;
        let mover = info.map_or(Mover::KeyByKey, |info| Mover::of(&info));
        self.uneven(router.queue_name(), &served, &masters, &moves, mover);
        Ok(())
    }

    fn uneven(
        &mut self,
        queue_name: &str,
        served: &[Served],
        masters: &[String],
        moves: &[Move],
        mover: Mover,
    ) {
        let count = |master: &String| served.iter().filter(|one| one.master == *master).count();
        let counts: Vec<_> = masters
            .iter()
            .map(|master| format!("{master} {}", count(master)))
            .collect();
        let share = served.len().div_ceil(masters.len());
        let leaving = moves.iter().map(|one| {
            let of_slot = served.iter().filter(|served| served.slot == one.slot);
            let indexes: Vec<_> = of_slot.map(|served| served.index.to_string()).collect();
            format!(
                "partition {} in slot {} from {} to {}",
                indexes.join(" and "),
                one.slot,
                one.from,
                one.to
            )
        });
        let problem = format!(
            "the masters serve {} of {} partitions, and {share} at most are a fair share: move {}",
            counts.join(", "),
            served.len(),
            leaving.collect::<Vec<_>>().join(", ")
        );
        let consequence = "the master with the most partitions has more load and more memory in \
                           use than the others, and limits the whole queue";
        let commands: Vec<_> = moves.iter().map(|one| mover.command(one)).collect();
        let mut remedy = commands.join("; ");
        if mover == Mover::KeyByKey {
            let name = queue_name.as_bytes();
            let again = served.len().to_string();
            remedy = format!(
                "{remedy}    # the partition stops meanwhile; of an empty queue: {}; {}",
                dueq("partitions", &[name, b"1"]),
                dueq("partitions", &[name, again.as_bytes()])
            );
        }
        self.wrong("uneven", queue_name, problem, consequence, remedy);
    }
}

impl Mover {
    fn of(info: &Info) -> Self {
        let at_least = |version: &str, least: (u64, u64)| {
            let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
            (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= least
        };
        match (info.field("valkey_version"), info.field("redis_version")) {
            (Some(valkey), _) if at_least(valkey, (9, 0)) => Self::MigrateSlots,
            (None, Some(redis)) if at_least(redis, (8, 4)) => Self::Import,
            _ => Self::KeyByKey,
        }
    }

    fn command(self, one: &Move) -> String {
        let Move { slot, from, to } = one;
        let at = |address: &str, command: &str| redis_cli_at(address, command);
        let id = |address: &str| format!("$({})", at(address, "CLUSTER MYID"));
        match self {
            Self::Import => at(to, &format!("CLUSTER MIGRATION IMPORT {slot} {slot}")),
            Self::MigrateSlots => at(
                from,
                &format!(
                    "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}",
                    id(to)
                ),
            ),
            Self::KeyByKey => {
                let (host, port) = to.rsplit_once(':').unwrap_or((to, "6379"));
                let keys = at(from, &format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
                let setslot = |address: &str, rest: &str| {
                    at(address, &format!("CLUSTER SETSLOT {slot} {rest}"))
                };
                [
                    setslot(to, &format!("IMPORTING {}", id(from))),
                    setslot(from, &format!("MIGRATING {}", id(to))),
                    at(
                        from,
                        &format!("MIGRATE {host} {port} '' 0 5000 KEYS $({keys})"),
                    ),
                    setslot(to, &format!("NODE {}", id(to))),
                    setslot(from, &format!("NODE {}", id(to))),
                ]
                .join("; ")
            }
        }
    }
}

/// The moves after which no master serves more than its share, rounded up. Empty if that holds
/// already.
fn moves(served: &[Served], masters: &[String]) -> Vec<Move> {
    let share = served.len().div_ceil(masters.len().max(1));
    let mut slots: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
    for master in masters {
        slots.entry(master).or_default();
    }
    // The home moves last, because every client that starts asks it.
    for one in served.iter().rev() {
        slots.entry(&one.master).or_default().push(one.slot);
    }
    for of_master in slots.values_mut() {
        of_master.reverse();
    }
    let mut moves = Vec::new();
    while moves.len() < MAX_MOVES {
        let size = |entry: &(&&str, &Vec<u16>)| entry.1.len();
        let (Some(most), Some(least)) =
            (slots.iter().max_by_key(size), slots.iter().min_by_key(size))
        else {
            break;
        };
        let (from, to) = (*most.0, *least.0);
        if most.1.len() <= share || from == to {
            break;
        }
        let Some(slot) = slots.get_mut(from).and_then(Vec::pop) else {
            break;
        };
        slots.entry(to).or_default().push(slot);
        moves.push(Move {
            slot,
            from: from.to_owned(),
            to: to.to_owned(),
        });
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(counts: [usize; 3]) -> (Vec<Served>, Vec<String>) {
        let masters = ["a:1", "b:2", "c:3"].map(str::to_owned);
        let of = counts
            .into_iter()
            .zip(&masters)
            .flat_map(|(count, master)| vec![master; count]);
        let served = of.enumerate().map(|(index, master)| Served {
            index,
            slot: 100 + index as u16,
            master: master.clone(),
        });
        (served.collect(), masters.to_vec())
    }

    #[test]
    fn evenly_spread_partitions_need_no_move() {
        for counts in [[4, 4, 4], [4, 4, 3], [1, 1, 0], [5, 4, 4]] {
            let (served, masters) = served(counts);
            assert_eq!(moves(&served, &masters), [], "{counts:?}");
        }
    }

    #[test]
    fn proposed_moves_leave_at_most_a_rounded_up_share() {
        for counts in [[6, 4, 2], [12, 0, 0], [7, 3, 3], [3, 0, 1]] {
            let (served, masters) = served(counts);
            let share = served.len().div_ceil(3);
            let mut after: Vec<_> = served
                .iter()
                .map(|one| (one.slot, one.master.clone()))
                .collect();
            for one in moves(&served, &masters) {
                let moved = after.iter_mut().find(|(slot, _)| *slot == one.slot);
                let moved = moved.expect("a slot of the queue");
                assert_eq!(moved.1, one.from);
                moved.1 = one.to;
            }
            for master in &masters {
                let count = after.iter().filter(|(_, at)| at == master).count();
                assert!(count <= share, "{counts:?}: {after:?}");
            }
        }
    }

    #[test]
    fn commands_that_move_a_slot_follow_the_version() {
        let of = |version: &str| Mover::of(&Info(format!("{version}\r\n")));
        for (version, mover) in [
            ("redis_version:8.4.0", Mover::Import),
            ("redis_version:10.0.0", Mover::Import),
            ("redis_version:8.2.9", Mover::KeyByKey),
            (
                "redis_version:7.2.4\r\nvalkey_version:9.1.2",
                Mover::MigrateSlots,
            ),
            (
                "redis_version:7.2.4\r\nvalkey_version:8.1.0",
                Mover::KeyByKey,
            ),
            ("", Mover::KeyByKey),
        ] {
            assert_eq!(of(version), mover, "{version}");
        }
        let (from, to) = ("a:1".to_owned(), "b:2".to_owned());
        let one = Move { slot: 7, from, to };
        assert_eq!(
            Mover::Import.command(&one),
            "redis-cli -h b -p 2 CLUSTER MIGRATION IMPORT 7 7"
        );
        assert_eq!(
            Mover::MigrateSlots.command(&one),
            "redis-cli -h a -p 1 CLUSTER MIGRATESLOTS SLOTSRANGE 7 7 NODE \
             $(redis-cli -h b -p 2 CLUSTER MYID)"
        );
        assert!(
            Mover::KeyByKey
                .command(&one)
                .contains("MIGRATE b 2 '' 0 5000 KEYS")
        );
    }
}
