//! Opens a file of messages, and computes the key by which `push --ndjson` recognises a second run.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use dueq::Message;

use crate::ndjson::hash;
use crate::output;

/// The bytes of a file, or of standard input.
pub(crate) struct Source {
    pub(crate) reader: Box<dyn Read + Send>,
    /// The size of the file; 0 for a pipe.
    pub(crate) bytes: u64,
    /// The idempotency key of a run for which the caller gave none.
    ///
    /// For a file it is made of path and modification time: a run after an interruption finds its
    /// messages, and a file that was written again counts as another one, even with equal text. The
    /// inode is not part of it, because it changes when a container restarts with the file in its
    /// image. The content is not part of it, because a corrected line must not push the others
    /// again. For a pipe the key is random, because nothing identifies it in a later run.
    pub(crate) key: String,
}

impl Source {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let shown = || output::visible(path.as_os_str().as_encoded_bytes());
        Self::read(path).map_err(|error| anyhow::anyhow!("cannot read {}: {error}", shown()))
    }

    fn read(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::pipe(Box::new(io::stdin())));
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !metadata.is_file() {
            return Ok(Self::pipe(Box::new(file)));
        }
        let modified = metadata.modified()?.duration_since(UNIX_EPOCH);
        let modified = modified.unwrap_or_default().as_nanos().to_string();
        let path = fs::canonicalize(path)?;
        let parts = [path.as_os_str().as_encoded_bytes(), modified.as_bytes()];
        Ok(Self {
            reader: Box::new(file),
            bytes: metadata.len(),
            key: format!("{:016x}", hash(parts)),
        })
    }

    fn pipe(reader: Box<dyn Read + Send>) -> Self {
        let random = Message::new("").new_id();
        Self {
            reader,
            bytes: 0,
            key: String::from_utf8_lossy(random.id_bytes().unwrap_or_default()).into_owned(),
        }
    }
}
