//! The audit in readable form.

use hdrhistogram::Histogram;

use crate::audit::Audit;

/// Upper ends of the histogram's bars in microseconds.
const BARS: [u64; 12] = [
    250,
    500,
    750,
    1_000,
    1_500,
    2_000,
    3_000,
    5_000,
    10_000,
    100_000,
    1_000_000,
    u64::MAX,
];
const WIDTH: u64 = 50;

pub(crate) fn text(audit: &Audit) -> String {
    let report = &audit.report;
    let mut text = String::new();
    for (name, number, meaning) in [
        ("orders", report.orders, "delivered"),
        (
            "already_reviewed",
            report.already_reviewed,
            "at or before the delivery: nothing pushed",
        ),
        (
            "pushed",
            report.pushed,
            "messages, each due 48 hours after the delivery",
        ),
        (
            "cancelled_in_time",
            report.cancelled_in_time,
            "reviewed within the 48 hours: the message never fired",
        ),
        (
            "races_lost",
            report.races_lost,
            "reviewed within the 48 hours, when a worker had claimed the message",
        ),
        ("auto_rated", report.auto_rated, "fired: five stars"),
        (
            "replaced_by_review",
            report.replaced_by_review,
            "of these, by a later review",
        ),
        (
            "disagreed",
            report.disagreed,
            "of these, with other than five stars",
        ),
        (
            "never_reviewed",
            report.never_reviewed,
            "the automatic rating is in force",
        ),
        ("lost", report.lost, "neither cancelled nor fired"),
        ("fired_twice", report.fired_twice, "handled more than once"),
        (
            "fired_early",
            report.fired_early,
            "before the due time, by Redis's clock",
        ),
    ] {
        text += &format!("{name:<20}{:>8}  {meaning}\n", thousands(number));
    }
    let late = report.lateness_ms;
    text += &format!(
        "{:<20}p50 {:.2}   p99 {:.2}   p999 {:.2}   max {:.2}\n\n",
        "lateness_ms", late.p50, late.p99, late.p999, late.max
    );
    text + &bars(&audit.lateness_us)
}

/// Lateness of the handlers.
fn bars(lateness_us: &Histogram<u64>) -> String {
    let mut from = 0;
    let counts = BARS.map(|until| {
        let count = if from >= lateness_us.high() {
            0
        } else {
            lateness_us.count_between(from, until - 1)
        };
        (std::mem::replace(&mut from, until), until, count)
    });
    let most = counts
        .iter()
        .map(|&(_, _, count)| count)
        .max()
        .unwrap_or(0)
        .max(1);
    let last = counts
        .iter()
        .rposition(|&(_, _, count)| count > 0)
        .map_or(0, |last| last + 1);
    let mut text = String::new();
    for &(from, until, count) in &counts[..last] {
        let range = if until == u64::MAX {
            format!("from {} ms", ms(from))
        } else {
            format!("{} to {} ms", ms(from), ms(until))
        };
        // A count above zero draws at least one mark.
        let bar = "#".repeat((count * WIDTH).div_ceil(most) as usize);
        text += &format!("{range:>17} {:>7}  {bar}\n", thousands(count));
    }
    text
}

fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [0, 999, 1_000, 5_170, 1_234_567].map(thousands),
            ["0", "999", "1,000", "5,170", "1,234,567"]
        );
    }

    #[test]
    fn every_firing_is_in_one_bar() {
        let mut lateness = Histogram::new(3).expect("valid");
        for us in [0, 249, 250, 999, 1_000, 4_000, 50_000_000] {
            lateness.record(us).expect("unbounded");
        }
        let text = bars(&lateness);
        assert!(
            text.lines().count() == BARS.len() && text.contains("from 1000 ms       1  #"),
            "{text}"
        );
        let counts = text.lines().filter_map(|line| {
            line.split("ms")
                .nth(1)?
                .split_whitespace()
                .next()?
                .parse::<u64>()
                .ok()
        });
        assert_eq!(counts.sum::<u64>(), 7, "{text}");
        assert_eq!(bars(&Histogram::new(3).expect("valid")), "");
    }
}
