//! Plain commands that read what a server reports about itself and its keys, or change keys.

use std::time::{Duration, Instant};

use redis::Value;

use crate::error::{Applied, Error, ErrorKind};
use crate::model::outcomes::{DeleteOutcome, UnusedOutcome};
use crate::protocol::keys::Keys;
use crate::protocol::results::administer;
use crate::protocol::verbs::{UNLINK_IF, UNLINK_UNUSED, Verb};
use crate::server::info::{Info, unexpected};
use crate::server::lane::Lane;
use crate::server::route::RoutedLane;

impl Lane {
    /// Reads these sections of INFO; the default ones if none is named.
    pub(crate) async fn info(&self, sections: &[&str]) -> Result<Info, Error> {
        Info::read(self.query(redis::cmd("INFO").arg(sections)).await?)
    }

    /// Reads a setting of the server; `None` if the server has none of this name.
    pub(crate) async fn setting(&self, name: &str) -> Result<Option<String>, Error> {
        let answer = self
            .query(redis::cmd("CONFIG").arg("GET").arg(name))
            .await?;
        let pairs: Vec<(String, String)> =
            redis::from_redis_value(answer).map_err(|error| unexpected("CONFIG GET", &error))?;
        Ok(pairs.into_iter().next().map(|(_, value)| value))
    }

    /// Reads which slots of this server are being moved key by key: `93->-NODE` for one that
    /// leaves, `93-<-NODE` for one that arrives.
    pub(crate) async fn open_slots(&self) -> Result<Vec<String>, Error> {
        let answer = self.query(redis::cmd("CLUSTER").arg("NODES")).await?;
        let nodes: String =
            redis::from_redis_value(answer).map_err(|error| unexpected("CLUSTER NODES", &error))?;
        let own = nodes.lines().filter(|line| line.contains("myself"));
        let words = own.flat_map(str::split_whitespace);
        let slots = words.filter_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        Ok(slots.map(str::to_owned).collect())
    }

    /// Asks how many of this crate's scripts the server knows.
    pub(crate) async fn known_scripts(&self) -> Result<usize, Error> {
        let mut exists = redis::cmd("SCRIPT");
        exists.arg("EXISTS");
        for verb in Verb::ALL {
            exists.arg(verb.sha());
        }
        match self.query(&exists).await? {
            Value::Array(known) => Ok(known.iter().filter(|one| **one == Value::Int(1)).count()),
            other => Err(unexpected("SCRIPT EXISTS", &other)),
        }
    }

    /// Which of these queues hold no message with this id: each exists, has no map, and has nothing
    /// where `get` looks. `false` says nothing, also if a command was refused or redirected.
    pub(crate) async fn lack(&self, queues: &[&Keys], id: &[u8]) -> Result<Vec<bool>, Error> {
        let mut reads = redis::Pipeline::new();
        for keys in queues {
            let [scheduled, _, _, claims, messages, _, dead, ..] = &keys.vector;
            reads.cmd("HMGET").arg(keys.meta()).arg(&["layout", "map"]);
            for (command, key) in [
                ("HEXISTS", messages),
                ("HEXISTS", claims),
                ("ZSCORE", scheduled),
                ("ZSCORE", dead),
            ] {
                reads.cmd(command).arg(key).arg(id);
            }
        }
        let (mut connection, info) = self.connection().await?;
        let exchange = connection.send_packed_commands(&reads, 0, reads.len());
        let asked = async { Ok(info.answered(exchange).await) };
        let answers = info.server.unless_superseded(Applied::No, asked).await?;
        let answers = answers.map_err(|error| self.fail(&info, error).of_read())?;
        let lacks = answers.chunks(5).map(|answers| match answers {
            [
                Value::Array(meta),
                Value::Int(0),
                Value::Int(0),
                Value::Nil,
                Value::Nil,
            ] => {
                let known = ["1", "3", "4", "5"].map(|layout| Value::BulkString(layout.into()));
                matches!(&meta[..], [layout, Value::Nil] if known.contains(layout))
            }
            _ => false,
        });
        Ok(lacks.collect())
    }

    /// Reads the server's clock in Unix microseconds. Also returns when it was asked, and how long the
    /// reply took.
    pub(crate) async fn time(&self) -> Result<(i64, Instant, Duration), Error> {
        let sent = Instant::now();
        let answer = self.query(&redis::cmd("TIME")).await?;
        let received = Instant::now();
        let (seconds, micros): (i64, i64) =
            redis::from_redis_value(answer).map_err(|error| unexpected("TIME", &error))?;
        let now_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
        self.clock().observe(sent, received, now_us);
        Ok((now_us, sent, received - sent))
    }
}

impl RoutedLane {
    /// Reads the type of a key; `none` if the key does not exist.
    pub(crate) async fn type_of(&self, key: &str) -> Result<String, Error> {
        match self.query(redis::cmd("TYPE").arg(key)).await? {
            Value::SimpleString(kind) => Ok(kind),
            other => Err(unexpected("TYPE", &other)),
        }
    }

    /// Reads about how many bytes a key takes, judged by this many of its entries; 0 without the key.
    pub(crate) async fn memory_usage(&self, key: &str, samples: usize) -> Result<u64, Error> {
        let mut usage = redis::cmd("MEMORY");
        usage.arg("USAGE").arg(key).arg("SAMPLES").arg(samples);
        let answer = self.query(&usage).await?;
        let bytes: Option<u64> =
            redis::from_redis_value(answer).map_err(|error| unexpected("MEMORY", &error))?;
        Ok(bytes.unwrap_or(0))
    }

