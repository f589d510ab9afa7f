use jiff::Timestamp;

use crate::model::business_hours::BusinessHours;
use crate::model::due::Due;

mod clock_changes;
mod oracle;
mod text;

/// The Unix milliseconds of a time with an offset.
fn ms(time: &str) -> u64 {
    let timestamp: Timestamp = time.parse().expect("a time with an offset");
    u64::try_from(timestamp.as_millisecond()).expect("after 1970")
}

fn hours(text: &str, zone: &str) -> BusinessHours {
    BusinessHours::parse(text, zone).expect("valid hours")
}

/// Checks the next opening after each time. A pair of equal times means that the hours are open
/// then.
fn opens(hours: &BusinessHours, cases: &[(&str, &str)]) {
    for (from, expected) in cases {
        let open = hours.next_open(ms(from)).expect("an opening");
        let open = Timestamp::from_millisecond(open.cast_signed()).expect("a timestamp");
        let expected: Timestamp = expected.parse().expect("a time with an offset");
        assert_eq!(open, expected, "the next opening after {from}");
        assert_eq!(
            hours.is_open(ms(from)),
            ms(from) == ms(&expected.to_string()),
            "{from}"
        );
    }
}

#[test]
fn ranges_open_at_their_start_and_exclude_their_end() {
    let hours = hours(
        "Mon-Thu 09:00-12:00 13:00-18:00, Fri 09:00-12:00",
        "Europe/Paris",
    );
    opens(
        &hours,
        &[
            ("2026-12-07T08:59:59.999+01:00", "2026-12-07T09:00+01:00"),
            ("2026-12-07T09:00+01:00", "2026-12-07T09:00+01:00"),
            (
                "2026-12-07T11:59:59.999+01:00",
                "2026-12-07T11:59:59.999+01:00",
            ),
            ("2026-12-07T12:00+01:00", "2026-12-07T13:00+01:00"),
            ("2026-12-07T18:00+01:00", "2026-12-08T09:00+01:00"),
            ("2026-12-11T12:00+01:00", "2026-12-14T09:00+01:00"),
        ],
    );
}

#[test]
fn range_over_midnight_belongs_to_the_day_of_its_start() {
    let hours = hours("Sun 22:00-02:00", "America/New_York");
    opens(
        &hours,
        &[
            ("2026-12-05T23:00-05:00", "2026-12-06T22:00-05:00"),
            ("2026-12-06T01:00-05:00", "2026-12-06T22:00-05:00"),
            (
                "2026-12-07T01:59:59.999-05:00",
                "2026-12-07T01:59:59.999-05:00",
            ),
            ("2026-12-07T02:00-05:00", "2026-12-13T22:00-05:00"),
        ],
    );
}

#[test]
fn whole_days_are_open_from_midnight_to_midnight() {
    let weekend = hours("Sat-Sun 00:00-24:00", "UTC");
    opens(
        &weekend,
        &[
            ("2026-12-04T23:59:59.999Z", "2026-12-05T00:00Z"),
            ("2026-12-05T23:59:59.999Z", "2026-12-05T23:59:59.999Z"),
            ("2026-12-06T23:59:59.999Z", "2026-12-06T23:59:59.999Z"),
            ("2026-12-07T00:00Z", "2026-12-12T00:00Z"),
            ("1970-01-01T00:00Z", "1970-01-03T00:00Z"),
        ],
    );
}

#[test]
fn time_after_the_year_9999_is_refused() {
    let hours = hours("Mon-Sun 00:00-24:00", "Europe/Paris");
    let last = ms("9999-12-30T22:00:00Z");
    assert_eq!(hours.next_open(last).expect("in range"), last);
    for late in [last + 1_000, i64::MAX.unsigned_abs() + 1, u64::MAX] {
        let error = hours.next_open(late).expect_err("out of range");
        assert!(error.to_string().contains("year 9999"), "{error}");
        assert!(!hours.is_open(late));
    }
}

#[test]
fn due_time_outside_business_hours_moves_to_the_opening() {
    let hours = hours("Mon-Fri 09:00-18:00", "Europe/Paris");
    let (saturday, monday) = (ms("2026-12-05T12:00+01:00"), ms("2026-12-07T09:00+01:00"));
    let day = 24 * 3_600_000;
    for (due, now_ms, expected) in [
        (Due::AtMs(monday), saturday, monday),
        (Due::AtMs(saturday), saturday - day, monday),
        (Due::AfterMs(0), saturday, monday),
        (Due::AfterMs(2 * day), saturday, monday + 3 * 3_600_000),
        // A past due time is moved to the first opening from now on.
        (Due::AtMs(0), saturday, monday),
        (Due::AtMs(monday - 7 * day), saturday, monday),
    ] {
        let moved = due.within(&hours, now_ms).expect("in range");
        assert_eq!(moved, Due::AtMs(expected), "{due:?} at {now_ms}");
    }
    assert!(Due::AfterMs(u64::MAX).within(&hours, saturday).is_err());
}
