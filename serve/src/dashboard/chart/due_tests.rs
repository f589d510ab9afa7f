use super::*;
use crate::dashboard::show::Zone;

const NOW: u64 = 1_796_299_200_000;

/// Draws the chart of one-minute slots with these counts: overdue first, then the bars, then later.
fn chart(counts: &[u64]) -> String {
    chart_with(None, counts)
}

fn chart_with(ready: Option<u64>, counts: &[u64]) -> String {
    let zone = Zone::named("Europe/Paris").expect("a zone");
    let last = u64::try_from(counts.len() - 1).expect("a number");
    let slots = counts.iter().zip(0..).map(|(count, place)| Slot {
        from_ms: (place > 0).then(|| NOW + (place - 1) * 60_000),
        before_ms: (place < last).then_some(NOW + place * 60_000),
        count: *count,
    });
    let slots: Vec<_> = slots.collect();
    due(&Due {
        caption: "What falls <due>",
        slots: &slots,
        ready,
        messages: "/queues/q/messages",
        clock: &Clock::now(zone).at(NOW),
    })
    .to_string()
}

/// The counts in the table of the chart.
fn table(chart: &str) -> Vec<u64> {
    let cells = chart.split("<td>").skip(1);
    let cells = cells.map(|cell| cell.split("</td>").next().unwrap_or_default());
    cells
        .map(|cell| cell.replace(',', "").parse().expect("a number"))
        .collect()
}

#[test]
fn table_shows_the_counts_of_all_slots() {
    for counts in [
        &[0, 0, 0][..],
        &[5, 1, 2, 3, 4],
        &[u64::MAX, u64::MAX, 0, u64::MAX],
        &[7; 61],
    ] {
        assert_eq!(table(&chart(counts)), counts);
        let with_ready = table(&chart_with(Some(12), counts));
        assert_eq!((with_ready[0], &with_ready[1..]), (12, counts));
    }
}

#[test]
fn each_bar_links_to_the_list_of_its_messages() {
    let chart = chart(&[1_000_000, 4, 0, 2, 9]);
    let messages = "/queues/q/messages?state=scheduled";
    let (from, before) = (NOW + 120_000, NOW + 180_000);
    for bar in [
        format!(
            "<a class=\"slot\" href=\"{messages}&amp;before={NOW}\" aria-label=\"overdue, scheduled: 1,000,000\"><title>"
        ),
        format!(
            "<a class=\"slot\" href=\"{messages}&amp;from={from}&amp;before={before}\" \
             aria-label=\"2026-12-03 13:02 – 13:03 CET: 2\"><title>"
        ),
    ] {
        assert!(chart.contains(&bar), "{bar}: {chart}");
    }
    let later = format!("<a href=\"{messages}&amp;from={before}\">9 later</a>");
    assert!(chart.contains(&later), "{chart}");
    assert_eq!(
        chart.matches("aria-label=\"2026").count(),
        2,
        "no link for an empty bar"
    );
    assert!(chart.contains("What falls &lt;due&gt;"), "{chart}");
}

#[test]
fn chart_draws_ready_messages_as_a_red_bar() {
    let chart = chart_with(Some(110), &[0, 4, 9]);
    for part in [
        "<a class=\"slot\" href=\"/queues/q/messages?state=ready\" aria-label=\"overdue, ready: 110\">",
        "<a href=\"/queues/q/messages?state=ready\">110 overdue, ready</a>",
    ] {
        assert!(chart.contains(part), "{part}: {chart}");
    }
    assert_eq!(chart.matches("bar overdue").count(), 1, "{chart}");
}

#[test]
fn overdue_bar_does_not_flatten_the_other_bars() {
    let chart = chart(&[1_000_000, 4, 2, 0]);
    for bar in [
        "y=\"8\" width=\"18.888%\" height=\"152\"",
        "y=\"84\" width=\"18.888%\" height=\"76\"",
    ] {
        assert!(chart.contains(bar), "{bar}: {chart}");
    }
    assert_eq!(chart.matches("class=\"cut\"").count(), 1, "{chart}");
}

#[test]
fn marks_of_the_time_axis_lie_between_bars() {
    let bars = [(0, 10, 0), (10, 40, 0)];
    for (ms, place) in [(0, 0), (5, 10), (10, 20), (25, 30), (40, 40), (99, 40)] {
        assert_eq!(place_of(&bars, ms), place, "{ms}");
    }
    assert_eq!(place_of(&[(0, u64::MAX, 0)], u64::MAX - 1), STEP - 1);
}

#[test]
fn value_axis_shortens_large_numbers() {
    for (exact, shown) in [
        (0, "0"),
        (99_999, "99,999"),
        (123_456, "123.4 k"),
        (12_345_678, "12.3 M"),
        (u64::MAX, "18446744.0 T"),
    ] {
        assert_eq!(axis_number(exact), shown);
    }
}
