//! The names of all queues, as of the last scan.

use std::time::{Duration, Instant};

use dueq::{Client, Error};
use tokio::sync::Mutex;

/// How old the names may be. A scan reads the whole key space.
const MAX_AGE: Duration = Duration::from_secs(5);

/// The names of the last scan. Requests that come during a scan wait for it and share its result.
#[derive(Default)]
pub(crate) struct Names(Mutex<Option<(Instant, Vec<String>)>>);

impl Names {
    /// The names, and how old they are.
    pub(crate) async fn get(&self, client: &Client) -> Result<(Vec<String>, Duration), Error> {
        let mut last = self.0.lock().await;
        if let Some((at, names)) = &*last
            && at.elapsed() < MAX_AGE
        {
            return Ok((names.clone(), at.elapsed()));
        }
        let at = Instant::now();
        let names = client.queues().await?;
        *last = Some((at, names.clone()));
        Ok((names, at.elapsed()))
    }
}
