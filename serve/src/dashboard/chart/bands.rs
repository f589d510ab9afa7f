//! Bands of percentiles over time.

use std::fmt::Write;

use crate::dashboard::chart::figure::{AXIS, Figure, lines, times, values};
use crate::dashboard::chart::scale::Log;
use crate::dashboard::chart::time::span;
use crate::dashboard::show::{Clock, Markup, micros, number};

const PIXELS: u64 = 160;
/// The width of the stretched drawing.
const WIDTH: u64 = 10_000;

/// The percentiles of one slice of time.
#[derive(Debug, Clone, Copy)]
pub(in crate::dashboard) struct Band {
    pub(in crate::dashboard) from_ms: u64,
    pub(in crate::dashboard) before_ms: u64,
    /// The number of messages that the percentiles describe.
    pub(in crate::dashboard) count: u64,
    /// p50, p90, p99 and the maximum, in microseconds. `None` leaves a gap in the chart.
    pub(in crate::dashboard) times_us: Option<[u64; 4]>,
}

/// The names of the percentiles, and the CSS class of the band below each.
const NAMES: [(&str, &str); 4] = [
    ("p50", "band-3"),
    ("p90", "band-2"),
    ("p99", "band-1"),
    ("max", "band-max"),
];

/// Draws the percentiles over time as bands on a logarithmic axis. `of_all` has the percentiles of
/// the whole range.
pub(in crate::dashboard) fn bands(
    (id, caption): (&str, &str),
    bands: &[Band],
    of_all: Option<[u64; 4]>,
    clock: &Clock,
) -> Markup {
    let rows = bands.iter().map(|band| {
        let name = Markup::escaped(&span(clock, band.from_ms, band.before_ms));
        let mut row = vec![name, number(band.count)];
        match band.times_us {
            Some(times_us) => row.extend(times_us.map(late)),
            None => row.extend([(); 4].map(|()| "–".to_owned())),
        }
        row
    });
    Figure {
        id,
        caption,
        legend: legend(of_all),
        drawing: drawing(caption, bands, of_all, clock),
        columns: &["Time", "Messages", "p50", "p90", "p99", "max"],
        rows: rows.collect(),
    }
    .markup()
}

/// A percentile in words. The last bucket of a histogram has no upper bound.
fn late(us: u64) -> String {
    match us {
        u64::MAX => "over 12.7 d".to_owned(),
        us => micros(us),
    }
}

fn legend(of_all: Option<[u64; 4]>) -> String {
    let mut list = String::from("<ul class=\"legend\">");
    for (place, (name, class)) in NAMES.into_iter().enumerate() {
        let value = of_all.map_or_else(|| "–".to_owned(), |times_us| late(times_us[place]));
        list += &format!(
            "<li><svg class=\"key\" width=\"16\" height=\"8\" aria-hidden=\"true\">\
             <rect class=\"{class}\" width=\"16\" height=\"8\"/></svg>{name} {value}</li>"
        );
    }
    list + "</ul>"
}

