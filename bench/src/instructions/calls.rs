//! The calls whose instructions are counted: each is an EVALSHA, one after the other on one
//! connection, with the time as an argument.
//!
//! The queue has `meta.test`, which allows that argument: so neither callgrind's speed nor the
//! machine's changes what a script does.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use redis::{Connection, Value};

use super::counter::Counter;
use super::parts;

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
const VERBS: [&str; 3] = ["push", "claim", "ack"];
const PAYLOAD: usize = 100;
/// The epoch of the map, as calls that name ids carry it.
const EPOCH: &str = "1800000000000";
const LEASE_MS: &str = "30000";
/// How many messages wait beside the counted ones: Redis resizes no table while those come and go.
const WAITING: usize = 15_000;
const WAITING_DELAY_MS: &str = "+31536000000";
const LATER_MS: &str = "+3600000";
const DAY_MS: u64 = 86_400_000;
/// Messages of a call, and how many calls are counted: Lua's collector works in large steps.
const SIZES: [(usize, usize); 2] = [(1, 400), (100, 100)];
/// The time between two calls: what a push remembers for 10 s is forgotten 50 calls later.
const STEP_MS: u64 = 200;

/// The form of push's argument `until`.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub(super) enum Until {
    /// `MS`, or `MS fresh` for many messages without chosen ids
    Fresh,
    /// `MS.FRACTION NONCE`
    Nonce,
}

pub(super) struct Scripts {
    sources: Vec<String>,
    until: Until,
    /// Whether this claim script has an argument that asks for due messages.
    claim_due: bool,
}

impl Scripts {
    pub(super) fn read(folder: &Path, until: Option<Until>) -> Result<Self> {
        let read = |verb: &&str| {
            let file = folder.join(format!("{verb}.lua"));
            std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))
        };
        let sources: Vec<String> = VERBS.iter().map(read).collect::<Result<_>>()?;
        let detected = if sources[0].contains("' fresh'") {
            Until::Fresh
        } else {
            Until::Nonce
        };
        let claim_due = sources[1].contains("due (1, empty or left out)");
        Ok(Self {
            sources,
            until: until.unwrap_or(detected),
            claim_due,
        })
    }
}

pub(super) struct Calls {
    connection: Connection,
    shas: Vec<String>,
    /// Parts of ack: their names, and the scripts that end with them.
    parts: Vec<(&'static str, String)>,
    until: Until,
    claim_due: bool,
    /// Whether the queues have a partition map, whose epoch pushes carry.
    has_map: bool,
    /// The prefix of all keys of the present queue.
    base: String,
    now_ms: u64,
    /// A counter for unique ids, tokens and nonces.
    made: u64,
    /// The options of each pushed message.
    options: String,
    /// Further fields of meta, with their values.
    settings: Vec<(String, String)>,
}

/// Whether ids are like the library's, or like those of an application.
#[derive(Clone, Copy)]
enum Ids {
    Made,
    Chosen,
}

impl Calls {
    pub(super) fn new(
        mut connection: Connection,
        scripts: &Scripts,
        has_map: bool,
    ) -> Result<Self> {
        let mut load = |source: &str| {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(source)
                .query(&mut connection)
        };
        let shas = scripts.sources.iter().map(|source| load(source));
        let shas = shas.collect::<Result<_, _>>()?;
        let mut parts = parts::scripts(&scripts.sources[2])?;
        for (_, script) in &mut parts {
            *script = load(script)?;
        }
        let (until, base) = (scripts.until, String::new());
        Ok(Self {
            connection,
            shas,
            parts,
            until,
            claim_due: scripts.claim_due,
            has_map,
            base,
            now_ms: 1_800_000_000_000,
            made: 0,
            options: String::new(),
            settings: Vec::new(),
        })
    }

    /// Gives all messages these options, and all queues these settings, each as NAME=VALUE.
    pub(super) fn use_features(&mut self, options: &str, settings: &[String]) -> Result<()> {
        options.clone_into(&mut self.options);
        for setting in settings {
            let (name, value) = setting
                .split_once('=')
                .with_context(|| format!("{setting:?} is not NAME=VALUE"))?;
            self.settings.push((name.to_owned(), value.to_owned()));
        }
        Ok(())
    }