    /// Reads whether the key exists.
    pub(crate) async fn has(&self, key: &str) -> Result<bool, Error> {
        match self.query(redis::cmd("EXISTS").arg(key)).await? {
            Value::Int(count) => Ok(count > 0),
            other => Err(unexpected("EXISTS", &other)),
        }
    }

    /// Reads these fields of a hash; `None` for each that is absent.
    pub(crate) async fn fields<const N: usize>(
        &self,
        key: &str,
        names: [&str; N],
    ) -> Result<[Option<String>; N], Error> {
        let answer = self
            .query(redis::cmd("HMGET").arg(key).arg(&names[..]))
            .await?;
        let values: Vec<Option<String>> =
            redis::from_redis_value(answer.clone()).map_err(|error| unexpected("HMGET", &error))?;
        values.try_into().map_err(|_| unexpected("HMGET", &answer))
    }

    /// Sets a field of a hash.
    pub(crate) async fn set_field(&self, key: &str, name: &str, value: &str) -> Result<(), Error> {
        let mut set = redis::cmd("HSET");
        set.arg(key).arg(name).arg(value);
        self.command(&set).await.map(drop)
    }

    /// Removes a field of a hash.
    pub(crate) async fn remove_field(&self, key: &str, name: &str) -> Result<(), Error> {
        let mut remove = redis::cmd("HDEL");
        remove.arg(key).arg(name);
        self.command(&remove).await.map(drop)
    }

    /// Reads the first `limit` members of a sorted set with a score above `least`, except the
    /// placeholder, whose score is infinite.
    pub(crate) async fn members_above(
        &self,
        key: &str,
        least: i64,
        limit: usize,
    ) -> Result<Vec<String>, Error> {
        let mut first = redis::cmd("ZRANGE");
        first.arg(key).arg(format!("({least}")).arg("(+inf");
        first.arg("BYSCORE").arg("LIMIT").arg(0).arg(limit);
        let answer = self.query(&first).await?;
        let members: Vec<Vec<u8>> =
            redis::from_redis_value(answer).map_err(|error| unexpected("ZRANGE", &error))?;
        let text = |member: &Vec<u8>| String::from_utf8_lossy(member).into_owned();
        Ok(members.iter().map(text).collect())
    }

    /// Checks that each of these keys is absent or has the type of a queue's key.
    pub(crate) async fn check_types(&self, keys: &Keys) -> Result<(), Error> {
        for (key, due) in keys.typed() {
            let kind = self.type_of(key).await?;
            if kind != due && kind != "none" {
                let message = format!(
                    "nothing deleted: {key} is a {kind}, not a {due}, so another program wrote it: rename that key first"
                );
                return Err(Error::new(ErrorKind::Server, Applied::No, message));
            }
        }
        Ok(())
    }

    /// Removes all keys of a queue in one command, if all have the types of a queue's keys.
    pub(crate) async fn delete_keys(&self, keys: &Keys) -> Result<bool, Error> {
        self.check_types(keys).await?;
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(&keys.vector[..]).arg(&keys.wake);
        match self.command(&unlink).await? {
            Value::Int(removed) => Ok(removed > 0),
            other => Err(Error::new(
                ErrorKind::Server,
                Applied::Unknown,
                format!("UNLINK answered {other:?}"),
            )),
        }
    }

    /// Removes all keys of a queue's home in one step, if all have the right types and the queue
    /// has this incarnation.
    pub(crate) async fn delete_incarnation(
        &self,
        keys: &Keys,
        incarnation: &str,
    ) -> Result<DeleteOutcome, Error> {
        Ok(match self.unlink_if(keys, incarnation, "").await? {
            0 => DeleteOutcome::Absent,
            1.. => DeleteOutcome::Deleted,
            _ if self.has(keys.meta()).await.is_ok_and(|has| !has) => DeleteOutcome::Absent,
            _ => DeleteOutcome::Changed,
        })
    }

    /// Removes all keys of a partition in one step, if all have the right types and the map is not
    /// newer than this epoch.
    pub(crate) async fn delete_of_epoch(&self, keys: &Keys, epoch: u64) -> Result<(), Error> {
        self.unlink_if(keys, "", &epoch.to_string()).await.map(drop)
    }

    /// Finds out whether the queue is empty and was not used for `idle_ms`. Can delete it in the
    /// same step.
    pub(crate) async fn unlink_unused(
        &self,
        keys: &Keys,
        idle_ms: u128,
        is_deletion: bool,
    ) -> Result<UnusedOutcome, Error> {
        let mut unlink = redis::cmd("EVAL");
        unlink.arg(UNLINK_UNUSED).arg(keys.vector.len() + 1);
        unlink.arg(&keys.vector[..]).arg(&keys.wake);
        unlink.arg(idle_ms.to_string()).arg(u8::from(is_deletion));
        let answer = self.command(&unlink).await?;
        let text: String = redis::from_redis_value(answer.clone()).unwrap_or_default();
        administer::unused(&text)
            .ok_or_else(|| unexpected("the deletion of an unused queue", &answer))
    }

    async fn unlink_if(&self, keys: &Keys, incarnation: &str, epoch: &str) -> Result<i64, Error> {
        self.check_types(keys).await?;
        let mut unlink = redis::cmd("EVAL");
        unlink.arg(UNLINK_IF).arg(keys.vector.len() + 1);
        unlink.arg(&keys.vector[..]).arg(&keys.wake);
        unlink.arg(incarnation).arg(epoch);
        match self.command(&unlink).await? {
            Value::Int(removed) => Ok(removed),
            other => Err(Error::new(
                ErrorKind::Server,
                Applied::Unknown,
                format!("the deletion answered {other:?}"),
            )),
        }
    }
}
