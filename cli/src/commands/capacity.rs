//! `dueq capacity`: how many masters, partitions and nodes a queue needs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::output::{Outcome, Usage};
use crate::sizing::{Demand, Figures, Fit, LOAD, MAX_WAITING, Plan, plan};
use crate::{Common, output, time};

#[derive(Args)]
#[command(after_help = "\
Computes from measured figures how large a Redis Cluster must be for one queue. The command asks no
server. The output names the machine, the commit and the date of the figures; without --figures they
are those of dueq's own measurements, on one machine. Your machines differ: measure there before you
buy, and write your figures into a file like docs/performance/figures.json.

  waiting     rate x delay
  memory      waiting x (bytes of a message in Redis); --memory is what one master may hold (its
              maxmemory). Leave the rest of the machine to snapshots and buffers.
  masters     by CPU: rate x (push + claim + ack) / 0.6 of a core; by memory: memory / --memory; the
              larger counts. Redis runs scripts on one core. A queue uses 256 masters at most, one
              for each partition.
  partitions  a multiple of the masters: four each, more if more than 5 million messages would wait
              in one. A queue that one master can hold needs no partitions: 1.
  nodes       rate x (the worker's own time + --handler-time) / --cores. A handler that waits for
              others does not occupy its core: count its processor time only.
  network     of all masters together, without replication

--batch is how many messages a call has. Small calls cost more: with 4 messages a call, a message
costs several times as much. The guide \"Scaling\" shows what decides it.

Exit code 0 if the queue fits. Exit code 1 if it does not; the output says with what rate or delay
it would.

Examples:
  dueq capacity --rate 100k/s --delay 48h --payload 200
  dueq capacity --rate 1M/s --delay 60s --payload 100 --memory 64GB --handler-time 2ms
  dueq capacity --rate 5M/day --delay 30d --payload 1KB --figures figures.json --json")]
pub(crate) struct Capacity {
    /// How many messages are pushed: 100k/s, 5M/day; k is a thousand, M a million
    #[arg(long, value_parser = rate)]
    rate: f64,
    /// How long a message waits, on average: 48h
    #[arg(long, value_name = "TIME", value_parser = time::delay, allow_hyphen_values = true)]
    delay: Duration,
    /// The size of a payload: 200, 1KB
    #[arg(long, value_name = "BYTES", value_parser = payload)]
    payload: f64,
    /// The data that one master may hold: 32GB, 64GiB
    #[arg(long, value_name = "BYTES", default_value = "32GB", value_parser = memory)]
    memory: f64,
    /// Replicas of each master
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=5))]
    replicas: u64,
    /// Messages a call
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=256))]
    batch: u32,
    /// The processor time of a handler: 5ms
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time::delay, allow_hyphen_values = true)]
    handler_time: Duration,
    /// The cores of a node
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    cores: u32,
    /// A file of measured figures, instead of dueq's own
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
}

impl Capacity {
    pub(crate) fn run(self, common: &Common) -> anyhow::Result<Outcome> {
        if self.delay.is_zero() {
            let reason = "--delay is 0: give the time from a push to its due time, such as 48h";
            return Err(Usage(reason.to_owned()).into());
        }
        let figures = match &self.figures {
            Some(path) => read(path)?,
            None => Figures::of_this_repository().map_err(Usage)?,
        };
        let demand = Demand {
            rate: self.rate,
            delay: self.delay,
            payload: self.payload,
            memory: self.memory,
            replicas: self.replicas,
            batch: f64::from(self.batch),
            handler_time: self.handler_time,
            cores: f64::from(self.cores),
        };
        let plan = plan(&figures, &demand);
        if common.json {
            output::json_line(&as_json(&figures, &plan))?;
        } else {
            let source = &figures.source;
            let figures = format!(
                "{}, commit {}, {}",
                source.machine, source.commit, source.date
            );
            for line in as_text(&self, &plan) {
                output::line(&line)?;
            }
            let figures = output::visible(figures.as_bytes());
            output::line(&format!("figures     {figures}"))?;
        }
        Ok(Outcome::done_if(matches!(plan.fit, Fit::Fits { .. })))
    }
}

