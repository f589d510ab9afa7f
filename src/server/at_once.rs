//! Calls at the same time, to several partitions or servers.

use tokio::task::JoinSet;

use crate::error::Error;

/// Runs calls at the same time; their results are in the order of the calls.
pub(crate) async fn at_once<T: Send + 'static>(
    calls: impl Iterator<Item = impl Future<Output = Result<T, Error>> + Send + 'static>,
) -> Vec<Result<T, Error>> {
    let mut running = JoinSet::new();
    let mut results = Vec::new();
    for (index, call) in calls.enumerate() {
        results.push(None);
        running.spawn(async move { (index, call.await) });
    }
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok((index, result)) => results[index] = Some(result),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    results.into_iter().flatten().collect()
}
