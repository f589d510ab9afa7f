//! The file of the audit log.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use crate::edge::Error;
use crate::edge::shown::steers;

/// The audit log.
#[derive(Clone)]
pub(crate) struct Audit(Arc<Mutex<Sink>>);

enum Sink {
    File(LogFile),
    StandardError,
}

struct LogFile {
    path: PathBuf,
    file: File,
    /// Whether a failed write cut off the last line: the next entry then begins a new line.
    is_cut: bool,
}

impl Audit {
    /// Opens the file; without a path, the log goes to standard error.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
        let sink = match path {
            None => Sink::StandardError,
            Some(path) => {
                let what = || format!("cannot open the audit log {}", path.display());
                let opened = LogFile::open(path);
                Sink::File(opened.map_err(|error| Error::io(what(), error))?)
            }
        };
        Ok(Self(Arc::new(Mutex::new(sink))))
    }

    /// Opens the file again after logrotate has renamed it. If that fails, the old file stays in
    /// use.
    pub(crate) fn reopen(&self) {
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Sink::File(log) = &mut *sink {
            match LogFile::open(&log.path) {
                Ok(new) => *log = new,
                Err(error) => {
                    tracing::error!(name: "dueq_serve.audit_failed", ?error, "the audit log cannot be opened again")
                }
            }
        }
    }

    /// Writes a line, and returns once it is on the disk.
    pub(crate) async fn write(&self, line: &Value) -> io::Result<()> {
        let (sink, line) = (Arc::clone(&self.0), guarded(&line.to_string()));
        let written = tokio::task::spawn_blocking(move || {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.write(&line)
        });
        written
            .await
            .unwrap_or_else(|panic| Err(io::Error::other(panic)))
    }
}

impl Sink {
    fn write(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::StandardError => {
                let mut out = io::stderr().lock();
                writeln!(out, "{line}")?;
                out.flush()
            }
            Self::File(log) => log.write(line),
        }
    }
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            is_cut: !ends_with_a_line(path),
            file,
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let text = format!("{}{line}\n", if self.is_cut { "\n" } else { "" });
        self.is_cut = true;
        self.file.write_all(text.as_bytes())?;
        // A terminal or a pipe cannot be synced.
        match self.file.sync_data() {
            Err(error) if error.kind() != io::ErrorKind::InvalidInput => return Err(error),
            _ => {}
        }
        self.is_cut = false;
        Ok(())
    }
}

/// Whether the file is empty or ends with a line end. A crash can cut off the last line.
fn ends_with_a_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        if !file.metadata()?.is_file() || file.metadata()?.len() == 0 {
            return Ok(b'\n');
        }
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    last().is_ok_and(|byte| byte == b'\n')
}

/// Escapes characters that control a terminal. A JSON parser reads the original text.
fn guarded(json: &str) -> String {
    let mut guarded = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                guarded.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            guarded.push(c);
        }
    }
    guarded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_log_escapes_controls_and_keeps_the_value() {
        let value = serde_json::json!({ "id": "a\u{9b}\u{202e}" });
        let line = guarded(&value.to_string());
        assert!(!line.contains(steers), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).ok(), Some(value));
    }
}