/// Reads a file of figures.
fn read(path: &Path) -> Result<Figures, Usage> {
    let shown = output::visible(path.as_os_str().as_encoded_bytes());
    if path == Path::new("-") {
        return Err(Usage(
            "--figures -: standard input is not read; give the name of a file".to_owned(),
        ));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read the figures in {shown}: {error}")))?;
    Figures::read(&text).map_err(|reason| {
        let like = "write it like docs/performance/figures.json of dueq";
        let reason = output::visible(reason.as_bytes());
        Usage(format!("{shown} has no figures: {reason}; {like}"))
    })
}

fn as_text(asked: &Capacity, plan: &Plan) -> Vec<String> {
    let Plan {
        waiting, memory, ..
    } = *plan;
    let mut lines = vec![
        format!("waiting     {} messages", short(waiting)),
        format!(
            "memory      {}; {} with {} replica{} of each master",
            bytes(memory),
            bytes(plan.memory_with_replicas),
            asked.replicas,
            if asked.replicas == 1 { "" } else { "s" },
        ),
    ];
    let by_memory = plan.masters_by_memory;
    match plan.fit {
        Fit::Fits { busy_cores, masters_by_cpu, masters, partitions, waiting_a_partition } => {
            let machines = masters * (1 + asked.replicas);
            lines.extend([
                format!(
                    "masters     {masters}: {masters_by_cpu} by CPU ({:.1} us a message, {busy_cores:.1} cores busy, {:.0} % of each), {by_memory} by memory ({} each)",
                    plan.life_us,
                    100.0 * LOAD,
                    bytes(asked.memory),
                ),
                format!("servers     {machines} with replicas"),
                format!("partitions  {partitions}: {} messages wait in each", short(waiting_a_partition)),
            ]);
            if waiting_a_partition > MAX_WAITING {
                lines.push(
                    "crowded     more than 5M messages wait in each: a push costs up to twice as \
                     much, and a slot that moves blocks two masters for seconds; use several queues"
                        .to_owned(),
                );
            }
        }
        Fit::NotInMemory { rate, delay } => lines.extend([
            format!(
                "does not fit into memory: {by_memory} masters of {} would be needed, and a queue uses 256 at most",
                bytes(asked.memory)
            ),
            format!(
                "would fit   {}/s with this delay, or {} at this rate; or more memory in each master, or several queues",
                short(rate),
                span(delay)
            ),
        ]),
        Fit::NotFastEnough { rate } => lines.extend([
            format!("does not fit: 256 masters, the most that a queue uses, are too slow for {}/s", short(asked.rate)),
            format!("would fit   {}/s; or several queues", short(rate)),
        ]),
    }
    lines.extend([
        format!("nodes       {} of {} cores", plan.nodes, asked.cores),
        format!(
            "network     {}/s into the masters, {}/s out of them",
            bytes(plan.network_in),
            bytes(plan.network_out)
        ),
    ]);
    lines
}

fn as_json(figures: &Figures, plan: &Plan) -> serde_json::Value {
    let (mut object, whole) = (serde_json::Map::new(), |number: f64| number.round() as u64);
    let mut put = |name: &str, value: serde_json::Value| object.insert(name.to_owned(), value);
    put("fits", matches!(plan.fit, Fit::Fits { .. }).into());
    put("waiting", whole(plan.waiting).into());
    put("memory_bytes", whole(plan.memory).into());
    put(
        "memory_bytes_with_replicas",
        whole(plan.memory_with_replicas).into(),
    );
    put("masters_by_memory", plan.masters_by_memory.into());
    put("redis_us_a_message", plan.life_us.into());
    match plan.fit {
        Fit::Fits {
            busy_cores,
            masters_by_cpu,
            masters,
            partitions,
            waiting_a_partition,
        } => {
            put("busy_cores", busy_cores.into());
            put("masters_by_cpu", masters_by_cpu.into());
            put("masters", masters.into());
            put("partitions", partitions.into());
            put("waiting_a_partition", whole(waiting_a_partition).into());
        }
        Fit::NotInMemory { rate, delay } => {
            put("reason", "memory".into());
            put("fitting_rate", rate.into());
            put("fitting_delay_ms", whole(delay.as_secs_f64() * 1e3).into());
        }
        Fit::NotFastEnough { rate } => {
            put("reason", "cpu".into());
            put("fitting_rate", rate.into());
        }
    }
    put("nodes", plan.nodes.into());
    put("network_in_bytes_a_second", whole(plan.network_in).into());
    put("network_out_bytes_a_second", whole(plan.network_out).into());
    let source = &figures.source;
    put(
        "figures",
        serde_json::json!({ "machine": source.machine, "commit": source.commit, "date": source.date }),
    );
    object.into()
}

/// Reads `100k/s`, `5M/day`, `250`: messages a second.
fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1.0,
        "m" | "min" | "minute" => 60.0,
        "h" | "hour" => 3_600.0,
        "d" | "day" => 86_400.0,
        _ => {
            return Err(format!(
                "{text:?} is no rate: the unit of time is s, min, h or day"
            ));
        }
    };
    let units = [("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
    let per = number_with(number, &units).map(|number| number / seconds);
    per.filter(|rate| (1e-6..=1e9).contains(rate))
        .ok_or_else(|| {
            format!("{text:?} is no rate: write 100k/s or 5M/day, at most 1000M/s and above 0")
        })
}

const SIZES: [(&str, f64); 11] = [
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
    ("b", 1.0),
    ("bytes", 1.0),
    ("", 1.0),
];

/// Reads the size of a payload.
fn payload(text: &str) -> Result<f64, String> {
    let size = number_with(&text.to_lowercase(), &SIZES);
    size.filter(|size| (0.0..=16.0 * 1_048_576.0).contains(size))
        .ok_or_else(|| format!("{text:?} is no size of a payload: write 200 or 1KB, at most 16MiB"))
}

/// Reads the memory of a master.
fn memory(text: &str) -> Result<f64, String> {
    let size = number_with(&text.to_lowercase(), &SIZES);
    size.filter(|size| (1e6..=1e15).contains(size))
        .ok_or_else(|| {
            format!("{text:?} is no memory of a master: write 32GB or 64GiB, at least 1MB")
        })
}

/// A number and the unit after it.
fn number_with(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    number.parse::<f64>().ok().map(|number| number * factor)
}

/// Three digits and a unit: `113 GB`.
fn bytes(number: f64) -> String {
    scaled(number, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"])
}

/// Three digits and a unit: `360M`.
fn short(number: f64) -> String {
    scaled(number, &["", "k", "M", "G", "T", "P"])
}

fn scaled(mut number: f64, units: &[&str]) -> String {
    let mut units = units.iter();
    let mut unit = units.next().unwrap_or(&"");
    for next in units {
        // 999.5 would be shown as 1000.
        if number < 999.5 {
            break;
        }
        (number, unit) = (number / 1e3, next);
    }
    let digits = match number {
        ..9.995 if number.fract() > 0.0 => 2,
        ..99.95 if number.fract() > 0.0 => 1,
        _ => 0,
    };
    format!("{number:.digits$}{unit}")
}

/// Two units of time: `7h 22m`.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 => format!("{}ms", time.as_millis()),
        1..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..172_800 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_a_number_and_a_unit_of_time() {
        for (text, expected) in [
            ("100k/s", Some(100_000.0)),
            ("1.5M/s", Some(1_500_000.0)),
            ("250", Some(250.0)),
            ("864k/day", Some(10.0)),
            ("60 / min", Some(1.0)),
            ("0/s", None),
            ("-1/s", None),
            ("fast", None),
            ("1/week", None),
            ("1e99", None),
            ("2G/s", None),
            ("k/s", None),
            ("1..2/s", None),
            ("", None),
        ] {
            assert_eq!(rate(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn sizes_are_decimal_or_binary() {
        assert_eq!(memory("32GB"), Ok(32e9));
        assert_eq!(memory("1 GiB"), Ok(1_073_741_824.0));
        assert_eq!(payload("200"), Ok(200.0));
        assert_eq!(payload("0"), Ok(0.0));
        assert_eq!(payload("16MiB"), Ok(16_777_216.0));
        for text in ["17MiB", "x", "-1", "1 furlong", ""] {
            assert!(payload(text).is_err(), "{text}");
        }
        assert!(memory("1kb").is_err());
    }

    #[test]
    fn numbers_are_shown_with_two_or_three_digits() {
        for (number, shown) in [
            (0.0, "0 B"),
            (7.0, "7 B"),
            (999.7, "1.00 kB"),
            (113e9, "113 GB"),
            (54.26e12, "54.3 TB"),
            (1.5e6, "1.50 MB"),
        ] {
            assert_eq!(bytes(number), shown);
        }
        assert_eq!(span(Duration::from_secs(26_530)), "7h 22m");
    }
}
