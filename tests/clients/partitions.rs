//! A producer on a queue of several partitions: it finds each id's partition by the map, follows a
//! change of the map, and pushes while the partitions change.

use anyhow::{Result, ensure};
use dueq::outcomes::RunNowOutcome;
use dueq::{Client, Queue};
use redis::{Connection, FromRedisValue};

use crate::producer::{Producer, Says};
use crate::{QUEUE, claim_all, until};

/// The most partitions that the queue has in this test.
const TAGS: [&str; 4] = ["-", "17", "203", "91"];

/// A server connection that acts as an operator on the queue.
struct Operator(Connection);

fn base(tag: &str) -> String {
    match tag {
        "-" => format!("dueq:{{{QUEUE}}}"),
        tag => format!("dueq:{{{QUEUE}/{tag}}}"),
    }
}

fn keys(tag: &str) -> Vec<String> {
    let names = "scheduled ready leases claims messages attrs dead recent nodes meta";
    let key = |name| format!("{}:{name}", base(tag));
    names.split(' ').map(key).collect()
}

impl Operator {
    /// Calls a function at a partition.
    fn call<T: FromRedisValue>(
        &mut self,
        tag: &str,
        function: &str,
        arguments: &[&[u8]],
    ) -> Result<T> {
        let mut call = redis::cmd("FCALL");
        call.arg(function).arg(10).arg(keys(tag)).arg(arguments);
        Ok(call.query(&mut self.0)?)
    }

    fn remap(&mut self, tags: &[&str], arguments: &[&str]) -> Result<()> {
        let mut words = vec![&b""[..]];
        words.extend(arguments.iter().map(|word| word.as_bytes()));
        for tag in tags {
            let (_, result): (redis::Value, String) = self.call(tag, "dueq_remap", &words)?;
            ensure!(result == "DONE", "{tag}: {arguments:?}: {result}");
        }
        Ok(())
    }

    fn forward(&mut self, tags: &[&str], map: &str) -> Result<()> {
        self.remap(tags, &["forward", map])
    }

    /// Takes a message out of partition 17, on its way to 203. Returns the number and the batch.
    fn depart(&mut self, fence: &str, id: &str) -> Result<(String, Vec<u8>)> {
        let arguments = [fence, "", "0", "203", "5000", id].map(str::as_bytes);
        let reply: (redis::Value, u64, String, u64, Vec<u8>) =
            self.call("17", "dueq_depart", &arguments)?;
        ensure!(reply.3 == 1, "{id} does not depart");
        Ok((reply.1.to_string(), reply.4))
    }

    /// Stores the batch in 203, and tells 17.
    fn arrive(&mut self, fence: &str, (number, batch): (String, Vec<u8>)) -> Result<()> {
        let fence = fence.as_bytes();
        let arguments = [fence, b"17", number.as_bytes(), &batch];
        let (_, result): (redis::Value, String) = self.call("203", "dueq_arrive", &arguments)?;
        ensure!(result == "APPLIED 1", "{result}");
        let done = format!("done={number}");
        let arguments = [fence, done.as_bytes(), b"0", b"203", b"5000"];
        self.call::<redis::Value>("17", "dueq_depart", &arguments)?;
        Ok(())
    }

    /// The tags of the partitions that hold a message.
    fn holders(&mut self, id: &str) -> Result<Vec<&'static str>> {
        let mut holders = Vec::new();
        for tag in TAGS {
            let key = format!("{}:messages", base(tag));
            if redis::cmd("HEXISTS").arg(&[&key, id]).query(&mut self.0)? {
                holders.push(tag);
            }
        }
        Ok(holders)
    }

    fn exists(&mut self, tag: &str) -> Result<bool> {
        let key = format!("{}:meta", base(tag));
        Ok(redis::cmd("EXISTS").arg(key).query(&mut self.0)?)
    }

    /// How many functions clients have called.
    fn calls(&mut self) -> Result<u64> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.0)?;
        let calls = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_fcall:calls="));
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

/// A producer beside an operator.
struct Test<'a> {
    producer: Producer<'a>,
    operator: Operator,
    queue: Queue,
}

