//! The bar chart of when messages fall due.

use std::fmt::Write;

use crate::dashboard::chart::figure::{AXIS, Figure, lines, times, values};
use crate::dashboard::chart::scale::{height, percent};
use crate::dashboard::chart::time::span;
use crate::dashboard::show::{Clock, Markup, number};

const PIXELS: u64 = 160;
/// `STEP` is the width of a bar with the gap after it, `OVERDUE` that of the two overdue bars
/// together, `BAR` that of a bar alone.
pub(super) const STEP: u64 = 20;
const OVERDUE: u64 = 2 * STEP + 10;
pub(super) const BAR: u64 = 17;

/// The number of messages that are due within one slot of time.
#[derive(Debug, Clone, Copy)]
pub(in crate::dashboard) struct Slot {
    /// `None` for the first slot: overdue messages that are still scheduled.
    pub(in crate::dashboard) from_ms: Option<u64>,
    /// `None` for the last slot: messages that are due after the last bar.
    pub(in crate::dashboard) before_ms: Option<u64>,
    pub(in crate::dashboard) count: u64,
}

/// The data of the chart.
pub(in crate::dashboard) struct Due<'a> {
    pub(in crate::dashboard) caption: &'a str,
    pub(in crate::dashboard) slots: &'a [Slot],
    /// The number of ready messages, if it is known. No slot counts them.
    pub(in crate::dashboard) ready: Option<u64>,
    /// The address of the lists of messages: `/queues/Q/messages`.
    pub(in crate::dashboard) messages: &'a str,
    pub(in crate::dashboard) clock: &'a Clock,
}

/// Draws two red bars (ready messages, and overdue messages that are still scheduled), then a bar
/// for each slot with two bounds. Each bar with messages links to a list of exactly these.
pub(in crate::dashboard) fn due(due: &Due<'_>) -> Markup {
    let bars: Vec<_> = due.slots.iter().filter_map(Slot::bounds).collect();
    let overdue = due.slots.iter().filter(|slot| slot.from_ms.is_none());
    let overdue = overdue.map(|slot| slot.count).sum::<u64>();
    let most = bars.iter().map(|(_, _, count)| *count).max();
    // Overdue messages must not make all other bars tiny: their bars are cut off at the height of
    // the highest other bar.
    let most = most.filter(|most| *most > 0);
    let most = most.unwrap_or(overdue.max(due.ready.unwrap_or(0)));
    let ready = due
        .ready
        .map(|count| row(READY, count, &due.ready_address()));
    let scheduled = due.slots.iter();
    let scheduled =
        scheduled.map(|slot| row(&slot.name(due.clock), slot.count, &slot.address(due)));
    let names = [(0, "0".to_owned()), (PIXELS - 8, axis_number(most))];
    let names = &names[..if most > 0 { 2 } else { 1 }];
    Figure {
        id: "due",
        caption: due.caption,
        is_titled: true,
        legend: summary(due, overdue, &bars),
        drawing: format!(
            "<div class=\"plot\">{}{}</div>",
            values(names, PIXELS),
            drawing(due, &bars, most)
        ),
        columns: &["Due", "Messages"],
        rows: ready.into_iter().chain(scheduled).collect(),
    }
    .markup()
}

/// The name of the bar of ready messages.
const READY: &str = "overdue, ready";

impl Due<'_> {
    /// The address of the list of ready messages, escaped for HTML.
    fn ready_address(&self) -> String {
        Markup::escaped(&format!("{}?state=ready", self.messages))
    }
}

impl Slot {
    fn bounds(&self) -> Option<(u64, u64, u64)> {
        Some((self.from_ms?, self.before_ms?, self.count))
    }

    /// The time of the slot in words.
    fn name(&self, clock: &Clock) -> String {
        match (self.from_ms, self.before_ms) {
            (None, _) => "overdue, scheduled".to_owned(),
            (Some(from), None) => format!("after {}", clock.absolute(from)),
            (Some(from), Some(before)) => span(clock, from, before),
        }
    }

    /// The address of the list of the slot's messages, escaped for HTML.
    fn address(&self, due: &Due<'_>) -> String {
        let mut address = format!("{}?state=scheduled", due.messages);
        for (name, ms) in [("from", self.from_ms), ("before", self.before_ms)] {
            if let Some(ms) = ms {
                address += &format!("&{name}={ms}");
            }
        }
        Markup::escaped(&address)
    }
}

