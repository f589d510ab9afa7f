//! Bars of what falls due, stacked by queue.

use std::fmt::Write;

use crate::dashboard::chart::due::{BAR, STEP, axis_number, place_of};
use crate::dashboard::chart::figure::{AXIS, Figure, lines, times, values};
use crate::dashboard::chart::scale::{height, percent};
use crate::dashboard::chart::time::span;
use crate::dashboard::show::{Clock, Markup, number};

const PIXELS: u64 = 200;

/// The part of one queue, or of all others, in the bars.
pub(in crate::dashboard) struct Layer {
    pub(in crate::dashboard) name: String,
    /// The address of the queue's page; `None` for all others.
    pub(in crate::dashboard) address: Option<String>,
    /// The value in each bar.
    pub(in crate::dashboard) counts: Vec<u64>,
}

/// The data of the chart.
pub(in crate::dashboard) struct Stack<'a> {
    pub(in crate::dashboard) caption: &'a str,
    /// The begin and the end of each bar.
    pub(in crate::dashboard) bars: &'a [(u64, u64)],
    /// The largest one first.
    pub(in crate::dashboard) layers: &'a [Layer],
    pub(in crate::dashboard) clock: &'a Clock,
}

impl Layer {
    fn sum(&self) -> u64 {
        self.counts.iter().sum()
    }

    fn count(&self, bar: usize) -> u64 {
        self.counts.get(bar).copied().unwrap_or(0)
    }

    /// The queue's name, as a link to its page.
    fn link(&self) -> String {
        let name = Markup::escaped(&self.name);
        match &self.address {
            Some(address) => {
                let address = Markup::escaped(address);
                format!("<a class=\"other\" href=\"{address}\">{name}</a>")
            }
            None => name,
        }
    }

    /// The CSS class of its color. All others are grey.
    fn class(&self, place: usize) -> String {
        match self.address {
            Some(_) => format!("layer-{place}"),
            None => "layer-rest".to_owned(),
        }
    }
}

/// Draws a stack for each slot. Each leads to the messages of its largest queue.
pub(in crate::dashboard) fn stack(stack: &Stack<'_>) -> Markup {
    let sums: Vec<u64> = (0..stack.bars.len())
        .map(|bar| stack.layers.iter().map(|layer| layer.count(bar)).sum())
        .collect();
    let most = sums.iter().copied().max().unwrap_or(0);
    let columns = ["Due", "All"].into_iter();
    let columns: Vec<_> = columns
        .chain(stack.layers.iter().map(|layer| layer.name.as_str()))
        .collect();
    let rows = stack.bars.iter().zip(&sums).enumerate();
    let rows = rows.map(|(bar, ((from, before), sum))| {
        let mut row = vec![
            Markup::escaped(&span(stack.clock, *from, *before)),
            number(*sum),
        ];
        row.extend(stack.layers.iter().map(|layer| number(layer.count(bar))));
        row
    });
    let names = [(0, "0".to_owned()), (PIXELS - 8, axis_number(most))];
    let names = &names[..if most > 0 { 2 } else { 1 }];
    Figure {
        id: "ahead",
        caption: stack.caption,
        is_titled: true,
        legend: legend(stack, &sums),
        drawing: format!(
            "<div class=\"plot\">{}{}</div>",
            values(names, PIXELS),
            drawing(stack, &sums, most)
        ),
        columns: &columns,
        rows: rows.collect(),
    }
    .markup()
}

/// The peak, and each layer with its color and its sum.
fn legend(stack: &Stack<'_>, sums: &[u64]) -> String {
    let peak = sums.iter().zip(stack.bars).rev();
    let peak = peak.max_by_key(|(sum, _)| **sum);
    let mut html = match peak {
        Some((sum, (from, before))) if *sum > 0 => {
            let time = Markup::escaped(&span(stack.clock, *from, *before));
            format!(
                "<p class=\"peak\"><strong>{}</strong> in {time}, the peak of {} in all</p>",
                number(*sum),
                number(sums.iter().sum())
            )
        }
        _ => "<p class=\"peak\">Nothing falls due in this time</p>".to_owned(),
    };
    html += "<ul class=\"legend\">";
    for (place, layer) in stack.layers.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = write!(
            html,
            "<li><svg class=\"key\" width=\"16\" height=\"8\" aria-hidden=\"true\">\
             <rect class=\"{}\" width=\"16\" height=\"8\"/></svg>{} <strong>{}</strong></li>",
            layer.class(place),
            layer.link(),
            number(layer.sum())
        );
    }
    html + "</ul>"
}

