//! The ways to close idle connections, behind one small trait.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use dueq::timers::Timers;
use dueq::wheel::Key;
use tokio::sync::{Notify, mpsc};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Interval, interval, sleep_until, timeout};

use crate::traffic::{Packet, Traffic};
use crate::{Args, Report, Way};

/// The load sends packets in portions, a hundred times a second.
const PORTION: Duration = Duration::from_millis(10);

trait Closer {
    fn open(&mut self, connection: u32);
    fn reset(&mut self, connection: u32);
    /// The next connection to close.
    async fn expired(&mut self) -> u32;
}

pub(crate) fn run(way: Way, args: &Args) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let limit = Duration::from_secs(args.limit.into());
    Ok(runtime.block_on(async {
        match way {
            Way::Nothing => measure(way, args, || Nothing).await,
            Way::Dueq => measure(way, args, || Wheel::new(limit, args.connections)).await,
            Way::Scan => measure(way, args, || Scan::new(limit)).await,
            Way::Sleeps => measure(way, args, || Sleeps::new(limit, args.connections)).await,
            Way::Ring => measure(way, args, || Ring::new(args.limit)).await,
        }
    }))
}

async fn measure<C: Closer>(way: Way, args: &Args, closer: impl FnOnce() -> C) -> Report {
    let packets_per_second = f64::from(args.packets.unwrap_or(args.connections.div_ceil(5)));
    let mut traffic = Traffic::new(
        args.connections,
        Duration::from_secs(args.limit.into()),
        packets_per_second,
    );
    let memory_before = memory();
    let mut closer = closer();
    for connection in 0..args.connections {
        traffic.opened(connection);
        closer.open(connection);
    }
    traffic.begin();
    let (began, cpu_before) = (Instant::now(), cpu());
    let end = began + Duration::from_secs(args.seconds.into());
    let mut portion = began;
    while portion < end {
        tokio::select! {
            biased;
            // Close all expired connections before the next packets.
            connection = unconstrained(closer.expired()) => traffic.close(connection),
            () = sleep_until(portion) => {
                portion = Instant::now() + PORTION;
                while let Some(packet) = traffic.packet() {
                    match packet {
                        Packet::Opens(connection) => closer.open(connection),
                        Packet::Resets(connection) => closer.reset(connection),
                    }
                    if Instant::now() > portion {
                        break; // It cannot keep up; close expired connections next.
                    }
                }
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    Report {
        way,
        connections: args.connections,
        packets_per_second: traffic.packets as f64 / seconds,
        resets_per_second: traffic.resets as f64 / seconds,
        closed: traffic.closed,
        wrong: traffic.wrong,
        missed: if way == Way::Nothing {
            0
        } else {
            traffic.missed()
        },
        latest_ms: traffic.latest.as_secs_f64() * 1e3,
        bytes_per_connection: grown(memory_before, peak_memory())
            .map(|bytes| bytes / f64::from(args.connections)),
        cpu_percent: grown(cpu_before, cpu()).map(|cpu| cpu / seconds * 100.0),
    }
}

fn grown(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some((after? - before?).max(0.0))
}

struct Nothing;

impl Closer for Nothing {
    fn open(&mut self, _connection: u32) {}

    fn reset(&mut self, _connection: u32) {}

    async fn expired(&mut self) -> u32 {
        pending().await
    }
}

struct Wheel {
    timers: Timers<u32>,
    keys: Vec<Option<Key>>,
    limit: Duration,
}

impl Wheel {
    fn new(limit: Duration, connections: u32) -> Self {
        Self {
            timers: Timers::new(),
            keys: vec![None; connections as usize],
            limit,
        }
    }
}

impl Closer for Wheel {
    fn open(&mut self, connection: u32) {
        self.keys[connection as usize] = self.timers.insert(self.limit, connection).ok();
    }

    fn reset(&mut self, connection: u32) {
        if let Some(key) = self.keys[connection as usize] {
            self.timers.reset(key, self.limit);
        }
    }

    async fn expired(&mut self) -> u32 {
        match self.timers.next().await {
            Some(expired) => expired.value,
            None => pending().await,
        }
    }
}

/// Checks every connection once a second.
struct Scan {
    heard: HashMap<u32, Instant>,
    closing: Vec<u32>,
    second: Interval,
    limit: Duration,
}

impl Scan {
    fn new(limit: Duration) -> Self {
        Self {
            heard: HashMap::new(),
            closing: Vec::new(),
            second: interval(Duration::from_secs(1)),
            limit,
        }
    }
}

impl Closer for Scan {
    fn open(&mut self, connection: u32) {
        self.heard.insert(connection, Instant::now());
    }

    fn reset(&mut self, connection: u32) {
        self.heard.insert(connection, Instant::now());
    }

    async fn expired(&mut self) -> u32 {
        loop {
            if let Some(connection) = self.closing.pop() {
                return connection;
            }
            let now = self.second.tick().await.max(Instant::now());
            let limit = self.limit;
            self.closing.extend(
                self.heard
                    .extract_if(|_, heard| now - *heard >= limit)
                    .map(|(connection, _)| connection),
            );
        }
    }
}

/// One task per connection, which waits for a packet until its limit.
struct Sleeps {
    packets: Vec<Arc<Notify>>,
    closing: mpsc::UnboundedReceiver<u32>,
    close: mpsc::UnboundedSender<u32>,
    limit: Duration,
}

impl Sleeps {
    fn new(limit: Duration, connections: u32) -> Self {
        let (close, closing) = mpsc::unbounded_channel();
        let packets = (0..connections).map(|_| Arc::default()).collect();
        Self {
            packets,
            closing,
            close,
            limit,
        }
    }
}

impl Closer for Sleeps {
    fn open(&mut self, connection: u32) {
        let (packet, close, limit) = (
            self.packets[connection as usize].clone(),
            self.close.clone(),
            self.limit,
        );
        tokio::spawn(async move {
            while timeout(limit, packet.notified()).await.is_ok() {}
            let _ = close.send(connection); // The receiver is gone after the end.
        });
    }

    fn reset(&mut self, connection: u32) {
        self.packets[connection as usize].notify_one();
    }

    async fn expired(&mut self) -> u32 {
        match self.closing.recv().await {
            Some(connection) => connection,
            None => pending().await,
        }
    }
}

/// Connections with their last packet in the same second share a set. The hand empties one set per
/// second.
struct Ring {
    sets: Vec<HashSet<u32>>,
    place: HashMap<u32, usize>,
    hand: usize,
    closing: Vec<u32>,
    second: Interval,
}

impl Ring {
    fn new(limit: u32) -> Self {
        // Three more: for the current second, for the set being emptied, and for a late hand.
        let sets = vec![HashSet::new(); limit as usize + 3];
        Self {
            sets,
            place: HashMap::new(),
            hand: 0,
            closing: Vec::new(),
            second: interval(Duration::from_secs(1)),
        }
    }
}

impl Closer for Ring {
    fn open(&mut self, connection: u32) {
        self.sets[self.hand].insert(connection);
        self.place.insert(connection, self.hand);
    }

    fn reset(&mut self, connection: u32) {
        if let Some(before) = self.place.insert(connection, self.hand)
            && before != self.hand
        {
            self.sets[before].remove(&connection);
            self.sets[self.hand].insert(connection);
        }
    }

    async fn expired(&mut self) -> u32 {
        loop {
            if let Some(connection) = self.closing.pop() {
                self.place.remove(&connection);
                return connection;
            }
            self.second.tick().await;
            self.hand = (self.hand + 1) % self.sets.len();
            // The oldest set, which becomes the current one next.
            let oldest = (self.hand + 1) % self.sets.len();
            self.closing.extend(self.sets[oldest].drain());
        }
    }
}

/// Memory in use now, in bytes.
fn memory() -> Option<f64> {
    status("VmRSS:")
}

/// Greatest memory use so far, in bytes.
fn peak_memory() -> Option<f64> {
    status("VmHWM:")
}

fn status(name: &str) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))?;
    Some(kib.trim().parse::<f64>().ok()? * 1024.0)
}

/// Processor time so far, in seconds.
fn cpu() -> Option<f64> {
    // Nanoseconds of this thread, the only busy one here.
    let text = fs::read_to_string("/proc/self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}
