//! Makes every call while Redis is unreachable, full, loading, failing over, or loses a reply. Each
//! problem says whether the call was applied, and nothing else has changed.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::calls::{Call, Needs, calls, prepare};
use crate::captured::Captured;
use crate::instance::{Answer, Instance};

/// Prints each key with a hash of its value. `DUMP` has the fields of a hash in any order.
const STATE: &str = "
    local function value(key)
        local kind = redis.call('TYPE', key).ok
        if kind == 'hash' then
            local all, pairs = redis.call('HGETALL', key), {}
            for n = 1, #all, 2 do pairs[#pairs + 1] = all[n] .. '=' .. all[n + 1] end
            table.sort(pairs)
            return pairs
        elseif kind == 'zset' then
            return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
        elseif kind == 'list' then
            return redis.call('LRANGE', key, 0, -1)
        end
        return { kind, redis.call('DUMP', key) }
    end
    local keys, lines = redis.call('KEYS', '*'), {}
    table.sort(keys)
    for n, key in ipairs(keys) do
        lines[n] = key .. ' ' .. redis.sha1hex(table.concat(value(key), '\\n'))
    end
    return table.concat(lines, '\\n')";

pub(crate) fn state(instance: &Instance) -> Result<String> {
    instance.redis.command(&["EVAL", STATE, "0"])
}

/// The answer to a call. For a stream it is the beginning.
async fn answer(instance: &Instance, call: &Call) -> Result<Answer> {
    let bearer = instance.bearer("operator");
    let media_type = call
        .media_type
        .map(|media_type| format!("Content-Type: {media_type}"));
    let headers: Vec<_> = [Some(&*bearer), media_type.as_deref()]
        .into_iter()
        .flatten()
        .collect();
    let answer = match call.is_stream {
        false => instance.ask(&call.line, &headers, call.body).await,
        true => first_event(instance, call, &bearer).await,
    };
    answer.with_context(|| call.line.clone())
}

async fn first_event(instance: &Instance, call: &Call, bearer: &str) -> Result<Answer> {
    let mut stream = instance.connect().await?;
    let head = format!(
        "{} HTTP/1.1\r\nHost: {}\r\n{bearer}\r\n\r\n",
        call.line, instance.address
    );
    stream.write_all(head.as_bytes()).await?;
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains("\n\n") {
        anyhow::ensure!(stream.read_buf(&mut bytes).await? > 0, "the stream ended");
    }
    Answer::parse(&String::from_utf8_lossy(&bytes))
}

/// Makes all calls concurrently, because each may take 10 s, and returns the answers.
async fn answers(instance: &Arc<Instance>, calls: &[Call]) -> Result<Vec<(Call, Answer)>> {
    let mut running = JoinSet::new();
    for call in calls.iter().cloned() {
        let instance = Arc::clone(instance);
        running.spawn(async move {
            let answer = answer(&instance, &call).await?;
            Ok::<_, anyhow::Error>((call, answer))
        });
    }
    running.join_all().await.into_iter().collect()
}

/// The instance, once no call uses it.
fn alone(instance: &mut Arc<Instance>) -> Result<&mut Instance> {
    Arc::get_mut(instance).context("calls are running")
}

/// Checks the answer to a call that needs Redis, which is away: its `applied` is one of these.
fn check(call: &Call, answer: &Answer, applied: &[&str]) -> Result<()> {
    let said = applied_of(call, answer)?;
    let is_fit = said.as_deref().is_none_or(|said| applied.contains(&said));
    assert!(is_fit, "{}: {answer:?}", call.line);
    Ok(())
}

/// The word `applied` of the problem. `None` for a call that is correctly answered without Redis.
fn applied_of(call: &Call, answer: &Answer) -> Result<Option<String>> {
    let line = &call.line;
    match call.needs {
        Needs::Server => {
            assert!(answer.status < 500, "{line}: {answer:?}");
            return Ok(None);
        }
        // The answer says which counts are unknown.
        Needs::Snapshot if answer.status == 200 => {
            assert!(answer.body.contains("\"age_ms\":"), "{line}: {answer:?}");
            return Ok(None);
        }
        _ => {}
    }
    let code = answer.code()?;
    let is_fit = ["redis_unavailable", "redis_timeout"].contains(&&*code);
    assert!(is_fit, "{line}: {answer:?}");
    let problem = answer.json()?;
    assert_eq!(problem["retryable"], true, "{line}: {answer:?}");
    let said = problem["applied"].as_str().context("applied")?;
    Ok(Some(said.to_owned()))
}

fn declares(call: &Call) -> bool {
    ["declare_schedule", "apply_schedules"].contains(&&*call.operation)
}

/// Checks what must hold in every test: the log contains no terminal controls and no token, and
/// every action of an operator has two audit lines.
pub(crate) fn check_logs(instance: &Instance, log: &Captured) -> Result<()> {
    let text = log.text();
    let steers = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    assert!(!text.contains(steers), "{text:?}");
    for token in instance.tokens() {
        assert!(!text.contains(token), "{text}");
    }
    assert!(!text.contains("secret"), "{text}");
    let lines = instance.audit()?;
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!(count("start"), count("end"), "{lines:?}");
    Ok(())
}

