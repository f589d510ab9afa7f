//! The current tokens file: read again whenever it changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::edge::auth::TokensFile;

/// The longest time for which a change of the file goes unnoticed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The metadata of a file; they differ if the file has changed.
pub(crate) type Stamp = (u64, u64, u64, i64, i64, i64, i64);

/// A tokens file that is read again when it has changed. While it cannot be read, nobody has
/// access: the change may have removed a token.
pub(crate) struct Watched {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    looked: Instant,
    stamp: Option<Stamp>,
    file: Result<Arc<TokensFile>, String>,
}

impl Watched {
    /// Reads the file for the first time.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let stamp = stamp(path);
        let file = Arc::new(TokensFile::read(path)?);
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(State {
                looked: Instant::now(),
                stamp,
                file: Ok(file),
            }),
        })
    }

    /// The parsed file, at most one second old; an error says why it cannot be read.
    pub(crate) fn current(&self) -> Result<Arc<TokensFile>, String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_EVERY {
            self.look(&mut state, false);
        }
        state.file.clone()
    }

    /// Reads the file again, even if it seems unchanged.
    pub(crate) fn reload(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut state, true);
    }

    fn look(&self, state: &mut State, is_forced: bool) {
        // Read the stamp before the text: a change between the two is noticed at the next look.
        let stamp = stamp(&self.path);
        state.looked = Instant::now();
        if stamp == state.stamp && !is_forced && state.file.is_ok() {
            return;
        }
        state.stamp = stamp;
        state.file = TokensFile::read(&self.path).map(Arc::new);
        match &state.file {
            Ok(_) => {
                tracing::info!(name: "dueq_serve.tokens_reloaded", path = ?self.path, "read the tokens file again")
            }
            Err(error) => {
                tracing::error!(name: "dueq_serve.tokens_unreadable", ?error, "nobody has access until the tokens file can be read")
            }
        }
    }
}

pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    Some((
        data.dev(),
        data.ino(),
        data.size(),
        data.mtime(),
        data.mtime_nsec(),
        data.ctime(),
        data.ctime_nsec(),
    ))
}
