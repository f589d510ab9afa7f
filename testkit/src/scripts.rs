//! Calls scripts by EVALSHA, as a program in any language does.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use redis::{Cmd, Connection, Pipeline, ToRedisArgs, Value};

const LEASE_MS: &str = "30000";
/// The suffixes of KEYS, in their order.
const KEYS: [&str; 10] = [
    "scheduled",
    "ready",
    "leases",
    "claims",
    "messages",
    "attrs",
    "dead",
    "recent",
    "nodes",
    "meta",
];

/// A connection that calls scripts.
pub struct Raw {
    connection: Connection,
    folder: Option<PathBuf>,
    shas: Vec<(&'static str, String)>,
    made: u64,
}

/// A granted message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The id of the message.
    pub id: String,
    /// The token of its claim.
    pub token: String,
}

impl Raw {
    /// Prefers scripts in this folder to those of the repository.
    pub fn new(connection: Connection, folder: Option<&Path>) -> Self {
        Self {
            connection,
            folder: folder.map(Path::to_owned),
            shas: Vec::new(),
            made: 0,
        }
    }

    /// Connects to this server.
    pub fn connect(url: &str, folder: Option<&Path>) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_connection()?;
        Ok(Self::new(connection, folder))
    }

    /// Makes the scripts of this queue accept a test clock.
    pub fn allow_test_clock(&mut self, queue: &str) -> Result<()> {
        let [.., meta] = keys(queue);
        let mut set = redis::cmd("HSET");
        set.arg(meta).arg("test").arg("1");
        Ok(set.exec(&mut self.connection)?)
    }

    /// Calls a script with this test clock.
    pub fn call(
        &mut self,
        verb: &'static str,
        queue: &str,
        now_ms: u64,
        words: &[impl ToRedisArgs],
    ) -> Result<Vec<Value>> {
        let call = self.prepared(verb, queue, &now_ms.to_string(), words)?;
        call.query(&mut self.connection).with_context(|| verb)
    }

    /// Prepares a script call without sending it. `clock` is the test clock; empty for Redis's own.
    pub fn prepared(
        &mut self,
        verb: &'static str,
        queue: &str,
        clock: &str,
        words: &[impl ToRedisArgs],
    ) -> Result<Cmd> {
        let sha = self.sha(verb)?;
        let keys = keys(queue);
        let mut call = redis::cmd("EVALSHA");
        call.arg(sha).arg(keys.len()).arg(&keys[..]);
        call.arg(clock).arg(words);
        Ok(call)
    }

    /// Sends several calls in one pipeline.
    pub fn pipelined(&mut self, calls: &Pipeline) -> Result<Vec<Vec<Value>>> {
        Ok(calls.query(&mut self.connection)?)
    }

    fn sha(&mut self, verb: &'static str) -> Result<String> {
        if let Some((_, sha)) = self.shas.iter().find(|(name, _)| *name == verb) {
            return Ok(sha.clone());
        }
        let file = format!("{verb}.lua");
        let own = self.folder.as_ref().map(|folder| folder.join(&file));
        let path = own.filter(|path| path.exists());
        let path = path.unwrap_or_else(|| {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../lua/dist")
                .join(&file)
        });
        let source = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(source);
        let sha: String = load.query(&mut self.connection)?;
        self.shas.push((verb, sha.clone()));
        Ok(sha)
    }

    /// Claims one message.
    pub fn claim(&mut self, queue: &str, now_ms: u64) -> Result<Option<Granted>> {
        Ok(self.claim_many(queue, now_ms, 1)?.pop())
    }

    /// Claims up to `most` messages.
    pub fn claim_many(&mut self, queue: &str, now_ms: u64, most: usize) -> Result<Vec<Granted>> {
        self.made += 1;
        let token = format!("{:016}", self.made);
        let words = [&most.to_string(), &token, LEASE_MS];
        let reply = self.call("claim", queue, now_ms, &words)?;
        let ids = texts(reply.get(3).context("a claim answers with ids")?)?;
        ensure!(ids.len() <= most, "a claim of {most} granted {ids:?}");
        let granted = |id| Granted {
            id,
            token: token.clone(),
        };
        Ok(ids.into_iter().map(granted).collect())
    }

    /// Acks a granted message.
    pub fn ack(&mut self, queue: &str, now_ms: u64, granted: &Granted) -> Result<()> {
        let words = [&granted.token, "1", &granted.id];
        let reply = self.call("ack", queue, now_ms, &words)?;
        let results = texts(reply.get(1).context("an ack answers with results")?)?;
        ensure!(results == ["OK"], "ack of {}: {results:?}", granted.id);
        Ok(())
    }
}

/// The elements of a list, as text.
pub fn texts(value: &Value) -> Result<Vec<String>> {
    Ok(redis::from_redis_value(value.clone())?)
}

fn keys(queue: &str) -> [String; 10] {
    KEYS.map(|suffix| format!("dueq:{{{queue}}}:{suffix}"))
}

/// Formats times as the argument `fires` of the scripts.
pub fn fires(times_ms: impl IntoIterator<Item = u64>) -> String {
    let times: Vec<_> = times_ms.into_iter().map(|ms| ms.to_string()).collect();
    format!("2026a 0\n{}", times.join(" "))
}

/// The verbs by the SHA-1 of their scripts: what a program in any language sends by EVALSHA.
pub fn verbs_by_sha() -> Result<HashMap<String, &'static str>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua/dist");
    let mut verbs = HashMap::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "lua") {
            let verb = path.file_stem().and_then(|name| name.to_str());
            let verb: &'static str = verb.context("a verb")?.to_owned().leak(); // a few, once
            let sha = redis::Script::new(&std::fs::read_to_string(&path)?);
            verbs.insert(sha.get_hash().to_owned(), verb);
        }
    }
    Ok(verbs)
}

/// The scripts of release 0.1, by verb. In `tests/compat/0.1/scripts.lua` each begins with `#!lua`,
/// and its third line with `-- VERB: `.
pub fn frozen() -> Result<BTreeMap<String, String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/compat/0.1/scripts.lua");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let scripts = text.split("#!lua").skip(1).map(|script| {
        let title = script
            .lines()
            .nth(2)
            .and_then(|line| line.strip_prefix("-- "));
        let verb = title.and_then(|title| title.split(':').next());
        let verb = verb.context("a script without its verb")?.to_owned();
        Ok((verb, format!("#!lua{script}")))
    });
    let scripts = scripts.collect::<Result<BTreeMap<_, _>>>()?;
    ensure!(scripts.len() == 25, "{} scripts", scripts.len());
    Ok(scripts)
}
