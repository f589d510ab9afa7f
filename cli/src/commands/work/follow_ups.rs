//! Follow-ups: messages that a command of `--exec` writes to its file descriptor 3.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use dueq::{Message, Settlement};

use crate::ndjson;

/// The most bytes that a command may write: 16 MiB of payloads in base64, and the other fields.
const MOST: u64 = 24 * 1024 * 1024;

/// A separate file for each run of a command. A pipe would not do: other commands would inherit its
/// descriptor. The drop removes the file.
pub(super) struct FollowUps(PathBuf);

impl FollowUps {
    pub(super) fn create() -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("dueq-follow-ups-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            match file {
                Ok(_) => return Ok(Self(path)),
                // The file belongs to a killed worker or to another user: never open it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The messages that the command wrote.
    pub(super) fn read(&self) -> Result<Vec<Message>, String> {
        let unread =
            |error: io::Error| format!("cannot read the messages of file descriptor 3: {error}");
        let bytes = fs::metadata(&self.0).map_err(unread)?.len();
        if bytes == 0 {
            return Ok(Vec::new());
        }
        if bytes > MOST {
            return Err(format!(
                "the command wrote {bytes} bytes to file descriptor 3: at most {MOST} may be"
            ));
        }
        let bytes = fs::read(&self.0).map_err(unread)?;
        ndjson::follow_ups(&bytes)
            .map_err(|reason| format!("file descriptor 3 of the command: {reason}"))
    }
}

impl Drop for FollowUps {
    fn drop(&mut self) {
        // If the removal fails, the file stays: nothing reads it again.
        let _ = fs::remove_file(&self.0);
    }
}

/// The ack of a command that succeeded, with the messages that it wrote.
pub(super) fn followed(follow_ups: Option<&FollowUps>) -> Settlement {
    match follow_ups.map_or(Ok(Vec::new()), FollowUps::read) {
        Ok(messages) if messages.is_empty() => Settlement::Ack,
        Ok(messages) => Settlement::ack_and(messages),
        Err(reason) => Settlement::retry(reason),
    }
}
