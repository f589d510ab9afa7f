//! The Redis Functions library: the scripts under names that any Redis client can FCALL.

use crate::client::Client;
use crate::error::Error;
use crate::protocol::functions;
use crate::protocol::keys::Keys;

/// What is known of the Functions library `dueq` on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Functions {
    /// It is not there.
    Absent,
    /// It is there, older than this crate's: this is its version.
    Older(u64),
    /// It is there, the same as this crate's.
    Current,
    /// It is there, newer than this crate's, and is left alone: this is its version.
    Newer(u64),
}

/// The library as Redis reads it: `FUNCTION LOAD` takes this text. Each script `lua/VERB.lua` becomes the function
/// `dueq_VERB`, with the same KEYS, ARGV, replies and flags; `dueq_version` tells the library's version.
///
/// ```
/// let code = dueq::functions_code();
/// assert!(code.starts_with("#!lua name=dueq\n"));
/// assert!(code.contains("function_name = 'dueq_push'"));
/// ```
pub fn functions_code() -> String {
    functions::code()
}

/// The version of the library in this crate; it grows with every change of a script.
pub fn functions_version() -> u64 {
    functions::VERSION
}

/// The names of the ten keys that every function and script of this queue takes, in that order, without asking a server.
///
/// ```
/// let keys = dueq::functions_keys("orders")?;
/// assert_eq!(keys[0], "dueq:{orders}:scheduled");
/// assert_eq!(keys[9], "dueq:{orders}:meta");
/// # Ok::<(), dueq::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the name is not that of a queue.
pub fn functions_keys(queue: &str) -> Result<[String; 10], Error> {
    Ok(Keys::of_queue(queue)?.vector)
}

impl Client {
    /// Which Functions library the server has.
    pub async fn functions(&self) -> Result<Functions, Error> {
        Ok(match self.lanes().control.functions_version().await? {
            None => Functions::Absent,
            Some(functions::VERSION) => Functions::Current,
            Some(newer) if newer > functions::VERSION => Functions::Newer(newer),
            Some(older) => Functions::Older(older),
        })
    }

    /// Puts this crate's Functions library on the server, unless a newer one is there; returns what was there before.
    ///
    /// From then on any Redis client can `FCALL dueq_push 10 KEYS... ARGV...`, also after a restart: Redis keeps functions
    /// with its data and sends them to its replicas. This crate itself does not need it. Harmless to repeat.
    pub async fn load_functions(&self) -> Result<Functions, Error> {
        let before = self.functions().await?;
        if matches!(before, Functions::Absent | Functions::Older(_)) {
            self.lanes().control.load_functions().await?;
        }
        Ok(before)
    }
}
