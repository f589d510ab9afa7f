//! Judges the times of starts.

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

/// The same over the windows that contain this instant, and windows beside it.
pub(super) fn most_across(starts: &[Start], at_us: u64, window_us: u64) -> usize {
    let from = starts.partition_point(|start| start.latest_us + window_us <= at_us);
    let until = starts.partition_point(|start| start.latest_us < at_us + window_us);
    most_in_window(&starts[from..until], window_us)
}

/// The starts before, between and after the failures, in which no window contains a failure.
pub(super) fn apart<'a>(
    starts: &'a [Start],
    failures_us: &[u64],
) -> impl Iterator<Item = &'a [Start]> {
    let index = |failed_us: &u64| starts.partition_point(|start| start.latest_us < *failed_us);
    let cuts: Vec<_> = failures_us.iter().map(index).collect();
    let begins = [0].into_iter().chain(cuts.clone());
    let ends = cuts.into_iter().chain([starts.len()]);
    let parts: Vec<_> = begins.zip(ends).collect();
    parts.into_iter().map(|(begin, end)| &starts[begin..end])
}

/// The time from a failure to the first start after it; none if there is none.
pub(super) fn outage(starts: &[Start], failed_us: u64) -> Option<u64> {
    let index = starts.partition_point(|start| start.latest_us < failed_us);
    starts.get(index).map(|start| start.latest_us - failed_us)
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
            end_us: us,
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
        let parts: Vec<_> = apart(&starts, &[150_000]).map(<[_]>::len).collect();
        assert_eq!(parts, [2, 3]);
        assert_eq!(most_across(&starts, 150_000, WINDOW_US), 5);
        assert_eq!(most_across(&starts, 150_000, 60_000), 1);
        assert_eq!(outage(&starts, 150_000), Some(50_000));
        assert_eq!(outage(&starts, 400_001), None);
        assert_eq!(between(&starts[0], &starts[1]), 100_000);
    }
}
