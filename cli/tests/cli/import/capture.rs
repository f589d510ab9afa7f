//! The captures of real Redisson keys, and helpers to import them.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use dueq::{Client, Queue, StoredMessage};
use dueq_testkit::Server;
use serde_json::Value;

pub(crate) const CURRENT: &str = include_str!("../../redisson/redisson-4.7.0.tsv");
/// A capture of Redisson 3.16, whose frames have a `double` as id.
pub(crate) const OLD: &str = include_str!("../../redisson/redisson-3.16.0.tsv");
/// A time between two groups of due times in the captures: near ones, and those 50 years ahead.
pub(crate) const LONG_AHEAD_MS: u64 = 3_000_000_000_000;

/// Stores an element from hexadecimal, because the test kit sends text.
const STORE: &str = "local bytes = ARGV[2]:gsub('..', function(pair) return string.char(tonumber(pair, 16)) end) \
    if ARGV[1] == '-' then return redis.call('RPUSH', KEYS[1], bytes) end \
    return redis.call('ZADD', KEYS[1], ARGV[1], bytes)";

pub(crate) fn store(server: &Server, key: &str, score: &str, hex: &str) -> Result<()> {
    let reply = server.command(&["EVAL", STORE, "1", key, score, hex])?;
    ensure!(reply.starts_with(':'), "{reply}");
    Ok(())
}

/// A server that holds the captured keys.
pub(crate) fn load(capture: &str) -> Result<Server> {
    let server = Server::start(&[])?;
    for line in capture.lines() {
        let [_, key, score, hex] = line.split('\t').collect::<Vec<_>>()[..] else {
            anyhow::bail!("no element: {line}")
        };
        store(&server, key, score, hex)?;
    }
    Ok(server)
}

pub(crate) fn dueq(server: &Server, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dueq"));
    command
        .env("REDIS_URL", server.url())
        .env("RUST_LOG", "error")
        .stdin(Stdio::null());
    command.args(args).output().context("dueq")
}

/// Runs an import with --json. Returns the last line of its report and its exit code.
pub(crate) fn import(server: &Server, args: &[&str]) -> Result<(Value, Option<i32>)> {
    let output = dueq(server, &[&["import", "redisson", "--json"], args].concat())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = || format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = serde_json::from_str(text.lines().last().with_context(said)?).with_context(said)?;
    Ok((last, output.status.code()))
}

pub(crate) fn counts(report: &Value) -> [u64; 4] {
    ["read", "created", "known", "unreadable"].map(|name| report[name].as_u64().unwrap_or(u64::MAX))
}

pub(crate) async fn queue(server: &Server, name: &str) -> Result<Queue> {
    Ok(Client::connect(&server.url()).await?.queue(name)?)
}

pub(crate) async fn get(queue: &Queue, id: &str) -> Result<StoredMessage> {
    queue
        .get(id)
        .await?
        .with_context(|| format!("no message {id}"))
}

/// A hash of each captured key's contents.
pub(crate) fn digest(server: &Server, capture: &str) -> Result<Vec<String>> {
    let mut keys: Vec<&str> = capture
        .lines()
        .filter_map(|line| line.split('\t').nth(1))
        .collect();
    keys.dedup();
    let dump = "return redis.sha1hex(redis.call('DUMP', KEYS[1]))";
    keys.into_iter()
        .map(|key| server.command(&["EVAL", dump, "1", key]))
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// Splits the members of a captured ZSET into id, due time and value, by fixed offsets.
pub(crate) fn delayed(capture: &str, name: &str, id_at: usize) -> Vec<(String, u64, Vec<u8>)> {
    let key = format!("zset\tredisson_delay_queue_timeout:{name}\t");
    let members = capture
        .lines()
        .filter_map(|line| line.strip_prefix(&key)?.split_once('\t'));
    members
        .map(|(score, hex)| {
            let (id, value) = (
                &hex[2 * id_at..2 * (id_at + 8)],
                bytes(&hex[2 * (id_at + 16)..]),
            );
            (
                format!("redisson:{id}"),
                score.parse().expect("a time"),
                value,
            )
        })
        .collect()
}
