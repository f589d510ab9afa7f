//! A soak: the same load for hours, to find growth of memory or lateness.

mod mixture;
mod roles;
mod sample;
mod spread;
#[cfg(test)]
mod tests;
mod verdict;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dueq_bench_driver::unix_us;
use dueq_testkit::Server;
use dueq_testkit::report::Report;
use serde_json::{Value, json};

use roles::Pushed;
use sample::{Sample, Stage};
use spread::Spread;
use verdict::{Length, Seen, Totals};

/// How long the maximum rate is measured; below, how long the load runs before that.
const CALIBRATION: Duration = Duration::from_secs(20);
const CALIBRATION_WARM_UP: Duration = Duration::from_secs(5);
/// The longest wait for the remaining messages at the end: many times the longest delay and a
/// retry.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);

/// Runs a worker and a producer at half their maximum rate for a long time: do memory, descriptors
/// and lateness stay flat?
///
/// Exits with 1 if one of them does not, if the producer cannot keep the pace, or if a message was early or lost.
#[derive(clap::Args)]
pub struct Arguments {
    /// How long the counted part takes: 3600s, 90m, 2h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    duration: Duration,
    /// How long it runs before that at the same rate: longer than the longest delay, 30 s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    warm_up: Duration,
    /// How often it samples
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// Messages per second, instead of half of the measured maximum
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rate: Option<u64>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Write the verdict and all samples to this file, for `plot`; after each sample the samples so
    /// far
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

pub use roles::{Arguments as RoleArguments, run as run_role};

pub async fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        !arguments.interval.is_zero(),
        "--interval must be above zero"
    );
    ensure!(
        arguments.duration >= arguments.interval * 12,
        "--duration must be at least twelve times --interval"
    );
    let most = match arguments.rate {
        Some(_) => None,
        None => Some(calibrate().await?),
    };
    let rate = arguments
        .rate
        .unwrap_or_else(|| most.map_or(1, |most| (most / 2.0) as u64).max(1));
    eprintln!(
        "{rate} messages a second, for {:?} after {:?} of warm-up",
        arguments.duration, arguments.warm_up
    );

    let mut soak = Soak::new(arguments, rate, most)?;
    // New processes and a new server, because peaks of the calibration would hide growth.
    let server = Server::start(&[])?;
    let mut stage = Stage::start(&server, "soak").await?;
    stage.begin(Some(rate)).await?;
    soak.watch(&mut stage).await?;
    soak.finish(&mut stage).await?;

    let mut verdict = Report::default();
    soak.judge(&mut verdict);
    soak.save(Some(&verdict.json()["soak"]))?;
    verdict.print(arguments.json, true)
}

/// Measures the maximum of acked and cancelled messages per second. The producer pushes whenever
/// the queue has room.
async fn calibrate() -> Result<f64> {
    let seconds = (CALIBRATION_WARM_UP + CALIBRATION).as_secs();
    eprintln!("measuring the maximum rate, for {seconds} s");
    let server = Server::start(&[])?;
    let mut stage = Stage::start(&server, "maximum").await?;
    stage.begin(None).await?;
    tokio::time::sleep(CALIBRATION_WARM_UP).await;
    let (before, start) = (stage.stats().await?, Instant::now());
    tokio::time::sleep(CALIBRATION).await;
    stage.done().await?;
    let (after, took) = (stage.stats().await?, start.elapsed());
    stage.end_pushing().await?;
    stage.end_handling().await?;
    let ended = |stats: &dueq::QueueStats| stats.acked + stats.cancelled;
    let most = (ended(&after) - ended(&before)) as f64 / took.as_secs_f64();
    eprintln!("at most {most:.0} messages a second");
    Ok(most)
}

/// The observations of a soak so far.
struct Soak<'a> {
    arguments: &'a Arguments,
    rate: u64,
    most: Option<f64>,
    samples: Vec<Sample>,
    /// The lateness in the first window, in the last window, and in the whole counted part.
    late: [Spread; 3],
    behind: Spread,
    totals: Totals,
}

impl<'a> Soak<'a> {
    fn new(arguments: &'a Arguments, rate: u64, most: Option<f64>) -> Result<Self> {
        let late = [Spread::new()?, Spread::new()?, Spread::new()?];
        let (samples, totals) = (Vec::new(), Totals::default());
        Ok(Self {
            arguments,
            rate,
            most,
            samples,
            late,
            behind: Spread::new()?,
            totals,
        })
    }

    fn length(&self) -> Length {
        Length(self.arguments.duration.as_secs_f64())
    }

