//! Who may do what.

mod access;
mod ended;
mod failed;
mod front;
mod guard;
mod host;
pub(crate) mod origin;
mod pattern;
mod principal;
mod proxy;
mod public_url;
pub(crate) mod query;
mod rate_limit;
mod role;
pub(crate) mod session;
mod tokens;

pub use access::Access;
pub(crate) use access::Gate;
#[cfg(any(test, feature = "harness"))]
pub(crate) use access::bearer;
pub(crate) use failed::FailedLogins;
pub(crate) use front::{front, open_front};
pub(crate) use guard::{check_right, guard};
pub(crate) use host::{Hosts, LocalAddr};
pub use pattern::QueuePattern;
pub(crate) use principal::{Principal, Via};
pub use proxy::TrustedProxy;
pub use public_url::PublicUrl;
pub(crate) use rate_limit::RateLimit;
pub(crate) use role::Right;
pub use role::Role;
pub use tokens::add_token;
pub(crate) use tokens::{Stamp, TokensFile, Watched, contains_token, signing_key, stamp};
