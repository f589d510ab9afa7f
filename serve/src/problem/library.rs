//! The problem of each error of the library.

use dueq::{Error, ErrorKind};

use crate::problem::{Code, Problem};

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidInput if error.code() == Some("TOO_LARGE") => Code::TooLarge,
            ErrorKind::InvalidInput => Code::InvalidInput,
            ErrorKind::Unavailable => Code::RedisUnavailable,
            ErrorKind::Timeout => Code::RedisTimeout,
            ErrorKind::Unconfirmed => Code::Unconfirmed,
            ErrorKind::Full => Code::Full,
            ErrorKind::Denied => Code::RedisDenied,
            ErrorKind::Unsupported => Code::RedisUnsupported,
            ErrorKind::Server => Code::RedisError,
            // A kind that a later release of the library adds is a defect of this match.
            _ => Code::Internal,
        };
        Self {
            is_retryable: error.is_retryable(),
            id: error.message_id().map(<[u8]>::to_vec),
            ..Self::new(code, error.to_string())
        }
        .applied(error.was_applied())
    }
}
