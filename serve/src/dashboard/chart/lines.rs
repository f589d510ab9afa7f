//! Lines of percentiles over time.

use std::fmt::Write;

use crate::dashboard::chart::figure::{AXIS, Figure, lines as marks, slots, times, values};
use crate::dashboard::chart::scale::Log;
use crate::dashboard::chart::time::span;
use crate::dashboard::show::{Clock, Markup, micros, number};

const PIXELS: u64 = 160;
/// Where slices with a note are marked.
const BOTTOM: u64 = PIXELS - 2;
/// The width of the stretched drawing.
const WIDTH: u64 = 10_000;

/// The values of one slice of time.
#[derive(Debug, Clone)]
pub(in crate::dashboard) struct Slice {
    pub(in crate::dashboard) from_ms: u64,
    pub(in crate::dashboard) before_ms: u64,
    /// The number of messages that the values describe.
    pub(in crate::dashboard) count: u64,
    /// In microseconds, ascending, one for each line. `None` leaves a gap in the chart.
    pub(in crate::dashboard) times_us: Option<Vec<u64>>,
    /// What went wrong in it. Such a slice has a mark at the bottom of the chart.
    pub(in crate::dashboard) note: Option<String>,
}

/// The names of the lines, and the CSS class of each.
pub(in crate::dashboard) type Names = &'static [(&'static str, &'static str)];

pub(in crate::dashboard) const PERCENTILES: Names = &[
    ("p50", "line p50"),
    ("p90", "line p90"),
    ("p99", "line p99"),
    ("max", "line max"),
];
/// Of many queues.
pub(in crate::dashboard) const LATEST: Names = &[("p99 of the worst queue", "line p99")];

/// What the chart shows: `of_all` has the values of the whole range.
pub(in crate::dashboard) struct Lines<'a> {
    pub(in crate::dashboard) id: &'a str,
    pub(in crate::dashboard) caption: &'a str,
    pub(in crate::dashboard) names: Names,
    pub(in crate::dashboard) slices: &'a [Slice],
    pub(in crate::dashboard) of_all: Option<Vec<u64>>,
    pub(in crate::dashboard) clock: &'a Clock,
}

/// Draws times as lines on a logarithmic axis.
pub(in crate::dashboard) fn lines(lines: &Lines<'_>) -> Markup {
    let rows = lines.slices.iter().map(|slice| {
        let name = Markup::escaped(&span(lines.clock, slice.from_ms, slice.before_ms));
        let mut row = vec![name, number(slice.count)];
        match &slice.times_us {
            Some(times_us) => row.extend(times_us.iter().map(|us| late(*us))),
            None => row.extend(lines.names.iter().map(|_| "–".to_owned())),
        }
        row
    });
    let names = lines.names.iter().map(|(name, _)| *name);
    let columns: Vec<_> = ["Time", "Messages"].into_iter().chain(names).collect();
    Figure {
        id: lines.id,
        caption: lines.caption,
        is_titled: false,
        legend: legend(lines),
        drawing: drawing(lines),
        columns: &columns,
        rows: rows.collect(),
    }
    .markup()
}

/// A time in words. The last bucket of a histogram has no upper bound.
fn late(us: u64) -> String {
    match us {
        u64::MAX => "over 12.7 d".to_owned(),
        us => micros(us),
    }
}

fn legend(lines: &Lines<'_>) -> String {
    let mut list = String::from("<ul class=\"legend\">");
    for (place, (name, class)) in lines.names.iter().enumerate() {
        let value = lines.of_all.as_ref().and_then(|all| all.get(place));
        let value = value.map_or_else(|| "–".to_owned(), |us| late(*us));
        list += &format!(
            "<li><svg class=\"key\" width=\"16\" height=\"8\" aria-hidden=\"true\">\
             <path class=\"{class}\" d=\"M0 4H16\"/></svg>{name} <strong>{value}</strong></li>"
        );
    }
    list + "</ul>"
}

/// The names and values of a slice in words.
fn words(names: Names, times_us: Option<&Vec<u64>>) -> String {
    let Some(times_us) = times_us else {
        return "nothing was recorded".to_owned();
    };
    let named = names.iter().zip(times_us);
    let named = named.map(|((name, _), us)| format!("{name} {}", late(*us)));
    named.collect::<Vec<_>>().join(", ")
}

