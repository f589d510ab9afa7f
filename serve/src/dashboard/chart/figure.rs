//! What all charts have: a caption, axes, and a table with the same numbers.

use std::fmt::Write;

use crate::dashboard::chart::scale::percent;
use crate::dashboard::chart::time::marks;
use crate::dashboard::show::{Clock, Markup};

/// The most marks on the time axis. A narrow page hides every second one.
const MARKS: u64 = 9;
/// The height of the time axis, in pixels.
pub(super) const AXIS: u64 = 24;

/// A chart around its drawing. All fields without "markup" in their comment are plain text;
/// `markup` escapes them.
pub(super) struct Figure<'a> {
    /// The prefix of the ids of its HTML elements.
    pub(super) id: &'a str,
    pub(super) caption: &'a str,
    /// Whether the heading before the chart says what it shows: then only screen readers get the
    /// caption.
    pub(super) is_titled: bool,
    /// The legend, as markup: it follows the caption.
    pub(super) legend: String,
    /// The drawing, as markup.
    pub(super) drawing: String,
    /// The head of the table.
    pub(super) columns: &'a [&'a str],
    /// The cells of each row, as markup. The first cell is the row's head.
    pub(super) rows: Vec<Vec<String>>,
}

impl Figure<'_> {
    /// Live updates replace the caption, the drawing and the rows of the table. They keep the
    /// figure element, so that a table that the reader has opened stays open.
    pub(super) fn markup(&self) -> Markup {
        let id = self.id;
        let caption = Markup::escaped(self.caption);
        let mut html = format!(
            "<figure class=\"chart\" aria-labelledby=\"{id}-caption\">\
             <figcaption id=\"{id}-caption\"{}>{caption}</figcaption>\
             <p class=\"readout\" aria-live=\"polite\"></p>\
             <div id=\"{id}-drawing\" data-live>{}{}</div>\
             <details><summary>Table<span class=\"hidden\">: {caption}</span></summary>\
             <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {caption}\" \
             id=\"{id}-table\" data-live><table><thead><tr>",
            if self.is_titled {
                " class=\"hidden\""
            } else {
                ""
            },
            self.legend,
            self.drawing
        );
        for column in self.columns {
            html += &format!("<th scope=\"col\">{}</th>", Markup::escaped(column));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (place, cell) in row.iter().enumerate() {
                match place {
                    0 => html += &format!("<th scope=\"row\">{cell}</th>"),
                    _ => html += &format!("<td>{cell}</td>"),
                }
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div></details></figure>");
        Markup::of(html)
    }
}

/// The value axis at the left: each name at its height above the bottom of the drawing.
pub(super) fn values(names: &[(u64, String)], pixels: u64) -> String {
    let height = pixels + AXIS;
    let mut svg =
        format!("<svg class=\"values\" aria-hidden=\"true\" width=\"64\" height=\"{height}\">");
    for (above, name) in names {
        // The text is 11 pixels high; the topmost name must not be cut off.
        let y = (pixels - above.min(&pixels) + 4).max(10);
        let name = Markup::escaped(name);
        // Writing to a `String` cannot fail.
        let _ = write!(
            svg,
            "<text x=\"56\" y=\"{y}\" text-anchor=\"end\">{name}</text>"
        );
    }
    svg + "</svg>"
}

/// Horizontal lines across the drawing, at these heights above its bottom.
pub(super) fn lines(heights: impl Iterator<Item = u64>, pixels: u64) -> String {
    let line = |above: u64| {
        let y = pixels - above.min(pixels);
        format!("<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{y}.5\" y2=\"{y}.5\"/>")
    };
    heights.map(line).collect()
}

/// Areas over the slots of a drawing, which show their values under the pointer: for each slot its
/// place, its width and its text. The script also shows the text of the slot chosen by keys.
pub(super) fn slots(
    slots: impl Iterator<Item = (u64, u64, String)>,
    whole: u64,
    pixels: u64,
) -> String {
    let mut svg = String::new();
    for (at, width, text) in slots {
        let (x, width, text) = (
            percent(at, whole),
            percent(width, whole),
            Markup::escaped(&text),
        );
        // Writing to a `String` cannot fail.
        let _ = write!(
            svg,
            "<rect class=\"slot\" x=\"{x}\" y=\"0\" width=\"{width}\" height=\"{pixels}\">\
             <title>{text}</title></rect>"
        );
    }
    svg
}

/// The marks of the time axis below the drawing. `place(ms)` returns `(part, whole)`: the time lies
/// at the fraction part/whole of the width.
pub(super) fn times(
    clock: &Clock,
    (from_ms, before_ms): (u64, u64),
    pixels: u64,
    place: impl Fn(u64) -> (u64, u64),
) -> String {
    let mut svg = String::new();
    for (number, (ms, name)) in marks(clock, from_ms, before_ms, MARKS).iter().enumerate() {
        let (part, whole) = place(*ms);
        let (x, y, name) = (percent(part, whole), pixels + 16, Markup::escaped(name));
        // At the two ends, centred text would be cut off.
        let anchor = match u128::from(part) * 100 / u128::from(whole.max(1)) {
            0..4 => "start",
            96.. => "end",
            _ => "middle",
        };
        let class = if number % 2 == 1 {
            " class=\"minor\""
        } else {
            ""
        };
        // Writing to a `String` cannot fail.
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{x}\" x2=\"{x}\" y1=\"{pixels}\" y2=\"{}\"/>\
             <text{class} x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{name}</text>",
            pixels + 4
        );
    }
    svg
}
