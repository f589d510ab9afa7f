//! The parts of a run that faults act on.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::RwLock;
use tokio::task::JoinSet;

use super::Options;
use super::log::Log;
use super::shim::Control;
use super::store::{Found, Store};
use crate::history::Role;
use crate::kit::place::Place;
use crate::kit::proxy::{Direction, Mode, Proxy};
use crate::queues::Planned;

/// A queue that a fault purges, beside those of the workload.
pub const ASIDE: &str = "aside";
/// The name of a file that exists while the server has a replica.
pub const REPLICA_SIGN: &str = "there-is-a.replica";

/// A file that a producer creates beside `replica_sign` after a replica has confirmed a push.
pub fn confirmed_sign(replica_sign: &Path) -> PathBuf {
    replica_sign.with_extension("confirmed")
}

pub struct Stage {
    pub options: Options,
    store: Mutex<Arc<Store>>,
    pub crew: Vec<Arc<Place>>,
    pub log: Arc<Log>,
    /// A lock: faults that undo writes lock it for writing; faults that must not coincide with
    /// them, for reading.
    pub calm: RwLock<()>,
    /// The number of files that this process may have open.
    pub file_limit: u64,
    pub folder: PathBuf,
    pub library: PathBuf,
    /// Whether the proxies block all processes; and each proxy's mode after that.
    gate: Mutex<Gate>,
    /// The tasks that keep the processes running.
    pub keepers: Mutex<JoinSet<Result<()>>>,
    stormed: AtomicBool,
}

#[derive(Debug, Default)]
pub struct Gate {
    away: bool,
    /// Whether the proxies drop the server's answers.
    mute: bool,
    /// The process whose network is disturbed; whether the connections of its callers are; and the
    /// mode.
    disturbed: Option<(String, bool, Mode)>,
    /// Processes that stay connected to the replaced server.
    left_behind: Vec<String>,
}

impl Stage {
    pub fn new(
        options: Options,
        store: Store,
        crew: Vec<Arc<Place>>,
        log: Arc<Log>,
        file_limit: u64,
        folder: PathBuf,
        library: PathBuf,
    ) -> Self {
        Self {
            options,
            store: Mutex::new(Arc::new(store)),
            crew,
            log,
            calm: RwLock::new(()),
            file_limit,
            folder,
            library,
            gate: Mutex::default(),
            keepers: Mutex::new(JoinSet::new()),
            stormed: AtomicBool::new(false),
        }
    }

    /// The queues of the workload, including that of the schedules.
    pub fn queues(&self) -> &'static [Planned] {
        self.options.served()
    }

    /// The first queue, which has the most traffic.
    pub fn queue(&self) -> &'static str {
        self.queues()[0].name
    }

    /// The current server; a failover replaces it.
    pub fn store(&self) -> Arc<Store> {
        Arc::clone(&self.locked_store())
    }

    fn locked_store(&self) -> MutexGuard<'_, Arc<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the server: the proxies connect to the new one. Returns the old one.
    pub fn replace_store(&self, store: Arc<Store>) -> Arc<Store> {
        std::mem::replace(&mut *self.locked_store(), store)
    }

    /// Keeps these processes connected to the current server, even after a failover. An empty list
    /// ends that.
    pub fn leave_behind(&self, places: Vec<String>) {
        self.change_gate(|gate| gate.left_behind = places);
    }

    /// A file that exists while the server has a replica.
    pub fn replica_sign(&self) -> PathBuf {
        self.folder.join(REPLICA_SIGN)
    }

    /// Blocks every process, and closes its connections; processes that are left behind stay
    /// connected.
    pub fn away(&self) {
        self.change_gate(|gate| gate.away = true);
    }

    pub fn back(&self) {
        self.change_gate(|gate| gate.away = false);
    }

    /// Drops the server's answers to all processes, or ends that.
    pub fn drop_answers(&self, mute: bool) {
        self.change_gate(|gate| gate.mute = mute);
    }

    /// Disturbs the connection of a process to Redis; with `is_front`, the connections of its
    /// callers.
    pub fn disturb(&self, place: &Place, is_front: bool, mode: Option<Mode>) {
        let disturbed = mode.map(|mode| (place.name.clone(), is_front, mode));
        self.change_gate(|gate| gate.disturbed = disturbed);
    }

    fn change_gate(&self, change: impl FnOnce(&mut Gate)) {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut gate);
        let port = self.store().port;
        for place in &self.crew {
            let stays = gate.left_behind.contains(&place.name);
            if !stays {
                place.proxy.lead_to(port);
            }
            let mode_of = |is_front: bool, proxy: &Proxy| match &gate.disturbed {
                Some((name, of_front, mode)) if *name == place.name && *of_front == is_front => {
                    mode.clone()
                }
                _ if gate.mute && !is_front => Mode::Drop(Direction::Replies),
                _ => proxy.usual(),
            };
            place.proxy.set(match gate.away && !stays {
                true => Mode::Away,
                false => mode_of(false, &place.proxy),
            });
            if let Some(front) = &place.front {
                front.set(mode_of(true, front));
            }
        }
    }

    /// The state of all queues: the main queue first, the queue `aside` last.
    pub async fn found(&self) -> Result<Vec<(String, Option<Found>)>> {
        self.found_on(&self.store()).await
    }

    /// The state of all queues on this server.
    pub async fn found_on(&self, store: &Store) -> Result<Vec<(String, Option<Found>)>> {
        let mut found = Vec::new();
        let names = self.queues().iter().map(|queue| queue.name);
        for queue in names.chain([ASIDE]) {
            found.push((queue.to_owned(), store.found(queue).await?));
        }
        Ok(found)
    }

    /// The state of all queues, once it no longer changes because no process is connected.
    pub async fn settled(&self) -> Result<Vec<(String, Option<Found>)>> {
        let mut before = self.found().await?;
        loop {
            tokio::time::sleep(Duration::from_millis(30)).await;
            let now = self.found().await?;
            if now == before {
                return Ok(now);
            }
            before = now;
        }
    }

    /// A counter of the main queue.
    pub async fn counter(&self, name: &str) -> Result<u64> {
        self.store().counter(self.queue(), name).await
    }

    /// The greatest step of the server's clock: messages and leases of dead workers may take that
    /// much longer to drain.
    pub fn step_limit_ms(&self) -> i64 {
        if self.options.duration >= 300 {
            30_000
        } else {
            8_000
        }
    }

    /// The number of messages of a storm. The first storm of a long run has a million.
    pub fn storm_size(&self) -> u64 {
        match self.options.duration {
            1_200.. if !self.stormed.load(Ordering::SeqCst) => 1_000_000,
            duration => (duration * 333).min(50_000),
        }
    }

    /// Starts a producer that pushes only a storm.
    pub async fn start_storm(&self, name: &str, size: u64, due_ms: u64) -> Result<Arc<Place>> {
        self.stormed.store(true, Ordering::SeqCst);
        let proxy = Proxy::start(self.store().port, Mode::Pass).await?;
        let shim = Control::new(&self.library, &self.folder.join(format!("{name}.shim")))?;
        let mut arguments = self.options.role_arguments("producer");
        arguments.extend([
            "--storm".into(),
            size.to_string(),
            "--due-ms".into(),
            due_ms.to_string(),
        ]);
        let url = proxy.url();
        let place = Place::new(
            name,
            Role::Producer,
            (proxy, None),
            url,
            shim,
            self.folder.clone(),
            arguments,
        );
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.spawn(Arc::clone(&place).keep(Arc::clone(&self.log)));
        Ok(place)
    }
}
