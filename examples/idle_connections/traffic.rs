//! The load, and the expected results.

use std::time::Duration;

use tokio::time::Instant;

/// The expected state of all connections, and the packets for them.
pub(crate) struct Traffic {
    start: Instant,
    limit: Duration,
    packets_per_second: f64,
    random: fastrand::Rng,
    /// Time of each connection's last packet; `None` if it is closed.
    heard: Vec<Option<Instant>>,
    pub(crate) packets: u64,
    pub(crate) resets: u64,
    pub(crate) closed: u64,
    pub(crate) wrong: u64,
    pub(crate) latest: Duration,
}

/// The effect of a packet on its connection.
pub(crate) enum Packet {
    Opens(u32),
    Resets(u32),
}

impl Traffic {
    pub(crate) fn new(connections: u32, limit: Duration, packets_per_second: f64) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            limit,
            packets_per_second,
            random: fastrand::Rng::with_seed(7),
            heard: vec![Some(now); connections as usize],
            packets: 0,
            resets: 0,
            closed: 0,
            wrong: 0,
            latest: Duration::ZERO,
        }
    }

    /// Starts the load once all connections are open.
    pub(crate) fn begin(&mut self) {
        self.start = Instant::now();
    }

    /// Records the first opening of a connection.
    pub(crate) fn opened(&mut self, connection: u32) {
        self.heard[connection as usize] = Some(Instant::now());
    }

    /// The next packet, if its time has come.
    pub(crate) fn packet(&mut self) -> Option<Packet> {
        let now = Instant::now();
        if self.packets as f64 > (now - self.start).as_secs_f64() * self.packets_per_second {
            return None;
        }
        self.packets += 1;
        let connection = self.random.u32(..self.heard.len() as u32);
        let heard = self.heard[connection as usize].replace(now);
        if heard.is_none() {
            return Some(Packet::Opens(connection));
        }
        self.resets += 1;
        Some(Packet::Resets(connection))
    }

    /// Records a close, which is wrong if the connection got a packet within the limit or is closed
    /// already.
    pub(crate) fn close(&mut self, connection: u32) {
        self.closed += 1;
        let silence = self.heard[connection as usize]
            .take()
            .map(|heard| heard.elapsed());
        match silence {
            Some(silence) if silence >= self.limit => {
                self.latest = self.latest.max(silence - self.limit)
            }
            _ => self.wrong += 1,
        }
    }

    /// Open connections that exceed their limit by more than the coarsest way needs.
    pub(crate) fn missed(&self) -> u64 {
        let over = self.limit + Duration::from_secs(3);
        self.heard
            .iter()
            .flatten()
            .filter(|heard| heard.elapsed() > over)
            .count() as u64
    }
}
