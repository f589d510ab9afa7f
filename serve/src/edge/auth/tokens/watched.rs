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

/// A tokens file that is read again when it has changed. While it cannot be used, its last good
/// version stays in force, so that a mistake in the file does not end everybody's access.
pub(crate) struct Watched {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    looked: Instant,
    stamp: Option<Stamp>,
    /// The last version that could be used.
    file: Arc<TokensFile>,
    /// Why the present version cannot be used.
    failure: Option<String>,
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
                file,
                failure: None,
            }),
        })
    }

    /// The tokens in force: those of the file as it was at most one second ago, or of its last good
    /// version.
    pub(crate) fn current(&self) -> Arc<TokensFile> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_EVERY {
            self.look(&mut state, false);
        }
        Arc::clone(&state.file)
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
        let is_unchanged = stamp == state.stamp && !is_forced;
        if is_unchanged && state.failure.is_none() {
            return;
        }
        state.stamp = stamp;
        match TokensFile::read_after(&state.file, &self.path) {
            Ok(file) => {
                (state.file, state.failure) = (Arc::new(file), None);
                tracing::info!(name: "dueq_serve.tokens_reloaded", path = ?self.path, "read the tokens file again");
            }
            Err(error) => {
                // The file is read every second until it can be used: each fault is reported once.
                if !is_unchanged || state.failure.as_ref() != Some(&error) {
                    tracing::error!(name: "dueq_serve.tokens_unreadable", error, "the tokens read before stay in force, also removed ones; correct the file, which is read again within a second, or stop the server to end all access");
                }
                state.failure = Some(error);
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