    /// Takes samples until the time is over.
    async fn watch(&mut self, stage: &mut Stage) -> Result<()> {
        let (start, warm_up) = (Instant::now(), self.arguments.warm_up);
        let all = warm_up + self.arguments.duration;
        let mut next = Duration::ZERO;
        while next < all {
            // One sample is taken exactly at the end of the warm-up, so that no interval belongs to
            // both parts.
            let after = next + self.arguments.interval;
            next = if next < warm_up {
                after.min(warm_up)
            } else {
                after.min(all)
            };
            tokio::time::sleep_until((start + next).into()).await;
            let at_s = start.elapsed().as_secs_f64() - warm_up.as_secs_f64();
            let (handled, pushed) = stage.done().await?;
            let sample = stage.sample(at_s, &handled, &pushed).await?;
            self.count(&pushed);
            self.totals.early += handled.early;
            self.totals.unwanted += handled.unwanted;
            eprintln!(
                "{}",
                progress(&sample, all.saturating_sub(next), next <= warm_up)
            );
            if next <= warm_up {
                continue;
            }
            let (first, last) = self.length().windows(at_s);
            for (spread, belongs) in self.late.iter_mut().zip([first, last, true]) {
                if belongs {
                    spread.add(&handled.late);
                }
            }
            self.behind.add(&pushed.behind);
            self.samples.push(sample);
            self.save(None)?;
        }
        Ok(())
    }

    fn count(&mut self, pushed: &Pushed) {
        self.totals.failed += pushed.failed;
        self.totals.too_late += pushed.too_late;
        if pushed.failure.is_some() {
            self.totals.failure.clone_from(&pushed.failure);
        }
    }

    /// Stops the producer, waits for the remaining messages, and computes the totals.
    async fn finish(&mut self, stage: &mut Stage) -> Result<()> {
        self.count(&stage.end_pushing().await?);
        let start = Instant::now();
        let stats = loop {
            let stats = stage.stats().await?;
            let left = stats.scheduled + stats.ready + stats.leased;
            if left == 0 || start.elapsed() > PATIENCE {
                break stats;
            }
            tokio::time::sleep(LOOK).await;
        };
        let handled = stage.end_handling().await?;
        let totals = &mut self.totals;
        totals.early += handled.early;
        totals.unwanted += handled.unwanted;
        (totals.pushed, totals.acked, totals.retried) = (stats.pushed, stats.acked, stats.retried);
        (totals.cancelled, totals.crashed) = (stats.cancelled, stats.crashed);
        totals.unaccounted =
            i64::try_from(stats.pushed)? - i64::try_from(stats.acked + stats.cancelled)?;
        Ok(())
    }

    fn judge(&self, report: &mut Report) {
        verdict::judge(
            report,
            &Seen {
                rate: self.rate,
                most: self.most,
                length: self.length(),
                samples: &self.samples,
                late: self.late.each_ref(),
                behind: &self.behind,
                totals: self.totals.clone(),
            },
        );
    }

    /// Writes the samples so far; at the end also the verdict.
    fn save(&self, verdict: Option<&Value>) -> Result<()> {
        let Some(file) = &self.arguments.save else {
            return Ok(());
        };
        let (ended, points) = (unix_us(), &self.samples);
        let report = json!({
            "curve": "soak", "ended_unix_us": ended, "verdict": verdict, "points": points,
        });
        Ok(std::fs::write(file, format!("{report:#}\n"))?)
    }
}

fn progress(sample: &Sample, left: Duration, warming_up: bool) -> String {
    let Sample {
        at_s,
        late_p50_ms,
        late_p99_ms,
        late_max_ms,
        node,
        producer,
        redis,
        ..
    } = sample;
    let ms = |late: &Option<f64>| late.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    let process = |process: &sample::Process| {
        let sample::Process {
            resident_kib,
            descriptors,
            cores,
        } = process;
        format!(
            "{:.1} MiB {descriptors} fd {:.0} %",
            resident_kib / 1_024.0,
            cores * 100.0
        )
    };
    format!(
        "{at_s:>6.0} s{}, {} min left: late {} {} {} ms, behind {} ms, {} wait; node {}, producer {}, Redis {}, stolen {:.0} %",
        if warming_up { " (warm-up)" } else { "" },
        left.as_secs().div_ceil(60),
        ms(late_p50_ms),
        ms(late_p99_ms),
        ms(late_max_ms),
        ms(&sample.behind_p99_ms),
        sample.scheduled + sample.ready,
        process(node),
        process(producer),
        process(redis),
        sample.stolen_cores * 100.0,
    )
}
