//! A line chart as SVG.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// The margins around the plot: left, top, right (for the names), bottom.
const MARGIN: (f64, f64, f64, f64) = (70.0, 40.0, 150.0, 50.0);
/// Colours that can be told apart with colour blindness. After the last colour, lines are dashed.
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#555555",
];

pub(super) struct Chart {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
}

pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Axis {
    label: &'static str,
    log: bool,
}

impl Axis {
    /// A linear axis from zero on.
    pub(super) fn linear(label: &'static str) -> Self {
        Self { label, log: false }
    }

    /// A logarithmic axis, by powers of ten.
    pub(super) fn log(label: &'static str) -> Self {
        Self { label, log: true }
    }

    fn scale(&self, values: impl Iterator<Item = f64>) -> Scale {
        let values: Vec<_> = values.filter(|value| !self.log || *value > 0.0).collect();
        let (least, most) = values
            .iter()
            .fold((f64::MAX, f64::MIN), |(least, most), v| {
                (least.min(*v), most.max(*v))
            });
        if values.is_empty() {
            return Scale {
                from: 0.0,
                to: 1.0,
                log: false,
            };
        }
        if self.log {
            let (from, to) = (least.log10().floor(), most.log10().ceil());
            return Scale {
                from,
                to: to.max(from + 1.0),
                log: true,
            };
        }
        let step = step(most);
        Scale {
            from: 0.0,
            to: ((most / step).ceil() * step).max(step),
            log: false,
        }
    }
}

/// The values of the ticks of an axis; on a logarithmic one the powers of ten.
struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    /// The position of a value on the axis, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        let value = if self.log {
            value.max(f64::MIN_POSITIVE).log10()
        } else {
            value
        };
        ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.log {
            return (self.from as i32..=self.to as i32)
                .map(|power| 10_f64.powi(power))
                .collect();
        }
        let step = step(self.to);
        (0..=(self.to / step).round() as u32)
            .map(|i| f64::from(i) * step)
            .collect()
    }
}

/// The step between ticks: 1, 2 or 5 times a power of ten, so that there are four to ten steps.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most.max(1e-9) / 4.0).log10().floor());
    [5.0, 2.0, 1.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| most / step >= 4.0)
        .unwrap_or(power)
}

/// Several charts in one picture, one below the other.
pub(super) fn stacked(charts: &[Chart]) -> String {
    let all = HEIGHT * charts.len() as f64;
    let mut svg =
        format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {all}\">\n");
    for (i, chart) in charts.iter().enumerate() {
        let place = format!(
            "<svg y=\"{}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" ",
            HEIGHT * i as f64
        );
        svg.push_str(&chart.svg().replacen("<svg ", &place, 1));
    }
    svg.push_str("</svg>\n");
    svg
}

impl Chart {
    pub(super) fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter());
        let (x, y) = (
            self.x.scale(points().map(|point| point.0)),
            self.y.scale(points().map(|point| point.1)),
        );
        let (left, top, right, bottom) = MARGIN;
        let (width, height) = (WIDTH - left - right, HEIGHT - top - bottom);
        let across = |value: f64| left + x.place(value) * width;
        let down = |value: f64| top + (1.0 - y.place(value)) * height;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"{left}\" y=\"24\" font-size=\"15\">{}</text>\n",
            escaped(&self.title)
        );
        for tick in x.ticks() {
            let at = across(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{at:.1} {top} V{:.1}\" stroke=\"#dddddd\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                top + height,
                top + height + 18.0,
                short(tick)
            );
        }
        for tick in y.ticks() {
            let at = down(tick);
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {at:.1} H{:.1}\" stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left + width,
                left - 8.0,
                at + 4.0,
                short(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            left + width / 2.0,
            HEIGHT - 12.0,
            escaped(self.x.label),
            top + height / 2.0,
            escaped(self.y.label)
        );
        for (i, series) in self.series.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let dashes = if i < COLOURS.len() {
                ""
            } else {
                " stroke-dasharray=\"6 3\""
            };
            let line: Vec<_> = series
                .points
                .iter()
                .map(|(x, y)| format!("{:.1},{:.1}", across(*x), down(*y)))
                .collect();
            let row = top + 10.0 + 18.0 * i as f64;
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\n\
                 <path d=\"M{:.1} {row:.1} h22\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                line.join(" "),
                left + width + 12.0,
                left + width + 40.0,
                row + 4.0,
                escaped(&series.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn short(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e3 => format!("{}k", large / 1e3),
        small => format!("{}", (small * 1e6).round() / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_largest_value() {
        for most in [0.37, 1.0, 7.0, 42.0, 99_999.0] {
            let scale = Axis::linear("").scale([0.1, most].into_iter());
            let ticks = scale.ticks();
            assert!((4..=11).contains(&ticks.len()), "{most}: {ticks:?}");
            assert!(
                ticks[0] == 0.0 && ticks.last().is_some_and(|last| *last >= most),
                "{most}: {ticks:?}"
            );
        }
        assert_eq!(
            Axis::log("").scale([20.0, 3_000.0].into_iter()).ticks(),
            [10.0, 100.0, 1_000.0, 10_000.0]
        );
    }

    #[test]
    fn value_is_placed_by_its_scale() {
        let log = Axis::log("").scale([1.0, 100.0].into_iter());
        assert_eq!(
            [1.0, 10.0, 100.0, 0.0].map(|value| log.place(value)),
            [0.0, 0.5, 1.0, 0.0]
        );
    }

    #[test]
    fn every_series_has_its_line_and_its_name() {
        let series = |name: &str| Series {
            name: name.to_owned(),
            points: vec![(1.0, 2.0), (10.0, 3.0)],
        };
        let chart = Chart {
            title: "a < b".to_owned(),
            x: Axis::log("x"),
            y: Axis::linear("y"),
            series: vec![series("one"), series("two")],
        };
        let svg = chart.svg();
        assert!(
            svg.matches("<polyline").count() == 2
                && svg.contains(">two<")
                && svg.contains("a &lt; b"),
            "{svg}"
        );
    }

    #[test]
    fn stacked_charts_are_drawn_one_below_the_other() {
        let chart = || Chart {
            title: String::new(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            series: Vec::new(),
        };
        let svg = stacked(&[chart(), chart()]);
        assert!(
            svg.starts_with("<svg ") && svg.contains("viewBox=\"0 0 760 840\""),
            "{svg}"
        );
        assert!(
            svg.contains("<svg y=\"0\"")
                && svg.contains("<svg y=\"420\"")
                && svg.matches("</svg>").count() == 3
        );
    }
}