fn drawing(due: &Due<'_>, bars: &[(u64, u64, u64)], most: u64) -> String {
    let count = u64::try_from(bars.len()).unwrap_or(u64::MAX);
    let whole = OVERDUE + STEP * count;
    let mut svg = format!(
        "<svg class=\"area\" role=\"group\" aria-label=\"Bars: {}\" height=\"{}\">{}",
        Markup::escaped(due.caption),
        PIXELS + AXIS,
        lines([0, PIXELS - 8].into_iter(), PIXELS)
    );
    let mut bar = |count: u64, at: u64, class: &str, name: &str, address: &str| {
        if count == 0 {
            return;
        }
        let height = height(count, most, PIXELS - 8);
        let name = Markup::escaped(&format!("{name}: {}", number(count)));
        let cut = format!(
            "<rect class=\"cut\" x=\"{}\" y=\"20\" width=\"{}\" height=\"4\"/>",
            percent(at, whole),
            percent(BAR, whole)
        );
        // Writing to a `String` cannot fail.
        let _ = write!(
            svg,
            "<a class=\"slot\" href=\"{address}\" aria-label=\"{name}\"><title>{name}</title>\
             <rect class=\"hit\" x=\"{x}\" y=\"0\" width=\"{step}\" height=\"{PIXELS}\"/>\
             <rect class=\"{class}\" x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{height}\"/>{}</a>",
            PIXELS - height,
            percent(BAR, whole),
            if count > most { &cut } else { "" },
            x = percent(at, whole),
            step = percent(STEP, whole),
        );
    };
    let ready = due.ready.unwrap_or(0);
    bar(ready, 0, "bar overdue", READY, &due.ready_address());
    let mut place = OVERDUE;
    for slot in due.slots {
        let (at, class) = match (slot.from_ms, slot.before_ms) {
            (None, _) => (STEP, "bar overdue"),
            (Some(_), None) => continue,
            (Some(_), Some(_)) => {
                place += STEP;
                (place - STEP, "bar")
            }
        };
        let (name, address) = (slot.name(due.clock), slot.address(due));
        bar(slot.count, at, class, &name, &address);
    }
    if let (Some((from, _, _)), Some((_, before, _))) = (bars.first(), bars.last()) {
        svg += &times(due.clock, (*from, *before), PIXELS, |ms| {
            (OVERDUE + place_of(bars, ms), whole)
        });
    }
    svg + "</svg>"
}

/// The horizontal position of a time. All bars are equally wide, although their slots differ in
/// length.
pub(super) fn place_of(bars: &[(u64, u64, u64)], ms: u64) -> u64 {
    let before = bars.iter().take_while(|(_, end, _)| *end <= ms).count();
    let whole = u64::try_from(before).unwrap_or(u64::MAX) * STEP;
    let Some((from, end, _)) = bars.get(before) else {
        return whole;
    };
    let into = u128::from(ms.saturating_sub(*from)) * u128::from(STEP);
    let part = into / u128::from(end.saturating_sub(*from).max(1));
    whole + u64::try_from(part).unwrap_or(STEP).min(STEP)
}

/// The sentence above the bars: overdue messages, the peak, and messages due after the last bar.
fn summary(due: &Due<'_>, overdue: u64, bars: &[(u64, u64, u64)]) -> String {
    let mut sentences = Vec::new();
    let link = |slot: &Slot, text: &str| format!("<a href=\"{}\">{text}</a>", slot.address(due));
    let late = |count: u64, what: &str, address: &str| {
        format!(
            "<span class=\"state overdue\"><a href=\"{address}\">{} {what}</a></span>",
            number(count)
        )
    };
    if let Some(ready) = due.ready.filter(|ready| *ready > 0) {
        sentences.push(late(ready, READY, &due.ready_address()));
    }
    if let Some(slot) = due.slots.first().filter(|_| overdue > 0) {
        let name = slot.name(due.clock);
        sentences.push(late(overdue, &name, &slot.address(due)));
    }
    let peak = bars.iter().rev().max_by_key(|(_, _, count)| *count);
    match peak {
        Some((from, before, count)) if *count > 0 => {
            let slot = Slot {
                from_ms: Some(*from),
                before_ms: Some(*before),
                count: *count,
            };
            let name = Markup::escaped(&slot.name(due.clock));
            let peak = link(&slot, &format!("{} in {name}", number(*count)));
            sentences.push(format!("Most: {peak}"));
        }
        _ => sentences.push("Nothing falls due in this time".to_owned()),
    }
    if let Some(later) = due.slots.last().filter(|slot| slot.before_ms.is_none())
        && later.count > 0
        && later.from_ms.is_some()
    {
        let text = format!("{} later", number(later.count));
        sentences.push(link(later, &text));
    }
    format!("<p class=\"summary\">{}</p>", sentences.join(" · "))
}

/// A row of the table. `address` is already escaped.
fn row(name: &str, count: u64, address: &str) -> Vec<String> {
    let name = Markup::escaped(name);
    let name = match count {
        0 => name,
        _ => format!("<a href=\"{address}\">{name}</a>"),
    };
    vec![name, number(count)]
}

/// A number in the width of the axis: 12,345 or 12.3 M.
pub(super) fn axis_number(exact: u64) -> String {
    let (unit, divisor) = match exact {
        0..100_000 => return number(exact),
        100_000..1_000_000 => ("k", 1_000),
        1_000_000..1_000_000_000 => ("M", 1_000_000),
        1_000_000_000..1_000_000_000_000 => ("G", 1_000_000_000),
        _ => ("T", 1_000_000_000_000),
    };
    let tenths = exact / (divisor / 10);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
#[path = "due_tests.rs"]
mod tests;
