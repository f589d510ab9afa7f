//! Leases of workers that are gone: the doctor finds them, `dueq end-lease` ends them.

use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dueq_testkit::Server;
use serde_json::Value;

use crate::examined::doctor::{doctor, found};
use crate::queues::operator::{one_in_each_state, says};
use crate::{Said, Work, command, dueq};

/// Calls `look` repeatedly until it finds something.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        ensure!(start.elapsed() < Duration::from_secs(600), "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A child process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lease_of(server: &Server, id: &str) -> Result<Option<Value>> {
    let shown = dueq(server, &["show", "q", id, "--json"])?.json()?;
    Ok((shown["state"] == "leased").then_some(shown))
}

#[test]
fn lease_of_a_killed_worker_is_found_and_ended() -> Result<()> {
    let server = crate::examined::doctor::server()?;
    let push = dueq(&server, &["push", "q", "x", "--id", "m"])?;
    ensure!(push.status.success(), "{}", push.err());
    let mut work = command(&server);
    work.args(["work", "q", "--lease", "6h", "--exec", "exec sleep 60"]);
    let mut worker = Killed(work.stdout(Stdio::null()).spawn()?);
    let shown = until("no lease", || lease_of(&server, "m"))?;
    let node = shown["node"].as_str().context("a node")?.to_owned();
    ensure!(
        shown["pid"] == worker.0.id() && shown["is_alive"] == true,
        "{shown}"
    );
    ensure!(
        shown["since_ms"].is_u64() && shown["is_to_bury"] == false,
        "{shown}"
    );
    let workers = dueq(&server, &["workers", "--json"])?.json()?;
    ensure!(
        workers["pid"] == worker.0.id() && workers["running"].is_u64(),
        "{workers}"
    );
    // Drained, it takes nothing new, and `stats` says so.
    let pid = worker.0.id().to_string();
    let drained = dueq(&server, &["workers", "--drain", &pid])?;
    ensure!(drained.out() == "drained q\n", "{}", drained.err());
    let workers = dueq(&server, &["workers", "q", "--json"])?.json()?;
    ensure!(workers["drained"] == serde_json::json!(["q"]), "{workers}");
    let stats = dueq(&server, &["stats", "q"])?.out();
    ensure!(stats.contains("drained: nothing is claimed"), "{stats}");
    let resumed = dueq(&server, &["workers", "q", "--resume", &pid, "--json"])?.json()?;
    ensure!(resumed["outcome"] == "resumed", "{resumed}");
    let nobody = dueq(&server, &["workers", "--drain", "nobody:1"])?;
    ensure!(nobody.err().contains("no live process"), "{}", nobody.err());
    let list = ["ls", "q", "--state", "leased", "--longest", "--json"];
    let longest = dueq(&server, &list)?.json()?;
    ensure!(longest["since_ms"] == shown["since_ms"], "{longest}");
    // A live worker may keep a message leased for as long as it wants.
    let (_, lines) = doctor(&server, &["q"])?;
    ensure!(found(&lines).is_empty(), "{lines:?}");

    worker.0.kill()?; // SIGKILL
    worker.0.wait()?;
    let mut next = Work::start(&server, "q")?;
    let shown = until("the worker is alive", || {
        let shown = lease_of(&server, "m")?.context("a lease")?;
        Ok((shown["is_alive"] == false).then_some(shown))
    })?;
    ensure!(shown["pid"] == worker.0.id(), "{shown}");
    let finding = until("no finding", || {
        let (_, lines) = doctor(&server, &["q"])?;
        let is_it = |line: &Value| line["finding"] == "orphaned_leases";
        Ok(lines.into_iter().find(is_it))
    })?;
    let cure = format!("dueq end-lease --node {node} q");
    ensure!(
        finding["remedy"]
            .as_str()
            .is_some_and(|remedy| remedy.starts_with(&cure)),
        "{finding}"
    );
    says(
        &server,
        &["end-lease", "--node", &node, "q"],
        0,
        "ended 1 q\n",
    )?;
    let delivery = next.delivery()?;
    ensure!(
        (&delivery["id"], &delivery["attempt"]) == (&"m".into(), &2.into()),
        "{delivery}"
    );
    says(
        &server,
        &["end-lease", "--node", &node, "q"],
        1,
        "ended 0 q\n",
    )?;
    let (_, lines) = doctor(&server, &["q"])?;
    ensure!(found(&lines).is_empty(), "{lines:?}");
    Ok(())
}

#[tokio::test]
async fn end_lease_prints_the_outcome_of_each_message() -> Result<()> {
    let server = Server::start(&[])?;
    let leased = one_in_each_state(&server).await?;
    let shown = lease_of(&server, "leased")?.context("a lease")?;
    ensure!(shown["node"].is_null(), "a claim without a worker: {shown}");
    let name = shown["lease"].as_str().context("a name")?;
    let other = ["end-lease", "q", "leased", "--lease", "0123456789abcdef"];
    says(&server, &other, 1, "not_leased leased\n")?;
    let args = ["end-lease", "q", "waits", "dead", "none"];
    says(
        &server,
        &args,
        1,
        "not_leased waits\nnot_leased dead\nabsent none\n",
    )?;
    let ended = dueq(
        &server,
        &["end-lease", "q", "leased", "--lease", name, "--json"],
    )?;
    let line = ended.json()?;
    ensure!(
        ended.status.success() && line["outcome"] == "ended",
        "{line}"
    );
    ensure!(line["due_ms"].is_u64(), "{line}");
    ensure!(
        leased.ack().await? == dueq::outcomes::SettleOutcome::Lost,
        "the old token is refused"
    );
    says(
        &server,
        &["end-lease", "q", "leased", "--lease", name],
        1,
        "not_leased leased\n",
    )?;
    Ok(())
}

#[tokio::test]
async fn bury_takes_any_message_out_of_service() -> Result<()> {
    let server = Server::start(&[])?;
    let leased = one_in_each_state(&server).await?;
    let args = [
        "bury", "q", "waits", "leased", "dead", "none", "--reason", "poison",
    ];
    let words = "buried waits\nmarked leased\ndead dead\nabsent none\n";
    says(&server, &args, 1, words)?;
    let shown = dueq(&server, &["show", "q", "waits", "--json"])?.json()?;
    ensure!(
        shown["state"] == "dead" && shown["error"] == "poison",
        "{shown}"
    );
    let shown = lease_of(&server, "leased")?.context("a lease")?;
    ensure!(shown["is_to_bury"] == true, "{shown}");
    ensure!(leased.release().await? == dueq::outcomes::SettleOutcome::Done);
    let shown = dueq(&server, &["show", "q", "leased", "--json"])?.json()?;
    ensure!(shown["state"] == "dead", "{shown}");
    Ok(())
}