    /// The name and version of the server.
    pub(super) fn server(&mut self) -> Result<String> {
        let info: String = redis::cmd("INFO")
            .arg("server")
            .query(&mut self.connection)?;
        let version = |name: &str| {
            let version = info
                .lines()
                .find_map(|line| line.strip_prefix(&format!("{name}_version:")))?;
            Some(format!("{name} {}", version.trim_end()))
        };
        version("valkey")
            .or_else(|| version("redis"))
            .context("INFO names no version")
    }

    /// Fills the queues, and makes half of the calls: after that, tables, buffers and remembered
    /// ids have their final size.
    pub(super) fn warm_up(&mut self, counter: &mut Counter) -> Result<()> {
        self.lives_of(counter, 2).map(drop)
    }

    /// Counts every figure once. Returns each name with its instructions per message.
    pub(super) fn round(&mut self, counter: &mut Counter) -> Result<Vec<(String, u64)>> {
        self.lives_of(counter, 1)
    }

    /// Counts what a call costs up to the end of each part.
    pub(super) fn parts(&mut self, counter: &mut Counter) -> Result<Vec<(String, u64)>> {
        let (_, calls) = SIZES[0];
        self.open("dueq:{made-1}".to_owned())?;
        let mut figures = Vec::new();
        for (number, (name, sha)) in self.parts.clone().into_iter().enumerate() {
            counter.count()?;
            for _ in 0..calls {
                let _: Value = self.evaluate(&sha, &format!("{}.5", self.now_ms), &[])?;
            }
            let name = format!("a call, part {}: {name}", number + 1);
            figures.push((name, counter.count()? / calls as u64));
        }
        Ok(figures)
    }

    /// Counts each kind of ids and each size of call in its own queue, so that a push finds only
    /// remembered ids of its kind.
    fn lives_of(&mut self, counter: &mut Counter, divisor: usize) -> Result<Vec<(String, u64)>> {
        let mut figures = Vec::new();
        for (ids, kind) in [(Ids::Made, "made"), (Ids::Chosen, "chosen")] {
            for (size, calls) in SIZES.map(|(size, calls)| (size, calls / divisor)) {
                self.open(format!("dueq:{{{kind}-{size}}}"))?;
                let [later, at_once, claim, ack] = self.lives(counter, ids, size, calls)?;
                let named = [
                    ("push due in an hour", later),
                    ("push due at once", at_once),
                    ("claim", claim),
                    ("ack", ack),
                ];
                figures.extend(named.map(|(what, instructions)| {
                    (
                        format!("{what}, {kind} ids, {size} a call"),
                        instructions / (size * calls) as u64,
                    )
                }));
            }
        }
        Ok(figures)
    }

    /// Switches to this queue. A new queue first gets the waiting messages.
    fn open(&mut self, base: String) -> Result<()> {
        self.base = base;
        let mut allow = redis::cmd("HSETNX");
        let new: bool = allow
            .arg(format!("{}:meta", self.base))
            .arg("test")
            .arg("1")
            .query(&mut self.connection)?;
        if new && self.has_map {
            let mut map = redis::cmd("HSET");
            map.arg(format!("{}:meta", self.base))
                .arg(&["layout", "2", "epoch", EPOCH]);
            let () = map.query(&mut self.connection)?;
        }
        for (name, value) in self.settings.iter().filter(|_| new) {
            let mut set = redis::cmd("HSET");
            set.arg(format!("{}:meta", self.base)).arg(name).arg(value);
            // Set the field as `configure` does: claims then look for limits.
            let () = set.arg("selective").arg("1").query(&mut self.connection)?;
        }
        for _ in 0..if new { WAITING / 1_000 } else { 0 } {
            self.push(Ids::Made, 1_000, WAITING_DELAY_MS)?;
        }
        Ok(())
    }

