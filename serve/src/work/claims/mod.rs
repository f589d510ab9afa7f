//! Claims: which queues are attended for them, how many wait at once, and how grants that no caller
//! received are released.

mod attended;
#[cfg(test)]
mod attended_tests;
mod turns;
mod unreceived;

use std::sync::Arc;
use std::time::Duration;

use dueq::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

pub(crate) use attended::{Attended, Attention};
pub(crate) use turns::lease_token;
pub(crate) use turns::{Place, Turns};
pub(crate) use unreceived::{Unreceived, Unsent};

use crate::edge::problem::{Code, Problem};
use crate::edge::{Gauge, One};

/// The most claims that wait at once.
const MAX_CLAIMS: usize = 512;
/// How long the stop waits for releases, and for the node to leave its queues: the library repeats
/// a release for 10 s.
const END: Duration = Duration::from_secs(12);

/// The claims of this server.
pub(crate) struct Claims {
    pub(crate) attended: Arc<Attended>,
    /// The running claims with a `claim_id`.
    pub(crate) turns: Arc<Turns>,
    /// Running releases and settlements. They go on when their caller disconnects.
    pub(crate) tasks: TaskTracker,
    room: Arc<Semaphore>,
}

/// The permit of one claim.
#[derive(Debug)]
pub(crate) struct Permit {
    _room: OwnedSemaphorePermit,
    _counted: One,
}

impl Claims {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            attended: Attended::new(client),
            turns: Arc::default(),
            tasks: TaskTracker::new(),
            room: Arc::new(Semaphore::new(MAX_CLAIMS)),
        }
    }

    /// Takes a permit; refuses the claim if too many claims wait.
    pub(crate) fn begin(&self, waiting: &Gauge) -> Result<Permit, Problem> {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let detail = format!("{MAX_CLAIMS} claims wait already; claim again later");
            return Err(Problem::new(Code::Busy, detail).retry_after_s(5));
        };
        Ok(Permit {
            _room: room,
            _counted: waiting.one(),
        })
    }

    /// Completes when all releases have ended and no queue is attended. Must be called when no
    /// request runs.
    pub(crate) async fn end(&self) {
        self.tasks.close();
        let ended = async {
            self.tasks.wait().await;
            self.attended.end().await;
        };
        if tokio::time::timeout(END, ended).await.is_err() {
            tracing::warn!(name: "dueq_serve.not_released", tasks = self.tasks.len(), "messages that nobody received stay leased");
        }
    }
}
