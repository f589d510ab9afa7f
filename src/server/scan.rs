//! Finds queues by the meta keys of their partitions: the home may be away, or have lost its keys.

use crate::error::{Applied, Error, ErrorKind};
use crate::protocol::keys::partition_of_key;
use crate::protocol::partition_map::Tag;
use crate::server::lane::Lane;

/// How many keys one step looks at.
pub(crate) const STEP_KEYS: u32 = 1_000;

/// One step of a scan of the key space.
pub(crate) struct Step {
    /// Where to continue; 0 after the last step.
    pub(crate) cursor: u64,
    /// The queues and partitions that this step found. One may be found twice.
    pub(crate) found: Vec<(String, Tag)>,
}

/// Looks at about [`STEP_KEYS`] keys from this cursor on; a scan begins with 0. `glob` is the
/// pattern of the meta keys.
pub(crate) async fn step(lane: &Lane, glob: &str, cursor: u64) -> Result<Step, Error> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor)
        .arg("MATCH")
        .arg(glob)
        .arg("COUNT")
        .arg(STEP_KEYS)
        .arg("TYPE")
        .arg("hash");
    let answer = lane.query(&scan).await?;
    let (cursor, keys): (u64, Vec<String>) = redis::from_redis_value(answer).map_err(|error| {
        let message = format!("SCAN replied with something unexpected: {error}");
        Error::new(ErrorKind::Server, Applied::No, message)
    })?;
    let found = keys.iter().filter_map(|key| partition_of_key(key));
    Ok(Step {
        cursor,
        found: found.map(|(name, tag)| (name.to_owned(), tag)).collect(),
    })
}