/// The number of Redis's client connections, including those of the test.
pub(crate) fn connections(instance: &Instance) -> Result<usize> {
    let clients = instance.redis.command(&["INFO", "clients"])?;
    let mut lines = clients.lines();
    let count = lines.find_map(|line| line.strip_prefix("connected_clients:"));
    Ok(count.context("a count")?.parse()?)
}

/// Repeats a call while Redis is unreachable, until its problem says that it was not applied. On a
/// connection that broke meanwhile, the call may have been sent, so its outcome is unknown.
pub(crate) async fn unapplied(
    connections: usize,
    call: impl AsyncFn() -> Result<Answer>,
) -> Result<()> {
    for _ in 0..=connections {
        let answer = call().await?;
        assert!(matches!(answer.status, 503 | 504), "{answer:?}");
        answer.code()?;
        match answer.json()?["applied"].as_str() {
            Some("no") => return Ok(()),
            other => assert_eq!(other, Some("unknown"), "{answer:?}"),
        }
    }
    anyhow::bail!("it is unknown after {connections} repetitions")
}

/// A server whose Redis has everything that the calls need; and its log.
struct Stage {
    log: Captured,
    instance: Arc<Instance>,
    calls: Vec<Call>,
    before: String,
}

impl Stage {
    async fn of(instance: Instance) -> Result<Self> {
        let log = Captured::start();
        prepare(&instance).await?;
        let mut calls = calls(&instance).await?;
        calls.retain(|call| call.needs != Needs::More);
        // The poller must know the queue, so that lists and streams contain it.
        instance.ask_as("operator", "GET /v1/queues", "").await?;
        let before = state(&instance)?;
        let instance = Arc::new(instance);
        Ok(Self {
            log,
            instance,
            calls,
            before,
        })
    }

    /// Waits until the server has noticed that Redis is unreachable.
    async fn unready(&self) -> Result<()> {
        while self.instance.call("GET /readyz").await?.status == 200 {}
        Ok(())
    }

    /// Asserts that every call fails with a problem, and was not applied. On a connection that
    /// broke meanwhile a call may have been sent, and its outcome is unknown; then it is closed. So
    /// a call that is repeated once for each connection is certain in the end.
    async fn fails_unapplied(&self, connections: usize) -> Result<()> {
        self.unready().await?;
        let mut calls = self.calls.clone();
        for _ in 0..=connections {
            let mut unknown = Vec::new();
            for (call, answer) in answers(&self.instance, &calls).await? {
                match applied_of(&call, &answer)?.as_deref() {
                    None | Some("no") => {}
                    Some("unknown") => unknown.push(call),
                    Some(_) => panic!("{}: {answer:?}", call.line),
                }
            }
            calls = unknown;
            if calls.is_empty() {
                break;
            }
        }
        assert!(
            calls.is_empty(),
            "after {connections} repetitions: {calls:?}"
        );
        let log = self.log.text();
        assert!(
            log.contains("dueq_serve.poll_failed"),
            "nothing is captured: {log}"
        );
        Ok(())
    }

    /// Waits until the server reaches Redis again.
    async fn ready(&self) -> Result<()> {
        while self.instance.call("GET /readyz").await?.status != 200 {}
        Ok(())
    }
}

#[tokio::test]
async fn every_operation_has_a_valid_call() -> Result<()> {
    let stage = Stage::of(Instance::with_tokens().await?).await?;
    let mut before = stage.before.clone();
    for call in &stage.calls {
        let answer = answer(&stage.instance, call).await?;
        let expected = if call.operation == "begin_session" {
            401..402
        } else {
            200..300
        };
        assert!(
            expected.contains(&answer.status),
            "{}: {answer:?}",
            call.line
        );
        let after = state(&stage.instance)?;
        match call.needs {
            Needs::Memory => assert_ne!(after, before, "{}: {answer:?}", call.line),
            // Resuming a queue that is not paused changes nothing.
            Needs::Change => {}
            _ => assert_eq!(after, before, "{}: {answer:?}", call.line),
        }
        before = after;
    }
    check_logs(&stage.instance, &stage.log)
}

#[tokio::test]
async fn every_call_fails_unapplied_while_redis_is_away() -> Result<()> {
    let mut stage = Stage::of(Instance::with_tokens().await?).await?;
    let connections = connections(&stage.instance)?;
    // Redis saves its data before it stops.
    let _ = stage.instance.redis.command(&["SHUTDOWN", "SAVE"]);
    stage.fails_unapplied(connections).await?;
    alone(&mut stage.instance)?.redis.restart()?;
    assert_eq!(state(&stage.instance)?, stage.before);
    stage.ready().await?;
    // No failed call takes effect later.
    assert_eq!(state(&stage.instance)?, stage.before);
    check_logs(&stage.instance, &stage.log)
}