impl Test<'_> {
    /// The producer pushes an id and says this. Then one partition has the message.
    async fn push(&mut self, id: &str, says: Says, tag: &str) -> Result<()> {
        self.push_with(id, &[], says, tag).await
    }

    async fn push_with(&mut self, id: &str, options: &[&str], says: Says, tag: &str) -> Result<()> {
        self.producer.succeeds_with(id, options, says).await?;
        let holders = self.operator.holders(id)?;
        ensure!(holders == [tag], "{id} is in {holders:?}, not {tag}");
        Ok(())
    }

    /// The producer pushes an id and waits, until `end` lets it go on. Then it says this.
    async fn wait(
        &mut self,
        id: &str,
        says: Says,
        tag: &str,
        end: impl FnOnce(&mut Operator) -> Result<()>,
    ) -> Result<()> {
        let (producer, operator) = (&self.producer, &mut self.operator);
        let before = operator.calls()?;
        let act = async {
            // The first call lacks the map. After two more the producer has waited once.
            until("three calls", async || Ok(operator.calls()? >= before + 3)).await?;
            end(operator)
        };
        tokio::try_join!(producer.succeeds_with(id, &[], says), act)?;
        let holders = self.operator.holders(id)?;
        ensure!(holders == [tag], "{id} is in {holders:?}, not {tag}");
        Ok(())
    }

    async fn settled(&mut self) -> Result<()> {
        // Partition 17 does not exist yet: the first producer that needs it creates it with the map.
        self.operator.forward(&["-"], "7|- 17|- 17")?;
        for (id, of_two, _) in IDS {
            self.push(id, Says::Created, TAGS[of_two]).await?;
        }
        self.push("a", Says::PushedBefore, "17").await
    }

    /// Ids with `{a}` go from partition 17 to 203, with `{b}` from - to 17. Those with `{order:43}`
    /// stay in -.
    async fn changing(&mut self) -> Result<()> {
        for id in ["{a}:waits", "{a}:moved", "{a}:leaves"] {
            self.push(id, Says::Created, "17").await?;
        }
        self.push("{order:43}:stays", Says::Created, "-").await?;
        self.push_with("{a}:once", &["window=3600000"], Says::Created, "17")
            .await?;
        let outcome = self.queue.run_now("{a}:once").await?;
        ensure!(outcome == RunNowOutcome::Moved, "{outcome:?}");
        claim_all(&self.queue, 1).await?;

        let change = ["close", "7", "8|- 17|- 17 203"];
        self.operator.remap(&["-", "17"], &change)?;
        self.push("{order:43}:new", Says::Created, "-").await?;
        self.push("{order:43}:stays", Says::PushedBefore, "-")
            .await?;
        // The first producer that needs partition 203 creates it.
        for (id, tag) in [("{a}:new", "203"), ("{b}:new", "17")] {
            self.push(id, Says::Created, tag).await?;
            self.push(id, Says::PushedBefore, tag).await?;
        }
        self.push("{a}:waits", Says::PushedBefore, "17").await?;
        let batch = self.operator.depart("m8", "{a}:moved")?;
        self.operator.arrive("m8", batch)?;
        self.push("{a}:moved", Says::PushedBefore, "203").await?;
        let batch = self.operator.depart("m8", "{a}:leaves")?;
        let arrive = |operator: &mut Operator| operator.arrive("m8", batch);
        self.wait("{a}:leaves", Says::PushedBefore, "203", arrive)
            .await?;
        // Partition 17 remembers the id. That counts until 203 has a message of it.
        self.producer.fails("{a}:once", "0", "REMEMBERED").await?;
        self.push_with("{a}:once", &["reuse"], Says::Created, "203")
            .await?;
        self.push("{a}:once", Says::PushedBefore, "203").await
    }

    async fn closed(&mut self) -> Result<()> {
        let settled = "9|- 17 203|- 17 203";
        self.operator.forward(&TAGS[..3], settled)?;
        for (id, _, of_three) in IDS {
            // If the part between the braces is equal, both ids belong to one partition. Otherwise
            // the partition of the whole id counts.
            if id.starts_with('x') {
                self.push(&format!("{id}2"), Says::Created, TAGS[of_three])
                    .await?;
            }
        }
        // Partition 91 has just been removed, and the operator has not closed the map yet.
        let change = "10|- 17 203 91|- 17 203";
        self.operator.forward(&TAGS[..3], change)?;
        let close = |operator: &mut Operator| {
            ensure!(!operator.exists("91")?, "the producer made partition 91");
            operator.forward(&TAGS[..3], "11|- 17 203|- 17 203")
        };
        self.wait("late{a}", Says::Created, "203", close).await
    }

    async fn deleted(&mut self) -> Result<()> {
        self.operator
            .remap(&["-"], &["close", "11", "12|- 17 203|"])?;
        let delete = |operator: &mut Operator| {
            let keys: Vec<String> = TAGS.iter().flat_map(|tag| keys(tag)).collect();
            redis::cmd("DEL").arg(keys).exec(&mut operator.0)?;
            Ok(())
        };
        self.wait("{order:43}:late", Says::Created, "-", delete)
            .await
    }

    /// A producer that does not follow a queue to another server says where it is.
    async fn moved(&mut self) -> Result<()> {
        let url = "redis://10.1.2.3/";
        let moved = format!("13|@-|@-|{url}");
        self.operator.remap(&["-"], &["close", "0", &moved])?;
        self.producer.fails("{order:43}:far", "0", url).await?;
        ensure!(self.operator.holders("{order:43}:far")?.is_empty());
        Ok(())
    }
}

pub(crate) async fn check(producer: Producer<'_>) -> Result<()> {
    let mut test = Test {
        operator: Operator(redis::Client::open(&*producer.url)?.get_connection()?),
        queue: Client::connect(&producer.url).await?.queue(QUEUE)?,
        producer,
    };
    test.settled().await?;
    test.changing().await?;
    test.closed().await?;
    test.deleted().await?;
    test.moved().await
}