    /// The instructions of these calls: push due in an hour, push due at once, claim, ack.
    fn lives(
        &mut self,
        counter: &mut Counter,
        ids: Ids,
        size: usize,
        calls: usize,
    ) -> Result<[u64; 4]> {
        counter.count()?;
        for _ in 0..calls {
            self.push(ids, size, LATER_MS)?;
        }
        let later = counter.count()?;
        self.now_ms += DAY_MS;
        for _ in 0..calls {
            let claim = self.claim(size)?;
            self.ack(&claim)?;
        }
        self.now_ms += DAY_MS;
        counter.count()?;
        for _ in 0..calls {
            self.push(ids, size, "+0")?;
        }
        let at_once = counter.count()?;
        let claims = (0..calls)
            .map(|_| self.claim(size))
            .collect::<Result<Vec<_>>>()?;
        let claim = counter.count()?;
        for claim in &claims {
            self.ack(claim)?;
        }
        Ok([later, at_once, claim, counter.count()?])
    }

    /// The argument `until`, as the library sends it.
    fn until(&mut self, ids: Ids, size: usize) -> String {
        let ms = self.now_ms + 10_000;
        match (self.until, ids) {
            (Until::Fresh, Ids::Made) if size > 1 => format!("{ms} fresh"),
            (Until::Fresh, _) => ms.to_string(),
            (Until::Nonce, _) => format!("{ms}.123 {}", self.unique()),
        }
    }

    fn push(&mut self, ids: Ids, size: usize, due: &str) -> Result<()> {
        let until = self.until(ids, size);
        let mut words = vec![until];
        for _ in 0..size {
            let id = match ids {
                Ids::Made => self.unique(),
                Ids::Chosen => {
                    self.made += 1;
                    format!("order-{:010}", self.made)
                }
            };
            words.extend([
                id,
                due.to_owned(),
                "x".repeat(PAYLOAD),
                self.options.clone(),
            ]);
        }
        let reply = self.call(0, &words)?;
        ensure!(
            reply.len() == 2 && texts(&reply[1])?.iter().all(|result| result == "CREATED"),
            "push answered {reply:?}"
        );
        Ok(())
    }

    /// Claims, and returns the arguments that acknowledge the grant.
    fn claim(&mut self, size: usize) -> Result<Vec<String>> {
        self.made += 1;
        let token = format!("{:016}", self.made);
        let mut words = [&size.to_string(), &token, LEASE_MS]
            .map(String::from)
            .to_vec();
        words.extend(self.claim_due.then(|| "1".to_owned()));
        let reply = self.call(1, &words)?;
        let ids = texts(reply.get(3).context("a claim answers with ids")?)?;
        ensure!(ids.len() == size, "{} of {size} claimed", ids.len());
        Ok([vec![token, size.to_string()], ids].concat())
    }

    fn ack(&mut self, claim: &[String]) -> Result<()> {
        let reply = self.call(2, claim)?;
        ensure!(
            reply.len() == 2 && texts(&reply[1])?.iter().all(|result| result == "OK"),
            "ack answered {reply:?}"
        );
        Ok(())
    }

    fn call(&mut self, verb: usize, words: &[String]) -> Result<Vec<Value>> {
        self.now_ms += STEP_MS;
        let now = format!("{}.5", self.now_ms);
        let now = match VERBS[verb] {
            "push" if self.has_map => format!("m{EPOCH} {now}"),
            _ => now,
        };
        self.evaluate(&self.shas[verb].clone(), &now, words)
            .with_context(|| VERBS[verb])
    }

    fn evaluate<T: redis::FromRedisValue>(
        &mut self,
        sha: &str,
        now: &str,
        words: &[String],
    ) -> Result<T> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(sha).arg(KEYS.len());
        for suffix in KEYS {
            call.arg(format!("{}:{suffix}", self.base));
        }
        Ok(call.arg(now).arg(words).query(&mut self.connection)?)
    }

    /// A unique id of 22 characters like the library's: its first characters change rarely, as in a
    /// UUIDv7.
    fn unique(&mut self) -> String {
        self.made += 1;
        let mixed = self.made.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!(
            "01K{:07}{:012}",
            self.made / 1_000,
            mixed % 1_000_000_000_000
        )
    }
}

fn texts(value: &Value) -> Result<Vec<String>> {
    Ok(redis::from_redis_value(value.clone())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::systems::root;

    #[test]
    fn the_scripts_of_the_repository_are_read() {
        assert_eq!(
            Scripts::read(&root().join("lua/dist"), None)
                .expect("lua/dist/")
                .sources
                .len(),
            VERBS.len()
        );
        assert!(Scripts::read(Path::new("/nowhere"), None).is_err());
    }
}
