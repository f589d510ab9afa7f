//! Walks through the members of a sorted set and the names of a hash.

use redis::Value;

use crate::error::Error;
use crate::server::info::unexpected;
use crate::server::route::RoutedLane;

/// About how many bytes of values a step reads from a server that cannot leave them out.
const STEP_BYTES: u64 = 4 * 1024 * 1024;

/// A walk through a key: where it goes on. It has ended when the cursor is 0 again.
pub(crate) struct Walk {
    pub(crate) cursor: u64,
    /// About how many entries a step visits.
    step: usize,
    /// Whether the server cannot leave out the values of a hash: Redis before 7.4.
    reads_values: bool,
}

impl Walk {
    /// A walk whose steps visit about so many entries.
    pub(crate) fn of(step: usize) -> Self {
        Self {
            cursor: 0,
            step,
            reads_values: false,
        }
    }
}

impl RoutedLane {
    /// Reads some members of a sorted set with their scores.
    pub(crate) async fn next_members(
        &self,
        key: &str,
        walk: &mut Walk,
    ) -> Result<Vec<(Vec<u8>, f64)>, Error> {
        let mut scan = redis::cmd("ZSCAN");
        scan.arg(key).arg(walk.cursor).arg("COUNT").arg(walk.step);
        let answer = self.query(&scan).await?;
        let (cursor, members): (u64, Vec<(Vec<u8>, f64)>) =
            redis::from_redis_value(answer).map_err(|error| unexpected("ZSCAN", &error))?;
        walk.cursor = cursor;
        Ok(members)
    }

    /// Reads some names of a hash whose values have up to `value_bytes`.
    pub(crate) async fn next_names(
        &self,
        key: &str,
        value_bytes: u64,
        walk: &mut Walk,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let scan = |count: usize| {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(key).arg(walk.cursor).arg("COUNT").arg(count);
            scan
        };
        if !walk.reads_values {
            match self.query(scan(walk.step).arg("NOVALUES")).await {
                // Redis before 7.4 has no such option.
                Err(error) if error.code() == Some("ERR") => walk.reads_values = true,
                answer => return names(walk, answer?, 1),
            }
        }
        let most = usize::try_from(STEP_BYTES / value_bytes.max(1)).unwrap_or(walk.step);
        let answer = self.query(&scan(most.clamp(1, walk.step))).await?;
        names(walk, answer, 2)
    }
}

/// The names in the reply to HSCAN, in which every `step`th part is one.
fn names(walk: &mut Walk, answer: Value, step: usize) -> Result<Vec<Vec<u8>>, Error> {
    let (cursor, parts): (u64, Vec<Vec<u8>>) =
        redis::from_redis_value(answer).map_err(|error| unexpected("HSCAN", &error))?;
    walk.cursor = cursor;
    Ok(parts.into_iter().step_by(step).collect())
}
