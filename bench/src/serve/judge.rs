//! Judges the cost of the reads.

use std::collections::BTreeMap;

use serde_json::json;

use super::calls::Calls;
use super::document::Read;
use crate::curves::median;
use dueq_testkit::report::{Report, rounded};

/// The most calls of a request.
const MOST_CALLS: usize = 8;
/// What a search reads in each queue: five plain commands. One queue of the benchmark has the id, which
/// costs a script.
const SEARCH_CALLS: usize = 5;
/// The longest allowed call, in microseconds.
const MOST_US: u64 = 5_000;
/// The largest ratio of a read's time with a hundred times as many waiting messages to its time
/// with few. A read whose cost grows with the waiting messages would have ten or more. Up to 1.64
/// was seen without such growth, because the messages are not in the CPU's cache.
const MOST_RATIO: f64 = 3.0;
/// Times may differ by this much without a reason.
const SLACK_US: f64 = 10.0;

/// A read, and its measured cost.
pub(super) struct Measured {
    pub(super) read: Read,
    status: u16,
    /// For each pass: the calls without those of the poller.
    own: Vec<usize>,
    /// For each pass: all calls, minus the most that the poller can have made.
    unexplained: Vec<usize>,
    longest_us: Vec<u64>,
    /// For each round: the time with many waiting messages, and with few.
    times: Vec<(f64, f64)>,
}

impl Measured {
    pub(super) fn new(read: Read, status: u16) -> Self {
        Self {
            read,
            status,
            own: Vec::new(),
            unexplained: Vec::new(),
            longest_us: Vec::new(),
            times: Vec::new(),
        }
    }

    pub(super) fn add_calls(&mut self, calls: &Calls) {
        self.own.push(calls.own);
        self.unexplained.push(calls.unexplained());
    }

    pub(super) fn add_longest(&mut self, us: u64) {
        self.longest_us.push(us);
    }

    pub(super) fn add_times(&mut self, many_us: f64, few_us: f64) {
        self.times.push((many_us, few_us));
    }

    /// The most calls of a pass: without calls like the poller's; or with them, minus the most that
    /// the poller can have made. The latter finds a request that itself makes calls like the
    /// poller's.
    fn calls(&self) -> usize {
        let own = self.own.iter().max().copied().unwrap_or(0);
        own.max(middle(&self.unexplained).unwrap_or(0))
    }

    /// The longest call, of the pass in which it was shortest: other programs on the machine can
    /// only make a call longer.
    fn longest_us(&self) -> u64 {
        self.longest_us.iter().min().copied().unwrap_or(0)
    }

    /// The median times with many and with few waiting messages.
    fn us(&self) -> (f64, f64) {
        let of = |side: fn(&(f64, f64)) -> f64| {
            let mut times: Vec<_> = self.times.iter().map(side).collect();
            if times.is_empty() {
                0.0
            } else {
                median(&mut times)
            }
        };
        (of(|times| times.0), of(|times| times.1))
    }

    fn is_slower(&self) -> bool {
        let (many, few) = self.us();
        many > few * MOST_RATIO + SLACK_US
    }
}

fn middle<T: Ord + Copy>(values: &[T]) -> Option<T> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied()
}

