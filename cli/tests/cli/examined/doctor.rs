//! `dueq doctor` on healthy queues, and on queues with faults that the test creates.

use std::time::Duration;

use anyhow::{Context, Result};
use dueq_testkit::Server;
use serde_json::Value;

use crate::queues::operator::one_in_each_state;
use crate::{Said, dueq};

/// A server without findings.
pub(crate) fn server() -> Result<Server> {
    Server::start(&["--appendonly", "yes"])
}

/// Runs the doctor. Returns its exit code and the objects of its report.
pub(crate) fn doctor(server: &Server, args: &[&str]) -> Result<(Option<i32>, Vec<Value>)> {
    let output = dueq(server, &[&["doctor", "--json"], args].concat())?;
    let lines = output
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).context(line.to_owned()))
        .collect::<Result<_>>();
    Ok((output.code(), lines.with_context(|| output.err())?))
}

/// The findings as `code subject`.
pub(crate) fn found(lines: &[Value]) -> Vec<String> {
    let findings = lines.iter().filter(|line| line.get("finding").is_some());
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    findings
        .map(|line| format!("{} {}", word(line, "finding"), word(line, "id")))
        .collect()
}

pub(crate) fn healthy(server: &Server) -> Result<()> {
    let (code, lines) = doctor(server, &[])?;
    assert_eq!((code, found(&lines)), (Some(0), Vec::new()), "{lines:#?}");
    let remarks = lines
        .iter()
        .filter(|line| line.get("remark").is_some())
        .count();
    assert_eq!(
        lines.last(),
        Some(
            &serde_json::json!({ "found": 0, "repaired": 0, "remarks": remarks, "not_checked": 0 })
        )
    );
    Ok(())
}

/// Asserts that the doctor has one finding, and that it has a consequence and a remedy.
pub(crate) fn finds(server: &Server, args: &[&str], expected: &str) -> Result<Value> {
    let (code, lines) = doctor(server, args)?;
    assert_eq!(
        (code, found(&lines)),
        (Some(1), vec![expected.to_owned()]),
        "{lines:#?}"
    );
    let finding = lines
        .into_iter()
        .find(|line| line.get("finding").is_some())
        .context("a finding")?;
    for name in ["problem", "consequence", "remedy"] {
        // A repaired finding needs no remedy.
        let done = name == "remedy" && finding["repaired"] == true;
        assert!(
            done || finding[name].as_str().is_some_and(|text| !text.is_empty()),
            "{name} of {finding}"
        );
    }
    Ok(finding)
}

pub(crate) fn run(server: &Server, command: &[&str]) -> Result<()> {
    let reply = server.command(command)?;
    assert!(!reply.starts_with('-'), "{command:?}: {reply}");
    Ok(())
}

