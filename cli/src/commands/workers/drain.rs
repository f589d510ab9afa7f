//! `dueq workers --drain` and `--resume`.

use dueq::inspect::{NodeInfo, WorkerProcess};
use dueq::outcomes::DrainOutcome;

use crate::Common;
use crate::output::{self, Outcome, Usage};

/// Drains or resumes the workers of the process in each of its queues.
pub(super) async fn drain(
    common: &Common,
    workers: &[(String, NodeInfo)],
    meant: &str,
    drains: bool,
) -> anyhow::Result<Outcome> {
    let process = chosen(WorkerProcess::group(workers.iter().cloned()), meant)?;
    if process.info.is_none() {
        anyhow::bail!(
            "{meant} is of an older release, which does not obey a drain: stop it instead"
        );
    }
    let client = common.client().await?;
    let mut outcome = Outcome::Done;
    for name in &process.queues {
        let of_queue = workers.iter().filter(|(queue, _)| queue == name);
        let ids = of_queue.map(|(_, node)| &node.id);
        let ids: Vec<_> = ids.filter(|id| process.workers.contains(id)).collect();
        let queue = client.queue(name)?;
        let outcomes = match drains {
            true => queue.drain_nodes(&ids).await?,
            false => queue.resume_nodes(&ids).await?,
        };
        let refusal = outcomes.iter().find(|one| **one != DrainOutcome::Done);
        let word = match (refusal, drains) {
            (Some(DrainOutcome::Full), _) => "full",
            (Some(_), _) => "gone",
            (None, true) => "drained",
            (None, false) => "resumed",
        };
        outcome = outcome.and(Outcome::done_if(refusal.is_none()));
        output::queue(common.json, name, word, None)?;
    }
    Ok(outcome)
}

/// The one process that this text names.
fn chosen(processes: Vec<WorkerProcess>, meant: &str) -> anyhow::Result<WorkerProcess> {
    let is_meant = |process: &WorkerProcess| {
        let of_process = process.info.as_ref().is_some_and(|info| {
            meant == info.pid.to_string() || meant == format!("{}:{}", info.host, info.pid)
        });
        of_process || process.workers.iter().any(|id| id == meant)
    };
    let mut found = processes.into_iter().filter(is_meant);
    match (found.next(), found.next()) {
        (Some(process), None) => Ok(process),
        (None, _) => anyhow::bail!("no live process is named {meant}: dueq workers lists them"),
        (Some(_), Some(_)) => {
            Err(Usage(format!("{meant} names several processes: write HOST:PID")).into())
        }
    }
}
