//! What the text of business hours and the name of a zone may be.

use crate::error::ErrorKind;
use crate::model::business_hours::BusinessHours;
use crate::model::business_hours::tests::hours;

#[test]
fn equal_hours_may_be_written_in_several_ways() {
    let hours = |text| hours(text, "Europe/Paris");
    for (one, other) in [
        ("Mon-Fri 09:00-18:00", "mon-fri 9:00-18:00"),
        ("Mon-Fri 09:00-18:00", " Mon, Tue-Thu,Fri\t09:00-18:00 , "),
        (
            "Mon 09:00-12:00, Mon 13:00-18:00",
            "Mon 13:00-18:00 09:00-12:00",
        ),
        (
            "Sun-Tue 08:00-10:00",
            "Mon 08:00-10:00, Sun, Tue 08:00-10:00",
        ),
        ("Fri-Mon 22:00-00:00", "Fri, Sat, Sun, Mon 22:00-24:00"),
        ("Mon-Sun 00:00-24:00", "Wed-Tue 0:00-24:00"),
    ] {
        assert_eq!(hours(one), hours(other), "{one:?} and {other:?}");
    }
    assert_ne!(hours("Mon 09:00-18:00"), hours("Mon 18:00-09:00"));
}

#[test]
fn ranges_that_touch_are_accepted() {
    hours("Mon 09:00-12:00 12:00-18:00", "UTC");
    hours("Sun 22:00-02:00, Mon 02:00-04:00", "UTC");
    hours("Mon-Sun 12:00-11:59", "UTC");
}

#[test]
fn wrong_hours_are_refused_with_value_and_remedy() {
    for (text, value, remedy) in [
        ("", "empty", "'Mon-Fri 09:00-18:00'"),
        (" , ", "empty", "'Mon-Fri 09:00-18:00'"),
        (
            "09:00-18:00",
            "\"09:00-18:00\" have no day",
            "write the days",
        ),
        ("Mon-Fri", "\"Mon-Fri\" have no hours", "write hours after"),
        (
            "Mon 09:00-18:00, Fri",
            "Fri\" have no hours",
            "write hours after",
        ),
        ("Monday 09:00-18:00", "\"Monday\" is no day", "write Mon,"),
        ("Mo-Fr 09:00-18:00", "\"Mo-Fr\" is no day", "write Mon,"),
        (
            "Mon-Wed-Fri 09:00-18:00",
            "\"Mon-Wed-Fri\" is no day",
            "write Mon,",
        ),
        (
            "Mon-Mon 09:00-18:00",
            "same day",
            "Mon for one day, or Mon-Sun",
        ),
        ("Mon 09:00", "\"09:00\" is no range", "without blanks"),
        (
            "Mon 09:00 - 18:00",
            "\"09:00\" is no range",
            "without blanks",
        ),
        ("Mon 9-18", "\"9-18\" is no range", "09:00-18:00"),
        (
            "Mon 09:00-18:60",
            "\"09:00-18:60\" is no range",
            "09:00-18:00",
        ),
        ("Mon 09:00-24:01", "\"09:00-24:01\" is no range", "24:00"),
        (
            "Mon 09:0-18:00",
            "\"09:0-18:00\" is no range",
            "09:00-18:00",
        ),
        ("Mon 0009:00-18:00", "is no range", "09:00-18:00"),
        ("Mon 09:00\u{2013}18:00", "is no range", "09:00-18:00"),
        ("Mon 09:00-09:00", "\"09:00-09:00\" is empty", "00:00-24:00"),
        (
            "Mon 24:00-02:00",
            "\"24:00-02:00\" starts at the end",
            "the next day",
        ),
        ("Mon 24:00-24:00", "is empty", "00:00-24:00"),
        (
            "Mon 09:00-12:00 11:59-18:00",
            "Mon 09:00-12:00 and Mon 11:59-18:00",
            "join",
        ),
        (
            "Mon-Fri, Wed 09:00-18:00",
            "Wed 09:00-18:00 and Wed 09:00-18:00",
            "join",
        ),
        (
            "Mon 22:00-02:00, Tue 01:00-24:00",
            "Mon 22:00-02:00 and Tue 01:00-24:00",
            "join",
        ),
        (
            "Sun 22:00-02:00, Mon 01:00-03:00",
            "Sun 22:00-02:00 and Mon 01:00-03:00",
            "join",
        ),
    ] {
        let error = BusinessHours::parse(text, "UTC").expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let said = error.to_string();
        assert!(
            said.contains(value) && said.contains(remedy),
            "{text:?}: {said}"
        );
    }
}

#[test]
fn only_names_of_places_and_utc_are_zones() {
    let zone = |name| BusinessHours::parse("Mon 09:00-18:00", name);
    for name in [
        "Europe/Paris",
        "America/Argentina/Ushuaia",
        "UTC",
        "Etc/UTC",
    ] {
        assert!(zone(name).is_ok(), "{name}");
    }
    for name in [
        "",
        "EST",
        "CET",
        "EST5EDT",
        "GMT",
        "GMT+0",
        "Z",
        "+01:00",
        "-0500",
        "UTC+1",
        "Etc/GMT-5",
        "etc/gmt-5",
        "Etc/GMT",
        "Etc/Unknown",
        "Japan",
        "Local",
        "/etc/localtime",
        "posixrules",
        "Europe/Atlantis",
        "../Europe/Paris",
        "CET-1CEST,M3.5.0,M10.5.0/3",
    ] {
        let error = zone(name).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let said = error.to_string();
        assert!(
            said.contains(&format!("{name:?}")) && said.contains("Europe/Paris"),
            "{said}"
        );
    }
}
