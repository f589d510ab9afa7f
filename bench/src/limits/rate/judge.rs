//! Judges the times of starts.

use std::ops::Range;

use crate::limits::history::Start;

/// The most starts that are certainly in one half-open window of this length. `starts` are sorted
/// by `latest_us`.
pub(super) fn most_in_window(starts: &[Start], window_us: u64) -> usize {
    let count = |first: &Start| {
        let (from_us, until_us) = (first.earliest_us, first.earliest_us + window_us);
        let from = starts.partition_point(|start| start.latest_us < from_us);
        let within = starts[from..]
            .iter()
            .take_while(|start| start.latest_us < until_us);
        within.filter(|start| start.earliest_us >= from_us).count()
    };
    starts.iter().map(count).max().unwrap_or(0)
}

/// The time in which one master replaced another: starts in it may be of either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) from_us: u64,
    pub(super) until_us: u64,
}

/// The same over the windows that a failure touches, and windows beside it.
pub(super) fn most_across(starts: &[Start], failure: &Failure, window_us: u64) -> usize {
    let from = starts.partition_point(|start| start.latest_us + window_us <= failure.from_us);
    let until = starts.partition_point(|start| start.latest_us < failure.until_us + window_us);
    most_in_window(&starts[from..until], window_us)
}

/// The starts before, between and after the failures: no window of them contains a failure.
pub(super) fn apart<'a>(
    starts: &'a [Start],
    failures: &[Failure],
) -> impl Iterator<Item = &'a [Start]> {
    let index = |us: u64| starts.partition_point(|start| start.latest_us < us);
    let begins = [0]
        .into_iter()
        .chain(failures.iter().map(|failure| index(failure.until_us)));
    let ends = failures.iter().map(|failure| index(failure.from_us));
    let parts: Vec<_> = begins.zip(ends.chain([starts.len()])).collect();
    parts.into_iter().map(|(begin, end)| &starts[begin..end])
}

/// From the begin of each failure to the first start after it, or to the end of the run. Outages
/// that overlap are one.
pub(super) fn outages(starts: &[Start], failures: &[Failure], end_us: u64) -> Vec<Range<u64>> {
    let mut outages: Vec<Range<u64>> = Vec::new();
    for failure in failures {
        let index = starts.partition_point(|start| start.latest_us < failure.until_us);
        let up_us = starts.get(index).map_or(end_us, |start| start.latest_us);
        match outages.last_mut() {
            Some(last) if failure.from_us < last.end => last.end = last.end.max(up_us),
            _ => outages.push(failure.from_us..up_us),
        }
    }
    outages
}

/// The time that certainly passed between two starts.
pub(super) fn between(one: &Start, next: &Start) -> u64 {
    next.earliest_us.saturating_sub(one.latest_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW_US: u64 = 1_000_000;

    fn at(us: u64) -> Start {
        Start {
            earliest_us: us,
            latest_us: us,
            deadline_us: us,
            settled_us: None,
            acked_us: None,
        }
    }

    fn most(times_us: &[u64]) -> usize {
        let starts: Vec<_> = times_us.iter().map(|us| at(*us)).collect();
        most_in_window(&starts, WINDOW_US)
    }

    #[test]
    fn window_excludes_its_end() {
        assert_eq!(most(&[0, 1_000_000]), 1);
        assert_eq!(most(&[0, 999_999]), 2);
        assert_eq!(most(&[]), 0);
        assert_eq!(most(&[5, 5, 5]), 3);
    }

    #[test]
    fn violation_across_a_second_boundary_is_found() {
        // Twice the number across the boundary, as a counter for each second allows.
        let times: Vec<_> = (0..200).map(|n| 900_000 + n * 1_000).collect();
        assert_eq!(most(&times), 200);
        // The generic cell rate algorithm: a burst of 10, then one start each 1/91 s.
        let interval = |n: u64| (n.saturating_sub(9) * WINDOW_US).div_ceil(91);
        let times: Vec<_> = (0..1_000).map(interval).collect();
        assert_eq!(most(&times), 100);
        let early: Vec<_> = times.iter().map(|us| us - us / 50).collect();
        assert!(most(&early) > 100);
    }

    #[test]
    fn inexact_start_counts_only_where_it_certainly_is() {
        let inexact = Start {
            earliest_us: 999_500,
            latest_us: 1_000_499,
            ..at(0)
        };
        assert_eq!(most_in_window(&[at(0), inexact], WINDOW_US), 1);
        assert_eq!(most_in_window(&[at(500), inexact], WINDOW_US), 2);
        assert_eq!(most_in_window(&[inexact, at(1_000_600)], WINDOW_US), 2);
    }

    #[test]
    fn windows_across_a_failure_are_apart() {
        let starts: Vec<_> = [0, 10, 20, 30, 40].map(|n| at(n * 10_000)).into();
        let lasting = |from_us, until_us| Failure { from_us, until_us };
        let parts = |failure| -> Vec<_> { apart(&starts, &[failure]).map(<[_]>::len).collect() };
        let short = lasting(150_000, 151_000);
        assert_eq!(parts(short), [2, 3]);
        assert_eq!(parts(lasting(90_000, 310_000)), [1, 1]);
        assert_eq!(most_across(&starts, &short, WINDOW_US), 5);
        assert_eq!(most_across(&starts, &short, 60_000), 1);
        let last = lasting(400_001, 400_002);
        let outages = |failures: &[Failure]| outages(&starts, failures, 900_000);
        assert_eq!(
            outages(&[short, last]),
            [150_000..200_000, 400_001..900_000]
        );
        let soon_after = lasting(160_000, 200_001);
        let both = outages(&[short, soon_after]);
        assert_eq!((both.len(), both[0].clone()), (1, 150_000..300_000));
        assert_eq!(between(&starts[0], &starts[1]), 100_000);
    }
}
