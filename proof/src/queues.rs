//! The queues of a run: their names, their shares of the handlers, and their traffic.

use std::sync::LazyLock;
use std::time::Duration;

use dueq::QueueLimits;
use fastrand::Rng;

/// The most queues of a run.
pub const MOST: usize = 7;
/// The queue of the schedules, which a run has beside all others. Only its claims make messages.
pub const TICKS: &str = "chaos-ticks";
/// The pattern by which workers find the last of the other queues.
pub const PATTERN: &str = "found-*";
/// The parking time of that queue.
pub const PARKING: Duration = Duration::from_secs(10);

/// A queue of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    pub name: &'static str,
    pub weight: u32,
    /// The number of a worker's handlers that are reserved for this queue.
    pub reserve: usize,
    /// The most handlers that a worker gives this queue; `None` for no limit.
    pub max: Option<usize>,
    /// The queue's part of all messages, in per cent, if all queues are used.
    pub traffic: u32,
    /// Whether workers find the queue by [`PATTERN`]. Its traffic comes in bursts, so that its
    /// nodes park it.
    pub is_found: bool,
    /// The limits that the operator sets.
    pub limit: Option<Limit>,
    /// Whether consumers also claim from the queue over HTTP.
    pub is_http: bool,
}

/// A limit of the messages that workers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The most starts in any window, and the most at once.
    Rate {
        starts: u32,
        window_ms: u64,
        burst: u32,
    },
    /// The most leased messages.
    Leased(u32),
}

impl Limit {
    pub fn limits(self) -> QueueLimits {
        match self {
            Self::Rate {
                starts,
                window_ms,
                burst,
            } => QueueLimits::new()
                .rate(starts, Duration::from_millis(window_ms))
                .burst(burst),
            Self::Leased(most) => QueueLimits::new().max_leased(most),
        }
    }
}

/// The largest cost of a message. It must not exceed the burst of any rate.
pub const MOST_COST: u32 = 10;
/// A rate that binds whenever a batch of a producer is due at once. The mean traffic is below it; a
/// backlog may start a cost of 155 per second.
const RATE: Limit = Limit::Rate {
    starts: 40,
    window_ms: 200,
    burst: MOST_COST,
};
const LEASED: Limit = Limit::Leased(8);

const ALL: [Planned; MOST + 1] = [
    planned("chaos", 6, 0, 44),
    Planned {
        is_http: true,
        ..planned("chaos-3", 3, 0, 18)
    },
    Planned {
        max: Some(12),
        is_http: true,
        ..planned("chaos-1", 1, 0, 9)
    },
    planned("chaos-reserve", 1, 8, 9),
    Planned {
        limit: Some(RATE),
        ..planned("chaos-rate", 1, 0, 4)
    },
    Planned {
        limit: Some(LEASED),
        ..planned("chaos-leased", 1, 0, 1)
    },
    Planned {
        is_found: true,
        ..planned("found-bursts", 1, 0, 15)
    },
    planned(TICKS, 1, 0, 0),
];

const fn planned(name: &'static str, weight: u32, reserve: usize, traffic: u32) -> Planned {
    Planned {
        name,
        weight,
        reserve,
        max: None,
        traffic,
        is_found: false,
        limit: None,
        is_http: false,
    }
}

/// The number of queues of a run on a cluster; more than [`MOST`].
pub const ON_CLUSTER: usize = SLOTS + 1;
/// The number of these queues with one slot.
const SLOTS: usize = 50;
/// The last of these queues, which may have several partitions.
pub const PARTITIONED: &str = "parts";
/// The number of these queues that workers find by the pattern: some on every master.
const FOUND_ON_CLUSTER: usize = 10;

/// The queues of a run on a cluster. Those with one slot have equal parts of the messages; the one
/// with partitions has as many as fifteen of them; that of the schedules has none.
static CLUSTER: LazyLock<Vec<Planned>> = LazyLock::new(|| {
    let part = |number: usize| {
        let is_found = number >= SLOTS - FOUND_ON_CLUSTER;
        let first = if is_found { "found" } else { "slot" };
        let name = &*format!("{first}-{number:02}").leak(); // leaked only once in a process
        Planned {
            is_found,
            limit: match number {
                0..5 => Some(RATE),
                5..10 => Some(LEASED),
                _ => None,
            },
            ..planned(name, 1, 0, 2)
        }
    };
    let others = [planned(PARTITIONED, 3, 0, 30), planned(TICKS, 1, 0, 0)];
    (0..SLOTS).map(part).chain(others).collect()
});

