//! Tells systemd when the program is ready, alive, reloading and stopping; does nothing without
//! systemd. Reads files of secrets again, and finds those that systemd gave to the unit.

use std::path::PathBuf;

use sd_notify::NotifyState;

use crate::Common;

/// Tells systemd that the program is ready and, for its watchdog, from now on that tokio runs.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
    if let Some(limit) = sd_notify::watchdog_enabled() {
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(limit / 3);
            loop {
                ticks.tick().await;
                tell(&[NotifyState::Watchdog]);
            }
        });
    }
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Reads the files of a service again, and tests those for Redis by a new connection. What cannot
/// be used is reported. A file that cannot be read leaves the old one in force; a password that
/// Redis refuses is what new connections send.
pub(crate) async fn reload(common: &Common, own_files: impl FnOnce() -> anyhow::Result<()>) {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
    reload_files(own_files);
    match common.client().await {
        Ok(_) => {
            tracing::info!(name: "dueq.reloaded", target: "dueq", "Redis accepts the certificates and the password as they are now")
        }
        Err(error) => {
            let error = common.message_of(&error);
            tracing::error!(name: "dueq.not_reloaded", target: "dueq", error, "the certificates or the password for Redis cannot be used as they are now; open connections stay");
        }
    }
    tell(&[NotifyState::Ready]);
}

/// The file of a credential that systemd gave to the unit: `dueq.` and the name of an option.
pub(crate) fn credential(option: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CREDENTIALS_DIRECTORY")?);
    Some(folder.join(format!("dueq.{option}"))).filter(|path| path.exists())
}

/// Reads the program's own files again: before it is ready, a reload does no more.
pub(crate) fn reload_files(own_files: impl FnOnce() -> anyhow::Result<()>) {
    if let Err(error) = own_files() {
        let error = format!("{error:#}");
        tracing::error!(name: "dueq.not_reloaded", target: "dueq", error, "the old file stays in use");
    }
}

fn tell(state: &[NotifyState<'_>]) {
    // Without NOTIFY_SOCKET this does nothing. A supervisor that cannot hear must not end the work.
    let _ = sd_notify::notify(state);
}
