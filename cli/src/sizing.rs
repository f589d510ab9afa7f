//! How many masters, partitions and nodes a queue needs, computed from measured figures.

use std::time::Duration;

use serde::Deserialize;

/// Most partitions of a queue; a master without one does nothing for the queue.
const MAX_PARTITIONS: u64 = 256;
/// Partitions of each master, so that some can move.
const PARTITIONS_A_MASTER: u64 = 4;
/// Above this a partition's tables are resized in one piece, and a push costs more.
pub(crate) const MAX_WAITING: f64 = 5_000_000.0;
/// How much of its core a master uses at this rate. The rest is for bursts and failovers.
pub(crate) const LOAD: f64 = 0.6;

/// Measured costs of one machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figures {
    pub(crate) source: Source,
    /// For its readers: how each figure was measured.
    #[serde(default, rename = "notes")]
    _notes: String,
    /// By the number of waiting messages, ascending.
    costs: Vec<Costs>,
    /// How many messages the calls had that `costs` were measured with.
    costs_batch: f64,
    /// Processor time of Redis for a push, a claim and an ack, without any message in them.
    call_us: f64,
    /// Processor time outside of Redis for a message, without its handler.
    process_us: f64,
    payload_bytes: f64,
    /// Redis's memory for a waiting message with `payload_bytes` of payload.
    message_bytes: f64,
    /// What Redis receives and sends for a message, besides the payload.
    received_bytes: f64,
    sent_bytes: f64,
}

/// Where figures come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    pub(crate) machine: String,
    pub(crate) commit: String,
    pub(crate) date: String,
}

/// Processor time of Redis for a message, beside so many that wait.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    waiting: f64,
    push_us: f64,
    claim_us: f64,
    ack_us: f64,
}

impl Figures {
    /// The figures of this repository.
    pub(crate) fn of_this_repository() -> Result<Self, String> {
        Self::read(include_str!("../../docs/performance/figures.json"))
    }

    /// Reads a file of figures.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let figures: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let first = figures.costs.first().ok_or("costs is empty")?;
        let ascending = figures
            .costs
            .windows(2)
            .all(|pair| pair[0].waiting < pair[1].waiting);
        if !ascending || first.waiting < 0.0 {
            return Err("costs is not in the order of waiting".to_owned());
        }
        let of_costs = figures.costs.iter().flat_map(|row| {
            [
                ("push_us", row.push_us),
                ("claim_us", row.claim_us),
                ("ack_us", row.ack_us),
            ]
        });
        let positive = [
            ("costs_batch", figures.costs_batch),
            ("call_us", figures.call_us),
            ("process_us", figures.process_us),
            ("payload_bytes", figures.payload_bytes),
            ("message_bytes", figures.message_bytes),
            ("received_bytes", figures.received_bytes),
            ("sent_bytes", figures.sent_bytes),
        ];
        for (name, value) in of_costs.chain(positive) {
            if !(value > 0.0 && value < 1e12) {
                return Err(format!(
                    "{name} is {value}, it must be above 0 and below 1e12"
                ));
            }
        }
        let calls_us = figures.call_us / figures.costs_batch;
        let life_us = |row: &Costs| row.push_us + row.claim_us + row.ack_us;
        if figures.costs.iter().any(|row| life_us(row) <= calls_us) {
            let reason = "call_us / costs_batch is not less than a row of costs, which contains it";
            return Err(reason.to_owned());
        }
        if figures.message_bytes <= allocated(figures.payload_bytes) {
            return Err("message_bytes is not more than the payload's".to_owned());
        }
        Ok(figures)
    }

    /// Redis's processor time for a push, a claim and an ack of a message, in microseconds.
    fn life_us(&self, waiting: f64, batch: f64) -> f64 {
        let off = |row: &&Costs| (row.waiting - waiting).abs();
        // The nearest row: a line between two would claim more precision than they have.
        let nearest = self.costs.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
        let row = nearest.unwrap_or(&self.costs[0]);
        let calls = self.call_us * (1.0 / batch - 1.0 / self.costs_batch);
        row.push_us + row.claim_us + row.ack_us + calls
    }

    /// Redis's memory for a waiting message with this payload.
    fn message_bytes(&self, payload: f64) -> f64 {
        self.message_bytes - allocated(self.payload_bytes) + allocated(payload)
    }
}

/// What the allocator of Redis gives to a string of this length: the next size class of jemalloc.
fn allocated(bytes: f64) -> f64 {
    // A header by the length, and a NUL.
    let header = match bytes {
        ..252.0 => 4.0,
        252.0..65_530.0 => 6.0,
        _ => 10.0,
    };
    let needed: f64 = bytes + header;
    if needed <= 128.0 {
        return (needed / 16.0).ceil() * 16.0;
    }
    // Four classes between two powers of two.
    let step = 2_f64.powf((needed.log2() - 1e-12).floor() - 2.0);
    (needed / step).ceil() * step
}

