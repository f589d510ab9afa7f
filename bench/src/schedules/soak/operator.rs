//! An operator who pauses and resumes schedules, triggers ticks, and applies the same set again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use dueq::{Client, Triggered};
use tokio::task::JoinHandle;

use super::declared::{COUNT, Declared, name};
use crate::limits::QUEUE;
use crate::limits::record::wall_us;

/// The schedules that are paused now and then.
const PAUSED: u64 = 40;
const STEP: Duration = Duration::from_millis(200);
/// One step in so many applies the set again.
const APPLY_ONE_IN: u64 = 5;
pub(super) const SET: &str = "soak";

/// What the operator did.
#[derive(Debug, Default, Clone)]
pub(super) struct Done {
    /// The ids of ticks made by hand.
    pub(super) triggered: HashSet<String>,
    /// Triggers without an answer: the schedule, and from when to when, in ms.
    pub(super) unknown: Vec<(String, u64, u64)>,
    pub(super) pauses: u64,
    pub(super) resumes: u64,
    pub(super) applies: u64,
    pub(super) failed: u64,
    /// Schedules that an apply of the same set created or changed, with the time in ms.
    pub(super) changed: Vec<(String, u64)>,
}

/// Ends on drop.
pub(super) struct Operator {
    done: Arc<Mutex<Done>>,
    task: JoinHandle<Result<()>>,
}

impl Operator {
    pub(super) fn start(url: String, declared: HashMap<String, Declared>) -> Self {
        let done = Arc::default();
        let task = tokio::spawn(operate(url, declared, Arc::clone(&done)));
        Self { done, task }
    }

    pub(super) fn end(self) -> Result<Done> {
        ensure!(!self.task.is_finished(), "the operator ended");
        Ok(locked(&self.done).clone())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn apply(
    client: &Client,
    declared: &HashMap<String, Declared>,
) -> Result<Vec<String>> {
    let schedules = declared.values().map(|declared| declared.schedule.clone());
    let set = client.queue(QUEUE)?.schedules(SET).revision(1).prune(true);
    let changes = set.apply(schedules).await?;
    let changed = changes.created.into_iter().chain(changes.changed);
    Ok(changed
        .map(|declared| declared.name)
        .chain(changes.removed)
        .collect())
}

async fn operate(
    url: String,
    declared: HashMap<String, Declared>,
    done: Arc<Mutex<Done>>,
) -> Result<()> {
    let client = Client::connect(&url).await?;
    let queue = client.queue(QUEUE)?;
    loop {
        tokio::time::sleep(STEP).await;
        let (name, from_ms) = (name(fastrand::u64(..PAUSED)), wall_us() / 1_000);
        let handle = queue.schedule(&*name);
        let is_ok = match fastrand::u64(..APPLY_ONE_IN) {
            0 => {
                let applied = apply(&client, &declared).await;
                let mut done = locked(&done);
                done.applies += 1;
                match applied {
                    Ok(changed) => {
                        let changed = changed.into_iter().map(|name| (name, from_ms));
                        done.changed.extend(changed);
                        true
                    }
                    Err(_) => false,
                }
            }
            1 => {
                let paused = handle.pause().await;
                locked(&done).pauses += 1;
                paused.is_ok()
            }
            // More resumes than pauses, so that few schedules are paused at once.
            2 | 3 => {
                let resumed = handle.resume().await;
                locked(&done).resumes += 1;
                resumed.is_ok()
            }
            _ => {
                let name = self::name(fastrand::u64(..COUNT));
                let triggered = queue.schedule(&*name).trigger().await;
                let mut done = locked(&done);
                match triggered {
                    Ok(Triggered::Created(id) | Triggered::Exists(id)) => {
                        done.triggered.insert(id);
                        true
                    }
                    Ok(_) => true,
                    Err(_) => {
                        // The call may run later than its caller waits.
                        let until_ms = wall_us() / 1_000 + 60_000;
                        done.unknown.push((name, from_ms, until_ms));
                        false
                    }
                }
            }
        };
        locked(&done).failed += u64::from(!is_ok);
    }
}

fn locked(done: &Mutex<Done>) -> MutexGuard<'_, Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}
