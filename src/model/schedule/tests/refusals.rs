//! Which schedules are refused, and with which text.

use std::time::{Duration, UNIX_EPOCH};

use crate::error::ErrorKind;
use crate::model::push_rules::OnExpire;
use crate::model::schedule::{MissedPolicy, Rule, Schedule};

/// 2026-11-25T00:00:00Z
const NOW_MS: u64 = 1_795_564_800_000;

fn every(ms: u64) -> Schedule {
    Schedule::every(Duration::from_millis(ms)).name("beat")
}

fn cron(pattern: &str) -> Schedule {
    let cron = Schedule::cron(pattern).expect("a pattern");
    cron.zone("Europe/Paris").name("report")
}

fn at(ms: u64) -> std::time::SystemTime {
    UNIX_EPOCH + Duration::from_millis(ms)
}

#[test]
fn schedules_within_every_range_are_accepted() {
    for schedule in [
        every(10),
        every(3_155_760_000_000),
        every(1_000).jitter(Duration::from_millis(999)),
        every(1_000).start(at(5)).end(at(5)),
        every(1_000).missed(MissedPolicy::All { max: 100_000 }),
        every(1_000)
            .expires_after(Duration::from_secs(1))
            .on_expire(OnExpire::Drop),
        cron("0 2 * * *"),
        cron("0 2 * * *").zone("UTC"),
        cron("0 2 * * *").zone("etc/utc"),
        cron("0 2 29 2 *"),
        cron("*/10 * * * * *"),
        cron("@daily"),
        cron("*/5 * * * *").jitter(Duration::from_millis(299_999)),
        cron("0 2 * * *").end(at(5)),
    ] {
        schedule.check_at(NOW_MS).expect("fit");
    }
}

#[test]
fn schedules_beyond_a_range_are_refused_with_their_name() {
    let second = Duration::from_secs(1);
    for (schedule, problem) in [
        (every(9), "every is 9ms, it must be 10 ms to 100 years"),
        (
            Schedule::every(Duration::from_micros(10_500)).name("x"),
            "whole milliseconds",
        ),
        (every(3_155_760_000_001), "every is"),
        (every(1_000).zone("UTC"), "every has no time zone"),
        (
            every(1_000).jitter(second),
            "jitter is 1s, it must be less than every (1s)",
        ),
        (
            every(1_000).start(at(2)).end(at(1)),
            "end (1 in Unix ms) is before start (2)",
        ),
        (every(1_000).within(Duration::ZERO), "within is"),
        (every(1_000).limit(0), "limit is 0, it must be 1 to"),
        (
            every(1_000).missed(MissedPolicy::All { max: 0 }),
            "max of missed=all is 0",
        ),
        (
            every(1_000).max_attempts(0),
            "max_attempts is 0, it must be 1 to 1000000",
        ),
        (
            every(1_000).on_expire(OnExpire::Drop),
            "set expires_after too",
        ),
        (every(1_000).name(""), "the name of a schedule is \"\""),
        (every(1_000).name("a b"), "1 to 100 letters"),
        (every(1_000).name("x".repeat(101)), "1 to 100 letters"),
        (
            Schedule::cron("0 2 * * *").expect("a pattern").name("x"),
            "a cron needs a time zone",
        ),
        (cron("0 2 * * *").anchor(at(5)), "a cron has no anchor"),
        (cron("0 2 * * *").zone("CET"), "\"CET\" is no time zone"),
        (cron("0 2 * * *").zone("UTC+2"), "\"UTC+2\" is no time zone"),
        (
            cron("0 2 * * *").zone("+02:00"),
            "\"+02:00\" is no time zone",
        ),
        (cron("0 2 * * *").zone("Etc/GMT-2"), "is no time zone"),
        (cron("0 2 30 2 *"), "does not fire within ten years"),
        (cron("0 2 31 4,6 *"), "does not fire within ten years"),
        (
            cron("*/5 * * * *").jitter(Duration::from_secs(300)),
            "less than 300s",
        ),
        // The repeated hour, and the hour after it.
        (
            cron("0 2-3 * * *").jitter(Duration::from_secs(3_600)),
            "jitter is 3600s",
        ),
    ] {
        let error = schedule.check_at(NOW_MS).expect_err(problem);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains(problem), "{text}");
    }
}

#[test]
fn texts_that_are_no_patterns_are_refused() {
    for bad in [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "0 2 * * XYZ",
        "0 2 32 * *",
        "5/15 * * * *",
        "@reboot",
        "0 2 * * *\n0 3 * * *",
        &format!("{} * * * *", "0,".repeat(200)),
    ] {
        let error = Schedule::cron(bad).expect_err(bad);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let text = error.to_string();
        assert!(text.contains("is no cron pattern"), "{text}");
    }
}

#[test]
fn cron_step_above_its_range_is_refused() {
    for (bad, way_out) in [
        ("*/90 * * * *", "use every = \"90m\""),
        ("0,*/61 * * * *", "use every = \"61m\""),
        ("*/90 0 * * * *", "use every = \"90s\""),
        ("0 */36 * * *", "use every = \"36h\""),
        ("0 0 */45 * *", "use every = \"45d\""),
        ("0 0 * * */8", "use every = \"8d\""),
        ("0 0 1 */18 *", "name the months"),
        ("10-20/15 * * * *", "write the first value of 10-20 alone"),
        (
            "0 0 * * MON-FRI/6",
            "write the first value of MON-FRI alone",
        ),
    ] {
        let error = Schedule::cron(bad).expect_err(bad).to_string();
        assert!(
            error.contains("is no cron pattern") && error.contains(way_out),
            "{error}"
        );
        // A queue may have such a pattern from an older release.
        let stored = Schedule::new(Rule::Cron(bad.to_owned())).zone("UTC");
        assert!(
            stored
                .fires(NOW_MS)
                .is_ok_and(|mut fires| fires.next().is_some()),
            "{bad}"
        );
    }
    for good in [
        "*/60 * * * *",
        "*/60 */24 */31 */12 *",
        "0 0 * * */7",
        "10-20/11 * * * *",
        "@hourly",
    ] {
        Schedule::cron(good).expect(good);
    }
}
