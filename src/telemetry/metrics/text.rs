//! Prometheus' text format.

use std::fmt::Write;

use crate::telemetry::metrics::{Counter, Histogram, Metrics};

/// The binary logarithms of the bounds of a histogram, in microseconds: 0.5 ms to 268 s, ascending.
/// Each bound is one more series for each queue.
const BOUNDS: [u32; 12] = [9, 10, 11, 12, 13, 14, 16, 18, 20, 22, 24, 28];

/// The characters that the value of a label has after a backslash.
const SPECIAL: [char; 3] = ['\\', '"', '\n'];

/// A page of metrics in Prometheus' text format. The names are the same for every program that uses
/// it, `dueq work` and `dueq serve` included: docs/telemetry.md lists them.
///
/// ```
/// # dueq_testkit::doctest!(|client, worker| {
/// use dueq::metrics::PrometheusText;
///
/// let health = worker.health();
/// let names: Vec<_> = health.queues().map(|(name, _)| name).collect();
/// let mut text = PrometheusText::default();
/// // These handles keep the counts for as long as they live.
/// let queues = names.iter().map(|name| client.queue(name));
/// let queues = queues.collect::<Result<Vec<_>, _>>()?;
/// text.queues(queues.iter().map(|queue| (queue.name(), queue.metrics())));
/// text.gauge("dueq_free_handlers", "Handlers that have no message.", health.free_handlers() as f64);
/// println!("{}", text.into_string());
/// # });
/// ```
#[derive(Debug, Clone, Default)]
pub struct PrometheusText(String);

impl PrometheusText {
    /// The value of the header `Content-Type`.
    pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// The most queues with series of their own on one page.
    pub const MAX_QUEUES: usize = 1_000;

