//! Clock changes by name. Each comment says what clocks did.

use crate::model::business_hours::tests::{hours, opens};

#[test]
fn range_whose_start_is_skipped_opens_after_the_gap() {
    // 2026-03-29: 02:00 became 03:00.
    let paris = hours("Sun 02:30-04:00", "Europe/Paris");
    opens(
        &paris,
        &[
            ("2026-03-29T00:00+01:00", "2026-03-29T03:00+02:00"),
            (
                "2026-03-29T03:59:59.999+02:00",
                "2026-03-29T03:59:59.999+02:00",
            ),
            ("2026-03-29T04:00+02:00", "2026-04-05T02:30+02:00"),
        ],
    );
    // 2026-03-08: 02:00 became 03:00.
    let new_york = hours("Sun 02:15-03:15", "America/New_York");
    opens(
        &new_york,
        &[("2026-03-08T01:59-05:00", "2026-03-08T03:00-04:00")],
    );
    // 2026-10-04: 02:00 became 02:30.
    let lord_howe = hours("Sun 02:15-03:00", "Australia/Lord_Howe");
    opens(
        &lord_howe,
        &[("2026-10-04T01:00+10:30", "2026-10-04T02:30+11:00")],
    );
    // 2026-09-27: 02:45 became 03:45.
    let chatham = hours("Sun 03:00-04:00", "Pacific/Chatham");
    opens(
        &chatham,
        &[
            ("2026-09-27T02:00+12:45", "2026-09-27T03:45+13:45"),
            ("2026-09-27T02:44:59.999+12:45", "2026-09-27T03:45+13:45"),
        ],
    );
}

#[test]
fn range_from_midnight_opens_after_a_gap_at_midnight() {
    // 2018-11-04: 00:00 became 01:00.
    let sao_paulo = hours("Sun 00:00-24:00", "America/Sao_Paulo");
    opens(
        &sao_paulo,
        &[("2018-11-03T23:00-03:00", "2018-11-04T01:00-02:00")],
    );
    // 2026-04-24: 00:00 became 01:00.
    let cairo = hours("Fri 00:30-02:00", "Africa/Cairo");
    opens(
        &cairo,
        &[("2026-04-23T12:00+02:00", "2026-04-24T01:00+03:00")],
    );
    // The part of Thursday's range after midnight begins with the gap.
    let night = hours("Thu 22:00-02:00", "Africa/Cairo");
    opens(
        &night,
        &[
            (
                "2026-04-23T23:59:59.999+02:00",
                "2026-04-23T23:59:59.999+02:00",
            ),
            ("2026-04-24T01:00+03:00", "2026-04-24T01:00+03:00"),
            ("2026-04-24T02:00+03:00", "2026-04-30T22:00+03:00"),
        ],
    );
}

#[test]
fn range_within_a_gap_does_not_open_on_that_day() {
    let paris = hours("Sun 02:00-03:00", "Europe/Paris");
    opens(
        &paris,
        &[
            ("2026-03-22T03:00+01:00", "2026-04-05T02:00+02:00"),
            ("2026-03-29T01:59:59.999+01:00", "2026-04-05T02:00+02:00"),
        ],
    );
    let sao_paulo = hours("Sun 00:15-00:45, Mon 10:00-11:00", "America/Sao_Paulo");
    opens(
        &sao_paulo,
        &[("2018-11-03T23:00-03:00", "2018-11-05T10:00-02:00")],
    );
    let lord_howe = hours("Sun 02:05-02:25", "Australia/Lord_Howe");
    opens(
        &lord_howe,
        &[("2026-10-04T01:00+10:30", "2026-10-11T02:05+11:00")],
    );
}

#[test]
fn range_that_occurs_twice_is_open_both_times() {
    // 2026-10-25: 03:00 became 02:00.
    let paris = hours("Sun 02:15-02:45", "Europe/Paris");
    opens(
        &paris,
        &[
            ("2026-10-25T00:00+02:00", "2026-10-25T02:15+02:00"),
            (
                "2026-10-25T02:44:59.999+02:00",
                "2026-10-25T02:44:59.999+02:00",
            ),
            ("2026-10-25T02:45+02:00", "2026-10-25T02:15+01:00"),
            ("2026-10-25T02:45+01:00", "2026-11-01T02:15+01:00"),
        ],
    );
    // 2026-04-05: 02:00 became 01:30. The repeated half hour begins within the range.
    let lord_howe = hours("Sun 01:15-01:45", "Australia/Lord_Howe");
    opens(
        &lord_howe,
        &[
            ("2026-04-05T01:45+11:00", "2026-04-05T01:30+10:30"),
            ("2026-04-05T01:45+10:30", "2026-04-12T01:15+10:30"),
        ],
    );
    // 2026-11-01: 02:00 became 01:00.
    let new_york = hours("Sun 01:30-02:30", "America/New_York");
    opens(
        &new_york,
        &[
            (
                "2026-11-01T01:59:59.999-04:00",
                "2026-11-01T01:59:59.999-04:00",
            ),
            ("2026-11-01T01:00-05:00", "2026-11-01T01:30-05:00"),
        ],
    );
}

#[test]
fn range_opens_again_when_clocks_return_to_the_day_before() {
    // 2026-10-30: at 00:00, Thursday 23:00 came again.
    let cairo = hours("Thu 23:15-23:45", "Africa/Cairo");
    opens(
        &cairo,
        &[
            ("2026-10-29T23:45+03:00", "2026-10-29T23:15+02:00"),
            ("2026-10-29T23:45+02:00", "2026-11-05T23:15+02:00"),
        ],
    );
}

#[test]
fn skipped_day_does_not_open() {
    // After Thursday, 2011-12-29, came Saturday, 2011-12-31.
    let before = "2011-12-29T12:00-10:00";
    let saturday = "2011-12-31T00:00+14:00";
    let fridays = hours("Fri 09:00-18:00", "Pacific/Apia");
    opens(
        &fridays,
        &[
            ("2011-12-23T18:00-10:00", "2012-01-06T09:00+14:00"),
            (before, "2012-01-06T09:00+14:00"),
        ],
    );
    // Of a range that starts on the skipped Friday, the part on Saturday is open.
    let night = hours("Fri 22:00-02:00", "Pacific/Apia");
    opens(
        &night,
        &[
            (before, saturday),
            ("2011-12-31T02:00+14:00", "2012-01-06T22:00+14:00"),
        ],
    );
    // Thursday's range after midnight is skipped.
    let thursday = hours("Thu 22:00-02:00", "Pacific/Apia");
    opens(&thursday, &[(saturday, "2012-01-05T22:00+14:00")]);
}