fn drawing(lines: &Lines<'_>) -> String {
    let (slices, clock) = (lines.slices, lines.clock);
    let known = || slices.iter().filter_map(|slice| slice.times_us.as_ref());
    let least = known().filter_map(|times_us| times_us.first()).min();
    let most = known().filter_map(|times_us| times_us.last()).max();
    let (Some(least), Some(most)) = (least, most) else {
        return "<p class=\"empty\">Nothing was recorded in this time: no worker ran, or nothing was \
                handled.</p>"
            .to_owned();
    };
    let axis = Log::of(*least, *most);
    let heights = axis.marks().iter().map(|(us, _)| axis.height(*us, PIXELS));
    let names = axis.marks().iter().zip(heights.clone());
    let names: Vec<_> = names
        .map(|((_, name), above)| (above, (*name).to_owned()))
        .collect();
    let begin = slices.first().map_or(0, |slice| slice.from_ms);
    let end = slices.last().map_or(0, |slice| slice.before_ms);
    let length = end.saturating_sub(begin).max(1);
    let x = |ms: u64| {
        let part = u128::from(ms.clamp(begin, begin + length) - begin) * u128::from(WIDTH);
        u64::try_from(part / u128::from(length)).unwrap_or(WIDTH)
    };
    let text = format!(
        "{}: {}",
        lines.caption,
        words(lines.names, lines.of_all.as_ref())
    );
    let mut paths = String::new();
    for (place, (_, class)) in lines.names.iter().enumerate().rev() {
        let path = path(slices, place, &axis, &x);
        paths += &format!("<path class=\"{class}\" d=\"{path}\"/>");
    }
    let noted = slices.iter().filter(|slice| slice.note.is_some());
    let noted = noted.map(|slice| (x(slice.from_ms), x(slice.before_ms)));
    let marked: String = noted
        .map(|(from, before)| format!("M{from} {BOTTOM}H{before}"))
        .collect();
    if !marked.is_empty() {
        paths += &format!("<path class=\"line noted\" d=\"{marked}\"/>");
    }
    let values_of = slices.iter().map(|slice| {
        let at = x(slice.from_ms);
        let span = span(clock, slice.from_ms, slice.before_ms);
        let words = words(lines.names, slice.times_us.as_ref());
        let note = slice
            .note
            .as_deref()
            .map_or_else(String::new, |note| format!(". {note}"));
        let text = format!("{span}: {words}{note}");
        (at, x(slice.before_ms) - at, text)
    });
    format!(
        "<div class=\"plot\">{}<svg class=\"area\" role=\"img\" aria-label=\"{}\" height=\"{}\">{}\
         <svg width=\"100%\" height=\"{PIXELS}\" viewBox=\"0 0 {WIDTH} {PIXELS}\" \
         preserveAspectRatio=\"none\">{paths}</svg>{}{}</svg></div>",
        values(&names, PIXELS),
        Markup::escaped(&text),
        PIXELS + AXIS,
        marks(heights, PIXELS),
        slots(values_of, WIDTH, PIXELS),
        times(clock, (begin, end), PIXELS, |ms| (x(ms), WIDTH)),
    )
}

/// The SVG path of the line with index `place`: from middle to middle of its slices. A slice without
/// data leaves a gap; the first and the last slice before and after a gap are drawn to their ends.
fn path(slices: &[Slice], place: usize, axis: &Log, x: &impl Fn(u64) -> u64) -> String {
    let mut path = String::new();
    let mut end = None;
    for slice in slices {
        let Some(us) = slice
            .times_us
            .as_ref()
            .and_then(|times_us| times_us.get(place))
        else {
            if let Some(end) = end.take() {
                let _ = write!(path, "H{end}");
            }
            continue;
        };
        // A value at an end of the axis must not be cut off.
        let y = (PIXELS - axis.height(*us, PIXELS)).clamp(1, PIXELS - 1);
        let (from, before) = (x(slice.from_ms), x(slice.before_ms));
        let middle = u64::midpoint(from, before);
        let _ = match end {
            None => write!(path, "M{from} {y}H{middle}"),
            Some(_) => write!(path, "L{middle} {y}"),
        };
        end = Some(before);
    }
    if let Some(end) = end {
        let _ = write!(path, "H{end}");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    const NOW: u64 = 1_796_299_200_000;

    fn chart(times: &[Option<[u64; 4]>]) -> String {
        let points = times.iter().zip(0..).map(|(times_us, place)| Slice {
            from_ms: NOW + place * 60_000,
            before_ms: NOW + (place + 1) * 60_000,
            count: u64::from(times_us.is_some()),
            times_us: times_us.map(Vec::from),
            note: (place == 1).then(|| "No worker was alive.".to_owned()),
        });
        let points: Vec<_> = points.collect();
        lines(&Lines {
            id: "late",
            caption: "Late",
            names: PERCENTILES,
            slices: &points,
            of_all: times.iter().flatten().next().copied().map(Vec::from),
            clock: &Clock::now(Zone::default()).at(NOW),
        })
        .to_string()
    }

    #[test]
    fn a_gap_interrupts_the_line() {
        let value = Some([1_000, 10_000, 100_000, 1_000_000]);
        let late = Some([1_000, 100_000, 100_000, 1_000_000]);
        let chart = chart(&[value, None, value, late]);
        let line = "<path class=\"line p90\" d=\"M0 107H1250H2500M5000 107H6250L8750 53H10000\"/>";
        assert!(chart.contains(line), "{chart}");
        let mark = "<path class=\"line noted\" d=\"M2500 158H5000\"/>";
        assert!(chart.contains(mark), "{chart}");
        assert_eq!(chart.matches("<td>–</td>").count(), 4, "a row of dashes");
        assert!(chart.contains("p90 <strong>10 ms</strong>"), "{chart}");
        let values = "<title>2026-12-03 12:03 – 12:04 UTC: p50 1.0 ms, p90 100 ms, p99 100 ms, max 1 s</title>";
        assert!(chart.contains(values), "{chart}");
        assert!(
            chart.contains("12:02 UTC: nothing was recorded. No worker was alive.</title>"),
            "{chart}"
        );
    }

    #[test]
    fn lines_draw_no_data_equal_times_and_u64_max() {
        for times in [&[][..], &[None, None]] {
            let chart = chart(times);
            assert!(
                chart.contains("Nothing was recorded in this time"),
                "{chart}"
            );
        }
        for value in [0, 1, 1_000, u64::MAX] {
            let chart = chart(&[Some([value; 4]), Some([value; 4])]);
            assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
            assert_eq!(chart.matches("<path class=\"line p").count(), 6);
        }
        assert!(chart(&[Some([0, 1, 2, u64::MAX])]).contains("max over 12.7 d"));
    }
}
