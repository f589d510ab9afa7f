//! The Redis Functions library: the scripts as functions that any Redis client can call with FCALL.

use crate::client::Client;
use crate::error::Error;
use crate::protocol::keys::Keys;
use crate::server::functions;

/// The Functions library `dueq` of a server, compared with this crate's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FunctionsStatus {
    /// The server has no library `dueq`.
    Absent,
    /// The server has an older library, with this version.
    Older(u64),
    /// The server has the library of this crate.
    Current,
    /// The server has a newer library, with this version. It is never replaced.
    Newer(u64),
}

/// The text of the library, as `FUNCTION LOAD` takes it. Each script `lua/dist/VERB.lua` becomes
/// the function `dueq_VERB`, with the same KEYS, ARGV, replies and flags; `dueq_version` returns
/// the library's version.
///
/// ```
/// let code = dueq::admin::functions_code();
/// assert!(code.starts_with("#!lua name=dueq\n"));
/// assert!(code.contains("function_name = 'dueq_push'"));
/// ```
pub fn functions_code() -> String {
    functions::code()
}

/// The version of the library in this crate. It grows with every change of a script.
pub fn functions_version() -> u64 {
    functions::VERSION
}

/// The ten keys of the queue of this name, in the order in which every script and function takes
/// them.
///
/// ```
/// assert_eq!(dueq::admin::queue_keys("orders")?[0], "dueq:{orders}:scheduled");
/// assert!(dueq::admin::queue_keys("a/b").is_err());
/// # Ok::<(), dueq::Error>(())
/// ```
pub fn queue_keys(name: &str) -> Result<Vec<String>, Error> {
    Ok(Keys::of_queue(name)?.vector.to_vec())
}

impl FunctionsStatus {
    fn of(version: Option<u64>) -> Self {
        match version {
            None => Self::Absent,
            Some(functions::VERSION) => Self::Current,
            Some(newer) if newer > functions::VERSION => Self::Newer(newer),
            Some(older) => Self::Older(older),
        }
    }
}

impl Client {
    /// Finds out which Functions library the server has; in a cluster, the oldest one on any
    /// master.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::admin::FunctionsStatus;
    ///
    /// assert_eq!(client.functions().await?, FunctionsStatus::Absent);
    /// # });
    /// ```
    pub async fn functions(&self) -> Result<FunctionsStatus, Error> {
        let mut oldest = None;
        for link in self.servers().links().await? {
            let version = link.control.functions_version().await?;
            oldest = Some(oldest.map_or(version, |oldest: Option<u64>| oldest.min(version)));
        }
        Ok(FunctionsStatus::of(oldest.flatten()))
    }

    /// Loads this crate's Functions library on the server, or on all masters of its cluster, unless
    /// a newer one is there. Returns which library was there before; in a cluster, the oldest one
    /// on any master.
    ///
    /// From then on any Redis client can `FCALL dueq_push 10 KEYS... ARGV...`, also after a
    /// restart: Redis stores functions with its data and copies them to replicas, but not to
    /// masters that join a cluster later. This crate itself does not use them. Harmless to
    /// repeat. If it fails halfway through a cluster, some masters have the library.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|client| {
    /// use dueq::admin::FunctionsStatus;
    ///
    /// client.load_functions().await?;
    /// assert_eq!(client.functions().await?, FunctionsStatus::Current);
    /// # });
    /// ```
    pub async fn load_functions(&self) -> Result<FunctionsStatus, Error> {
        let before = self.functions().await?;
        for link in self.servers().links().await? {
            let found = FunctionsStatus::of(link.control.functions_version().await?);
            if matches!(found, FunctionsStatus::Absent | FunctionsStatus::Older(_)) {
                link.control.load_functions().await?;
            }
        }
        Ok(before)
    }
}