fn drawing(stack: &Stack<'_>, sums: &[u64], most: u64) -> String {
    let whole = STEP * stack.bars.len().max(1) as u64;
    let mut svg = format!(
        "<svg class=\"area\" role=\"group\" aria-label=\"Bars: {}\" height=\"{}\">{}",
        Markup::escaped(stack.caption),
        PIXELS + AXIS,
        lines([0, PIXELS - 8].into_iter(), PIXELS)
    );
    for (bar, ((from, before), sum)) in stack.bars.iter().zip(sums).enumerate() {
        let parts: Vec<_> = stack.layers.iter().enumerate().collect();
        let parts = parts.iter().filter(|(_, layer)| layer.count(bar) > 0);
        let largest = parts.clone().max_by_key(|(_, layer)| layer.count(bar));
        let Some((_, largest)) = largest else {
            continue;
        };
        let mut text = format!("{}: {}", span(stack.clock, *from, *before), number(*sum));
        let (mut rects, mut below) = (String::new(), 0);
        for (place, layer) in parts {
            let count = layer.count(bar);
            let _ = write!(text, " · {} {}", layer.name, number(count));
            // The difference of two heights: the rounding errors of many layers do not add up.
            let (bottom, top) = (
                height(below, most, PIXELS - 8),
                height(below + count, most, PIXELS - 8),
            );
            below += count;
            let _ = write!(
                rects,
                "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                layer.class(*place),
                percent(bar as u64 * STEP, whole),
                PIXELS - top,
                percent(BAR, whole),
                top - bottom
            );
        }
        let text = Markup::escaped(&text);
        let link = largest.address.as_ref().map(|address| {
            let address = format!("{address}/messages?state=scheduled&from={from}&before={before}");
            format!(" href=\"{}\"", Markup::escaped(&address))
        });
        let _ = write!(
            svg,
            "<a class=\"slot\"{} aria-label=\"{text}\"><title>{text}</title>\
             <rect class=\"hit\" x=\"{x}\" y=\"0\" width=\"{}\" height=\"{PIXELS}\"/>{rects}</a>",
            link.unwrap_or_default(),
            percent(STEP, whole),
            x = percent(bar as u64 * STEP, whole),
        );
    }
    if let (Some((begin, _)), Some((_, end))) = (stack.bars.first(), stack.bars.last()) {
        let bars: Vec<_> = stack
            .bars
            .iter()
            .map(|(from, before)| (*from, *before, 0))
            .collect();
        svg += &times(stack.clock, (*begin, *end), PIXELS, |ms| {
            (place_of(&bars, ms), whole)
        });
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::show::Zone;

    fn chart(layers: &[(&str, &[u64])]) -> String {
        let layers = layers.iter().map(|(name, counts)| Layer {
            name: (*name).to_owned(),
            address: (*name != "others").then(|| format!("/queues/{name}")),
            counts: counts.to_vec(),
        });
        stack(&Stack {
            caption: "Due",
            bars: &[(0, 60_000), (60_000, 120_000)],
            layers: &layers.collect::<Vec<_>>(),
            clock: &Clock::now(Zone::default()).at(0),
        })
        .to_string()
    }

    #[test]
    fn stack_is_as_high_as_its_sum_and_leads_to_its_largest_queue() {
        let chart = chart(&[("a", &[30, 0]), ("b", &[10, 0]), ("others", &[56, 0])]);
        for part in [
            "<strong>96</strong> in 1970-01-01 00:00 – 00:01 UTC",
            "<title>1970-01-01 00:00 – 00:01 UTC: 96 · a 30 · b 10 · others 56</title>",
            "class=\"layer-0\" x=\"0%\" y=\"140\" width=\"42.500%\" height=\"60\"",
            "class=\"layer-1\" x=\"0%\" y=\"120\" width=\"42.500%\" height=\"20\"",
            "class=\"layer-rest\" x=\"0%\" y=\"8\" width=\"42.500%\" height=\"112\"",
        ] {
            assert!(chart.contains(part), "{part}: {chart}");
        }
        assert_eq!(
            chart.matches("class=\"slot\"").count(),
            1,
            "an empty slot has no bar"
        );
        let chart = super::tests::chart(&[("b\"<", &[3, 9])]);
        let link = "href=\"/queues/b&quot;&lt;/messages?state=scheduled&amp;from=60000&amp;before=120000\"";
        assert!(chart.contains(link), "{chart}");
    }

    #[test]
    fn stack_draws_nothing_and_u64_max() {
        assert!(chart(&[]).contains("Nothing falls due in this time"));
        assert!(chart(&[("a", &[u64::MAX / 2, 1])]).contains("layer-0"));
    }
}
