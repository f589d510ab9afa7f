//! Measures the memory of `dueq serve` while no request runs, after many bodies and connections.

use std::time::Duration;

use anyhow::Result;
use dueq_testkit::Server;
use tokio::task::JoinSet;

use super::Arguments;
use super::http::Connection;
use super::load::{Bodies, pushes};
use super::process::Process;
use dueq_testkit::report::Report;

const CYCLES: usize = 4;
/// The single pushes of a cycle.
const PUSHES: u64 = 20_000;
/// Connections that are open at once. 1,024 is the default limit.
const CONNECTIONS: usize = 1_000;
/// The streamed bodies of a cycle, 256 MiB in all.
const STREAMED: usize = 16;
const STREAMED_BYTES: usize = 16 << 20;
/// The unstreamed bodies of a cycle, which are in memory at once.
const WHOLE: usize = 8;
const WHOLE_BYTES: usize = 15 << 20;
/// The number of different ids in the streamed lines; few, so that Redis need not hold 256 MiB.
const IDS: usize = 1_000;
/// How long to wait until the program's allocator has returned free memory, which it keeps for 10
/// s.
const SETTLING: Duration = Duration::from_secs(15);
const MOST_BYTES: u64 = 64 << 20;
/// The largest allowed ratio of the last cycle's memory to the second's.
const MOST_GROWTH: f64 = 1.1;

pub(super) async fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.scenario("memory");
    let redis = Server::start(&[])?;
    let serve = Process::serve(&arguments.dueq, &redis.url(), &[]).await?;
    serve.connection().get("/v1/queues").await?.expect(&[200])?;
    let (begin, mut after) = (serve.memory_bytes()?, Vec::new());
    let line = format!(
        "{{\"payload\": \"{}\", \"delay\": \"24h\", \"id\": \"ID\"}}\n",
        "x".repeat(1_000)
    );
    let streamed = lines(&line, STREAMED_BYTES);
    let whole = format!(
        "{{\"payload\": \"{}\", \"delay\": \"24h\"}}",
        "x".repeat(WHOLE_BYTES)
    )
    .into_bytes();
    for cycle in 0..CYCLES {
        pushes(serve.address, 64, PUSHES, &format!("m{cycle}-"), "PUT").await?;
        let open = connections(&serve).await?;
        let bytes = serve.memory_bytes()?;
        eprintln!(
            "memory: cycle {}, {} MiB with {} connections",
            cycle + 1,
            mib(bytes),
            open.len()
        );
        drop(open);
        all(&serve, STREAMED, "application/x-ndjson", &streamed).await?;
        all(&serve, WHOLE, "application/json", &whole).await?;
        tokio::time::sleep(SETTLING).await;
        after.push(serve.memory_bytes()?);
        eprintln!(
            "memory: cycle {}, {} MiB without bodies",
            cycle + 1,
            mib(after[cycle])
        );
    }
    report.figure("at the start, MiB", mib(begin));
    judge(report, &after);
    Ok(())
}

/// Lines whose ids repeat.
fn lines(line: &str, bytes: usize) -> Vec<u8> {
    let mut body = String::new();
    for number in (0..IDS).cycle() {
        if body.len() >= bytes {
            break;
        }
        body.push_str(&line.replace("ID", &number.to_string()));
    }
    body.into_bytes()
}

/// Opens connections, and sends a request on each.
async fn connections(serve: &Process) -> Result<Vec<Connection>> {
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = serve.connection();
        connection.get("/healthz").await?.expect(&[200])?;
        open.push(connection);
    }
    Ok(open)
}

/// Sends a body this number of times concurrently.
async fn all(serve: &Process, times: usize, media: &'static str, body: &[u8]) -> Result<()> {
    let mut requests = JoinSet::new();
    for _ in 0..times {
        let bodies = Bodies::new(serve.address, "/v1/queues/main/messages", media);
        let body = body.to_vec();
        requests.spawn(async move { bodies.send(&body).await });
    }
    while let Some(answer) = requests.join_next().await {
        // A payload above the queue's limit is refused only after it was read.
        answer??.expect(&[200, 201, 400, 413])?;
    }
    Ok(())
}

fn judge(report: &mut Report, after: &[u64]) {
    let most = after.iter().max().copied().unwrap_or(u64::MAX);
    report.rule(
        "most without bodies, MiB",
        mib(most),
        format!("below {}", mib(MOST_BYTES)),
        most < MOST_BYTES,
    );
    let (second, last) = (after.get(1).copied(), after.last().copied());
    let growth = last.unwrap_or(0) as f64 / second.unwrap_or(1) as f64;
    let growth = dueq_testkit::report::rounded(growth);
    report.rule(
        "growth after the second cycle, times",
        growth,
        format!("at most {MOST_GROWTH}"),
        growth <= MOST_GROWTH,
    );
}

fn mib(bytes: u64) -> f64 {
    dueq_testkit::report::rounded(bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_below_64_mib_and_flat() {
        let failures = |after: &[u64]| {
            let mut report = Report::default();
            report.scenario("memory");
            judge(
                &mut report,
                &after.iter().map(|mib| mib << 20).collect::<Vec<_>>(),
            );
            report.failures(false).len()
        };
        assert_eq!(failures(&[20, 40, 44]), 0);
        assert_eq!(failures(&[20, 40, 45]), 1);
        assert_eq!(failures(&[64, 40, 40]), 1);
        assert_eq!(lines("ID\n", 10), b"0\n1\n2\n3\n4\n");
    }
}