/// What a queue must bear.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Messages a second.
    pub(crate) rate: f64,
    /// How long a message waits.
    pub(crate) delay: Duration,
    /// Bytes.
    pub(crate) payload: f64,
    /// Bytes of data that a master may hold.
    pub(crate) memory: f64,
    pub(crate) replicas: u64,
    /// Messages a call.
    pub(crate) batch: f64,
    /// Processor time of a handler.
    pub(crate) handler_time: Duration,
    /// Cores of a node.
    pub(crate) cores: f64,
}

/// What that takes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// Messages that wait at a time.
    pub(crate) waiting: f64,
    /// Bytes, without replicas.
    pub(crate) memory: f64,
    pub(crate) memory_with_replicas: f64,
    pub(crate) masters_by_memory: u64,
    pub(crate) life_us: f64,
    pub(crate) fit: Fit,
    pub(crate) nodes: u64,
    /// Bytes a second into and out of all masters, without replication.
    pub(crate) network_in: f64,
    pub(crate) network_out: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fit {
    Fits {
        /// Cores of masters that are busy.
        busy_cores: f64,
        masters_by_cpu: u64,
        masters: u64,
        partitions: u64,
        waiting_a_partition: f64,
    },
    /// The masters of one queue, at most one a partition, cannot hold it.
    NotInMemory {
        /// The highest rate with this delay, and the longest delay at this rate.
        rate: f64,
        delay: Duration,
    },
    /// They can hold it, but are too slow: the highest rate.
    NotFastEnough { rate: f64 },
}

/// Masters, partitions, nodes and network for this demand.
pub(crate) fn plan(figures: &Figures, demand: &Demand) -> Plan {
    let waiting = demand.rate * demand.delay.as_secs_f64();
    let bytes = figures.message_bytes(demand.payload);
    let memory = waiting * bytes;
    let masters_by_memory = at_least_one(memory / demand.memory);
    let most = MAX_PARTITIONS as f64 * demand.memory / bytes;
    let life = |masters| {
        let a_partition = waiting / partitions(masters, waiting) as f64;
        figures.life_us(a_partition, demand.batch)
    };
    let by_cpu = |masters| at_least_one(demand.rate * life(masters) / 1e6 / LOAD);
    let fast_enough =
        |least: u64| (least..=MAX_PARTITIONS).find(|masters| by_cpu(*masters) <= *masters);
    let masters = fast_enough(masters_by_memory);
    let fit = match masters {
        Some(masters) => Fit::Fits {
            busy_cores: demand.rate * life(masters) / 1e6,
            masters_by_cpu: fast_enough(1).unwrap_or(masters),
            masters,
            partitions: partitions(masters, waiting),
            waiting_a_partition: waiting / partitions(masters, waiting) as f64,
        },
        None if masters_by_memory > MAX_PARTITIONS => Fit::NotInMemory {
            rate: most / demand.delay.as_secs_f64(),
            delay: Duration::from_secs_f64(most / demand.rate),
        },
        None => Fit::NotFastEnough {
            rate: MAX_PARTITIONS as f64 * LOAD * 1e6 / life(MAX_PARTITIONS),
        },
    };
    let handled_us = figures.process_us + demand.handler_time.as_secs_f64() * 1e6;
    Plan {
        waiting,
        memory,
        memory_with_replicas: memory * (1 + demand.replicas) as f64,
        masters_by_memory,
        life_us: life(masters.unwrap_or(MAX_PARTITIONS)),
        fit,
        nodes: at_least_one(demand.rate * handled_us / 1e6 / demand.cores),
        network_in: demand.rate * (figures.received_bytes + demand.payload),
        network_out: demand.rate * (figures.sent_bytes + demand.payload),
    }
}

/// Rounded up, and at least 1.
fn at_least_one(number: f64) -> u64 {
    (number.ceil() as u64).max(1)
}

/// A multiple of the masters: four each, or more if too many messages would wait in one. At most
/// 256 in all. One master needs one only, unless too many wait.
fn partitions(masters: u64, waiting: f64) -> u64 {
    let needed = at_least_one(waiting / MAX_WAITING);
    if masters == 1 && needed == 1 {
        return 1;
    }
    let each = PARTITIONS_A_MASTER.max(needed.div_ceil(masters));
    each.min(MAX_PARTITIONS / masters) * masters
}

#[cfg(test)]
mod tests;