/// Whether the queue of this name may have several partitions.
pub fn is_partitioned(name: &str) -> bool {
    name == PARTITIONED
}

/// The name by which the checker knows a partition, from that of its queue and its tag.
pub fn partition_name(queue: &str, tag: &str) -> String {
    match tag {
        "-" => queue.to_owned(),
        tag => format!("{queue}/{tag}"),
    }
}

/// The first `number` queues. More than [`MOST`] means those of a run on a cluster.
pub fn planned_queues(number: usize) -> &'static [Planned] {
    if number > MOST {
        return &CLUSTER[..number.min(ON_CLUSTER)];
    }
    &ALL[..number.clamp(1, MOST)]
}

/// The first `number` queues; if these are all queues of a run, also the queue of the schedules.
pub fn served_queues(number: usize) -> &'static [Planned] {
    match number {
        MOST => &ALL,
        ON_CLUSTER => &CLUSTER,
        _ => planned_queues(number),
    }
}

/// The queues among the first `number` from which consumers claim over HTTP.
pub fn http_queues(number: usize) -> impl Iterator<Item = &'static Planned> {
    planned_queues(number).iter().filter(|queue| queue.is_http)
}

/// Whether the name is that of a queue that workers find by the pattern.
pub fn is_found(name: &str) -> bool {
    is_such(name, |queue| queue.is_found)
}

/// Whether the operator gives the queue of this name a rate or a limit of leased messages.
pub fn is_limited(name: &str) -> bool {
    is_such(name, |queue| queue.limit.is_some())
}

fn is_such(name: &str, is: impl Fn(&Planned) -> bool) -> bool {
    let mut all = ALL.iter().chain(&*CLUSTER);
    all.any(|queue| is(queue) && queue.name == name)
}

/// The bursts of a queue that workers find by a pattern, equal for all producers of a run: a burst
/// of 1 to 2 s, then a silence of 5 to 15 s.
#[derive(Debug)]
pub struct Bursts {
    rng: Rng,
    /// The present burst, from and until, by the clock that all processes share.
    burst_us: (u64, u64),
}

impl Bursts {
    /// `epoch_us` is the time from which all processes of a run count.
    pub fn new(seed: u64, epoch_us: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            burst_us: (epoch_us, epoch_us + 2_000_000),
        }
    }

    pub fn is_burst(&mut self, now_us: u64) -> bool {
        while now_us >= self.burst_us.1 {
            let from_us = self.burst_us.1 + self.rng.u64(5_000_000..15_000_000);
            self.burst_us = (from_us, from_us + self.rng.u64(1_000_000..2_000_000));
        }
        now_us >= self.burst_us.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_the_same_in_all_processes() {
        let bursts = |from_us: u64| {
            let mut bursts = Bursts::new(7, 1_000_000);
            (from_us..100_000_000)
                .step_by(100_000)
                .map(|now_us| (now_us, bursts.is_burst(now_us)))
                .collect::<Vec<_>>()
        };
        let (all, later) = (bursts(1_000_000), bursts(50_000_000));
        assert!(all.ends_with(&later));
        assert!(all.iter().any(|(_, is)| *is) && all.iter().any(|(_, is)| !is));
    }

    #[test]
    fn the_queues_share_all_traffic() {
        assert_eq!(ALL.iter().map(|queue| queue.traffic).sum::<u32>(), 100);
        assert_eq!(CLUSTER.iter().map(|queue| queue.traffic).sum::<u32>(), 130);
        assert_eq!(planned_queues(1).len(), 1);
        for number in [MOST, ON_CLUSTER] {
            assert_eq!(planned_queues(number).len(), number);
            let served = served_queues(number);
            assert_eq!(served.len(), number + 1);
            assert_eq!(served[number].name, TICKS);
        }
    }
}
