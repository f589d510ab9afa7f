//! Panics in a worker's own tasks: the first one ends the worker.

use std::sync::{Arc, OnceLock};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Applied, Error, ErrorKind};
use crate::node::handler::{caught, text_of};

/// Whether one of them panicked. Cheap to clone; clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    happened: CancellationToken,
    first: Arc<OnceLock<Error>>,
}

impl Faults {
    /// Spawns a task without which the worker cannot go on.
    pub(crate) fn spawn(
        &self,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let faults = self.clone();
        tokio::spawn(async move {
            let Err(panic) = caught(|| work).await else {
                return;
            };
            let message = format!(
                "the worker's {task} panicked: {}; its handlers were dropped and their deliveries released",
                text_of(&*panic)
            );
            // A later panic adds nothing.
            let _ = faults
                .first
                .set(Error::new(ErrorKind::Internal, Applied::Unknown, message));
            faults.happened.cancel();
        })
    }

    /// Completes when one has panicked.
    pub(crate) async fn happened(&self) {
        self.happened.cancelled().await;
    }

    /// The first panic.
    pub(crate) fn first(&self) -> Option<Error> {
        self.first.get().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_panic_is_kept() {
        let faults = Faults::default();
        faults.spawn("claimer", async {}).await.expect("no panic");
        assert!(faults.first().is_none() && !faults.happened.is_cancelled());
        faults
            .spawn("conductor", async { panic!("one") })
            .await
            .expect("caught");
        faults.happened().await;
        faults
            .spawn("listener", async { panic!("two") })
            .await
            .expect("caught");
        let error = faults.first().expect("a panic");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(
            error.to_string().contains("conductor panicked: one;"),
            "{error}"
        );
    }
}
