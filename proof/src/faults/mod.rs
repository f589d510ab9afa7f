//! The faults of server, processes and network, each with evidence that it had an effect.

mod clients;
mod failover;
mod loads;
pub(crate) mod network;
pub(crate) mod processes;
pub(crate) mod rights;
mod server;
mod serving;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::history::{Phase, Role};
use crate::run::log::Log;
use crate::run::stage::Stage;

/// All faults, with the names of the report and of `--faults`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Kind {
    ServerKill,
    ServerStop,
    AofTruncate,
    Failover,
    DiskFull,
    MaxMemory,
    ClockForward,
    ClockBack,
    ScriptFlush,
    FunctionFlush,
    Flushall,
    AnswersDropped,
    RightsTaken,
    KillSubscribers,
    KillBlocked,
    KillEveryone,
    SlowSubscriber,
    ProducerKill,
    WorkerKill,
    CancellerKill,
    OperatorKill,
    ServeKill,
    ConsumerKill,
    WorkerStop,
    ServeStop,
    NodeClock,
    QueueRemove,
    NetDelay,
    NetCut,
    NetHalfOpen,
    NetDrop,
    Storm,
    IdleConnections,
    PurgeBeside,
}

/// A lane: its faults follow one another, and the lanes run concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Server,
    Processes,
    Network,
    Loads,
}

impl Kind {
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    pub fn lane(self) -> Lane {
        match self {
            Self::ProducerKill
            | Self::WorkerKill
            | Self::CancellerKill
            | Self::OperatorKill
            | Self::ServeKill
            | Self::ConsumerKill
            | Self::WorkerStop
            | Self::ServeStop
            | Self::NodeClock
            | Self::QueueRemove => Lane::Processes,
            Self::NetDelay | Self::NetCut | Self::NetHalfOpen | Self::NetDrop => Lane::Network,
            Self::Storm | Self::IdleConnections | Self::PurgeBeside => Lane::Loads,
            _ => Lane::Server,
        }
    }

    /// Whether the fault undoes writes or moves clocks: not while a process is frozen or a storm is
    /// being pushed.
    fn needs_calm(self) -> bool {
        matches!(
            self,
            Self::AofTruncate
                | Self::Failover
                | Self::Flushall
                | Self::ClockForward
                | Self::ClockBack
        )
    }

    fn breaks_calm(self) -> bool {
        matches!(self, Self::WorkerStop | Self::ServeStop | Self::Storm)
    }

    /// About how long the fault takes on an idle machine.
    pub fn takes(self, stage: &Stage) -> Duration {
        let ms = match self {
            Self::WorkerStop => 4 * stage.options.lease_ms,
            Self::Storm => loads::storm_lead_ms(stage.storm_size()) + 1_000,
            Self::Failover => 8_000,
            Self::ServerStop
            | Self::ServeStop
            | Self::AnswersDropped
            | Self::RightsTaken
            | Self::NetHalfOpen
            | Self::NetDrop
            | Self::NodeClock => 7_000,
            _ => 4_000,
        };
        Duration::from_millis(ms)
    }
}

/// Writes the entries of one fault to the history.
pub struct Mark<'a> {
    log: &'a Log,
    fault: String,
    pub number: u64,
    traced: AtomicBool,
}

impl Mark<'_> {
    pub fn begin(&self, detail: &str) {
        self.log
            .fault(&self.fault, self.number, Phase::Begin, detail);
    }

    /// Records evidence of an effect.
    pub fn trace(&self, detail: &str) {
        self.traced.store(true, Ordering::SeqCst);
        self.log
            .fault(&self.fault, self.number, Phase::Trace, detail);
    }

    pub fn end(&self, detail: &str) {
        self.log.fault(&self.fault, self.number, Phase::End, detail);
    }
}

