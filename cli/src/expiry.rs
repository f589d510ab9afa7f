//! The flags for the last moment at which an attempt may start.

use std::time::Duration;

use clap::{Args, ValueEnum};
use dueq::OnExpire;
use dueq_input::Expiry;

use crate::time;

#[derive(Args)]
pub(crate) struct ExpiryFlags {
    /// Start no attempt later than this after the due time: 2h
    #[arg(long, value_name = "TIME", value_parser = time::period, allow_hyphen_values = true)]
    expires: Option<Duration>,
    /// Start no attempt after this moment, written as for --at
    #[arg(long, value_name = "MOMENT", conflicts_with = "expires")]
    expires_at: Option<String>,
    /// What becomes of the message when it expires [default: dead]
    #[arg(long, value_enum)]
    on_expire: Option<Fate>,
}

/// What becomes of a message that expires.
#[derive(Clone, Copy, ValueEnum)]
enum Fate {
    /// Remove it; only the count expired of `dueq stats` shows it
    Drop,
    /// Keep it as a dead letter, which can be listed and requeued
    Dead,
}

impl ExpiryFlags {
    /// What the flags say.
    pub(crate) fn read(self) -> Expiry {
        Expiry {
            expires: self.expires,
            expires_at: self.expires_at,
            on_expire: self.on_expire.map(|fate| match fate {
                Fate::Drop => OnExpire::Drop,
                Fate::Dead => OnExpire::Dead,
            }),
        }
    }
}