/// Adds the figures and the rules to the report.
pub(super) fn judge(report: &mut Report, measured: &[Measured], queues: u64) {
    let row = |measured: &Measured| {
        let (many, few) = measured.us();
        json!({
            "read": measured.read.name(), "status": measured.status, "calls": measured.calls(),
            "longest_us": measured.longest_us(), "us": rounded(many), "us_with_few": rounded(few),
        })
    };
    for measured in measured {
        eprintln!("bounds: {}", row(measured));
    }
    let mut routes: BTreeMap<&str, bool> = BTreeMap::new();
    for one in measured {
        *routes.entry(&one.read.route).or_default() |= one.status != 400 && one.status < 500;
    }
    let unread: Vec<_> = routes
        .iter()
        .filter(|(_, was_read)| !**was_read)
        .map(|(route, _)| *route)
        .collect();
    report.figure("reads", measured.len());
    report.rule(
        "routes without an answer",
        unread.join(", "),
        "none",
        unread.is_empty(),
    );
    let (searches, others): (Vec<_>, Vec<_>) =
        measured.iter().partition(|one| one.read.is_search());
    at_most(
        report,
        "calls of a read",
        &others,
        Measured::calls,
        MOST_CALLS,
    );
    let of_search = usize::try_from(queues.min(1_000)).unwrap_or(usize::MAX);
    let of_search = of_search.saturating_mul(SEARCH_CALLS) + 1;
    at_most(
        report,
        "calls of a search",
        &searches,
        Measured::calls,
        of_search,
    );
    let all: Vec<_> = measured.iter().collect();
    at_most(
        report,
        "longest call, us",
        &all,
        Measured::longest_us,
        MOST_US,
    );
    let slower: Vec<_> = measured
        .iter()
        .filter(|one| one.is_slower())
        .map(|one| row(one).to_string())
        .collect();
    let ratios = measured.iter().map(|one| {
        let (many, few) = one.us();
        ((many - SLACK_US) / few.max(1.0), one.read.name())
    });
    let worst = ratios
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .unwrap_or_default();
    report.figure(
        "largest ratio of times",
        json!(format!("{:.2} ({})", worst.0.max(0.0), worst.1)),
    );
    report.rule(
        "reads that are slower with many waiting",
        slower.join(", "),
        format!("none above {MOST_RATIO} times + {SLACK_US} us"),
        slower.is_empty(),
    );
}

/// Adds a rule about the largest value of a figure among all reads.
fn at_most<T: Ord + Copy + std::fmt::Display>(
    report: &mut Report,
    name: &'static str,
    measured: &[&Measured],
    figure: fn(&Measured) -> T,
    most: T,
) {
    let Some(worst) = measured.iter().max_by_key(|one| figure(one)) else {
        return report.rule(name, "no read", "a read", false);
    };
    let value = figure(worst);
    let text = format!("{value} ({})", worst.read.name());
    report.rule(name, text, format!("at most {most}"), value <= most);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A read with passes of one millisecond each.
    fn measured(
        route: &str,
        calls: &[(usize, usize)],
        longest_us: u64,
        times: &[(f64, f64)],
    ) -> Measured {
        let mut measured = Measured::new(Read::new(route, route), 200);
        for (own, all) in calls {
            let time = Duration::from_millis(1);
            let calls = Calls {
                own: *own,
                all: *all,
                time,
            };
            measured.add_calls(&calls);
            measured.add_longest(longest_us);
        }
        times
            .iter()
            .for_each(|(many, few)| measured.add_times(*many, *few));
        measured
    }

    fn failures(measured: &[Measured]) -> String {
        let mut report = Report::default();
        report.scenario("bounds");
        judge(&mut report, measured, 100);
        report.failures(false).join("\n")
    }

    #[test]
    fn each_bound_fails_a_read_that_exceeds_only_it() {
        let good = || {
            measured(
                "/v1/queues",
                &[(0, 3), (0, 30), (0, 0)],
                5_000,
                &[(610.0, 200.0), (9e9, 1.0), (610.0, 200.0)],
            )
        };
        let search = || measured("/v1/search", &[(501, 502); 3], 9, &[]);
        assert_eq!(failures(&[good(), search()]), "");
        let many = measured("/v1/x", &[(1, 1), (9, 9), (1, 1)], 9, &[]);
        assert!(failures(&[search(), many]).contains("calls of a read is 9 (/v1/x)"));
        let disguised = measured("/v1/x", &[(0, 101), (0, 10), (0, 10)], 9, &[]);
        assert!(failures(&[search(), disguised]).contains("calls of a read is 9 (/v1/x)"));
        let long = measured("/v1/x", &[(1, 1); 3], 5_001, &[]);
        assert!(failures(&[search(), long]).contains("longest call"));
        let slow = measured("/v1/x", &[(1, 1); 3], 9, &[(611.0, 200.0); 3]);
        assert!(failures(&[search(), slow]).contains("slower"));
        let wide = measured("/v1/search", &[(503, 503); 3], 9, &[]);
        assert!(failures(&[good(), wide]).contains("calls of a search"));
        assert!(failures(&[good()]).contains("no read"));
        let mut unread = good();
        unread.status = 400;
        assert!(failures(&[search(), unread]).contains("routes without an answer is /v1/queues"));
    }
}
