//! Authentication of callers, and what each may do.

mod access;
pub(crate) mod front;
mod guard;
mod host;
pub(crate) mod origin;
mod pattern;
mod principal;
mod proxy;
mod rate_limit;
mod role;
pub(crate) mod session;
mod tokens;

pub use access::Access;
pub(crate) use access::Gate;
#[cfg(any(test, feature = "harness"))]
pub(crate) use access::bearer;
pub(crate) use front::{front, open_front};
pub(crate) use guard::{check_right, guard};
pub use host::PublicUrl;
pub(crate) use host::{Hosts, LocalAddr};
pub use pattern::NamePattern;
pub(crate) use principal::{Principal, Via};
pub use proxy::TrustedProxy;
pub(crate) use rate_limit::{FailedLogins, RateLimit};
pub(crate) use role::Right;
pub use role::Role;
pub use tokens::add_token;
pub(crate) use tokens::{Stamp, TokensFile, Watched, contains_token, signing_key, stamp};