/// Injects the fault. Returns `false` if other faults exclude it now.
pub async fn inject(kind: Kind, stage: &Arc<Stage>, rng: &mut Rng) -> bool {
    let (_alone, _beside);
    if kind.needs_calm() {
        let Ok(guard) = stage.calm.try_write() else {
            return false;
        };
        _alone = guard;
    } else if kind.breaks_calm() {
        let Ok(guard) = stage.calm.try_read() else {
            return false;
        };
        _beside = guard;
    }
    let (log, limit) = (&*stage.log, kind.takes(stage) + 6 * LIMIT);
    let went = marked(log, kind.name(), limit, async |mark| {
        perform(kind, stage, rng, mark).await
    });
    if !went.await && kind.lane() == Lane::Server {
        // The run is no longer valid, but must not hang either.
        stage.back();
    }
    true
}

/// Injects a fault and records it; `false` if it failed.
pub(crate) async fn marked(
    log: &Log,
    fault: String,
    limit: Duration,
    perform: impl AsyncFnOnce(&Mark<'_>) -> Result<()>,
) -> bool {
    let mark = Mark {
        log,
        fault,
        number: log.next(),
        traced: AtomicBool::new(false),
    };
    let result = tokio::time::timeout(limit, perform(&mark)).await;
    let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("it is not over after {limit:?}")));
    conclude(&mark, result)
}

/// Records the result; `false` if the fault failed.
fn conclude(mark: &Mark<'_>, result: Result<()>) -> bool {
    let (log, number, fault) = (mark.log, mark.number, &mark.fault);
    match result {
        Ok(()) if !mark.traced.load(Ordering::SeqCst) => {
            log.wrong(format!("fault {number} {fault} left no trace"))
        }
        Ok(()) => {}
        Err(error) => match error.downcast_ref::<NoTarget>() {
            Some(NoTarget(what)) => log.fault(fault, number, Phase::NotApplied, what),
            None => {
                log.wrong(format!("fault {number} {fault} failed: {error:#}"));
                return false;
            }
        },
    }
    true
}

/// The error of a fault that found nothing to act on. It had no effect, and the run goes on.
#[derive(Debug)]
pub(crate) struct NoTarget(pub(crate) String);

impl std::error::Error for NoTarget {}

impl std::fmt::Display for NoTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

async fn perform(kind: Kind, stage: &Arc<Stage>, rng: &mut Rng, mark: &Mark<'_>) -> Result<()> {
    match kind {
        Kind::ServerKill => server::kill(stage, rng, mark).await,
        Kind::ServerStop => server::stop(stage, rng, mark).await,
        Kind::AofTruncate => server::truncate(stage, rng, mark).await,
        Kind::Failover => failover::fail_over(stage, rng, mark).await,
        Kind::DiskFull => server::disk_full(stage, rng, mark).await,
        Kind::MaxMemory => server::max_memory(stage, rng, mark).await,
        Kind::ClockForward => server::step_clock(stage, rng, mark, 1).await,
        Kind::ClockBack => server::step_clock(stage, rng, mark, -1).await,
        Kind::Flushall => server::flushall(stage, mark).await,
        Kind::AnswersDropped => network::drop_answers(stage, rng, mark).await,
        Kind::RightsTaken => server::take_rights(stage, rng, mark).await,
        Kind::ScriptFlush => clients::script_flush(stage, mark).await,
        Kind::FunctionFlush => clients::function_flush(stage, mark).await,
        Kind::KillSubscribers => clients::kill(stage, mark, clients::Whom::Subscribers).await,
        Kind::KillBlocked => clients::kill(stage, mark, clients::Whom::Blocked).await,
        Kind::KillEveryone => clients::kill(stage, mark, clients::Whom::Everyone).await,
        Kind::SlowSubscriber => clients::slow_subscriber(stage, mark).await,
        Kind::ProducerKill => processes::kill(Role::Producer, &stage.crew, rng, mark).await,
        Kind::WorkerKill => processes::kill(Role::Worker, &stage.crew, rng, mark).await,
        Kind::CancellerKill => processes::kill(Role::Canceller, &stage.crew, rng, mark).await,
        Kind::OperatorKill => processes::kill(Role::Operator, &stage.crew, rng, mark).await,
        Kind::ServeKill => processes::kill(Role::Serve, &stage.crew, rng, mark).await,
        Kind::ConsumerKill => processes::kill(Role::Consumer, &stage.crew, rng, mark).await,
        Kind::WorkerStop => processes::stop(stage, rng, mark).await,
        Kind::ServeStop => serving::stop(stage, rng, mark).await,
        Kind::NodeClock => processes::wrong_clock(stage, rng, mark).await,
        Kind::QueueRemove => processes::remove_queue(stage, rng, mark).await,
        Kind::NetDelay | Kind::NetCut | Kind::NetHalfOpen | Kind::NetDrop => {
            network::disturb(kind, stage, rng, mark).await
        }
        Kind::Storm => loads::storm(stage, mark).await,
        Kind::IdleConnections => loads::idle_connections(stage, mark).await,
        Kind::PurgeBeside => loads::purge_beside(stage, mark).await,
    }
}

