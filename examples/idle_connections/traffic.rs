//! The load, and what ought to happen under it.

use std::time::Duration;

use tokio::time::Instant;

/// All connections as a referee sees them, and the packets that are sent to them.
pub(crate) struct Traffic {
    start: Instant,
    limit: Duration,
    packets_per_second: f64,
    random: fastrand::Rng,
    /// When each connection was last heard of; `None` if it is closed.
    heard: Vec<Option<Instant>>,
    pub(crate) packets: u64,
    pub(crate) resets: u64,
    pub(crate) closed: u64,
    pub(crate) wrong: u64,
    pub(crate) latest: Duration,
}

/// What a packet means for its connection.
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

    /// Begins when all connections are open.
    pub(crate) fn begin(&mut self) {
        self.start = Instant::now();
    }

    /// Says when a connection was opened at first.
    pub(crate) fn opened(&mut self, connection: u32) {
        self.heard[connection as usize] = Some(Instant::now());
    }

    /// The next packet, if it is time for it.
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

    /// A connection is being closed. That is wrong if it was heard of within the limit, or closed before.
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

    /// Connections that are open though their time was over longer ago than the coarsest way needs.
    pub(crate) fn missed(&self) -> u64 {
        let over = self.limit + Duration::from_secs(3);
        self.heard
            .iter()
            .flatten()
            .filter(|heard| heard.elapsed() > over)
            .count() as u64
    }
}
