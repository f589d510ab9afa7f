//! Access tokens: 256 random bits, of which the tokens file has only the SHA-256.

mod add;
mod file;
mod token;
mod watched;

pub use add::add_token;
pub(crate) use file::{TokensFile, signing_key};
pub(crate) use token::contains_token;
pub(crate) use watched::{Stamp, Watched, stamp};
