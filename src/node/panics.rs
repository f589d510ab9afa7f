//! Panics in a worker's own tasks: the first one ends the worker.

use std::sync::{Arc, OnceLock};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Applied, Error, ErrorKind};
use crate::node::catch_panic::{catch_panic, panic_text};

/// Spawns the tasks of a node and records whether one of them panicked. All clones share one
/// record.
#[derive(Clone, Default)]
pub(crate) struct TaskPanics {
    happened: CancellationToken,
    first: Arc<OnceLock<Error>>,
}

impl TaskPanics {
    /// Spawns a task that the worker cannot do without.
    pub(crate) fn spawn(
        &self,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let panics = self.clone();
        tokio::spawn(async move {
            let Err(panic) = catch_panic(|| work).await else {
                return;
            };
            let message = format!(
                "the worker's {task} panicked: {}; its handlers were dropped and their deliveries \
                 released",
                panic_text(&*panic)
            );
            let error = Error::new(ErrorKind::Internal, Applied::Unknown, message);
            // Only the first panic is kept.
            let _ = panics.first.set(error);
            panics.happened.cancel();
        })
    }

    /// Completes when a task has panicked.
    pub(crate) async fn happened(&self) {
        self.happened.cancelled().await;
    }

    /// The first panic, as an error.
    pub(crate) fn first(&self) -> Option<Error> {
        self.first.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_is_kept() {
        let panics = TaskPanics::default();
        panics.spawn("claimer", async {}).await.expect("no panic");
        assert!(panics.first().is_none() && !panics.happened.is_cancelled());
        panics
            .spawn("coordinator", async { panic!("one") })
            .await
            .expect("caught");
        panics.happened().await;
        panics
            .spawn("listener", async { panic!("two") })
            .await
            .expect("caught");
        let error = panics.first().expect("a panic");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(
            error.to_string().contains("coordinator panicked: one;"),
            "{error}"
        );
    }
}