#[tokio::test]
async fn every_call_fails_unapplied_while_redis_loads() -> Result<()> {
    let mut stage = Stage::of(Instance::with_tokens().await?).await?;
    let connections = connections(&stage.instance)?;
    alone(&mut stage.instance)?.redis.restart_loading()?;
    stage.fails_unapplied(connections).await?;
    alone(&mut stage.instance)?.redis.finish_loading()?;
    assert_eq!(state(&stage.instance)?, stage.before);
    stage.ready().await?;
    check_logs(&stage.instance, &stage.log)
}

#[tokio::test]
async fn every_change_fails_while_redis_is_a_replica() -> Result<()> {
    let stage = Stage::of(Instance::with_tokens().await?).await?;
    // No master listens on port 1: the replica keeps its data, and refuses writes by READONLY.
    stage
        .instance
        .redis
        .command(&["REPLICAOF", "127.0.0.1", "1"])?;
    for (call, answer) in answers(&stage.instance, &stage.calls).await? {
        match call.needs {
            Needs::Change | Needs::Memory => check(&call, &answer, &["no"])?,
            // A replica that was the master can still be read.
            _ if answer.status < 500 => {}
            _ => check(&call, &answer, &["no"])?,
        }
    }
    stage.instance.redis.command(&["REPLICAOF", "NO", "ONE"])?;
    assert_eq!(state(&stage.instance)?, stage.before);
    stage.ready().await?;
    check_logs(&stage.instance, &stage.log)
}

#[tokio::test]
async fn full_redis_refuses_calls_that_need_memory() -> Result<()> {
    let stage = Stage::of(Instance::with_tokens().await?).await?;
    let redis = &stage.instance.redis;
    for call in &stage.calls {
        let before = state(&stage.instance)?;
        redis.command(&["CONFIG", "SET", "maxmemory", "1"])?;
        let answer = answer(&stage.instance, call).await?;
        redis.command(&["CONFIG", "SET", "maxmemory", "0"])?;
        if call.needs != Needs::Memory {
            assert!(answer.status < 500, "{}: {answer:?}", call.line);
            continue;
        }
        assert_eq!(answer.refusal()?, (507, "full".to_owned()), "{}", call.line);
        assert_eq!(answer.json()?["applied"], "no", "{}: {answer:?}", call.line);
        assert_eq!(state(&stage.instance)?, before, "{}", call.line);
    }
    check_logs(&stage.instance, &stage.log)
}

#[tokio::test]
async fn lost_reply_is_repeated_or_reported_as_unknown() -> Result<()> {
    let (instance, proxy) = Instance::proxied().await?;
    let stage = Stage::of(instance).await?;
    for call in &stage.calls {
        let before = state(&stage.instance)?;
        proxy.cut_reply_of("EVALSHA");
        let answer = answer(&stage.instance, call).await?;
        proxy.pass_all();
        if answer.status >= 500 {
            let applied: &[_] = match declares(call) {
                true => &["no", "unknown"],
                false => &["unknown"],
            };
            check(call, &answer, applied)?;
        }
        let is_unapplied = answer.status >= 500 && answer.json()?["applied"] == "no";
        if is_unapplied || !matches!(call.needs, Needs::Change | Needs::Memory) {
            assert_eq!(state(&stage.instance)?, before, "{}: {answer:?}", call.line);
        }
    }
    check_logs(&stage.instance, &stage.log)
}

#[tokio::test]
async fn call_whose_every_reply_is_lost_is_unknown() -> Result<()> {
    let (instance, proxy) = Instance::proxied().await?;
    let stage = Stage::of(instance).await?;
    let pushed = stage.instance.client.queue("orders")?.stats().await?.pushed;
    proxy.cut_every_reply_of("EVALSHA");
    let mut undeclared = Vec::new();
    for (call, answer) in answers(&stage.instance, &stage.calls).await? {
        if declares(&call) && answer.json()?["applied"] == "no" {
            undeclared.push(match &*call.operation {
                "declare_schedule" => "hourly",
                _ => "daily",
            });
        }
        match call.needs {
            // A declaration first reads which workers live. If that reply was lost, nothing was
            // applied.
            _ if declares(&call) => check(&call, &answer, &["no", "unknown"])?,
            Needs::Change | Needs::Memory => check(&call, &answer, &["unknown"])?,
            _ if answer.status < 500 => {}
            _ => check(&call, &answer, &["no", "unknown"])?,
        }
    }
    assert!(proxy.cuts() > 0);
    proxy.pass_all();
    stage.ready().await?;
    for name in undeclared {
        let line = format!("GET /v1/queues/orders/schedules/{name}");
        let found = stage.instance.ask_as("operator", &line, "").await?;
        assert_eq!(found.status, 404, "{name}: {found:?}");
    }
    // However often a call was repeated, it took effect at most once.
    let stats = stage.instance.client.queue("orders")?.stats().await?;
    let is_push =
        |call: &&Call| call.operation.starts_with("push_") || call.operation == "trigger_schedule";
    let pushes = stage.calls.iter().filter(is_push).count();
    let most = pushed + u64::try_from(pushes)?;
    assert!((pushed..=most).contains(&stats.pushed), "{stats:?}");
    assert!(stats.cancelled <= 1 && stats.requeued <= 1, "{stats:?}");
    check_logs(&stage.instance, &stage.log)
}
