//! Examines the masters of a cluster together: their clocks, slots and Functions libraries.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::doctor::checkup::Checkup;
use crate::doctor::server::time_of;
use crate::error::Error;
use crate::server::info::Info;
use crate::server::lane::Lane;
use crate::server::link::ServerLink;

/// A slot is moved within less, so that one that is open for longer may be left half-way.
const OPEN_SLOT: Duration = Duration::from_secs(2);

/// The reading of one master's clock.
pub(super) struct Clock {
    pub(super) address: String,
    /// How far it is ahead of an arbitrary origin, in microseconds.
    pub(super) offset_us: i128,
    /// The most by which that can be wrong.
    pub(super) error_us: u128,
}

impl Checkup {
    /// The settings of a cluster that decide how a failover goes.
    pub(super) async fn cluster_settings(&mut self, lane: &Lane, info: &Info) -> Result<(), Error> {
        if !info.is_clustered() {
            return Ok(());
        }
        for name in [
            "cluster-node-timeout",
            "cluster-require-full-coverage",
            "cluster-allow-reads-when-down",
        ] {
            let setting = lane.setting(name).await;
            if let Some(Some(value)) =
                self.allowed("settings of the cluster (CONFIG GET)", setting)?
            {
                self.cluster_setting(name, &value);
            }
        }
        Ok(())
    }

    /// What shows only when the masters are compared.
    pub(super) async fn masters(&mut self, links: &[Arc<ServerLink>]) -> Result<(), Error> {
        let origin = Instant::now();
        let (mut clocks, mut libraries) = (Vec::new(), Vec::new());
        for link in links {
            let address = link.connector().address();
            if let Some(time) = self.allowed("clocks (TIME)", time_of(link).await)? {
                let since = time.at.saturating_duration_since(origin).as_micros();
                clocks.push(Clock {
                    address: address.clone(),
                    offset_us: i128::from(time.unix_us) - since as i128,
                    error_us: time.round_trip.as_micros() / 2,
                });
            }
            let version = link.control.functions_version().await;
            if let Some(version) = self.allowed("Functions library (FCALL)", version)? {
                libraries.push((address, version));
            }
        }
        self.clocks(&clocks);
        self.libraries(&libraries);
        self.slots(links).await
    }

    /// Slots that are being moved key by key, and still are after a while.
    async fn slots(&mut self, links: &[Arc<ServerLink>]) -> Result<(), Error> {
        let mut open = Vec::new();
        for link in links {
            let slots = link.control.open_slots().await;
            let slots = self.allowed("slots that move (CLUSTER NODES)", slots)?;
            open.extend(
                slots
                    .filter(|slots| !slots.is_empty())
                    .map(|slots| (link, slots)),
            );
        }
        if open.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(OPEN_SLOT).await;
        for (link, mut slots) in open {
            let now = link.control.open_slots().await?;
            slots.retain(|slot| now.contains(slot));
            self.open_slots(&link.connector().address(), &slots);
        }
        Ok(())
    }
}