/// The time limit for an event that must come: far longer than it takes, even on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
/// The time limit for finding something to act on. On a busy machine no worker may be idle for
/// longer than that.
const TARGET_LIMIT: Duration = Duration::from_secs(10);

/// Polls until there is an answer, also after errors. If the limit is reached, the fault has
/// failed.
pub(crate) async fn until<T>(what: &str, ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(LIMIT, what, ask).await
}

/// Waits for something to act on. After [`TARGET_LIMIT`] the fault is not applied.
pub(crate) async fn target<T>(
    what: &str,
    look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    target_within(TARGET_LIMIT, what, look).await
}

async fn target_within<T>(
    limit: Duration,
    what: &str,
    look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let found = seen_within(limit, Duration::from_millis(5), what, look).await?;
    found.ok_or_else(|| NoTarget(format!("no {what} within {limit:?}")).into())
}

async fn until_within<T>(
    limit: Duration,
    what: &str,
    ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let seen = seen_within(limit, Duration::from_millis(20), what, ask).await?;
    seen.with_context(|| format!("{what} was not seen in {limit:?}"))
}

/// Polls for the first answer. At the limit, `None` or the last error.
async fn seen_within<T>(
    limit: Duration,
    pause: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let start = tokio::time::Instant::now();
    loop {
        match ask().await {
            Ok(Some(answer)) => return Ok(Some(answer)),
            Err(error) if start.elapsed() > limit => {
                return Err(error.context(format!("waiting for {what}")));
            }
            Ok(None) if start.elapsed() > limit => return Ok(None),
            _ => tokio::time::sleep(pause).await,
        }
    }
}

/// Keeps the fault going for a random time.
pub(crate) async fn last(rng: &mut Rng, ms: std::ops::Range<u64>) {
    tokio::time::sleep(Duration::from_millis(rng.u64(ms))).await;
}

/// The state of a process, such as `T` for stopped.
pub(crate) fn process_state(pid: rustix::process::Pid) -> Result<char> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
    stat.rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next())
        .context("no state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_fault_without_a_target_is_counted_and_not_wrong() -> Result<()> {
        let path = std::env::temp_dir().join(format!("dueq-no-target-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let log = Log::new(&path, true)?;
        let mark = |number| Mark {
            log: &log,
            fault: "kill_blocked".into(),
            number,
            traced: AtomicBool::new(false),
        };
        let none = target_within(Duration::from_millis(1), "blocked connection", async || {
            Ok(None::<()>)
        })
        .await;
        assert!(conclude(&mark(1), none));
        assert_eq!(log.not_applied().get("kill_blocked"), Some(&1));
        assert!(log.all_wrong().is_empty());
        let no_server = async || Err::<Option<()>, _>(anyhow::anyhow!("no server"));
        let failed = target_within(Duration::from_millis(1), "blocked connection", no_server).await;
        assert!(!conclude(&mark(2), failed));
        assert!(conclude(&mark(3), Ok(())), "over, and without a trace");
        assert_eq!(log.all_wrong().len(), 2);
        Ok(std::fs::remove_file(&path)?)
    }
}