#[test]
fn doctor_finds_a_lone_primary_and_a_replica() -> Result<()> {
    let server = server()?;
    let port = server.port().to_string();
    let replica = Server::start(&["--appendonly", "yes", "--replicaof", "127.0.0.1", &port])?;
    let start = std::time::Instant::now();
    while !server
        .command(&["INFO", "replication"])?
        .contains("state=online")
    {
        anyhow::ensure!(start.elapsed().as_secs() < 600, "no replica came");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    finds(&server, &[], "replicas min-replicas-to-write")?;
    run(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"])?;
    healthy(&server)?;
    finds(&replica, &[], "replica role")?;
    Ok(())
}

#[tokio::test]
async fn doctor_prints_consequence_and_remedy() -> Result<()> {
    let server = server()?;
    let _leased = one_in_each_state(&server).await?;
    run(&server, &["ZREM", "dueq:{q}:scheduled", "waits"])?;
    let said = dueq(&server, &["doctor", "q"])?.out();
    for words in [
        "unplaced waits: ",
        "so   it is never delivered",
        "run  dueq doctor --repair q",
        "1 found, 0 repaired",
    ] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    // Ids are escaped.
    run(&server, &["HSET", "dueq:{q}:messages", "\x1b[2J", "x"])?;
    let said = dueq(&server, &["doctor", "q", "--repair"])?.out();
    assert!(
        said.contains("repaired: ")
            && said.contains("2 found, 2 repaired")
            && !said.contains('\x1b'),
        "{said}"
    );
    Ok(())
}

/// Unix milliseconds of the year 2100: a message that is due then is not overdue.
pub(crate) const LATER: &str = "4102444800000";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

#[test]
fn doctor_finds_why_due_messages_are_not_delivered() -> Result<()> {
    let server = server()?;
    for id in ["a", "b", "c"] {
        dueq(&server, &["push", "q", "x", "--id", id, "--at", LONG_AGO])?;
    }
    let overdue = finds(&server, &["q"], "overdue q")?;
    assert_eq!(overdue["remedy"], "dueq work q --exec COMMAND", "{overdue}");
    dueq(&server, &["pause", "q"])?;
    let paused = finds(&server, &[], "paused q")?;
    assert_eq!(paused["remedy"], "dueq resume q", "{paused}");
    assert!(
        paused["problem"]
            .as_str()
            .is_some_and(|problem| problem.contains("3 messages are due")),
        "{paused}"
    );
    dueq(&server, &["resume", "q"])?;
    // The field `paused` pauses the queue whatever its value.
    run(&server, &["HSET", "dueq:{q}:meta", "paused", "0"])?;
    finds(&server, &[], "paused q")?;
    run(&server, &["HDEL", "dueq:{q}:meta", "paused"])?;

    let mut worker = crate::command(&server)
        .args([
            "work",
            "q",
            "--concurrency",
            "1",
            "--exec",
            "echo; exec sleep 1000",
        ])
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    // Once the first command has written its output, the only handler is busy.
    let mut line = [0];
    std::io::Read::read_exact(&mut worker.stdout.take().context("its output")?, &mut line)?;
    let busy = finds(&server, &["q"], "overdue q");
    worker.kill()?;
    worker.wait()?;
    let busy = busy?;
    assert!(
        busy["problem"].as_str().is_some_and(
            |problem| problem.contains("1 workers or servers for claims over HTTP are alive")
        ),
        "{busy}"
    );
    Ok(())
}

#[tokio::test]
async fn doctor_reports_dead_messages_as_a_remark() -> Result<()> {
    let server = server()?;
    let _leased = one_in_each_state(&server).await?;
    let (code, lines) = doctor(&server, &["q"])?;
    let remark = lines
        .iter()
        .find(|line| line.get("remark").is_some())
        .context("a remark")?;
    assert_eq!(
        (code, &remark["remark"], found(&lines).len()),
        (Some(0), &"dead".into(), 0)
    );
    let said = dueq(&server, &["doctor", "q"])?.out();
    assert!(
        said.contains("remark: dead q: 1 messages are dead"),
        "{said}"
    );
    assert!(said.contains("nothing found, 1 remark\n"), "{said}");
    Ok(())
}

#[test]
fn doctor_finds_too_few_replicas_for_writes() -> Result<()> {
    let server = server()?;
    dueq(&server, &["push", "q", "x", "--id", "a", "--at", LONG_AGO])?;
    run(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"])?;
    let output = dueq(&server, &["doctor"])?;
    let said = output.out();
    assert!(
        said.contains("noreplicas min-replicas-to-write: 0 replicas follow"),
        "{said}"
    );
    assert!(
        said.contains("nothing is pushed, claimed or delivered"),
        "{said}"
    );
    assert!(
        said.contains("run  redis-cli -u \"$REDIS_URL\" INFO replication"),
        "{said}"
    );
    assert!(
        said.contains("overdue q"),
        "reads still work, so the queues are checked: {said}"
    );
    assert_eq!((output.code(), output.err()), (Some(1), String::new()));
    Ok(())
}

#[test]
fn doctor_explains_a_failed_snapshot() -> Result<()> {
    let server = Server::start(&["--enable-protected-configs", "yes", "--save", "3600 1"])?;
    dueq(&server, &["push", "q", "x", "--delay", "1h"])?;
    let folder = server.folder().join("gone");
    std::fs::create_dir(&folder)?;
    run(
        &server,
        &["CONFIG", "SET", "dir", &folder.display().to_string()],
    )?;
    std::fs::remove_dir(&folder)?;
    server.command(&["BGSAVE"])?;
    let start = std::time::Instant::now();
    while !server
        .command(&["INFO", "persistence"])?
        .contains("rdb_last_bgsave_status:err")
    {
        anyhow::ensure!(start.elapsed().as_secs() < 600, "the snapshot did not fail");
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = dueq(&server, &["doctor", "q"])?.out();
    assert!(said.contains("disk rdb_last_bgsave_status"), "{said}");
    assert!(
        said.contains("refused with MISCONF, beats and claims too"),
        "{said}"
    );
    run(
        &server,
        &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"],
    )?;
    let said = dueq(&server, &["doctor", "q"])?.out();
    assert!(
        said.contains("disk rdb_last_bgsave_status") && !said.contains("MISCONF"),
        "{said}"
    );
    Ok(())
}

#[test]
fn remedies_name_the_server_of_the_call() -> Result<()> {
    let server = Server::start(&["--appendonly", "no"])?;
    let by_variable = dueq(&server, &["doctor"])?.out();
    assert!(
        by_variable.contains("run  redis-cli -u \"$REDIS_URL\" CONFIG SET appendonly yes"),
        "{by_variable}"
    );
    let url = server.url();
    let output = crate::command(&server)
        .env_remove("REDIS_URL")
        .args(["doctor", "--redis", &url])
        .output()?;
    let by_flag = output.out();
    assert!(
        by_flag.contains(&format!(
            "run  redis-cli -u {url} CONFIG SET appendonly yes"
        )),
        "{by_flag}"
    );
    Ok(())
}
