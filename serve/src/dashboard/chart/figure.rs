//! What all charts have: a caption, axes, and a table with the same numbers.

use std::fmt::Write;

use crate::dashboard::chart::scale::percent;
use crate::dashboard::chart::time::marks;
use crate::dashboard::show::{Clock, Markup};

/// The most marks on the axis of time. Every second one is hidden on a narrow page.
const MARKS: u64 = 9;
/// The height of the axis of time.
pub(super) const AXIS: u64 = 24;

/// A chart around its drawing. All texts are plain: they are escaped here.
pub(super) struct Figure<'a> {
    /// Begins the ids of its parts.
    pub(super) id: &'a str,
    pub(super) caption: &'a str,
    /// More of the caption, as markup.
    pub(super) legend: String,
    /// The drawing, as markup.
    pub(super) drawing: String,
    /// The head of the table.
    pub(super) columns: &'a [&'a str],
    /// The cells of its rows, as markup. The first one is the head of its row.
    pub(super) rows: Vec<Vec<String>>,
}

impl Figure<'_> {
    /// The caption, the drawing and the rows of the table change while one looks; the figure stays,
    /// so that an open table stays open.
    pub(super) fn markup(&self) -> Markup {
        let id = self.id;
        let caption = Markup::escaped(self.caption);
        let mut html = format!(
            "<figure class=\"chart\" aria-labelledby=\"{id}-caption\">\
             <figcaption id=\"{id}-caption\">{caption}</figcaption>\
             <div id=\"{id}-drawing\" data-live>{}{}</div>\
             <details><summary>Table: {caption}</summary>\
             <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Table: {caption}\" \
             id=\"{id}-table\" data-live><table><thead><tr>",
            self.legend, self.drawing
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

/// The axis of values at the left: names at heights above the bottom of the drawing.
pub(super) fn values(names: &[(u64, String)], pixels: u64) -> String {
    let height = pixels + AXIS;
    let mut svg =
        format!("<svg class=\"values\" aria-hidden=\"true\" width=\"64\" height=\"{height}\">");
    for (above, name) in names {
        // The text is 11 pixels high, and the topmost is to be seen whole.
        let y = (pixels - above.min(&pixels) + 4).max(10);
        let name = Markup::escaped(name);
        // Writing to a String does not fail.
        let _ = write!(
            svg,
            "<text x=\"56\" y=\"{y}\" text-anchor=\"end\">{name}</text>"
        );
    }
    svg + "</svg>"
}

/// Lines across the drawing at heights above its bottom.
pub(super) fn lines(heights: impl Iterator<Item = u64>, pixels: u64) -> String {
    let line = |above: u64| {
        let y = pixels - above.min(pixels);
        format!("<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{y}.5\" y2=\"{y}.5\"/>")
    };
    heights.map(line).collect()
}

/// The marks of the axis of time below the drawing. `place` says where a time is: how many parts of
/// how many.
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
        // Text at the ends would be cut off.
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
        // Writing to a String does not fail.
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{x}\" x2=\"{x}\" y1=\"{pixels}\" y2=\"{}\"/>\
             <text{class} x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{name}</text>",
            pixels + 4
        );
    }
    svg
}
