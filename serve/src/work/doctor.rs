//! Whether Redis answers; and the doctor's examinations of the server and of queues, which all
//! callers share for some seconds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dueq::admin::Checkup;
use dueq::{Client, Error, Queue};
use tokio::sync::watch;

use crate::edge::problem::{Code, Problem};

/// The greatest age of an examination that callers share.
const MAX_AGE: Duration = Duration::from_secs(10);
/// The most examinations that are kept.
const MAX_KEPT: usize = 256;

type Kept = tokio::sync::Mutex<Option<(Instant, Arc<Checkup>)>>;

/// Examines the server and queues.
#[derive(Clone)]
pub(crate) struct Doctor {
    client: Client,
    last: Arc<Last>,
}

/// The latest examinations.
#[derive(Default)]
struct Last {
    /// By queue; the server's examination has the key `None`.
    kept: Mutex<HashMap<Option<String>, Arc<Kept>>>,
    /// The latest examination of the server, for callers that cannot wait for a new one.
    latest: watch::Sender<Option<(Instant, Arc<Checkup>)>>,
    /// Whether an examination runs that [`Doctor::glance`] began.
    is_running: AtomicBool,
}

/// The greatest age of an examination that a glance returns, if no new one ends in time.
const MAX_AGE_AT_A_GLANCE: Duration = Duration::from_secs(60);

impl Doctor {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            last: Arc::default(),
        }
    }

    /// The latest examination of the server, for a reader who waits at most `patience`. `None` if
    /// no examination ended in the last minute. If the latest one is older than 10 s, a new one
    /// begins, and goes on after this call.
    pub(crate) async fn glance(&self, patience: Duration) -> Option<Arc<Checkup>> {
        let mut latest = self.last.latest.subscribe();
        let is_new = |latest: &Option<(Instant, _)>, max: Duration| {
            latest.as_ref().is_some_and(|(at, _)| at.elapsed() < max)
        };
        if !is_new(&latest.borrow(), MAX_AGE) {
            self.begin();
            let examined = latest.wait_for(|latest| is_new(latest, MAX_AGE));
            let _ = tokio::time::timeout(patience, examined).await;
        }
        let latest = latest.borrow();
        let usable = latest
            .as_ref()
            .filter(|_| is_new(&latest, MAX_AGE_AT_A_GLANCE));
        usable.map(|(_, checkup)| Arc::clone(checkup))
    }

    /// Begins an examination of the server, unless one runs. It always ends, because the library's
    /// calls time out.
    fn begin(&self) {
        if self.last.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let doctor = self.clone();
        tokio::spawn(async move {
            let _running = Running(&doctor.last.is_running);
            // The examination may fail while Redis is unreachable: then readers see the age of the
            // counts.
            let _ = doctor.server().await;
        });
    }

    /// The examination of the server, and its age. Waits for a new one if the last is too old.
    pub(crate) async fn server(&self) -> Result<(Duration, Arc<Checkup>), Problem> {
        self.examined(None, self.client.examine()).await
    }

    /// The examination of this queue, and its age. Waits for a new one if the last is too old.
    pub(crate) async fn queue(&self, queue: &Queue) -> Result<(Duration, Arc<Checkup>), Problem> {
        self.examined(Some(queue.name()), queue.examine_briefly())
            .await
    }

    /// The examination of this queue, or with `None` of the server. Concurrent callers wait for one
    /// examination.
    async fn examined(
        &self,
        queue: Option<&str>,
        examine: impl Future<Output = Result<Checkup, Error>>,
    ) -> Result<(Duration, Arc<Checkup>), Problem> {
        let kept = self.kept(queue)?;
        let mut kept = kept.lock().await;
        if let Some((at, checkup)) = &*kept
            && at.elapsed() < MAX_AGE
        {
            return Ok((at.elapsed(), Arc::clone(checkup)));
        }
        let (at, checkup) = (Instant::now(), Arc::new(examine.await?));
        *kept = Some((at, Arc::clone(&checkup)));
        if queue.is_none() {
            self.last
                .latest
                .send_replace(Some((at, Arc::clone(&checkup))));
        }
        Ok((at.elapsed(), checkup))
    }

    fn kept(&self, queue: Option<&str>) -> Result<Arc<Kept>, Problem> {
        let mut all = self
            .last
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = queue.map(str::to_owned);
        if all.len() >= MAX_KEPT && !all.contains_key(&key) {
            all.retain(|_, kept| {
                let is_new = |kept: &Option<(Instant, _)>| {
                    kept.as_ref().is_some_and(|(at, _)| at.elapsed() < MAX_AGE)
                };
                // A locked entry is being examined now.
                Arc::strong_count(kept) > 1 || kept.try_lock().is_ok_and(|kept| is_new(&kept))
            });
            if all.len() >= MAX_KEPT {
                let detail = format!("{MAX_KEPT} queues were examined within 10 s; try again");
                return Err(Problem::new(Code::Busy, detail).retry_after_s(10));
            }
        }
        Ok(Arc::clone(all.entry(key).or_default()))
    }
}

/// While it exists, an examination runs. The drop resets the flag, also after a panic.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The longest time that Redis may take to answer the probe.
const PATIENCE: Duration = Duration::from_secs(2);
/// The greatest age of an answer that probes share: probes need no token, and must not load Redis.
const MAX_AGE_OF_ANSWER: Duration = Duration::from_secs(1);

/// Whether Redis answered the last question. All probes share the answer.
#[derive(Default)]
pub(crate) struct RedisProbe(tokio::sync::Mutex<Option<(Instant, bool)>>);

impl RedisProbe {
    pub(crate) async fn answers(&self, client: &Client) -> bool {
        let mut last = self.0.lock().await;
        if let Some((at, answers)) = *last
            && at.elapsed() < MAX_AGE_OF_ANSWER
        {
            return answers;
        }
        let asked = tokio::time::timeout(PATIENCE, client.is_served()).await;
        let answers = asked.unwrap_or(false);
        *last = Some((Instant::now(), answers));
        answers
    }
}