fn drawing(caption: &str, bands: &[Band], of_all: Option<[u64; 4]>, clock: &Clock) -> String {
    let known = || bands.iter().filter_map(|band| band.times_us);
    let least = known().map(|times_us| times_us[0]).min();
    let most = known().map(|times_us| times_us[3]).max();
    let (Some(least), Some(most)) = (least, most) else {
        return "<p class=\"empty\">Nothing was recorded in this time: no worker ran, or nothing was \
                handled.</p>"
            .to_owned();
    };
    let axis = Log::of(least, most);
    let heights = axis.marks().iter().map(|(us, _)| axis.height(*us, PIXELS));
    let names = axis.marks().iter().zip(heights.clone());
    let names: Vec<_> = names
        .map(|((_, name), above)| (above, (*name).to_owned()))
        .collect();
    let begin = bands.first().map_or(0, |band| band.from_ms);
    let end = bands.last().map_or(0, |band| band.before_ms);
    let length = end.saturating_sub(begin).max(1);
    let x = |ms: u64| {
        let part = u128::from(ms.clamp(begin, begin + length) - begin) * u128::from(WIDTH);
        u64::try_from(part / u128::from(length)).unwrap_or(WIDTH)
    };
    let text = match of_all {
        Some([p50, p90, p99, most]) => format!(
            "{caption}: p50 {}, p90 {}, p99 {}, at most {}",
            late(p50),
            late(p90),
            late(p99),
            late(most)
        ),
        None => caption.to_owned(),
    };
    let mut paths = String::new();
    for (place, (_, class)) in NAMES.iter().enumerate().rev() {
        let path = steps(bands, place, &axis, &x);
        paths += &format!("<path class=\"{class}\" d=\"{path}\"/>");
    }
    format!(
        "<div class=\"plot\">{}<svg class=\"area\" role=\"img\" aria-label=\"{}\" height=\"{}\">\
         <svg width=\"100%\" height=\"{PIXELS}\" viewBox=\"0 0 {WIDTH} {PIXELS}\" \
         preserveAspectRatio=\"none\">{paths}</svg>{}{}</svg></div>",
        values(&names, PIXELS),
        Markup::escaped(&text),
        PIXELS + AXIS,
        lines(heights, PIXELS),
        times(clock, (begin, end), PIXELS, |ms| (x(ms), WIDTH)),
    )
}

/// The SVG path of the area below the percentile with index `place`. A slice of time without data
/// leaves a gap.
fn steps(bands: &[Band], place: usize, axis: &Log, x: &impl Fn(u64) -> u64) -> String {
    let mut path = String::new();
    let mut is_open = false;
    for band in bands {
        let Some(times_us) = band.times_us else {
            if is_open {
                let _ = write!(path, "V{PIXELS}Z");
            }
            is_open = false;
            continue;
        };
        if !is_open {
            let _ = write!(path, "M{} {PIXELS}", x(band.from_ms));
        }
        is_open = true;
        // A value at the lowest end of the axis still gets one pixel, so that it is visible.
        let y = PIXELS - axis.height(times_us[place], PIXELS).max(1);
        let _ = write!(path, "V{y}H{}", x(band.before_ms));
    }
    if is_open {
        let _ = write!(path, "V{PIXELS}Z");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    const NOW: u64 = 1_796_299_200_000;

    fn chart(times: &[Option<[u64; 4]>]) -> String {
        let points = times.iter().zip(0..).map(|(times_us, place)| Band {
            from_ms: NOW + place * 60_000,
            before_ms: NOW + (place + 1) * 60_000,
            count: u64::from(times_us.is_some()),
            times_us: *times_us,
        });
        let points: Vec<_> = points.collect();
        let clock = Clock::now(Zone::default()).at(NOW);
        bands(
            ("late", "Late"),
            &points,
            times.iter().flatten().next().copied(),
            &clock,
        )
        .to_string()
    }

    #[test]
    fn a_gap_ends_the_area() {
        let value = Some([1_000, 10_000, 100_000, 1_000_000]);
        let chart = chart(&[value, None, value, value]);
        assert!(
            chart.contains("<path class=\"band-2\" d=\"M0 160V107H2500V160ZM5000 160V107H7500V107H10000V160Z\"/>"),
            "{chart}"
        );
        assert_eq!(chart.matches("<td>–</td>").count(), 4, "a row of dashes");
        assert!(chart.contains("p90 10 ms"), "{chart}");
    }

    #[test]
    fn bands_draw_no_data_equal_times_and_u64_max() {
        for times in [&[][..], &[None, None]] {
            let chart = chart(times);
            assert!(chart.contains("Nothing was recorded"), "{chart}");
        }
        for value in [0, 1, 1_000, u64::MAX] {
            let chart = chart(&[Some([value; 4]), Some([value; 4])]);
            assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
            assert_eq!(chart.matches("<path class=\"band").count(), 4);
        }
        assert!(chart(&[Some([0, 1, 2, u64::MAX])]).contains("at most over 12.7 d"));
    }
}