    /// Begins a metric; its samples follow. `kind` is `counter`, `gauge` or `histogram`.
    ///
    /// ```
    /// let mut text = dueq::metrics::PrometheusText::default();
    /// text.metric("shop_orders_total", "counter", "Orders.");
    /// text.sample("shop_orders_total", &[("country", "DE")], 12.0);
    /// assert!(text.into_string().ends_with("\nshop_orders_total{country=\"DE\"} 12\n"));
    /// ```
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample to the current metric. The values of labels may have any characters.
    ///
    /// ```
    /// let mut text = dueq::metrics::PrometheusText::default();
    /// text.metric("m", "gauge", "Help.");
    /// text.sample("m", &[("queue", "a \"b\"")], 0.5);
    /// assert!(text.into_string().ends_with("m{queue=\"a \\\"b\\\"\"} 0.5\n"));
    /// ```
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (number, (label, value)) in labels.iter().enumerate() {
            self.0.push(if number == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for part in value.split_inclusive(SPECIAL) {
                let plain = part.trim_end_matches(SPECIAL);
                self.0.push_str(plain);
                match &part[plain.len()..] {
                    "" => {}
                    "\n" => self.0.push_str("\\n"),
                    special => self.0.extend(["\\", special]),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// Adds a gauge without labels.
    ///
    /// ```
    /// let mut text = dueq::metrics::PrometheusText::default();
    /// text.gauge("shop_open", "1 if the shop is open.", 1.0);
    /// assert!(text.into_string().ends_with("\nshop_open 1\n"));
    /// ```
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.metric(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Adds a counter without labels.
    ///
    /// ```
    /// let mut text = dueq::metrics::PrometheusText::default();
    /// text.counter("shop_orders_total", "Orders.", 12);
    /// assert!(text.into_string().ends_with("\nshop_orders_total 12\n"));
    /// ```
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.metric(name, "counter", help);
        self.sample(name, &[], value as f64);
    }

    /// Adds the metrics of queues, with the label `queue`. A series begins with its first count, and
    /// only the first 1,000 queues have series: `dueq_queues_omitted` counts the others.
    ///
    /// ```
    /// # dueq_testkit::doctest!(|orders| {
    /// orders.push("rate it").await?;
    /// let mut text = dueq::metrics::PrometheusText::default();
    /// text.queues([("orders", orders.metrics())]);
    /// assert!(text.into_string().contains("\ndueq_push_created_total{queue=\"orders\"} 1\n"));
    /// # });
    /// ```
    pub fn queues<N, I>(&mut self, queues: I)
    where
        N: AsRef<str>,
        I: IntoIterator<Item = (N, Metrics), IntoIter: ExactSizeIterator>,
    {
        let mut queues = queues.into_iter();
        let shown: Vec<_> = queues.by_ref().take(Self::MAX_QUEUES).collect();
        let shown: Vec<_> = shown.iter().map(|(name, of)| (name.as_ref(), of)).collect();
        for count in Counter::ALL {
            let values = shown.iter().map(|(name, of)| (*name, of.count(*count)));
            let mut counted = values.filter(|(_, value)| *value > 0).peekable();
            if counted.peek().is_none() {
                continue;
            }
            let metric = format!("dueq_{}_total", count.name());
            self.metric(&metric, "counter", count.help());
            for (name, value) in counted {
                self.sample(&metric, &[("queue", name)], value as f64);
            }
        }
        let metric = "dueq_handlers_running";
        self.metric(metric, "gauge", "Handlers that are running now.");
        for (name, of) in &shown {
            self.sample(metric, &[("queue", name)], of.handlers_running as f64);
        }
        let late = "From the due time of a message to the start of its handler.";
        let lateness = shown.iter().map(|(name, of)| (*name, &of.lateness));
        self.histograms("dueq_lateness_seconds", late, lateness);
        let handling = shown.iter().map(|(name, of)| (*name, &of.handling));
        self.histograms("dueq_handling_seconds", "How long handlers ran.", handling);
        self.omitted(queues.len());
    }

    /// Adds the number of queues that have no series on this page.
    ///
    /// ```
    /// let mut text = dueq::metrics::PrometheusText::default();
    /// text.omitted(5);
    /// assert!(text.into_string().ends_with("\ndueq_queues_omitted 5\n"));
    /// ```
    pub fn omitted(&mut self, queues: usize) {
        let help = "Queues without series, because there are more than 1,000.";
        self.gauge("dueq_queues_omitted", help, queues as f64);
    }

    fn histograms<'a>(
        &mut self,
        metric: &str,
        help: &str,
        all: impl Iterator<Item = (&'a str, &'a Histogram)>,
    ) {
        self.metric(metric, "histogram", help);
        let names = ["bucket", "sum", "count"].map(|part| format!("{metric}_{part}"));
        let bounds = BOUNDS.map(|log| (f64::from(1_u32 << log) / 1e6).to_string());
        let all = all.map(|(queue, histogram)| (queue, histogram, histogram.count()));
        for (queue, histogram, count) in all.filter(|(_, _, count)| *count > 0) {
            let buckets = histogram.buckets();
            let shown = buckets.filter(|bucket| BOUNDS.contains(&bucket.le_us.ilog2()));
            for (le, bucket) in bounds.iter().zip(shown) {
                let labels = [("queue", queue), ("le", &**le)];
                self.sample(&names[0], &labels, bucket.count as f64);
            }
            let infinite = [("queue", queue), ("le", "+Inf")];
            self.sample(&names[0], &infinite, count as f64);
            let sum = histogram.sum_us() as f64 / 1e6;
            self.sample(&names[1], &[("queue", queue)], sum);
            self.sample(&names[2], &[("queue", queue)], count as f64);
        }
    }

    /// The page.
    ///
    /// ```
    /// assert_eq!(dueq::metrics::PrometheusText::default().into_string(), "");
    /// ```
    pub fn into_string(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::telemetry::metrics::Meters;

    #[test]
    fn labels_are_escaped_and_integers_have_no_fraction() {
        let mut text = PrometheusText::default();
        text.metric("m", "counter", "Help.");
        text.sample("m", &[("queue", "a\"b\\\\c\nd{}🦀\""), ("x", "")], 1e15);
        text.gauge("g", "Other.", 0.25);
        let expected = "# HELP m Help.\n# TYPE m counter\n\
                        m{queue=\"a\\\"b\\\\\\\\c\\nd{}🦀\\\"\",x=\"\"} 1000000000000000\n\
                        # HELP g Other.\n# TYPE g gauge\ng 0.25\n";
        assert_eq!(text.into_string(), expected);
    }

    fn worked() -> Metrics {
        let meters = Meters::new();
        for count in Counter::ALL {
            meters.add_many(*count, 1_000_000);
        }
        meters.late(Duration::from_micros(512));
        meters.late(Duration::from_micros(513));
        meters.handled(Duration::from_secs(1_000));
        meters.snapshot()
    }

    #[test]
    fn series_of_a_queue_begin_with_its_first_count() {
        let (idle, worked) = (Meters::new().snapshot(), worked());
        let mut text = PrometheusText::default();
        text.queues([("idle", idle), ("orders", worked)]);
        let text = text.into_string();
        let idle: Vec<_> = text.lines().filter(|line| line.contains("idle")).collect();
        assert_eq!(idle, ["dueq_handlers_running{queue=\"idle\"} 0"]);
        for line in [
            "dueq_acked_total{queue=\"orders\"} 1000000",
            "dueq_lateness_seconds_bucket{queue=\"orders\",le=\"0.000512\"} 1",
            "dueq_lateness_seconds_bucket{queue=\"orders\",le=\"0.001024\"} 2",
            "dueq_lateness_seconds_count{queue=\"orders\"} 2",
            "dueq_handling_seconds_bucket{queue=\"orders\",le=\"268.435456\"} 0",
            "dueq_handling_seconds_bucket{queue=\"orders\",le=\"+Inf\"} 1",
            "dueq_handling_seconds_sum{queue=\"orders\"} 1000",
            "dueq_queues_omitted 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    /// Most counters of a worker's queue stay 0, and so have no series.
    #[test]
    fn page_of_1000_busy_queues_stays_small_and_fast() {
        let names: Vec<_> = (0..1_003).map(|n| format!("tenant-{n:04}")).collect();
        let meters = Meters::new();
        for count in [
            Counter::Claimed,
            Counter::Acked,
            Counter::Retried,
            Counter::Died,
            Counter::Promoted,
            Counter::LeaseExtended,
        ] {
            meters.add_many(count, 1_000_000);
        }
        meters.late(Duration::from_micros(512));
        meters.handled(Duration::from_secs(1_000));
        let usual = meters.snapshot();
        let (mut text, began) = (PrometheusText::default(), Instant::now());
        text.queues(names.iter().map(|name| (name, usual.clone())));
        let (text, took) = (text.into_string(), began.elapsed());
        let series = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(series, 1_000 * (6 + 1 + 2 * 15) + 1);
        assert!(text.contains("dueq_queues_omitted 3\n"));
        assert!(text.len() < 4_000_000, "{} bytes", text.len());
        // Without optimisation and beside other tests; a release build takes a tenth.
        assert!(took < Duration::from_secs(2), "{took:?}");
        let mut most = PrometheusText::default();
        most.queues([("orders", worked())]);
        let most = most.into_string();
        let series = most.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(series, Counter::ALL.len() + 1 + 2 * 15 + 1);
    }
}
