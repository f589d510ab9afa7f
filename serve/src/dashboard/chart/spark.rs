//! A row of small bars without axes, for the cell of a list.

use std::fmt::Write;

use crate::dashboard::chart::scale::height;
use crate::dashboard::show::Markup;

/// The width of a bar with the gap after it.
const STEP: usize = 4;
const HEIGHT: u64 = 24;

/// Draws a bar for each number; its height is the number's fraction of the largest one. `label` is
/// the text alternative: it names what the bars count, and their sum.
pub(in crate::dashboard) fn spark(counts: &[u64], label: &str) -> Markup {
    let width = counts.len().max(1) * STEP;
    let most = counts.iter().copied().max().unwrap_or_default();
    let label = Markup::escaped(label);
    let mut svg = format!(
        "<svg class=\"sparks\" role=\"img\" aria-label=\"{label}\" width=\"{width}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {width} {HEIGHT}\"><path class=\"axis\" d=\"M0 {y}.5H{width}\"/>",
        y = HEIGHT - 1
    );
    // One path for all bars: a list has a hundred of these drawings, and each SVG element costs the
    // browser time.
    let mut path = String::new();
    for (place, count) in counts.iter().enumerate() {
        let height = height(*count, most, HEIGHT);
        if height > 0 {
            let (x, y, width) = (place * STEP, HEIGHT - height, STEP - 1);
            // Writing to a `String` cannot fail.
            let _ = write!(path, "M{x} {HEIGHT}V{y}h{width}V{HEIGHT}Z");
        }
    }
    if !path.is_empty() {
        svg += &format!("<path class=\"spark\" d=\"{path}\"/>");
    }
    svg.push_str("</svg>");
    Markup::of(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_height_is_the_fraction_of_the_largest() {
        let svg = spark(&[0, 1, 12, 24], "due").to_string();
        let bars = "d=\"M4 24V23h3V24ZM8 24V12h3V24ZM12 24V0h3V24Z\"";
        assert!(svg.contains(bars), "{svg}");
    }

    #[test]
    fn spark_draws_no_bars_equal_bars_and_u64_max() {
        for (counts, bars) in [
            (&[][..], 0),
            (&[0, 0], 0),
            (&[7, 7, 7], 3),
            (&[1, u64::MAX, u64::MAX], 3),
        ] {
            let svg = spark(counts, "due").to_string();
            assert_eq!(svg.matches("V24Z").count(), bars, "{svg}");
        }
    }

    #[test]
    fn spark_escapes_its_label() {
        let svg = spark(&[1], "\"><script>").to_string();
        assert!(svg.contains("aria-label=\"&quot;&gt;&lt;script&gt;\""));
    }
}
