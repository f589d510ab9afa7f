//! Errors at the start of a server.

use std::{fmt, io};

/// Why a server did not start, or a token was not added.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong or incomplete. The text says what is missing.
    Config(String),
    /// The operating system refused an address or a file.
    Io {
        /// The address or file that was refused.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) => f.write_str(text),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(_) => None,
            Self::Io { source, .. } => Some(source),
        }
    }
}
