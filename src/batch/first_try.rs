//! The first try of a call whose repetitions the server recognises.

use std::time::Instant;

use uuid::Uuid;

use crate::batch::call::CallSpec;
use crate::error::{Applied, Error, ErrorKind};
use crate::model::message::compact;
use crate::server::lane::Lane;
use crate::server::patience::{PATIENCE, RESPONSE_LIMIT};

/// The first try of a call, for calls whose repetitions the server recognises.
pub(super) struct FirstTry {
    /// The argument `<until> <nonce>` of the script. All tries of the call have the same one.
    pub(super) argument: String,
    /// The latest time at which the first try may have begun, in Unix microseconds of the server.
    pub(super) latest_start_us: i64,
}

impl FirstTry {
    /// Makes the argument that identifies the tries of this call. `until` counts from the earliest
    /// time at which the first try may begin. So a message that ended before this call is never
    /// taken for one of this call's, if this client has seen a later reply.
    pub(super) async fn begin(spec: &CallSpec) -> Result<Self, Error> {
        let lane = spec.lane.lane().await?;
        let clock = lane.clock();
        if clock.server_us(Instant::now()).is_none() {
            ask_time(spec, &lane).await?;
        }
        let now = Instant::now();
        let patience_us = i64::try_from(PATIENCE.as_micros()).unwrap_or(i64::MAX);
        let until_us = clock
            .earliest_us(now)
            .unwrap_or_default()
            .saturating_add(patience_us);
        let nonce = compact(Uuid::new_v4());
        Ok(Self {
            argument: format!("{}.{:03} {nonce}", until_us / 1_000, until_us % 1_000),
            latest_start_us: clock.latest_us(now).unwrap_or(i64::MAX),
        })
    }
}

/// Asks the server for its time, but not on a connection that waits for replicas. A dedicated
/// connection has no time limit of its own, so this call sets one.
pub(super) async fn ask_time(spec: &CallSpec, lane: &Lane) -> Result<(), Error> {
    let _guard = lane.wait_lock.lock().await;
    // Boxed: keeps the futures of callers shallow, as rustc limits their depth.
    let answer = tokio::time::timeout(RESPONSE_LIMIT, Box::pin(lane.time()))
        .await
        .unwrap_or_else(|_| {
            let message =
                format!("the server did not reply with its time within {RESPONSE_LIMIT:?}");
            Err(Error::new(ErrorKind::Timeout, Applied::No, message))
        });
    answer
        .map(drop)
        .inspect_err(|error| spec.meters.call_failed(error))
}
