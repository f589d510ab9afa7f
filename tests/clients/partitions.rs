//! A producer on a queue of several partitions: it finds each id's partition by the map, and follows
//! a change of the map.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redis::Connection;

use crate::{LIMIT, Payload, Producer, QUEUE};

/// A server connection that acts as an operator on the queue.
struct Operator(Connection);

fn base(tag: &str) -> String {
    match tag {
        "-" => format!("dueq:{{{QUEUE}}}"),
        tag => format!("dueq:{{{QUEUE}/{tag}}}"),
    }
}

impl Operator {
    fn forward(&mut self, tags: &[&str], map: &str) -> Result<()> {
        let names = "scheduled ready leases claims messages attrs dead recent nodes meta";
        for tag in tags {
            let mut call = redis::cmd("FCALL");
            call.arg("dueq_remap").arg(10);
            for name in names.split(' ') {
                call.arg(format!("{}:{name}", base(tag)));
            }
            call.arg(&["", "forward", map]).exec(&mut self.0)?;
        }
        Ok(())
    }

    fn holds(&mut self, tag: &str, id: &str) -> Result<bool> {
        let key = format!("{}:messages", base(tag));
        Ok(redis::cmd("HEXISTS").arg(&[&key, id]).query(&mut self.0)?)
    }

    /// How often clients and scripts have read a field of a hash.
    fn reads(&mut self) -> Result<u64> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.0)?;
        let calls = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_hget:calls="));
        let calls = calls.and_then(|rest| rest.split(',').next()?.parse().ok());
        Ok(calls.unwrap_or(0))
    }
}

/// Ids, and the index of their partition among two and among three: `crc32(part) * P >> 32`.
const IDS: [(&str, usize, usize); 6] = [
    ("a", 1, 2),
    ("b", 0, 1),
    ("x{a}y", 1, 2),
    ("x{b}y", 0, 1),
    ("{}a", 0, 0),
    ("größe 1", 1, 2),
];

pub(crate) fn check(producer: &Producer<'_>) -> Result<()> {
    let mut operator = Operator(redis::Client::open(producer.server.url())?.get_connection()?);
    let push = |id: &str, says: &str| {
        let says = match says {
            "created" => format!("created {id}"),
            says => format!("{id} {says}"),
        };
        producer.succeeds(id, Payload::Argument("content"), &says)
    };
    // Partition 17 does not exist yet: the first producer that needs it creates it with the map.
    operator.forward(&["-"], "7|- 17|- 17")?;
    for (id, of_two, _) in IDS {
        push(id, "created")?;
        ensure!(operator.holds(["-", "17"][of_two], id)?, "{id}");
    }
    push("a", "was pushed before")?;

    // While the partitions change, a producer waits. Then it follows the newest map.
    let tags = ["-", "17", "203"];
    operator.forward(&["-", "17"], "8|- 17|- 17 203")?;
    let (before, start) = (operator.reads()?, Instant::now());
    std::thread::scope(|scope| -> Result<()> {
        let waiting = scope.spawn(|| producer.push("late{a}", "0", Payload::Argument("content")));
        // Each try reads the epoch in the script and then the map. After four reads the producer
        // has read the changing map twice.
        while operator.reads()? < before + 4 && start.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        ensure!(!waiting.is_finished(), "{:?}", waiting.join());
        operator.forward(&["-", "17"], "9|- 17 203|- 17 203")?;
        let output = waiting.join().expect("no panic")?;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    })?;
    ensure!(operator.holds("203", "late{a}")?);
    for (id, _, of_three) in IDS {
        let id = format!("{id}2");
        if !id.contains('{') {
            continue;
        }
        push(&id, "created")?;
        // If the part between the braces is equal, both ids belong to one partition. Otherwise the
        // partition of the whole id counts.
        ensure!(id == "{}a2" || operator.holds(tags[of_three], &id)?, "{id}");
    }

    // Back at one partition: the queue has no map.
    operator.forward(&["-"], "10|-|-")?;
    push("order:1", "created")?;
    ensure!(operator.holds("-", "order:1")?);
    Ok(())
}
